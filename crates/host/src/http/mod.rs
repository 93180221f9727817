//! HTTP: the door for programs on this machine.
//!
//! Here: taking connections and their bounds. Who may come in is `guard`, what can be asked `routes`, how a request
//! becomes a call `call`, frames as they come `events` and `socket`. Nothing here decides what a request does: that is the
//! engine, the same for every door.
//! Invariants: what is refused changes nothing and tells nothing (`no_attack_gets_in`), and a client that is slow or gone
//! costs a bounded place for a bounded time (`slow_clients_are_let_go`), and one without the token takes no place from those
//! that have it (`half_sent_heads_do_not_close_the_door`).

mod body;
mod call;
mod events;
mod guard;
mod routes;
mod socket;
mod strangers;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, get, on};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

pub use body::{BODY_BYTES, strict_json};
pub use guard::{Hosts, Token};
pub use routes::{Field, Kind, ROUTES, Route, Verb};

use strangers::Strangers;

use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::watch::SLOW;

/// Connections at the same time: 500 that watch, and as many that ask.
pub const CONNECTIONS: usize = 1_024;
/// Requests that are answered at the same time, whether their clients are still there or not.
pub(crate) const CALLS: usize = 512;
/// How long a client may take for the head of a request, and rest between two.
const HEAD_WAIT: Duration = Duration::from_secs(20);
/// Bytes of a request's head, and its lines.
const HEAD_BYTES: usize = 32 * 1024;
const HEAD_LINES: usize = 64;
/// How long requests that are being answered may take when the host ends.
const END_WAIT: Duration = Duration::from_secs(1);
/// A pause when the system gives no more connections, so that it can recover.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Everything that answers to HTTP.
pub struct Door {
    pub(crate) engine: Engine,
    pub(crate) token: Token,
    pub(crate) hosts: Hosts,
    pub metrics: Metrics,
    pub(crate) waits: Waits,
    pub(crate) calls: Arc<Semaphore>,
}

/// How long clients are waited for; shorter in tests.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    pub head: Duration,
    pub body: Duration,
    pub write: Duration,
    /// For whoever takes no frame.
    pub frames: Duration,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { head: HEAD_WAIT, body: body::BODY_WAIT, write: wire::WRITE_WAIT, frames: SLOW }
    }
}

impl Door {
    pub fn new(engine: Engine, token: Token, hosts: Hosts) -> Door {
        let calls = Arc::new(Semaphore::new(CALLS));
        Door { engine, token, hosts, metrics: Metrics::default(), waits: Waits::default(), calls }
    }

    #[must_use]
    pub fn with_waits(mut self, waits: Waits) -> Door {
        self.waits = waits;
        self
    }

    fn router(self: &Arc<Door>) -> Router {
        let mut router = Router::new();
        for route in ROUTES {
            let filter = match route.verb {
                Verb::Get => MethodFilter::GET,
                Verb::Post => MethodFilter::POST,
            };
            let door = self.clone();
            let answer = move |request: Request| call::answer(door, route, request);
            router = router.route(route.path, on(filter, answer));
        }
        let (events, socket, metrics) = (self.clone(), self.clone(), self.clone());
        let router = router
            .route("/v1/events", get(move |request: Request| events::answer(events, request)))
            .route("/v1/ws", get(move |request: Request| socket::answer(socket, request)))
            .route("/metrics", get(move || call::metrics(metrics)))
            .route("/openapi.json", get(async || call::document()))
            .route(guard::HEALTH, get(async || call::healthy()))
            .fallback(async || refused(StatusCode::NOT_FOUND, "not_found", "there is no such route"))
            .method_not_allowed_fallback(async || {
                refused(StatusCode::METHOD_NOT_ALLOWED, "invalid_request", "the route takes another method")
            });
        // Around all of it: inside, a route would add what it knows (`Allow`) to the guard's refusals.
        Router::new()
            .fallback_service(router)
            .layer(middleware::from_fn_with_state(self.clone(), guard::guard))
    }
}

/// Takes connections until `stop` says so; then lets requests that are being answered finish, for a moment.
pub async fn serve(listener: TcpListener, door: Arc<Door>, stop: watch::Receiver<bool>) {
    let mut ended = stop.clone();
    let router = door.router();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let strangers = Arc::new(Strangers::default());
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = told(&mut ended) => break,
            Some(_) = open.join_next() => {}
            taken = listener.accept() => match taken {
                Ok((stream, _)) => {
                    // Beyond the limit a connection is closed without a word: there is nobody to write it.
                    let Ok(place) = places.clone().try_acquire_owned() else { continue };
                    let visitor = strangers.admit();
                    let router = router.clone().layer(Extension(visitor.clone()));
                    let (door, strangers, stop) = (door.clone(), strangers.clone(), stop.clone());
                    open.spawn(async move {
                        door.metrics.connected(1);
                        tokio::select! {
                            () = connection(&door, router, stream, stop) => {}
                            () = visitor.closed() => {}
                        }
                        door.metrics.connected(-1);
                        strangers.dismiss(&visitor);
                        drop(place);
                    });
                }
                // A client that went away at once, or no descriptors for the moment.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let all = async { while open.join_next().await.is_some() {} };
    // Whoever watches comes back by itself; pods do not notice.
    drop(tokio::time::timeout(END_WAIT, all).await);
    open.abort_all();
}

async fn connection(door: &Door, router: Router, stream: TcpStream, mut stop: watch::Receiver<bool>) {
    // Frames are small and must not wait for the next. A client that has gone already is noticed right after.
    drop(stream.set_nodelay(true));
    let io = TokioIo::new(wire::Wire::new(stream, door.waits.write));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(door.waits.head)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        .auto_date_header(false)
        // A client that has sent a whole request may close its end at once: the request is still read and carried out.
        // Whether somebody still reads a stream of events shows at the next write, at the latest with a keep-alive.
        .half_close(true)
        .serve_connection(io, TowerToHyperService::new(router))
        .with_upgrades();
    let mut served = std::pin::pin!(served);
    tokio::select! {
        // What goes wrong between a client and its connection is known to it.
        ended = served.as_mut() => return drop(ended),
        () = told(&mut stop) => served.as_mut().graceful_shutdown(),
    }
    drop(served.await);
}

/// Until the host is told to end, or whoever could tell it is gone.
async fn told(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// A refusal in the shape that all have.
pub(crate) fn refused(status: StatusCode, code: &str, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "code": code, "message": message } });
    call::json(status, &body).into_response()
}
