//! The HTTP server for programs on this machine.
//!
//! Here: accepting connections, and their limits. Access control is in `guard`, the routes in `routes`, the execution
//! of a request in `call`, streams of frames in `events` and `websocket`. The engine, which all transports share,
//! implements the requests.
//! Invariants: a refused request changes and reveals nothing (`no_attack_gets_in`); a slow or disconnected client uses
//! limited resources for a limited time (`slow_clients_are_let_go`); a client without the token takes no connection
//! from clients with it (`half_sent_heads_do_not_close_the_door`).

mod body;
mod call;
mod events;
mod guard;
mod routes;
mod timed_stream;
mod tokenless;
mod websocket;

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

pub use body::{BODY_BYTES, parse_strict_json};
pub use guard::{AllowedHosts, BearerToken};
pub use routes::{FieldKind, HttpVerb, ROUTES, Route, RouteField};

use tokenless::TokenlessConnections;

use crate::engine::Engine;
use crate::frames::subscribe::SLOW_CLIENT_TIMEOUT;
use crate::metrics::HostMetrics;

/// Concurrent connections: 500 for streams, and as many for requests.
pub const MAX_CONNECTIONS: usize = 1_024;
/// Concurrent requests, including those of disconnected clients.
pub(crate) const MAX_CALLS: usize = 512;
/// How long a client may take to send the head of a request, and to stay idle between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);
/// The maximum size of a request's head, and its number of lines.
const MAX_HEAD_BYTES: usize = 32 * 1024;
const MAX_HEAD_LINES: usize = 64;
/// How long requests in progress may take when the host exits.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The pause after a failed accept, so that the system can recover.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The state of the HTTP server.
pub struct HttpServer {
    pub(crate) engine: Engine,
    pub(crate) token: BearerToken,
    pub(crate) hosts: AllowedHosts,
    pub metrics: HostMetrics,
    pub(crate) timeouts: ServerTimeouts,
    pub(crate) calls: Arc<Semaphore>,
}

/// Timeouts for clients; shorter in tests.
#[derive(Debug, Clone, Copy)]
pub struct ServerTimeouts {
    pub read_head: Duration,
    pub read_body: Duration,
    pub write_chunk: Duration,
    /// For a client that does not receive a frame.
    pub send_frame: Duration,
}

impl Default for ServerTimeouts {
    fn default() -> ServerTimeouts {
        ServerTimeouts {
            read_head: HEAD_TIMEOUT,
            read_body: body::BODY_TIMEOUT,
            write_chunk: timed_stream::WRITE_TIMEOUT,
            send_frame: SLOW_CLIENT_TIMEOUT,
        }
    }
}

impl HttpServer {
    pub fn new(engine: Engine, token: BearerToken, hosts: AllowedHosts) -> HttpServer {
        let calls = Arc::new(Semaphore::new(MAX_CALLS));
        HttpServer {
            engine,
            token,
            hosts,
            metrics: HostMetrics::default(),
            timeouts: ServerTimeouts::default(),
            calls,
        }
    }

    #[must_use]
    pub fn with_timeouts(mut self, timeouts: ServerTimeouts) -> HttpServer {
        self.timeouts = timeouts;
        self
    }

    fn build_router(self: &Arc<HttpServer>) -> Router {
        let mut router = Router::new();
        for route in ROUTES {
            let filter = match route.verb {
                HttpVerb::Get => MethodFilter::GET,
                HttpVerb::Post => MethodFilter::POST,
            };
            let server = self.clone();
            let answer = move |request: Request| call::handle_request(server, route, request);
            router = router.route(route.path, on(filter, answer));
        }
        let (events, socket, metrics) = (self.clone(), self.clone(), self.clone());
        let router = router
            .route("/v1/events", get(move |request: Request| events::handle_events(events, request)))
            .route("/v1/ws", get(move |request: Request| websocket::handle_upgrade(socket, request)))
            .route("/metrics", get(move || call::metrics_response(metrics)))
            .route("/openapi.json", get(async || call::openapi_response()))
            .route(guard::HEALTH_PATH, get(async || call::health_response()))
            .fallback(async || error_response(StatusCode::NOT_FOUND, "not_found", "there is no such route"))
            .method_not_allowed_fallback(async || {
                error_response(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "invalid_request",
                    "the route does not support this method",
                )
            });
        // The guard is the outermost layer: inside, a route would add headers (`Allow`) to its refusals.
        Router::new()
            .fallback_service(router)
            .layer(middleware::from_fn_with_state(self.clone(), guard::check_access))
    }
}

/// Accepts connections until `stop` is set; then lets requests in progress finish for a short time.
pub async fn serve_http(listener: TcpListener, server: Arc<HttpServer>, stop: watch::Receiver<bool>) {
    let mut ended = stop.clone();
    let router = server.build_router();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let strangers = Arc::new(TokenlessConnections::default());
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            () = stop_requested(&mut ended) => break,
            Some(_) = open.join_next() => {}
            taken = listener.accept() => match taken {
                Ok((stream, _)) => {
                    // Beyond the limit a connection is closed without a response.
                    let Ok(permit) = places.clone().try_acquire_owned() else { continue };
                    let visitor = strangers.add_connection();
                    let router = router.clone().layer(Extension(visitor.clone()));
                    let (door, strangers, stop) = (server.clone(), strangers.clone(), stop.clone());
                    open.spawn(async move {
                        door.metrics.change_connections(1);
                        tokio::select! {
                            () = serve_connection(&door, router, stream, stop) => {}
                            () = visitor.wait_for_close() => {}
                        }
                        door.metrics.change_connections(-1);
                        strangers.remove_connection(&visitor);
                        drop(permit);
                    });
                }
                // The client disconnected at once, or there are no free descriptors.
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            },
        }
    }
    drop(listener);
    let all = async { while open.join_next().await.is_some() {} };
    // Subscribers reconnect automatically; pods are not affected.
    drop(tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await);
    open.abort_all();
}

async fn serve_connection(
    server: &HttpServer,
    router: Router,
    stream: TcpStream,
    mut stop: watch::Receiver<bool>,
) {
    // Frames are small and must not wait for more data. A disconnected client is detected later.
    drop(stream.set_nodelay(true));
    let io = TokioIo::new(timed_stream::TimedStream::new(stream, server.timeouts.write_chunk));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(server.timeouts.read_head)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEAD_LINES)
        .auto_date_header(false)
        // A client may close its sending side after a whole request: the request is still executed. The next write, at
        // the latest a keep-alive, shows whether the client still reads a stream of events.
        .half_close(true)
        .serve_connection(io, TowerToHyperService::new(router))
        .with_upgrades();
    let mut served = std::pin::pin!(served);
    tokio::select! {
        // The client sees connection errors itself.
        ended = served.as_mut() => return drop(ended),
        () = stop_requested(&mut stop) => served.as_mut().graceful_shutdown(),
    }
    drop(served.await);
}

/// Waits until shutdown is requested, or the sender is gone.
async fn stop_requested(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stop| *stop).await);
}

/// Returns an error in the common form.
pub(crate) fn error_response(status: StatusCode, code: &str, message: &str) -> Response {
    let body = serde_json::json!({ "error": { "code": code, "message": message } });
    call::json_response(status, &body).into_response()
}
