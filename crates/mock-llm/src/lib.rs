//! mock-llm: serves a script over loopback HTTP in all four wire formats, for testing clients.
//!
//! Here: the listener and its options. Its parts: handling one request (`exchange`), its content (`request`,
//! and one file per format), its conversation (`conversation`), encoding the reply (`encoder`, `interleave`,
//! `reply_stream`), signatures of reasoning (`signature`). Elsewhere: the script and its turns (`llm::scripted`).
//! Documented in `docs/reference/mock-llm.md`. Invariant: the server is reachable only from this machine, and
//! a received key is neither stored nor shown (`a_key_is_seen_and_not_shown` in `tests/mock.rs`).

mod anthropic;
mod chat;
mod conversation;
mod encoder;
mod exchange;
mod gemini;
mod interleave;
mod reply_stream;
mod request;
mod request_log;
mod responses;
mod signature;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use conversation::ConversationTracker;
use exchange::ConnectionHandler;
use minke_llm::{BUILT_IN_SCRIPTS, ScriptError, ScriptedModel};
pub use reply_stream::WriteSplit;
pub use request_log::LoggedRequest;

/// The most simultaneous connections. Further ones wait.
const MAX_CONNECTIONS: usize = 256;

/// Options of the server in addition to its script.
#[derive(Debug, Clone, Default)]
pub struct MockOptions {
    /// 0 means any free port.
    pub port: u16,
    pub write_split: WriteSplit,
    /// Compress replies for clients that accept it.
    pub gzip: bool,
    /// Use CRLF line ends in every format. gemini always uses them.
    pub use_crlf: bool,
    /// Send a comment before each event.
    pub with_comments: bool,
    /// Cut streams inside the last event instead of after it.
    pub cut_in_event: bool,
    /// Interleave the pieces of parallel calls.
    pub interleave: bool,
    /// Accept requests without a key.
    pub allow_keyless: bool,
}

/// Loads a script from a file, or a built-in one by name. `cwd` is the value of `{{cwd}}`.
pub fn load_script(name: &Path, cwd: &Path) -> Result<ScriptedModel, ScriptError> {
    let path = cwd.join(name);
    let built_in = BUILT_IN_SCRIPTS.iter().find(|(built_in, _)| name == Path::new(built_in));
    match built_in {
        Some((name, text)) if !path.exists() => ScriptedModel::parse_script(name, text, cwd),
        _ => ScriptedModel::load_file(&path, cwd),
    }
}

/// A bound server that does not answer yet.
#[derive(Debug)]
pub struct MockServer {
    listener: TcpListener,
    addr: SocketAddr,
    shared: Arc<MockState>,
}

/// The state shared by all connections.
#[derive(Debug)]
struct MockState {
    script: ScriptedModel,
    options: MockOptions,
    conversations: Mutex<ConversationTracker>,
}

/// Binds a loopback port.
pub async fn bind_server(script: ScriptedModel, options: MockOptions) -> io::Result<MockServer> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
    let addr = listener.local_addr()?;
    let shared = Arc::new(MockState { script, options, conversations: Mutex::default() });
    Ok(MockServer { listener, addr, shared })
}

impl MockServer {
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers requests until it is dropped. Sends each request to `seen`, whose receiver may be gone.
    pub async fn run(self, seen: mpsc::Sender<LoggedRequest>) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        // Dropping the set closes the connections.
        let mut connections = JoinSet::new();
        loop {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = tokio::select! {
                accepted = self.listener.accept() => accepted?,
                Some(_) = connections.join_next() => continue,
            };
            let exchange = ConnectionHandler { shared: Arc::clone(&self.shared), request_log: seen.clone() };
            connections.spawn(async move {
                let _place = place;
                serve_connection(stream, exchange).await;
            });
        }
    }
}

/// Serves one connection for any number of requests.
async fn serve_connection(stream: TcpStream, exchange: ConnectionHandler) {
    // Without this, small pieces would be merged, which defeats splitting. A socket without this option still
    // works.
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| {
        let exchange = exchange.clone();
        async move { Ok::<_, std::convert::Infallible>(exchange.handle_request(request).await) }
    });
    // Clients may close a connection, and a cut does; the request itself was sent to `seen`.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}
