//! A server on loopback that does to its client what a test says, and remembers what it was sent.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the server does once it has read a request.
#[derive(Debug, Clone)]
pub(crate) enum Act {
    Send(Vec<u8>),
    /// Says nothing until the client has gone.
    Stall,
    /// Sends the same again and again until the client has gone.
    Repeat(Vec<u8>),
    /// Breaks the connection.
    Close,
}

#[derive(Debug, Default)]
struct Seen {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    sent: AtomicUsize,
}

pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    seen: Arc<Seen>,
}

impl Server {
    /// Every request gets the same answer.
    pub(crate) async fn new(acts: Vec<Act>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let server = Server { addr, seen: Arc::clone(&seen) };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(converse(socket, acts.clone(), Arc::clone(&seen)));
            }
        });
        server
    }

    /// One that answers whatever comes first, whole or not, and hangs up.
    pub(crate) async fn hasty(bytes: Vec<u8>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let server = Server { addr, seen: Arc::clone(&seen) };
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                let mut first = vec![0; 16 * 1024];
                let count = socket.read(&mut first).await.unwrap_or(0);
                let first = String::from_utf8_lossy(&first[..count]).into_owned();
                seen.requests.lock().unwrap().push(first);
                // The client may have gone; then there is nobody to answer.
                drop(socket.write_all(&bytes).await);
            }
        });
        server
    }

    /// One that answers with a status, headers and a body.
    pub(crate) async fn answering(status: u16, headers: &str, body: &[u8]) -> Server {
        Server::new(vec![Act::Send(answer(status, headers, body))]).await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Heads and bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// Bytes that the kernel took from the server.
    pub(crate) fn sent(&self) -> usize {
        self.seen.sent.load(Ordering::SeqCst)
    }
}

/// A whole HTTP answer. `headers` are lines with their ends.
pub(crate) fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// The head of an answer whose length nobody knows.
pub(crate) fn open_answer() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec()
}

async fn converse(mut socket: TcpStream, acts: Vec<Act>, seen: Arc<Seen>) {
    while let Some(request) = read_request(&mut socket).await {
        seen.requests.lock().unwrap().push(request);
        for act in &acts {
            match act {
                Act::Send(bytes) => {
                    if socket.write_all(bytes).await.is_err() {
                        return;
                    }
                }
                Act::Stall => {
                    let mut rest = [0; 64];
                    while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
                    return;
                }
                Act::Repeat(bytes) => {
                    while socket.write_all(bytes).await.is_ok() {
                        seen.sent.fetch_add(bytes.len(), Ordering::SeqCst);
                    }
                    return;
                }
                Act::Close => return,
            }
        }
    }
}

/// A request's head and body as text; `None` when the client has gone.
async fn read_request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(text);
            }
        }
        let mut piece = vec![0; 16 * 1024];
        match socket.read(&mut piece).await {
            Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
            _ => return None,
        }
    }
}
