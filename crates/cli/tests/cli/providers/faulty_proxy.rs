//! A proxy before the mock: it forwards connections, or fails like bad networks and bad servers.
//!
//! It adds errors that a script cannot express: silence, a stalled reply, a line without an end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Size of one write of endless data.
const CHUNK_BYTES: usize = 64 * 1024;

/// How one connection is handled.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ProxyBehavior {
    Forward,
    /// Accept the request and send nothing.
    Silent,
    /// Forward the reply up to this word, then stall.
    StallAt(&'static str),
    /// Forward the reply up to this word, then close the connection.
    CloseAt(&'static str),
    /// Forward the reply up to this word, then reset the connection.
    ResetAt(&'static str),
    /// Send a reply whose first line has no end.
    EndlessLine,
    /// Send a reply with one event of N bytes, and close normally.
    Event(u64),
}

/// A listener that handles each connection as the list says, later ones like the last.
pub(crate) struct FaultyProxy {
    pub(crate) base: String,
    /// Body bytes that it generated itself.
    sent_bytes: Arc<AtomicU64>,
    connection_count: Arc<AtomicUsize>,
}

impl FaultyProxy {
    /// Its threads end with the test process.
    pub(crate) fn start_before(
        behind: Option<SocketAddr>,
        behaviors: &'static [ProxyBehavior],
    ) -> FaultyProxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (sent, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, number) = (Arc::clone(&sent), Arc::clone(&taken));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let at = number.fetch_add(1, Ordering::SeqCst);
                let Some(behavior) = behaviors.get(at).or(behaviors.last()).copied() else { return };
                let count = Arc::clone(&count);
                // A client that disconnects ends the connection; that is part of the test.
                std::thread::spawn(move || drop(handle_connection(stream, behavior, behind, &count)));
            }
        });
        FaultyProxy { base, sent_bytes: sent, connection_count: taken }
    }

    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn connection_count(&self) -> usize {
        self.connection_count.load(Ordering::SeqCst)
    }
}

fn handle_connection(
    mut client: TcpStream,
    behavior: ProxyBehavior,
    behind: Option<SocketAddr>,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    match behavior {
        ProxyBehavior::Forward => forward_reply(client, behind, None),
        ProxyBehavior::StallAt(word) => forward_reply(client, behind, Some((word, BreakKind::Stall))),
        ProxyBehavior::CloseAt(word) => forward_reply(client, behind, Some((word, BreakKind::Close))),
        ProxyBehavior::ResetAt(word) => forward_reply(client, behind, Some((word, BreakKind::Reset))),
        ProxyBehavior::Silent => read_to_end(&mut client),
        ProxyBehavior::EndlessLine => send_endless(client, u64::MAX, sent),
        ProxyBehavior::Event(bytes) => send_endless(client, bytes, sent),
    }
}

/// Reads until the client disconnects.
fn read_to_end(client: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    while client.read(&mut buffer)? > 0 {}
    Ok(())
}

/// What happens at the word where a reply breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BreakKind {
    Stall,
    Close,
    Reset,
}

fn forward_reply(
    client: TcpStream,
    behind: Option<SocketAddr>,
    breaks: Option<(&'static str, BreakKind)>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(behind.expect("the proxy has a server"))?;
    let (mut from_client, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let requests = std::thread::spawn(move || {
        let copied = std::io::copy(&mut from_client, &mut to_server);
        drop(to_server.shutdown(Shutdown::Write));
        copied
    });
    let (mut from_server, mut to_client) = (server, client);
    let mut buffer = [0; 4096];
    let mut seen = Vec::new();
    loop {
        let count = from_server.read(&mut buffer)?;
        if count == 0 {
            to_client.shutdown(Shutdown::Write)?;
            break;
        }
        let passed = seen.len();
        seen.extend_from_slice(&buffer[..count]);
        let broken = breaks.and_then(|(word, how)| {
            let at = seen.windows(word.len()).position(|some| some == word.as_bytes());
            at.map(|at| (at + word.len(), how))
        });
        let end = broken.map_or(seen.len(), |(end, _)| end);
        to_client.write_all(&seen[passed..end.max(passed)])?;
        match broken {
            None => {}
            // The end of the client's side ends this connection.
            Some((_, BreakKind::Stall)) => break,
            Some((_, BreakKind::Close)) => {
                to_client.shutdown(Shutdown::Both)?;
                break;
            }
            Some((_, BreakKind::Reset)) => {
                // With a linger time of zero, the kernel resets the connection.
                rustix::net::sockopt::set_socket_linger(&to_client, Some(Duration::ZERO))?;
                to_client.shutdown(Shutdown::Read)?;
                drop(to_client);
                drop(from_server);
                return Ok(());
            }
        }
    }
    drop(requests.join());
    Ok(())
}

fn send_endless(mut client: TcpStream, bytes: u64, sent: &AtomicU64) -> std::io::Result<()> {
    let mut requests = client.try_clone()?;
    // A reply before the request would be a different error.
    requests.read_exact(&mut [0])?;
    std::thread::spawn(move || read_to_end(&mut requests));
    client.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    client.write_all(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"text\":\"")?;
    let piece = vec![b'x'; CHUNK_BYTES];
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        client.write_all(&piece[..count])?;
        sent.fetch_add(count as u64, Ordering::SeqCst);
        left -= count as u64;
    }
    client.write_all(b"\"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")?;
    client.shutdown(Shutdown::Write)
}
