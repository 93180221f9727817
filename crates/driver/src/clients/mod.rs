//! Clients: who is connected, and what each one is still to be sent.
//!
//! Here: the table, admission, and what reader and writer of a connection share. Elsewhere: reading (`reading`),
//! writing (`writing`), what everybody sees (`stream`), what a method does (`methods`).
//! Invariant: reader and writer of a connection are tasks of their own; neither waits for the other, and the loop waits
//! for neither (`a_large_snapshot_does_not_block_a_client_that_writes_and_closes`).

pub(crate) mod guard;
pub(crate) mod reading;
pub(crate) mod writing;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use minke_protocol::limits::{CLIENT_BYTES, WAITING_METHODS};
use minke_protocol::{
    Event, Frame, Hello, Id, InFlight, Method, Place, Refusal, ReplyData, Snapshot, encode,
};
use minke_record::{Actor, ErrorCode, Position, SystemItem};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;

use self::guard::Guard;
use crate::library::Library;
use crate::mail::Mail;
use crate::stream::{Cursor, Stream, Ticket};

/// Connections at once: a terminal, a web page, an editor and some scripts are far fewer.
const CLIENTS: usize = 512;
/// What the kernel keeps for a client that reads in bursts, as far as it allows so much.
const SEND_BUFFER: usize = 256 * 1024;
/// What a client that did not say who it is counts as.
const SOCKET_SURFACE: &str = "socket";
/// What is kept of a client's name: it stands in every entry that it leads to.
const SURFACE_CHARS: usize = 64;

pub(crate) type ClientId = u64;

/// What the loop, the reader and the writer of one connection share.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: ClientId,
    /// Who speaks, as it said itself. It gives no authority.
    actor: OnceLock<Actor>,
    own: Mutex<Own>,
    /// Wakes the writer.
    wake: Notify,
    /// Wakes a reader that waits until replies have been sent.
    drained: Notify,
    /// One permit for each method that may wait.
    methods: Arc<Semaphore>,
    /// Nothing can be written any more; what was received is still acted on.
    deaf: AtomicBool,
}

/// What this client alone is to be sent.
#[derive(Debug, Default)]
struct Own {
    items: VecDeque<Placed>,
    /// While the client waits for its place in the stream: what comes after its snapshot.
    held: Option<VecDeque<Placed>>,
    bytes: usize,
    /// Nothing more will be read from this client.
    ended: bool,
}

/// Something for one client, to be sent when it has got the stream up to `at`.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) at: Cursor,
    pub(crate) what: ForOne,
}

pub(crate) enum ForOne {
    /// A line, newline included. The method that it answers waits no longer once it is sent.
    Line { line: Arc<str>, waited: Option<Waiting> },
    /// To be made when it is to be sent, so that a client that does not read costs no memory. Reads files.
    Work { make: Work, waited: Option<Waiting> },
    /// The client begins to read along.
    Join(Box<Join>),
    /// The client, which had fallen behind, reads along again from this place.
    Rejoin(Box<Rejoin>, Cursor),
}

/// Makes a line (or several) from what is on disk.
pub(crate) type Work = Box<dyn FnOnce(&Library) -> Option<Arc<str>> + Send>;

/// A method that waits; dropping it lets the client send another one.
#[derive(Debug)]
pub(crate) struct Waiting {
    _permit: OwnedSemaphorePermit,
}

/// Where the pod stood when a client joined: taken together with its place in the stream.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) hello: Hello,
    /// With its place: alerts that a new client is told, if the snapshot does not hold them.
    pub(crate) alerts: Vec<(Option<u64>, Arc<str>)>,
    /// Without its entries.
    pub(crate) around: Box<Snapshot>,
    /// First entry of the current segment.
    pub(crate) segment_start: u64,
    /// Filled in when the client's place in the stream has come.
    pub(crate) place: Option<(Ticket, Cursor)>,
}

#[derive(Debug)]
pub(crate) struct Rejoin {
    pub(crate) head: Position,
    pub(crate) in_flight: InFlight,
    pub(crate) status: Arc<str>,
}

impl std::fmt::Debug for ForOne {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ForOne::Line { .. } => "Line",
            ForOne::Work { .. } => "Work",
            ForOne::Join(_) => "Join",
            ForOne::Rejoin(..) => "Rejoin",
        })
    }
}

impl Client {
    fn new(id: ClientId) -> Client {
        Client {
            id,
            actor: OnceLock::new(),
            own: Mutex::default(),
            wake: Notify::new(),
            drained: Notify::new(),
            methods: Arc::new(Semaphore::new(WAITING_METHODS)),
            deaf: AtomicBool::new(false),
        }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        // Nothing panics while it holds the lock, and what it guards would still be whole.
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers who speaks. Only the first word counts.
    pub(crate) fn introduce(&self, hello: &Hello) {
        let info = hello.client.as_ref();
        let name: String =
            info.map(|info| info.name.chars().take(SURFACE_CHARS).collect()).unwrap_or_default();
        let surface = if name.is_empty() { SOCKET_SURFACE } else { &name };
        let actor = match info.and_then(|info| info.session) {
            Some(session) => Actor { surface: Some(surface.to_owned()), ..Actor::pod(session) },
            None => Actor::person(surface),
        };
        self.actor.get_or_init(|| actor);
    }

    pub(crate) fn actor(&self) -> Actor {
        self.actor.get().cloned().unwrap_or_else(|| Actor::person(SOCKET_SURFACE))
    }

    /// Puts something into this client's own queue.
    pub(crate) fn send(&self, at: Cursor, what: ForOne) {
        if self.deaf.load(Ordering::Relaxed) {
            return;
        }
        let mut own = self.own();
        if let ForOne::Line { line, .. } = &what {
            own.bytes += line.len();
        }
        let joins = matches!(what, ForOne::Join(_));
        match &mut own.held {
            Some(held) if !joins => held.push_back(Placed { at, what }),
            Some(_) | None => own.items.push_back(Placed { at, what }),
        }
        if joins && let Some(held) = own.held.take() {
            own.items.extend(held);
        }
        drop(own);
        self.wake.notify_one();
    }

    /// Holds everything back that is sent from now on, until the client joins: alerts and snapshot come first.
    fn hold(&self) {
        self.own().held.get_or_insert_default();
    }

    /// Waits until one more method may wait, and until this client has taken most of what it was sent.
    pub(crate) async fn may_ask(&self) -> Waiting {
        loop {
            let drained = self.drained.notified();
            if self.own().bytes <= CLIENT_BYTES {
                break;
            }
            drained.await;
        }
        let permit = Arc::clone(&self.methods).acquire_owned().await;
        Waiting { _permit: permit.expect("the semaphore of a client is never closed") }
    }

    /// The next thing for this client alone, if it has got the stream up to its place.
    fn take(&self, reached: Option<Cursor>) -> Next {
        let mut own = self.own();
        let Some(first) = own.items.front() else {
            let idle = self.methods.available_permits() == WAITING_METHODS;
            return if own.ended && idle { Next::End } else { Next::Nothing };
        };
        if reached.is_some_and(|reached| reached < first.at) {
            return Next::After(first.at);
        }
        let Some(placed) = own.items.pop_front() else { return Next::Nothing };
        if let ForOne::Line { line, .. } = &placed.what {
            own.bytes -= line.len();
            self.drained.notify_one();
        }
        Next::This(placed.what)
    }

    /// Nothing more will be read from this client: its writer ends when everything was answered.
    fn end(&self) {
        self.own().ended = true;
        self.wake.notify_one();
    }

    /// Nothing can be written to this client any more.
    fn deafen(&self) {
        self.deaf.store(true, Ordering::Relaxed);
        let mut own = self.own();
        let (items, held) = (std::mem::take(&mut own.items), own.held.take());
        own.bytes = 0;
        drop(own);
        // The methods that they answer wait no longer.
        drop((items, held));
        self.drained.notify_one();
    }
}

enum Next {
    This(ForOne),
    /// The stream up to this place comes first.
    After(Cursor),
    Nothing,
    /// Everything was answered and nothing more will be asked.
    End,
}

/// Somebody who asked for something and has not been answered.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) client: Arc<Client>,
    pub(crate) id: Option<Id>,
    pub(crate) waiting: Waiting,
}

impl Asker {
    /// Answers with an accepted result. Without an id there is nothing to say.
    pub(crate) fn accept(self, at: Cursor, result: ReplyData) {
        if let Some(id) = self.id {
            let line = minke_protocol::reply(id, result);
            self.client.send(at, ForOne::Line { line, waited: Some(self.waiting) });
        }
    }

    pub(crate) fn refuse(self, at: Cursor, refusal: Refusal) {
        let line = refusal_line(self.id, refusal);
        self.client.send(at, ForOne::Line { line, waited: Some(self.waiting) });
    }

    /// Lets `make` say it when the client is ready to read: given the id, it makes the line.
    pub(crate) fn answer_later(
        self,
        at: Cursor,
        make: impl FnOnce(&Library, Option<Id>) -> Option<Arc<str>> + Send + 'static,
    ) {
        let id = self.id;
        let make: Work = Box::new(move |library| make(library, id));
        self.client.send(at, ForOne::Work { make, waited: Some(self.waiting) });
    }
}

/// A refusal to one client: a reply if the method had an id, else an `error` event.
pub(crate) fn refusal_line(id: Option<Id>, refusal: Refusal) -> Arc<str> {
    match id {
        Some(id) => minke_protocol::reply(id, ReplyData::Refused(refusal)),
        None => encode(&Event::Error(refusal), &Place::One { id: None }, None),
    }
}

/// Everybody who is connected.
pub(crate) struct Clients {
    connected: HashMap<ClientId, Arc<Client>>,
    readers: JoinSet<()>,
    writers: JoinSet<()>,
    stream: Arc<Stream>,
    library: Library,
    mail: mpsc::Sender<Mail>,
    guard: Guard,
    next: ClientId,
    uid: u32,
}

impl Clients {
    pub(crate) fn new(
        stream: Arc<Stream>,
        library: Library,
        mail: mpsc::Sender<Mail>,
        guard: Guard,
    ) -> Clients {
        let uid = rustix::process::geteuid().as_raw();
        let (readers, writers) = (JoinSet::new(), JoinSet::new());
        Clients { connected: HashMap::new(), readers, writers, stream, library, mail, guard, next: 0, uid }
    }

    pub(crate) fn count(&self) -> usize {
        self.connected.len()
    }

    /// Takes a connection on, unless it is another user's or one too many.
    pub(crate) fn admit(&mut self, socket: UnixStream) -> io::Result<()> {
        if socket.peer_cred()?.uid() != self.uid {
            return Ok(()); // Closed at once: another user has nothing to be told.
        }
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, SEND_BUFFER)?;
        self.reap();
        // A client that only listens still has its writer.
        if self.writers.len() >= CLIENTS {
            self.writers.spawn(turn_away(socket));
            return Ok(());
        }
        self.next += 1;
        let client = Arc::new(Client::new(self.next));
        self.connected.insert(client.id, Arc::clone(&client));
        let (read, write) = socket.into_split();
        let door = reading::Door {
            stream: Arc::clone(&self.stream),
            library: self.library.clone(),
            mail: self.mail.clone(),
            guard: self.guard.clone(),
        };
        self.readers.spawn(reading::read(Arc::clone(&client), read, door));
        let writing =
            writing::Writing::new(client, Arc::clone(&self.stream), self.library.clone(), self.mail.clone());
        self.writers.spawn(writing.run(write));
        Ok(())
    }

    /// A client has said everything it will ever say.
    pub(crate) fn forget(&mut self, id: ClientId) {
        self.connected.remove(&id);
        self.reap();
    }

    /// Lets go of tasks that have ended.
    fn reap(&mut self) {
        while self.readers.try_join_next().is_some() {}
        while self.writers.try_join_next().is_some() {}
    }

    /// Stops reading and waits until every writer has sent its last line.
    pub(crate) async fn say_goodbye(&mut self) {
        self.readers.shutdown().await;
        while self.writers.join_next().await.is_some() {}
    }
}

/// Tells a client that there are too many.
async fn turn_away(mut socket: UnixStream) {
    let message = format!("{CLIENTS} clients are connected already; close one first");
    let line = Frame::one(Event::Error(Refusal::new(ErrorCode::TooMany, message))).line();
    // It is being closed either way; whether it hears why is its own affair.
    drop(socket.write_all(line.as_bytes()).await);
}

/// A method on its way to the loop.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) asker: Asker,
    pub(crate) method: Method,
    /// What the input of a `run` refers to, or why that cannot be had.
    pub(crate) attached: Result<Vec<SystemItem>, String>,
}
