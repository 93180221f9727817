//! One connection, from its head to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};

use super::body::{self, Source};
use super::carry::{self, BUFFER_BYTES, Meter, Way};
use super::head::{self, Answer, Body, HEAD_BYTES, Kind, Request};
use super::{ProxySettings, Tally};
use crate::address::Unreachable;

/// The longest head of a server's answer.
const ANSWER_HEAD_BYTES: usize = 64 * 1024;
/// The most interim answers (1xx) before the real one.
const INTERIM: usize = 8;
/// The longest reason in a status line; the body has the whole.
const PHRASE_CHARS: usize = 400;
/// What is read and dropped after a refusal, so that the client gets to see it.
const DRAIN_BYTES: usize = 256 * 1024;
const DRAIN_WAIT: Duration = Duration::from_secs(2);

/// What is told when the connection is over, however it ends.
struct Account {
    tally: Tally,
    meter: Arc<Meter>,
    tell: Arc<dyn Fn(Tally) + Send + Sync>,
}

impl Account {
    fn new(settings: &ProxySettings) -> Account {
        let tally = Tally {
            host: String::new(),
            port: 0,
            up: 0,
            down: 0,
            allowed: false,
            why: "the proxy was stopped".to_owned(),
        };
        Account { tally, meter: Arc::new(Meter::new()), tell: settings.tell.clone() }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let mut tally = self.tally.clone();
        (tally.up, tally.down) = (self.meter.up(), self.meter.down());
        (self.tell)(tally);
    }
}

/// Why a client gets an answer of ours.
struct Refusal {
    status: u16,
    why: String,
}

impl Refusal {
    fn new(status: u16, why: impl Into<String>) -> Refusal {
        Refusal { status, why: why.into() }
    }

    fn answer(&self) -> Vec<u8> {
        let Refusal { status, why } = self;
        // Many programs show nothing of a refused CONNECT but its status line.
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

/// Says that there is no room, without waiting for anybody.
pub(super) fn turn_away(client: &UnixStream, settings: &ProxySettings) {
    let why = format!(
        "{} connections are open, the most at once: close some and try again",
        settings.limits.connections
    );
    let refusal = Refusal::new(503, why);
    // A fresh socket takes these few bytes; a client that does not get them sees the end of the connection.
    let _ = client.try_write(&refusal.answer());
    let mut account = Account::new(settings);
    account.tally.why = refusal.why;
}

pub(super) async fn serve(mut client: UnixStream, settings: &ProxySettings) {
    let limits = settings.limits;
    let mut seen = Vec::new();
    let read = timeout(limits.head, read_head(&mut client, &mut seen, HEAD_BYTES)).await;
    let end = match read {
        Ok(Ok(Some(end))) => Ok(end),
        // Somebody looked whether there is a proxy, and asked for nothing.
        Ok(Ok(None)) if seen.is_empty() => return,
        Ok(Err(_)) if seen.is_empty() => return,
        Ok(Ok(None) | Err(HeadError::Io(_))) => Err(Refusal::new(400, "the request ended in its head")),
        Ok(Err(HeadError::TooLong)) => {
            Err(Refusal::new(431, format!("the head of the request has more than {HEAD_BYTES} bytes")))
        }
        Ok(Err(HeadError::LineEnd)) => Err(Refusal::new(400, "a line of the head does not end with CR LF")),
        Err(_) => {
            Err(Refusal::new(408, format!("the request was not complete after {} s", limits.head.as_secs())))
        }
    };
    let mut account = Account::new(settings);
    let early = end.as_ref().ok().map(|end| seen.split_off(*end)).unwrap_or_default();
    let asked = end.and_then(|_| head::read(&seen).map_err(|why| Refusal::new(400, why)));
    drop(seen);
    let outcome = match asked {
        Ok(request) => {
            account.tally.host = request.to.host.to_string();
            account.tally.port = request.to.port;
            let until = Instant::now() + limits.total;
            match timeout_at(until, pass(request, early, &mut client, settings, &mut account)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    account.tally.why = format!("ended after {} s, the longest", limits.total.as_secs());
                    return;
                }
            }
        }
        Err(refusal) => Err(refusal),
    };
    if let Err(refusal) = outcome {
        account.tally.why.clone_from(&refusal.why);
        drop(account);
        refuse(&mut client, &refusal).await;
    }
}

/// Checks where it goes, dials, and carries.
async fn pass(
    request: Request,
    early: Vec<u8>,
    client: &mut UnixStream,
    settings: &ProxySettings,
    account: &mut Account,
) -> Result<(), Refusal> {
    let Request { to, kind } = request;
    settings.rules.check(&to.host, to.port).map_err(|e| Refusal::new(403, e.to_string()))?;
    let refused = |e: Unreachable| {
        let status = if matches!(e, Unreachable::Refused { .. }) { 403 } else { 502 };
        Refusal::new(status, e.to_string())
    };
    let found = settings.outside.find(&to.host, false).await.map_err(refused)?;
    account.tally.allowed = true;
    let mut server = settings.outside.dial(&to.host, &found, to.port).await.map_err(refused)?;
    // Small pieces of a handshake must not wait for each other; without it all works, only slower.
    let _ = server.set_nodelay(true);
    let meter = account.meter.clone();
    let carried = async {
        match kind {
            Kind::Tunnel => tunnel(early, client, &mut server, &meter).await,
            Kind::Plain { head, body } => {
                plain(Plain { head, body, early }, client, &mut server, &meter).await
            }
        }
    };
    let idle = settings.limits.idle;
    account.tally.why = tokio::select! {
        ended = carried => match ended {
            Ok(()) => "closed".to_owned(),
            Err(PlainError::Refused(refusal)) => return Err(refusal),
            Err(PlainError::Io(e)) => format!("broken off: {e}"),
        },
        () = meter.silence(idle) => format!("ended because nothing was said for {} s", idle.as_secs()),
    };
    Ok(())
}

enum PlainError {
    /// Nothing has been answered yet, so that we can.
    Refused(Refusal),
    Io(io::Error),
}

impl From<io::Error> for PlainError {
    fn from(e: io::Error) -> PlainError {
        PlainError::Io(e)
    }
}

async fn tunnel(
    early: Vec<u8>,
    client: &mut UnixStream,
    server: &mut TcpStream,
    meter: &Meter,
) -> Result<(), PlainError> {
    client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    server.write_all(&early).await?;
    meter.count_up(early.len());
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    tokio::try_join!(
        carry::carry(&mut from_client, &mut to_server, Way::Up, meter),
        carry::carry(&mut from_server, &mut to_client, Way::Down, meter),
    )?;
    Ok(())
}

/// One request: the head that the server gets, where the body ends, and what of it came with the client's head.
struct Plain {
    head: Vec<u8>,
    body: Body,
    early: Vec<u8>,
}

/// One request and its answer. It is over when the server has said all; a client's further bytes go nowhere.
async fn plain(
    request: Plain,
    client: &mut UnixStream,
    server: &mut TcpStream,
    meter: &Meter,
) -> Result<(), PlainError> {
    let Plain { head, body, early } = request;
    let (from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    to_server.write_all(&head).await?;
    meter.count_up(head.len());
    let mut source = Source::new(early, from_client);
    let asking = async {
        body::carry(&mut source, &mut to_server, body, meter).await.map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => {
                PlainError::Refused(Refusal::new(400, e.to_string()))
            }
            _ => PlainError::Io(e),
        })?;
        let mut one = [0];
        if source.read(&mut one, 1).await? == 0 {
            meter.half();
        }
        std::future::pending::<Result<(), PlainError>>().await
    };
    let answering = answer(&mut from_server, &mut to_client, meter);
    tokio::select! {
        biased;
        answered = answering => answered,
        asked = asking => asked,
    }
}

async fn answer<R, W>(server: &mut R, client: &mut W, meter: &Meter) -> Result<(), PlainError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let bad = |why: String| PlainError::Refused(Refusal::new(502, why));
    let mut seen = Vec::new();
    for _ in 0..=INTERIM {
        let before = seen.len();
        let end = read_head(server, &mut seen, ANSWER_HEAD_BYTES).await;
        meter.count_down(seen.len() - before);
        let end = match end {
            Ok(Some(end)) => end,
            Ok(None) => return Err(bad("the server closed the connection without an answer".to_owned())),
            Err(HeadError::Io(e)) => return Err(bad(format!("the server broke off its answer: {e}"))),
            Err(HeadError::TooLong | HeadError::LineEnd) => {
                return Err(bad("the server did not answer in HTTP".to_owned()));
            }
        };
        let rest = seen.split_off(end);
        match head::read_answer(&seen).map_err(bad)? {
            Answer::Interim(head) => {
                client.write_all(&head).await?;
                seen = rest;
            }
            Answer::Last(head) => {
                client.write_all(&head).await?;
                client.write_all(&rest).await?;
                return Ok(carry::carry(server, client, Way::Down, meter).await?);
            }
        }
    }
    Err(bad("the server gave only interim answers".to_owned()))
}

enum HeadError {
    TooLong,
    /// A line ends with LF alone.
    LineEnd,
    Io(io::Error),
}

/// Reads until the empty line and says where it ends; what follows may be there already. `None` at the end of the
/// stream.
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
            return Err(HeadError::LineEnd);
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

/// Gives the reason, then listens a moment: a socket that is closed with unread bytes takes the answer back.
async fn refuse(client: &mut UnixStream, refusal: &Refusal) {
    let answered = async {
        client.write_all(&refusal.answer()).await?;
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
    // Whether the client still wanted to hear it is its own affair; the tally has been told.
    let _ = timeout(DRAIN_WAIT, answered).await;
}
