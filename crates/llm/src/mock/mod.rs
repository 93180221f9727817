//! mock: a script served over loopback HTTP in all four wire formats, so that any client can be tested against it.
//!
//! Here: the listener and its options. Its parts: one exchange (`exchange`), what is asked (`asked`, and one file per
//! format), which request of which conversation it is (`memory`), how the reply is told (`voice`, `weave`, `reply`), signatures
//! on reasoning (`signature`). Elsewhere: the script and what its turns say (`scripted`). Described in
//! `docs/reference/mock-llm.md`.
//! Invariant: nothing outside this machine can reach it, and a key that it was sent is neither kept nor shown
//! (`a_key_is_seen_and_not_shown` in `tests/mock.rs`).

mod anthropic;
mod asked;
mod chat;
mod exchange;
mod gemini;
mod memory;
mod reply;
mod responses;
mod seen;
mod signature;
mod voice;
mod weave;

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

use crate::scripted::{BUILT_IN, ScriptError, Scripted};
use exchange::Exchange;
use memory::Memory;
pub use reply::Split;
pub use seen::Seen;

/// Connections at a time; more wait until one ends.
const CONNECTIONS: usize = 256;

/// How the mock answers, beside its script.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// 0 = any free one.
    pub port: u16,
    pub split: Split,
    /// Compress replies for clients that take it.
    pub gzip: bool,
    /// CRLF at the end of lines in every format; gemini has it anyway.
    pub crlf: bool,
    /// A comment before each event.
    pub comments: bool,
    /// A cut goes through the middle of the last event.
    pub cut_in_event: bool,
    /// Parallel calls are told at the same time, a piece of each in turn.
    pub weave: bool,
    /// Answer requests that bring no key.
    pub keyless: bool,
}

/// The script of a file, or a built-in one by its name. `cwd` is what `{{cwd}}` stands for.
pub fn script(name: &Path, cwd: &Path) -> Result<Scripted, ScriptError> {
    let path = cwd.join(name);
    let built_in = BUILT_IN.iter().find(|(built_in, _)| name == Path::new(built_in));
    match built_in {
        Some((name, text)) if !path.exists() => Scripted::parse(name, text, cwd),
        _ => Scripted::load(&path, cwd),
    }
}

/// A server that listens and has not begun to answer.
#[derive(Debug)]
pub struct Mock {
    listener: TcpListener,
    addr: SocketAddr,
    shared: Arc<Shared>,
}

/// What all exchanges use.
#[derive(Debug)]
struct Shared {
    script: Scripted,
    options: Options,
    memory: Mutex<Memory>,
}

/// Listens on a port of this machine.
pub async fn serve(script: Scripted, options: Options) -> io::Result<Mock> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port)).await?;
    let addr = listener.local_addr()?;
    let shared = Arc::new(Shared { script, options, memory: Mutex::default() });
    Ok(Mock { listener, addr, shared })
}

impl Mock {
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Answers until it is dropped. Each request is told to `seen`; a receiver that has gone is no reason to stop.
    pub async fn run(self, seen: mpsc::Sender<Seen>) -> io::Result<()> {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        // Dropping the set ends the connections.
        let mut connections = JoinSet::new();
        loop {
            let place = Arc::clone(&places).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, _) = tokio::select! {
                accepted = self.listener.accept() => accepted?,
                Some(_) = connections.join_next() => continue,
            };
            let exchange = Exchange { shared: Arc::clone(&self.shared), seen: seen.clone() };
            connections.spawn(async move {
                let _place = place;
                talk(stream, exchange).await;
            });
        }
    }
}

/// One connection, for as many requests as the client makes.
async fn talk(stream: TcpStream, exchange: Exchange) {
    // Small pieces are the point of splitting; without this they would wait for each other. A socket that cannot
    // do it still works.
    drop(stream.set_nodelay(true));
    let service = service_fn(|request| {
        let exchange = exchange.clone();
        async move { Ok::<_, std::convert::Infallible>(exchange.answer(request).await) }
    });
    // A connection that breaks is what clients do, and what a cut is; the request itself was told to `seen`.
    drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
}
