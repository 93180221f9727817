//! A loopback server with scripted behaviour that records its requests.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// An action of the server after it has read a request.
#[derive(Debug, Clone)]
pub(crate) enum ServerAction {
    Send(Vec<u8>),
    /// Sends nothing until the client disconnects.
    Stall,
    /// Sends the same bytes repeatedly until the client disconnects.
    Repeat(Vec<u8>),
    /// Closes the connection.
    Close,
}

#[derive(Debug, Default)]
struct ServerLog {
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    sent: AtomicUsize,
}

pub(crate) struct TestServer {
    pub(crate) addr: SocketAddr,
    log: Arc<ServerLog>,
}

impl TestServer {
    /// Starts a server with the same response for every request.
    pub(crate) async fn new(acts: Vec<ServerAction>) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let log = Arc::new(ServerLog::default());
        let server = TestServer { addr, log: Arc::clone(&log) };
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                log.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve_connection(socket, acts.clone(), Arc::clone(&log)));
            }
        });
        server
    }

    /// Starts a server that answers any data, complete or not, and closes the connection.
    pub(crate) async fn start_hasty(bytes: Vec<u8>) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let log = Arc::new(ServerLog::default());
        let server = TestServer { addr, log: Arc::clone(&log) };
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                log.connections.fetch_add(1, Ordering::SeqCst);
                let mut first = vec![0; 16 * 1024];
                let count = socket.read(&mut first).await.unwrap_or(0);
                let first = String::from_utf8_lossy(&first[..count]).into_owned();
                log.requests.lock().unwrap().push(first);
                // The client may be gone.
                drop(socket.write_all(&bytes).await);
            }
        });
        server
    }

    /// Starts a server that answers with a status, headers and a body.
    pub(crate) async fn start_with_response(status: u16, headers: &str, body: &[u8]) -> TestServer {
        TestServer::new(vec![ServerAction::Send(http_response(status, headers, body))]).await
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Returns the headers and bodies of the requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.log.requests.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }

    /// Returns the bytes that the kernel accepted from the server.
    pub(crate) fn sent_bytes(&self) -> usize {
        self.log.sent.load(Ordering::SeqCst)
    }
}

/// Returns a complete HTTP response. `headers` are lines with their line ends.
pub(crate) fn http_response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut bytes =
        format!("HTTP/1.1 {status} Said\r\n{headers}content-length: {length}\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Returns the headers of a response of unknown length.
pub(crate) fn unbounded_head() -> Vec<u8> {
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".to_vec()
}

async fn serve_connection(mut socket: TcpStream, acts: Vec<ServerAction>, log: Arc<ServerLog>) {
    while let Some(request) = read_request(&mut socket).await {
        log.requests.lock().unwrap().push(request);
        for act in &acts {
            match act {
                ServerAction::Send(bytes) => {
                    if socket.write_all(bytes).await.is_err() {
                        return;
                    }
                }
                ServerAction::Stall => {
                    let mut rest = [0; 64];
                    while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
                    return;
                }
                ServerAction::Repeat(bytes) => {
                    while socket.write_all(bytes).await.is_ok() {
                        log.sent.fetch_add(bytes.len(), Ordering::SeqCst);
                    }
                    return;
                }
                ServerAction::Close => return,
            }
        }
    }
}

/// Returns headers and body of a request as text, or `None` if the client is gone.
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
