//! A front door before the mock: it passes connections on, or treats them as bad networks and bad servers do.
//!
//! What a script cannot say happens here: silence, a reply that stalls, a line without an end.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What is sent at once of something that does not end.
const PIECE: usize = 64 * 1024;

/// How one connection is treated.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Manner {
    Forward,
    /// The request is taken, and nothing is said.
    Silent,
    /// The reply is passed on until this word, then nothing more comes.
    StallAt(&'static str),
    /// The reply is passed on until this word, then the connection ends in good order.
    CloseAt(&'static str),
    /// The reply is passed on until this word, then the connection is reset.
    ResetAt(&'static str),
    /// A reply whose first line has no end.
    EndlessLine,
    /// A reply with one event of so many bytes, and an orderly end.
    Event(u64),
}

/// A listener that treats each connection as the list says, the ones after it as the last.
pub(crate) struct Front {
    pub(crate) base: String,
    /// Bytes of bodies that it made itself.
    sent: Arc<AtomicU64>,
    taken: Arc<AtomicUsize>,
}

impl Front {
    /// Its threads end with the test's process; none of them holds anything that outlives it.
    pub(crate) fn before(behind: Option<SocketAddr>, manners: &'static [Manner]) -> Front {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (sent, taken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
        let (count, number) = (Arc::clone(&sent), Arc::clone(&taken));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let at = number.fetch_add(1, Ordering::SeqCst);
                let Some(manner) = manners.get(at).or(manners.last()).copied() else { return };
                let count = Arc::clone(&count);
                // A client that goes away ends the connection; that is what is tested.
                std::thread::spawn(move || drop(treat(stream, manner, behind, &count)));
            }
        });
        Front { base, sent, taken }
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

fn treat(
    mut client: TcpStream,
    manner: Manner,
    behind: Option<SocketAddr>,
    sent: &AtomicU64,
) -> std::io::Result<()> {
    match manner {
        Manner::Forward => forward(client, behind, None),
        Manner::StallAt(word) => forward(client, behind, Some((word, Break::Stall))),
        Manner::CloseAt(word) => forward(client, behind, Some((word, Break::Close))),
        Manner::ResetAt(word) => forward(client, behind, Some((word, Break::Reset))),
        Manner::Silent => drain(&mut client),
        Manner::EndlessLine => flood(client, u64::MAX, sent),
        Manner::Event(bytes) => flood(client, bytes, sent),
    }
}

/// Reads until the client goes.
fn drain(client: &mut TcpStream) -> std::io::Result<()> {
    let mut buffer = [0; 4096];
    while client.read(&mut buffer)? > 0 {}
    Ok(())
}

/// What follows the word at which a reply breaks off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Break {
    Stall,
    Close,
    Reset,
}

fn forward(
    client: TcpStream,
    behind: Option<SocketAddr>,
    breaks: Option<(&'static str, Break)>,
) -> std::io::Result<()> {
    let server = TcpStream::connect(behind.expect("somebody stands behind the front"))?;
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
            // The client's end of the connection is the end of this.
            Some((_, Break::Stall)) => break,
            Some((_, Break::Close)) => {
                to_client.shutdown(Shutdown::Both)?;
                break;
            }
            Some((_, Break::Reset)) => {
                // Without a time to linger, the kernel ends the connection with a reset.
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

fn flood(mut client: TcpStream, bytes: u64, sent: &AtomicU64) -> std::io::Result<()> {
    let mut requests = client.try_clone()?;
    // An answer before there is a question would be another failure.
    requests.read_exact(&mut [0])?;
    std::thread::spawn(move || drain(&mut requests));
    client.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    client.write_all(b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"text\":\"")?;
    let piece = vec![b'x'; PIECE];
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        client.write_all(&piece[..count])?;
        sent.fetch_add(count as u64, Ordering::SeqCst);
        left -= count as u64;
    }
    client.write_all(b"\"}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")?;
    client.shutdown(Shutdown::Write)
}
