//! One connection to the proxy, from its head to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};

use super::body::{self, BodySource};
use super::head::{self, BodyFraming, HEAD_BYTES, ProxyRequest, RequestKind, ResponseHead};
use super::relay::{self, BUFFER_BYTES, Direction, TrafficMeter};
use super::{ConnectionTally, ProxySettings};
use crate::address::DialError;

/// The longest head of a server's response.
const RESPONSE_HEAD_BYTES: usize = 64 * 1024;
/// The most interim responses (1xx) before the final one.
const MAX_INTERIM: usize = 8;
/// The longest reason in a status line; the body contains the full text.
const PHRASE_CHARS: usize = 400;
/// The most bytes that are read and dropped after a refusal, so that the client receives the response.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Reports the connection when it is dropped.
struct ConnectionReport {
    tally: ConnectionTally,
    meter: Arc<TrafficMeter>,
    on_closed: Arc<dyn Fn(ConnectionTally) + Send + Sync>,
}

impl ConnectionReport {
    fn new(settings: &ProxySettings) -> ConnectionReport {
        let tally = ConnectionTally {
            host: String::new(),
            port: 0,
            up: 0,
            down: 0,
            allowed: false,
            why: "the proxy was stopped".to_owned(),
        };
        ConnectionReport {
            tally,
            meter: Arc::new(TrafficMeter::new()),
            on_closed: settings.on_closed.clone(),
        }
    }
}

impl Drop for ConnectionReport {
    fn drop(&mut self) {
        let mut tally = self.tally.clone();
        (tally.up, tally.down) = (self.meter.bytes_up(), self.meter.bytes_down());
        (self.on_closed)(tally);
    }
}

/// A response of the proxy itself.
struct ProxyRefusal {
    status: u16,
    why: String,
}

impl ProxyRefusal {
    fn new(status: u16, why: impl Into<String>) -> ProxyRefusal {
        ProxyRefusal { status, why: why.into() }
    }

    fn to_response(&self) -> Vec<u8> {
        let ProxyRefusal { status, why } = self;
        // Many programs show only the status line of a refused CONNECT.
        let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
        let phrase: String = why.chars().take(PHRASE_CHARS).map(printable).collect();
        let body = format!("Minke: {why}\n");
        format!(
            "HTTP/1.1 {status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// Refuses a connection over the limit, without blocking.
pub(super) fn reject_busy(client: &UnixStream, settings: &ProxySettings) {
    let why = format!(
        "{} connections are open, which is the limit: close some and try again",
        settings.limits.connections
    );
    let refusal = ProxyRefusal::new(503, why);
    // These bytes fit the buffer of a new socket. If the write fails, the client sees the connection close.
    let _ = client.try_write(&refusal.to_response());
    let mut account = ConnectionReport::new(settings);
    account.tally.why = refusal.why;
}

pub(super) async fn serve_connection(mut client: UnixStream, settings: &ProxySettings) {
    let limits = settings.limits;
    let mut seen = Vec::new();
    let read = timeout(limits.head, read_head(&mut client, &mut seen, HEAD_BYTES)).await;
    let end = match read {
        Ok(Ok(Some(end))) => Ok(end),
        // The client connected without sending a request, for example to check for the proxy.
        Ok(Ok(None)) if seen.is_empty() => return,
        Ok(Err(_)) if seen.is_empty() => return,
        Ok(Ok(None) | Err(HeadError::Io(_))) => Err(ProxyRefusal::new(400, "the request ended in its head")),
        Ok(Err(HeadError::TooLong)) => {
            Err(ProxyRefusal::new(431, format!("the head of the request has more than {HEAD_BYTES} bytes")))
        }
        Ok(Err(HeadError::BareLineFeed)) => {
            Err(ProxyRefusal::new(400, "a line of the head does not end with CR LF"))
        }
        Err(_) => Err(ProxyRefusal::new(
            408,
            format!("the request was not complete after {} s", limits.head.as_secs()),
        )),
    };
    let mut account = ConnectionReport::new(settings);
    let early = end.as_ref().ok().map(|end| seen.split_off(*end)).unwrap_or_default();
    let asked = end.and_then(|_| head::parse_request(&seen).map_err(|why| ProxyRefusal::new(400, why)));
    drop(seen);
    let outcome = match asked {
        Ok(request) => {
            account.tally.host = request.authority.host.to_string();
            account.tally.port = request.authority.port;
            let until = Instant::now() + limits.total;
            match timeout_at(until, forward_request(request, early, &mut client, settings, &mut account))
                .await
            {
                Ok(outcome) => outcome,
                Err(_) => {
                    account.tally.why =
                        format!("ended after the total timeout of {} s", limits.total.as_secs());
                    return;
                }
            }
        }
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = outcome {
        account.tally.why.clone_from(&refusal.why);
        drop(account);
        send_refusal(&mut client, &refusal).await;
    }
}

/// Checks the target, connects, and copies bytes.
async fn forward_request(
    request: ProxyRequest,
    buffered: Vec<u8>,
    client: &mut UnixStream,
    settings: &ProxySettings,
    account: &mut ConnectionReport,
) -> Result<(), ProxyRefusal> {
    let ProxyRequest { authority, kind } = request;
    settings
        .rules
        .check(&authority.host, authority.port)
        .map_err(|e| ProxyRefusal::new(403, e.to_string()))?;
    let refused = |e: DialError| {
        let status = if matches!(e, DialError::Refused { .. }) { 403 } else { 502 };
        ProxyRefusal::new(status, e.to_string())
    };
    let found = settings.dialer.resolve_host(&authority.host, false).await.map_err(refused)?;
    account.tally.allowed = true;
    let mut server =
        settings.dialer.connect_to(&authority.host, &found, authority.port).await.map_err(refused)?;
    // Small packets of a handshake must not be delayed. An error only makes it slower.
    let _ = server.set_nodelay(true);
    let meter = account.meter.clone();
    let carried = async {
        match kind {
            RequestKind::Tunnel => run_tunnel(buffered, client, &mut server, &meter).await,
            RequestKind::Plain { head, body } => {
                forward_plain(PlainRequest { head, body, buffered }, client, &mut server, &meter).await
            }
        }
    };
    let idle = settings.limits.idle;
    account.tally.why = tokio::select! {
        ended = carried => match ended {
            Ok(()) => "closed".to_owned(),
            Err(ForwardError::Refused(refusal)) => return Err(refusal),
            Err(ForwardError::Io(e)) => format!("ended by an error: {e}"),
        },
        () = meter.wait_for_silence(idle) => format!("ended after {} s without data", idle.as_secs()),
    };
    Ok(())
}

enum ForwardError {
    /// No response has been sent yet, so the proxy can send one.
    Refused(ProxyRefusal),
    Io(io::Error),
}

impl From<io::Error> for ForwardError {
    fn from(e: io::Error) -> ForwardError {
        ForwardError::Io(e)
    }
}

async fn run_tunnel(
    early: Vec<u8>,
    client: &mut UnixStream,
    server: &mut TcpStream,
    meter: &TrafficMeter,
) -> Result<(), ForwardError> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    server.write_all(&early).await?;
    meter.count_up(early.len());
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    tokio::try_join!(
        relay::relay_bytes(&mut from_client, &mut to_server, Direction::Up, meter),
        relay::relay_bytes(&mut from_server, &mut to_client, Direction::Down, meter),
    )?;
    Ok(())
}

/// One plain request: the head for the server, the body framing, and the bytes received with the head.
struct PlainRequest {
    head: Vec<u8>,
    body: BodyFraming,
    buffered: Vec<u8>,
}

/// Forwards one request and its response. Ends when the server has sent all; further bytes of the client are ignored.
async fn forward_plain(
    request: PlainRequest,
    client: &mut UnixStream,
    server: &mut TcpStream,
    meter: &TrafficMeter,
) -> Result<(), ForwardError> {
    let PlainRequest { head, body, buffered } = request;
    let (from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    to_server.write_all(&head).await?;
    meter.count_up(head.len());
    let mut source = BodySource::new(buffered, from_client);
    let asking = async {
        body::relay_body(&mut source, &mut to_server, body, meter).await.map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                ForwardError::Refused(ProxyRefusal::new(400, e.to_string()))
            }
            _ => ForwardError::Io(e),
        })?;
        let mut one = [0];
        if source.read_some(&mut one, 1).await? == 0 {
            meter.mark_half_closed();
        }
        std::future::pending::<Result<(), ForwardError>>().await
    };
    let answering = relay_response(&mut from_server, &mut to_client, meter);
    tokio::select! {
        biased;
        answered = answering => answered,
        asked = asking => asked,
    }
}

async fn relay_response<R, W>(
    server: &mut R,
    client: &mut W,
    meter: &TrafficMeter,
) -> Result<(), ForwardError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let bad = |why: String| ForwardError::Refused(ProxyRefusal::new(502, why));
    let mut seen = Vec::new();
    for _ in 0..=MAX_INTERIM {
        let before = seen.len();
        let end = read_head(server, &mut seen, RESPONSE_HEAD_BYTES).await;
        meter.count_down(seen.len() - before);
        let end = match end {
            Ok(Some(end)) => end,
            Ok(None) => return Err(bad("the server closed the connection without a response".to_owned())),
            Err(HeadError::Io(e)) => return Err(bad(format!("could not read the server's response: {e}"))),
            Err(HeadError::TooLong | HeadError::BareLineFeed) => {
                return Err(bad("the server's response is not HTTP".to_owned()));
            }
        };
        let rest = seen.split_off(end);
        match head::parse_response_head(&seen).map_err(bad)? {
            ResponseHead::Interim(head) => {
                client.write_all(&head).await?;
                seen = rest;
            }
            ResponseHead::Final(head) => {
                client.write_all(&head).await?;
                client.write_all(&rest).await?;
                return Ok(relay::relay_bytes(server, client, Direction::Down, meter).await?);
            }
        }
    }
    Err(bad("the server sent only interim responses".to_owned()))
}

enum HeadError {
    TooLong,
    /// A line ends with a bare LF.
    BareLineFeed,
    Io(io::Error),
}

/// Reads up to the empty line and returns its end; the buffer may contain more bytes. `None` at the end of the stream.
async fn read_head<R>(from: &mut R, seen: &mut Vec<u8>, most: usize) -> Result<Option<usize>, HeadError>
where
    R: AsyncRead + Unpin,
{
    let mut looked = 0;
    loop {
        if let Some(at) = seen.get(looked..).unwrap_or_default().windows(4).position(|w| w == b"\r\n\r\n") {
            let end = looked + at + 4;
            return if end <= most { Ok(Some(end)) } else { Err(HeadError::TooLong) };
        }
        let fresh = seen.get(looked.saturating_sub(1)..).unwrap_or_default();
        let alone = |pair: &[u8]| matches!(pair, [before, b'\n'] if *before != b'\r');
        if fresh.windows(2).any(alone) || seen.first() == Some(&b'\n') {
            return Err(HeadError::BareLineFeed);
        }
        if seen.len() >= most {
            return Err(HeadError::TooLong);
        }
        looked = seen.len().saturating_sub(3);
        let mut piece = [0; 4 * 1024];
        let count = from.read(&mut piece).await.map_err(HeadError::Io)?;
        if count == 0 {
            return Ok(None);
        }
        seen.extend_from_slice(piece.get(..count).unwrap_or_default());
    }
}

/// Sends the response, then reads for a moment: closing a socket with unread bytes would discard the response.
async fn send_refusal(client: &mut UnixStream, refusal: &ProxyRefusal) {
    let answered = async {
        client.write_all(&refusal.to_response()).await?;
        client.shutdown().await?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut dropped = 0;
        while dropped < DRAIN_BYTES {
            match client.read(&mut buffer).await? {
                0 => break,
                count => dropped += count,
            }
        }
        Ok::<(), io::Error>(())
    };
    // Write errors are ignored; the connection has been reported.
    let _ = timeout(DRAIN_TIMEOUT, answered).await;
}
