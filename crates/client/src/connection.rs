//! A connection to a pod: sends methods with ids, receives frames, and tracks the last entry read.
//!
//! Here: one socket. Elsewhere: finding or starting the pod (`find`, the crate `launch`), the meaning of frames
//! (`protocol`, frontends).
//! Invariant: `next_frame` is cancel-safe, because partial lines are stored in the connection
//! (`a_frame_in_two_pieces_survives_a_dropped_wait`).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use minke_protocol::limits::{MAX_FRAME_BYTES, POD_SOCKET_TIMEOUT_MS};
use minke_protocol::{
    ClientInfo, ClientRequest, Event, EventPosition, Frame, FrameError, Hello, LineReadError, LineReader,
    Method, PROTOCOL, Refusal, RequestId, ServerHello, Subscribe,
};
use minke_record::Position;
use minke_registry::SocketPath;
use serde::Deserialize;
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// How often a client says `hello` to a pod that answers with a greeting.
const MAX_HELLO_ATTEMPTS: u32 = 20;
/// The reason for a process that ends instead of greeting; a pod greets also those that it takes for older clients.
const SHUTDOWN_REPLY: &str = "it answered `hello` with `shutdown`";
/// The timeout of each wait for the peer.
const SOCKET_TIMEOUT: Duration = Duration::from_millis(POD_SOCKET_TIMEOUT_MS);
/// The read size.
const READ_CHUNK_BYTES: usize = 64 * 1024;

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
    /// The pod has sent `hello`.
    hello_received: bool,
    position: Option<Position>,
}

impl Connection {
    /// Connects, sends `hello` as `client`, and waits for the pod's `hello`.
    ///
    /// On a busy machine the pod may read `hello` after its timeout and treats the client as one that knows no
    /// `hello`. The client then connects again.
    pub async fn open(
        socket: &Path,
        subscribe: Subscribe,
        since: Option<Position>,
        client: ClientInfo,
    ) -> Result<Connection, ConnectionError> {
        let mut opened = Connection::open_once(socket, subscribe, since, client.clone()).await;
        for _ in 1..MAX_HELLO_ATTEMPTS {
            match &opened {
                Err(ConnectionError::NotAPod { why, .. }) if *why != SHUTDOWN_REPLY => {
                    opened = Connection::open_once(socket, subscribe, since, client.clone()).await;
                }
                _ => break,
            }
        }
        opened
    }

    async fn open_once(
        socket: &Path,
        subscribe: Subscribe,
        since: Option<Position>,
        client: ClientInfo,
    ) -> Result<Connection, ConnectionError> {
        let at = |source| ConnectionError::Io { what: "connect to", socket: socket.to_owned(), source };
        let short = SocketPath::for_socket(socket).map_err(at)?;
        let stream = with_timeout(socket, UnixStream::connect(short.path())).await?.map_err(at)?;
        let (reader, writer) = stream.into_split();
        let mut connection = Connection {
            socket: socket.to_owned(),
            reader,
            writer,
            lines: LineReader::new(),
            chunk: vec![0; READ_CHUNK_BYTES],
            ids: 0,
            server: ServerHello::new(""),
            hello_received: false,
            position: since,
        };
        let hello = Hello { protocol: PROTOCOL, subscribe, since, client: Some(client) };
        connection.write_request(&ClientRequest::new(Method::Hello(hello))).await?;
        let first = with_timeout(socket, connection.next_frame()).await??;
        match first.map(|frame| frame.event) {
            Some(Event::Hello(server)) => {
                connection.server = server;
                connection.hello_received = true;
            }
            Some(Event::Error(refusal)) => return Err(ConnectionError::Refused { refusal }),
            Some(other) => {
                let why = format!("it answered `hello` with `{}`", other.name());
                return Err(ConnectionError::NotAPod { socket: socket.to_owned(), why });
            }
            None => return Err(connection.closed_error()),
        }
        Ok(connection)
    }

    /// The pod's `hello`.
    pub fn server_hello(&self) -> &ServerHello {
        &self.server
    }

    /// The last entry received: the position to continue from after a reconnect.
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Sends a method; its reply is a frame with this id.
    pub async fn send(&mut self, method: Method) -> Result<RequestId, ConnectionError> {
        self.ids += 1;
        let id = RequestId::from_number(self.ids);
        self.write_request(&ClientRequest { id: Some(id.clone()), method }).await?;
        Ok(id)
    }

    /// Sends a method and waits for its reply, dropping all frames before it: for connections without
    /// subscriptions. `patience` is the timeout of the reply.
    pub async fn send_and_wait<T: for<'de> Deserialize<'de>>(
        &mut self,
        method: Method,
        patience: Duration,
    ) -> Result<Result<T, Refusal>, ConnectionError> {
        let name = method.name();
        let id = self.send(method).await?;
        let answer = async {
            loop {
                let Some(frame) = self.next_frame().await? else {
                    return Err(self.closed_error());
                };
                if let (Event::Reply(data), EventPosition::Direct { id: Some(of) }) =
                    (&frame.event, &frame.position)
                    && *of == id
                {
                    let result = data.parse_result::<T>().map_err(|e| ConnectionError::NotAPod {
                        socket: self.socket.clone(),
                        why: format!("could not read its reply to `{name}`: {e}"),
                    })?;
                    return Ok(result.map_err(Clone::clone));
                }
            }
        };
        match timeout(patience, answer).await {
            Ok(answered) => answered,
            Err(_) => Err(self.timeout_error(patience)),
        }
    }

    /// The next frame; `None` when the pod has closed the connection. Events unknown to this version are
    /// skipped.
    pub async fn next_frame(&mut self) -> Result<Option<Frame>, ConnectionError> {
        loop {
            while let Some(line) = self.lines.next() {
                let line =
                    line.map_err(|fault| ConnectionError::BadLine { socket: self.socket.clone(), fault })?;
                let frame = Frame::parse(line)
                    .map_err(|bad| ConnectionError::BadFrame { socket: self.socket.clone(), bad })?;
                match &frame.event {
                    Event::Unknown(_) => continue,
                    // It answers none of our methods: the pod closes this connection and gives the reason.
                    Event::Error(refusal)
                        if frame.position == (EventPosition::Direct { id: None }) && self.hello_received =>
                    {
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
                // The pod was killed: everything it sent has been read.
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

    async fn write_request(&mut self, request: &ClientRequest) -> Result<(), ConnectionError> {
        let line = request.to_line();
        if line.len() > MAX_FRAME_BYTES {
            return Err(ConnectionError::TooLarge { method: request.method.name(), bytes: line.len() });
        }
        let written = with_timeout(&self.socket, self.writer.write_all(line.as_bytes())).await?;
        written.map_err(|source| ConnectionError::Io {
            what: "write to",
            socket: self.socket.clone(),
            source,
        })
    }

    fn closed_error(&self) -> ConnectionError {
        ConnectionError::Closed { socket: self.socket.clone() }
    }

    fn timeout_error(&self, patience: Duration) -> ConnectionError {
        ConnectionError::TimedOut { socket: self.socket.clone(), ms: patience.as_millis() }
    }
}

/// Applies the timeout to one wait for the peer.
async fn with_timeout<T>(socket: &Path, wait: impl Future<Output = T>) -> Result<T, ConnectionError> {
    timeout(SOCKET_TIMEOUT, wait)
        .await
        .map_err(|_| ConnectionError::TimedOut { socket: socket.to_owned(), ms: SOCKET_TIMEOUT.as_millis() })
}

/// The reason why the communication with a pod failed.
#[derive(Debug, Error)]
pub enum ConnectionError {
    #[error("could not {what} the socket {}", .socket.display())]
    Io { what: &'static str, socket: PathBuf, source: io::Error },
    #[error("the pod at {} did not answer for {ms} ms", .socket.display())]
    TimedOut { socket: PathBuf, ms: u128 },
    #[error("the pod at {} closed the connection", .socket.display())]
    Closed { socket: PathBuf },
    #[error("the process that listens at {} is not a pod: {why}", .socket.display())]
    NotAPod { socket: PathBuf, why: String },
    #[error("the pod refused the connection: {}", .refusal.message)]
    Refused { refusal: Refusal },
    #[error("the pod ended the connection: {}", .refusal.message)]
    Ended { refusal: Refusal },
    #[error("the pod at {} sent an invalid line", .socket.display())]
    BadLine {
        socket: PathBuf,
        #[source]
        fault: LineReadError,
    },
    #[error("the pod at {} sent an invalid frame", .socket.display())]
    BadFrame {
        socket: PathBuf,
        #[source]
        bad: FrameError,
    },
    #[error("`{method}` takes {bytes} bytes, more than one frame holds ({MAX_FRAME_BYTES})")]
    TooLarge { method: &'static str, bytes: usize },
}

impl ConnectionError {
    /// Whether no process listens on the socket: the pod is starting, stopping, or dead.
    pub fn is_not_running(&self) -> bool {
        match self {
            ConnectionError::Io { source, .. } => matches!(
                source.kind(),
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::NotFound
                    | io::ErrorKind::BrokenPipe
                    | io::ErrorKind::ConnectionReset
            ),
            ConnectionError::Closed { .. } => true,
            ConnectionError::TimedOut { .. }
            | ConnectionError::NotAPod { .. }
            | ConnectionError::Refused { .. }
            | ConnectionError::Ended { .. }
            | ConnectionError::BadLine { .. }
            | ConnectionError::BadFrame { .. }
            | ConnectionError::TooLarge { .. } => false,
        }
    }

    /// A hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            ConnectionError::Io { .. } | ConnectionError::Closed { .. } => {
                "`minke ps` lists running pods; repeat the command to start the pod"
            }
            ConnectionError::TimedOut { .. } => {
                "`minke stop NAME --kill` kills a pod that hangs; written data is not lost"
            }
            ConnectionError::NotAPod { .. }
            | ConnectionError::BadLine { .. }
            | ConnectionError::BadFrame { .. } => {
                "the pod may be of another version: stop it and start it again"
            }
            ConnectionError::Refused { .. } => "see `minke ps`",
            ConnectionError::Ended { .. } => "`minke log verify` checks the session's log for damage",
            ConnectionError::TooLarge { .. } => {
                "send less data, or refer to a file instead of including its content"
            }
        }
    }
}
