//! A connection to a pod: methods out with ids, frames in, and how far one has read.
//!
//! Here: one socket. Elsewhere: finding or starting the pod (`find`, `launch`), what a frame means (`protocol`, faces).
//! Invariant: `next` may be dropped at any await and loses nothing, because half-received lines live in the connection
//! (`a_frame_in_two_pieces_survives_a_dropped_wait`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minke_protocol::limits::{FRAME_BYTES, POD_SOCKET_MS};
use minke_protocol::{
    BadFrame, ClientInfo, Event, Frame, Hello, Id, LineFault, LineReader, Method, PROTOCOL, Place, Refusal,
    Request, ServerHello, Subscribe,
};
use minke_record::Position;
use minke_registry::SocketPath;
use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// Each wait for the other end: longer than that and it is not there.
const SOCKET_WAIT: Duration = Duration::from_millis(POD_SOCKET_MS);
/// What is read at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// A typed connection to one pod.
#[derive(Debug)]
pub struct Connection {
    socket: PathBuf,
    reader: OwnedReadHalf,
    writer: OwnedWriteHalf,
    lines: LineReader,
    chunk: Vec<u8>,
    ids: u64,
    server: ServerHello,
    /// The pod has said `hello`.
    greeted: bool,
    position: Option<Position>,
}

impl Connection {
    /// Connects, says `hello` as `client`, and waits for the pod's.
    pub async fn open(
        socket: &Path,
        subscribe: Subscribe,
        since: Option<Position>,
        client: ClientInfo,
    ) -> Result<Connection, ConnectionError> {
        let at = |source| ConnectionError::Io { what: "connect to", socket: socket.to_owned(), source };
        let short = SocketPath::to(socket).map_err(at)?;
        let stream = within(socket, UnixStream::connect(short.path())).await?.map_err(at)?;
        let (reader, writer) = stream.into_split();
        let mut connection = Connection {
            socket: socket.to_owned(),
            reader,
            writer,
            lines: LineReader::new(),
            chunk: vec![0; CHUNK_BYTES],
            ids: 0,
            server: ServerHello::new(""),
            greeted: false,
            position: since,
        };
        let hello = Hello { protocol: PROTOCOL, subscribe, since, client: Some(client) };
        connection.write(&Request::new(Method::Hello(hello))).await?;
        let first = within(socket, connection.next()).await??;
        match first.map(|frame| frame.event) {
            Some(Event::Hello(server)) => {
                connection.server = server;
                connection.greeted = true;
            }
            Some(Event::Error(refusal)) => return Err(ConnectionError::Refused { refusal }),
            Some(other) => {
                let why = format!("it answered `hello` with `{}`", other.name());
                return Err(ConnectionError::NotAPod { socket: socket.to_owned(), why });
            }
            None => return Err(connection.closed()),
        }
        Ok(connection)
    }

    /// What the pod said of itself.
    pub fn server(&self) -> &ServerHello {
        &self.server
    }

    /// The last entry that was seen here: where to go on after a reconnect.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Sends a method; its reply comes as a frame with this id.
    pub async fn send(&mut self, method: Method) -> Result<Id, ConnectionError> {
        self.ids += 1;
        let id = Id::number(self.ids);
        self.write(&Request { id: Some(id.clone()), method }).await?;
        Ok(id)
    }

    /// Sends a method and waits for its reply, dropping whatever else comes before it: for connections that have
    /// subscribed to nothing. `patience` is how long the pod may take to answer.
    pub async fn ask<T: for<'de> Deserialize<'de>>(
        &mut self,
        method: Method,
        patience: Duration,
    ) -> Result<Result<T, Refusal>, ConnectionError> {
        let name = method.name();
        let id = self.send(method).await?;
        let answer = async {
            loop {
                let Some(frame) = self.next().await? else {
                    return Err(self.closed());
                };
                if let (Event::Reply(data), Place::One { id: Some(of) }) = (&frame.event, &frame.place)
                    && *of == id
                {
                    let result = data.result::<T>().map_err(|e| ConnectionError::NotAPod {
                        socket: self.socket.clone(),
                        why: format!("its reply to `{name}` cannot be read: {e}"),
                    })?;
                    return Ok(result.map_err(Clone::clone));
                }
            }
        };
        match timeout(patience, answer).await {
            Ok(answered) => answered,
            Err(_) => Err(self.silent(patience)),
        }
    }

    /// The next frame; `None` when the pod has closed. Frames of events that this version does not know are skipped.
    pub async fn next(&mut self) -> Result<Option<Frame>, ConnectionError> {
        loop {
            while let Some(line) = self.lines.next() {
                let line =
                    line.map_err(|fault| ConnectionError::BadLine { socket: self.socket.clone(), fault })?;
                let frame = Frame::parse(line)
                    .map_err(|bad| ConnectionError::BadFrame { socket: self.socket.clone(), bad })?;
                match &frame.event {
                    Event::Unknown(_) => continue,
                    // It belongs to none of our methods: the pod cannot go on with this connection, and says why.
                    Event::Error(refusal) if frame.place == (Place::One { id: None }) && self.greeted => {
                        return Err(ConnectionError::Ended { refusal: refusal.clone() });
                    }
                    Event::Snapshot(snapshot) => self.position = Some(snapshot.head),
                    Event::Entry(event) => {
                        self.position = Some(Position { seq: event.entry.seq, h: event.entry.h });
                    }
                    _ => {}
                }
                return Ok(Some(frame));
            }
            let got = match self.reader.read(&mut self.chunk).await {
                Ok(0) => return Ok(None),
                Ok(got) => got,
                // The pod was killed: what it had sent is read, and this is its end.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(source) => {
                    return Err(ConnectionError::Io {
                        what: "read from",
                        socket: self.socket.clone(),
                        source,
                    });
                }
            };
            self.lines.push(self.chunk.get(..got).unwrap_or_default());
        }
    }

    async fn write(&mut self, request: &Request) -> Result<(), ConnectionError> {
        let line = request.line();
        if line.len() > FRAME_BYTES {
            return Err(ConnectionError::TooLarge { method: request.method.name(), bytes: line.len() });
        }
        let written = within(&self.socket, self.writer.write_all(line.as_bytes())).await?;
        written.map_err(|source| ConnectionError::Io {
            what: "write to",
            socket: self.socket.clone(),
            source,
        })
    }

    fn closed(&self) -> ConnectionError {
        ConnectionError::Closed { socket: self.socket.clone() }
    }

    fn silent(&self, patience: Duration) -> ConnectionError {
        ConnectionError::Silent { socket: self.socket.clone(), ms: patience.as_millis() }
    }
}

/// Bounds one wait for the other end.
async fn within<T>(socket: &Path, wait: impl Future<Output = T>) -> Result<T, ConnectionError> {
    timeout(SOCKET_WAIT, wait)
        .await
        .map_err(|_| ConnectionError::Silent { socket: socket.to_owned(), ms: SOCKET_WAIT.as_millis() })
}

/// Why a pod could not be talked to.
#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("cannot {what} the socket {}", .socket.display())]
    Io { what: &'static str, socket: PathBuf, source: io::Error },
    #[error("the pod at {} did not answer for {ms} ms", .socket.display())]
    Silent { socket: PathBuf, ms: u128 },
    #[error("the pod at {} closed the connection", .socket.display())]
    Closed { socket: PathBuf },
    #[error("what listens at {} is not a pod: {why}", .socket.display())]
    NotAPod { socket: PathBuf, why: String },
    #[error("the pod refused to talk: {}", .refusal.message)]
    Refused { refusal: Refusal },
    #[error("the pod ended the connection: {}", .refusal.message)]
    Ended { refusal: Refusal },
    #[error("the pod at {} sent a bad line", .socket.display())]
    BadLine {
        socket: PathBuf,
        #[source]
        fault: LineFault,
    },
    #[error("the pod at {} sent something unreadable", .socket.display())]
    BadFrame {
        socket: PathBuf,
        #[source]
        bad: BadFrame,
    },
    #[error("`{method}` takes {bytes} bytes, more than one frame holds ({FRAME_BYTES})")]
    TooLarge { method: &'static str, bytes: usize },
}

impl ConnectionError {
    /// Whether nobody listens there: the pod is starting, stopping, or dead.
    pub fn is_nobody(&self) -> bool {
        match self {
            ConnectionError::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::NotFound
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::ConnectionReset
            ),
            ConnectionError::Closed { .. } => true,
            ConnectionError::Silent { .. }
            | ConnectionError::NotAPod { .. }
            | ConnectionError::Refused { .. }
            | ConnectionError::Ended { .. }
            | ConnectionError::BadLine { .. }
            | ConnectionError::BadFrame { .. }
            | ConnectionError::TooLarge { .. } => false,
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            ConnectionError::Io { .. } | ConnectionError::Closed { .. } => {
                "`minke ps` shows which pods live; send again to wake it"
            }
            ConnectionError::Silent { .. } => {
                "`minke stop NAME --kill` ends a pod that hangs; nothing written is lost"
            }
            ConnectionError::NotAPod { .. }
            | ConnectionError::BadLine { .. }
            | ConnectionError::BadFrame { .. } => {
                "the pod may be of another version: stop it and start it again"
            }
            ConnectionError::Refused { .. } => "see `minke ps`",
            ConnectionError::Ended { .. } => "`minke log verify` says whether the session's log is damaged",
            ConnectionError::TooLarge { .. } => "send less at once, or name a file instead of its content",
        }
    }
}
