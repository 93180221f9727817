//! Clients: the connected clients and their pending messages.
//!
//! Here: the registry, admission, and the state shared by reader and writer of a connection. Elsewhere:
//! reading (`reader`), writing (`writer`), the shared event stream (`stream`), methods (`dispatch`).
//! Invariant: reader and writer of a connection are separate tasks that do not wait for each other, and the
//! event loop waits for neither (`a_large_snapshot_does_not_block_a_client_that_writes_and_closes`).

pub(crate) mod convert;
pub(crate) mod log_reader;
pub(crate) mod queries;
pub(crate) mod reader;
pub(crate) mod secret_filter;
pub(crate) mod stream;
pub(crate) mod writer;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use minke_protocol::limits::{CLIENT_QUEUE_BYTES, MAX_WAITING_METHODS};
use minke_protocol::{
    Event, EventPosition, Frame, Hello, InFlight, Method, Refusal, ReplyData, RequestId, Snapshot,
    encode_event,
};
use minke_record::{Actor, ErrorCode, Position, SystemItem};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use self::secret_filter::SecretFilter;
use crate::clients::log_reader::SessionReader;
use crate::clients::stream::{PodEventStream, ReaderTicket, StreamCursor};
use crate::event_loop::event::LoopEvent;

/// The maximum number of connections. A terminal, a web page, an editor and some scripts need far fewer.
const MAX_CLIENTS: usize = 512;
/// The kernel send buffer for a client that reads in bursts, if the kernel permits this size.
const SEND_BUFFER_BYTES: usize = 256 * 1024;
/// The surface of a client that did not name one.
const DEFAULT_SURFACE: &str = "socket";
/// The stored part of a client's name, which is part of every entry that the client causes.
const MAX_SURFACE_CHARS: usize = 64;

pub(crate) type ClientId = u64;

/// The state shared by the event loop, the reader and the writer of one connection.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub(crate) id: ClientId,
    /// The client's self-reported identity. It grants no authority.
    actor: OnceLock<Actor>,
    queue: Mutex<ClientQueue>,
    /// Wakes the writer.
    wake: Notify,
    /// Wakes a reader that waits until replies have been sent.
    drained: Notify,
    /// One permit for each method that may wait.
    method_permits: Arc<Semaphore>,
    /// The socket is no longer writable; received requests are still processed.
    unwritable: AtomicBool,
}

/// Messages for this client only.
#[derive(Debug, Default)]
struct ClientQueue {
    items: VecDeque<QueuedMessage>,
    /// Messages that follow the snapshot, held while the client waits for its position in the stream.
    held_back: Option<VecDeque<QueuedMessage>>,
    bytes: usize,
    /// The reader has finished.
    reader_done: bool,
}

/// A message for one client, sent when the client has received the stream up to `at`.
#[derive(Debug)]
pub(crate) struct QueuedMessage {
    pub(crate) at: StreamCursor,
    pub(crate) message: ClientMessage,
}

pub(crate) enum ClientMessage {
    /// A line, newline included. Sending it releases the permit of its method.
    Line { line: Arc<str>, permit: Option<MethodPermit> },
    /// A line that is built when it is sent, so that a client that does not read costs no memory. Reads
    /// files.
    Deferred { make: DeferredLine, permit: Option<MethodPermit> },
    /// The client subscribes to the stream.
    Join(Box<ClientJoin>),
    /// The client had fallen behind and subscribes again at this position.
    Rejoin(Box<ClientRejoin>, StreamCursor),
}

/// Builds one or more lines from the data on disk.
pub(crate) type DeferredLine = Box<dyn FnOnce(&SessionReader) -> Option<Arc<str>> + Send>;

/// The permit of a pending method; dropping it allows the client another one.
#[derive(Debug)]
pub(crate) struct MethodPermit {
    _permit: OwnedSemaphorePermit,
}

/// The pod's state when a client joins, consistent with its position in the stream.
#[derive(Debug)]
pub(crate) struct ClientJoin {
    pub(crate) hello: Hello,
    /// Alerts for a new client that are not in the snapshot, each with its position.
    pub(crate) alerts: Vec<(Option<u64>, Arc<str>)>,
    /// Without its entries.
    pub(crate) snapshot: Box<Snapshot>,
    /// First entry of the current segment.
    pub(crate) segment_start: u64,
    /// Set when the client's position in the stream is reached.
    pub(crate) stream_position: Option<(ReaderTicket, StreamCursor)>,
}

#[derive(Debug)]
pub(crate) struct ClientRejoin {
    pub(crate) head: Position,
    pub(crate) in_flight: InFlight,
    pub(crate) status: Arc<str>,
}

impl std::fmt::Debug for ClientMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ClientMessage::Line { .. } => "Line",
            ClientMessage::Deferred { .. } => "Work",
            ClientMessage::Join(_) => "Join",
            ClientMessage::Rejoin(..) => "Rejoin",
        })
    }
}

impl ClientConnection {
    fn new(id: ClientId) -> ClientConnection {
        ClientConnection {
            id,
            actor: OnceLock::new(),
            queue: Mutex::default(),
            wake: Notify::new(),
            drained: Notify::new(),
            method_permits: Arc::new(Semaphore::new(MAX_WAITING_METHODS)),
            unwritable: AtomicBool::new(false),
        }
    }

    fn lock_queue(&self) -> MutexGuard<'_, ClientQueue> {
        // No code panics while it holds the lock, and the guarded value would still be consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the client's identity. Only the first call has an effect.
    pub(crate) fn set_actor(&self, hello: &Hello) {
        let info = hello.client.as_ref();
        let name: String =
            info.map(|info| info.name.chars().take(MAX_SURFACE_CHARS).collect()).unwrap_or_default();
        let surface = if name.is_empty() { DEFAULT_SURFACE } else { &name };
        let actor = match info.and_then(|info| info.session) {
            Some(session) => Actor { surface: Some(surface.to_owned()), ..Actor::from_pod(session) },
            None => Actor::from_person(surface),
        };
        self.actor.get_or_init(|| actor);
    }

    pub(crate) fn actor(&self) -> Actor {
        self.actor.get().cloned().unwrap_or_else(|| Actor::from_person(DEFAULT_SURFACE))
    }

    /// Adds a message to this client's own queue.
    pub(crate) fn send(&self, at: StreamCursor, message: ClientMessage) {
        if self.unwritable.load(Ordering::Relaxed) {
            return;
        }
        let mut own = self.lock_queue();
        if let ClientMessage::Line { line, .. } = &message {
            own.bytes += line.len();
        }
        let joins = matches!(message, ClientMessage::Join(_));
        match &mut own.held_back {
            Some(held) if !joins => held.push_back(QueuedMessage { at, message }),
            Some(_) | None => own.items.push_back(QueuedMessage { at, message }),
        }
        if joins && let Some(held) = own.held_back.take() {
            own.items.extend(held);
        }
        drop(own);
        self.wake.notify_one();
    }

    /// Holds back all later messages until the client joins: alerts and the snapshot come first.
    fn hold_back(&self) {
        self.lock_queue().held_back.get_or_insert_default();
    }

    /// Waits until another method is permitted and this client has read most of its messages.
    pub(crate) async fn acquire_permit(&self) -> MethodPermit {
        loop {
            let drained = self.drained.notified();
            if self.lock_queue().bytes <= CLIENT_QUEUE_BYTES {
                break;
            }
            drained.await;
        }
        let permit = Arc::clone(&self.method_permits).acquire_owned().await;
        MethodPermit { _permit: permit.expect("the semaphore of a client is never closed") }
    }

    /// The next message for this client only, if the client has received the stream up to its position.
    fn next_message(&self, reached: Option<StreamCursor>) -> NextMessage {
        let mut own = self.lock_queue();
        let Some(first) = own.items.front() else {
            let idle = self.method_permits.available_permits() == MAX_WAITING_METHODS;
            return if own.reader_done && idle { NextMessage::Finished } else { NextMessage::Empty };
        };
        if reached.is_some_and(|reached| reached < first.at) {
            return NextMessage::AfterStream(first.at);
        }
        let Some(placed) = own.items.pop_front() else { return NextMessage::Empty };
        if let ClientMessage::Line { line, .. } = &placed.message {
            own.bytes -= line.len();
            self.drained.notify_one();
        }
        NextMessage::Message(placed.message)
    }

    /// Marks the end of the input: the writer finishes after the last reply.
    fn finish_reading(&self) {
        self.lock_queue().reader_done = true;
        self.wake.notify_one();
    }

    /// Marks the socket as not writable.
    fn mark_unwritable(&self) {
        self.unwritable.store(true, Ordering::Relaxed);
        let mut own = self.lock_queue();
        let (items, held) = (std::mem::take(&mut own.items), own.held_back.take());
        own.bytes = 0;
        drop(own);
        // Drops the permits of the discarded replies.
        drop((items, held));
        self.drained.notify_one();
    }
}

enum NextMessage {
    Message(ClientMessage),
    /// The stream up to this position comes first.
    AfterStream(StreamCursor),
    Empty,
    /// All replies are sent and no more requests follow.
    Finished,
}

/// Sends the reply to one request.
#[derive(Debug)]
pub(crate) struct ReplyHandle {
    pub(crate) client: Arc<ClientConnection>,
    pub(crate) id: Option<RequestId>,
    pub(crate) permit: MethodPermit,
}

impl ReplyHandle {
    /// Replies with success. Without an id nothing is sent.
    pub(crate) fn accept_with(self, at: StreamCursor, result: ReplyData) {
        if let Some(id) = self.id {
            let line = minke_protocol::encode_reply(id, result);
            self.client.send(at, ClientMessage::Line { line, permit: Some(self.permit) });
        }
    }

    pub(crate) fn refuse_with(self, at: StreamCursor, refusal: Refusal) {
        let line = refusal_line(self.id, refusal);
        self.client.send(at, ClientMessage::Line { line, permit: Some(self.permit) });
    }

    /// Lets `make` build the reply from the id when the client is ready to read.
    pub(crate) fn reply_later(
        self,
        at: StreamCursor,
        make: impl FnOnce(&SessionReader, Option<RequestId>) -> Option<Arc<str>> + Send + 'static,
    ) {
        let id = self.id;
        let make: DeferredLine = Box::new(move |session_reader| make(session_reader, id));
        self.client.send(at, ClientMessage::Deferred { make, permit: Some(self.permit) });
    }
}

/// The line of a refusal: a reply if the method had an id, otherwise an `error` event.
pub(crate) fn refusal_line(id: Option<RequestId>, refusal: Refusal) -> Arc<str> {
    match id {
        Some(id) => minke_protocol::encode_reply(id, ReplyData::Refused(refusal)),
        None => encode_event(&Event::Error(refusal), &EventPosition::Direct { id: None }, None),
    }
}

/// All connected clients.
pub(crate) struct ClientRegistry {
    connected: HashMap<ClientId, Arc<ClientConnection>>,
    readers: JoinSet<()>,
    writers: JoinSet<()>,
    stream: Arc<PodEventStream>,
    session_reader: SessionReader,
    events: mpsc::Sender<LoopEvent>,
    secret_filter: SecretFilter,
    next_id: ClientId,
    uid: u32,
}

impl ClientRegistry {
    pub(crate) fn new(
        stream: Arc<PodEventStream>,
        session_reader: SessionReader,
        events: mpsc::Sender<LoopEvent>,
        secret_filter: SecretFilter,
    ) -> ClientRegistry {
        let uid = rustix::process::geteuid().as_raw();
        let (readers, writers) = (JoinSet::new(), JoinSet::new());
        ClientRegistry {
            connected: HashMap::new(),
            readers,
            writers,
            stream,
            session_reader,
            events,
            secret_filter,
            next_id: 0,
            uid,
        }
    }

    pub(crate) fn client_count(&self) -> usize {
        self.connected.len()
    }

    /// Admits a connection, unless it is from another user or exceeds the maximum.
    pub(crate) fn admit_client(&mut self, socket: UnixStream) -> io::Result<()> {
        if socket.peer_cred()?.uid() != self.uid {
            return Ok(()); // Closed without a message: another user gets no information.
        }
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER_BYTES)?;
        self.reap_tasks();
        // A client that only listens still has a writer.
        if self.writers.len() >= MAX_CLIENTS {
            self.writers.spawn(reject_client(socket));
            return Ok(());
        }
        self.next_id += 1;
        let client = Arc::new(ClientConnection::new(self.next_id));
        self.connected.insert(client.id, Arc::clone(&client));
        let (read, write) = socket.into_split();
        let door = reader::ReaderContext {
            stream: Arc::clone(&self.stream),
            session_reader: self.session_reader.clone(),
            events: self.events.clone(),
            secret_filter: self.secret_filter.clone(),
        };
        self.readers.spawn(reader::read_client(Arc::clone(&client), read, door));
        let writing = writer::ClientWriter::new(
            client,
            Arc::clone(&self.stream),
            self.session_reader.clone(),
            self.events.clone(),
        );
        self.writers.spawn(writing.run_writer(write));
        Ok(())
    }

    /// Removes a client that has closed its input.
    pub(crate) fn remove_client(&mut self, id: ClientId) {
        self.connected.remove(&id);
        self.reap_tasks();
    }

    /// Reaps finished tasks.
    fn reap_tasks(&mut self) {
        while self.readers.try_join_next().is_some() {}
        while self.writers.try_join_next().is_some() {}
    }

    /// Stops reading and waits until every writer has sent its last line.
    pub(crate) async fn close_all(&mut self) {
        self.readers.shutdown().await;
        while self.writers.join_next().await.is_some() {}
    }
}

/// Refuses a client because the maximum is reached.
async fn reject_client(mut socket: UnixStream) {
    let message = format!("{MAX_CLIENTS} clients are connected already; close one first");
    let line = Frame::new_direct(Event::Error(Refusal::new(ErrorCode::TooMany, message))).to_line();
    // The connection is closed either way, so a write error does not matter.
    drop(socket.write_all(line.as_bytes()).await);
}

/// A method on its way to the event loop.
#[derive(Debug)]
pub(crate) struct MethodRequest {
    pub(crate) reply_handle: ReplyHandle,
    pub(crate) method: Method,
    /// The references of a `run` input, or the reason why they could not be read.
    pub(crate) attachments: Result<Vec<SystemItem>, String>,
}
