//! The link: one connection to the server, and the thread that speaks over it.
//!
//! The traits of a store are synchronous and are called from inside a runtime, so nobody waits for the network but this
//! thread: callers hand it work and wait for the answer. Here: connecting anew, trying again while the server restarts,
//! renewing leases. Elsewhere: what the work is (`disk`, `logfile`, `locks`).
//! Promise: work that is given to `ask` is done once or its failure is said, however often the connection breaks
//! (`a_server_that_dies_again_and_again_loses_nothing_that_was_synced`).

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postgres::error::SqlState;
use postgres::{Client, Config};
use uuid::Uuid;

use crate::schema;
use crate::settings::Times;

/// What waits for the thread. More would be a caller who does not wait for his answers.
const QUEUE: usize = 1_024;
/// Between two attempts while the server is away.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_millis(500);

type Work = Box<dyn FnOnce(&mut Server) + Send>;

/// Told once when a lease that this process held is held by somebody else, or may be.
pub(crate) type Lost = Arc<dyn Fn(&str) + Send + Sync>;

/// A way to the server, shared by everything of one store.
pub(crate) struct Link {
    work: mpsc::SyncSender<Work>,
    pub(crate) owner: Uuid,
    pub(crate) times: Times,
    pub(crate) held: Arc<Held>,
    /// Something was committed that a crash of the server may still take back.
    pub(crate) unflushed: AtomicBool,
}

/// The leases that this process holds.
pub(crate) struct Held {
    leases: Mutex<HashMap<(i64, &'static str), Lease>>,
    lost: Mutex<Option<Lost>>,
}

#[derive(Debug, Clone, Copy)]
struct Lease {
    fence: i64,
    renewed: Instant,
}

/// Why an attempt did not succeed.
pub(crate) enum Trouble {
    /// The connection broke, or there is none: whether the work was done is not known. Worth another attempt.
    Away(String),
    /// The server, or we, refuse.
    Refused(io::Error),
}

impl From<postgres::Error> for Trouble {
    fn from(error: postgres::Error) -> Trouble {
        let why = said(&error);
        let Some(code) = error.code() else {
            // Not the server's word: the connection broke, could not be made, or an answer was not understood.
            let config = why.contains("invalid configuration") || why.contains("password missing");
            return if config {
                Trouble::Refused(io::Error::new(io::ErrorKind::InvalidInput, why))
            } else {
                Trouble::Away(why)
            };
        };
        let away = code.code().starts_with("08")
            || code.code().starts_with("57P")
            || *code == SqlState::TOO_MANY_CONNECTIONS
            || *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE;
        if away {
            return Trouble::Away(why);
        }
        let kind = if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY {
            io::ErrorKind::StorageFull
        } else if *code == SqlState::INSUFFICIENT_PRIVILEGE || code.code().starts_with("28") {
            io::ErrorKind::PermissionDenied
        } else if *code == SqlState::UNIQUE_VIOLATION {
            io::ErrorKind::AlreadyExists
        } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION {
            io::ErrorKind::ReadOnlyFilesystem
        } else {
            io::ErrorKind::Other
        };
        Trouble::Refused(io::Error::new(kind, why))
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Refused(error)
    }
}

impl From<io::ErrorKind> for Trouble {
    fn from(kind: io::ErrorKind) -> Trouble {
        Trouble::Refused(kind.into())
    }
}

/// The error and its cause on one line. Neither ever holds the password.
fn said(error: &postgres::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// One attempt at some work.
pub(crate) struct Attempt<'a> {
    pub(crate) client: &'a mut Client,
    /// An earlier attempt may have done it already.
    pub(crate) again: bool,
}

struct Server {
    config: Config,
    client: Option<Client>,
    /// Whether the tables were looked at.
    ready: bool,
}

impl Server {
    fn client(&mut self) -> Result<&mut Client, Trouble> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = None;
            let mut client = crate::tls::connect(&self.config)?;
            client.batch_execute("set synchronous_commit = off; set client_min_messages = warning")?;
            if !self.ready {
                schema::prepare(&mut client)?;
                self.ready = true;
            }
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(|| Trouble::Away("there is no connection".to_owned()))
    }

    fn attempt<T>(
        &mut self,
        again: bool,
        work: &mut dyn FnMut(&mut Attempt<'_>) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        let done = self.client().and_then(|client| work(&mut Attempt { client, again }));
        if let Err(Trouble::Away(_)) = done {
            self.client = None;
        }
        done
    }
}

impl Link {
    /// The thread ends when the link is dropped. Nothing is connected before the first work.
    pub(crate) fn new(config: Config, owner: Uuid, times: Times) -> io::Result<Arc<Link>> {
        let (work, queue) = mpsc::sync_channel::<Work>(QUEUE);
        let held = Arc::new(Held { leases: Mutex::new(HashMap::new()), lost: Mutex::new(None) });
        let leases = Arc::clone(&held);
        std::thread::Builder::new().name("postgres".to_owned()).spawn(move || {
            let mut server = Server { config, client: None, ready: false };
            let mut next = Instant::now() + times.renew;
            loop {
                match queue.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(work) => work(&mut server),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                if Instant::now() >= next {
                    leases.renew(&mut server, owner, times);
                    next = Instant::now() + times.renew;
                }
            }
        })?;
        // Of its own, because the other thread may wait for a server that says nothing at all.
        let watched = Arc::downgrade(&held);
        std::thread::Builder::new().name("lease watch".to_owned()).spawn(move || {
            while let Some(held) = watched.upgrade() {
                held.watch(times);
                drop(held);
                std::thread::sleep(times.renew / 2);
            }
        })?;
        Ok(Arc::new(Link { work, owner, times, held, unflushed: AtomicBool::new(false) }))
    }

    /// Has some work done, again and again while the server is away, for as long as patience lasts.
    pub(crate) fn ask<T, F>(&self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Attempt<'_>) -> Result<T, Trouble> + Send + 'static,
    {
        let until = Instant::now() + self.times.patience;
        let work = Arc::new(Mutex::new(work));
        let mut pause = PAUSE;
        let mut again = false;
        loop {
            let away = match self.once(&work, again, until) {
                Ok(done) => return Ok(done),
                Err(Trouble::Refused(error)) => return Err(error),
                Err(Trouble::Away(why)) => why,
            };
            if Instant::now() + pause >= until {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    format!("the database does not answer: {away}"),
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MOST);
            again = true;
        }
    }

    fn once<T, F>(&self, work: &Arc<Mutex<F>>, again: bool, until: Instant) -> Result<T, Trouble>
    where
        T: Send + 'static,
        F: FnMut(&mut Attempt<'_>) -> Result<T, Trouble> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        let work = Arc::clone(work);
        let job: Work = Box::new(move |server| {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever asked may have lost patience.
            drop(answer.send(server.attempt(again, &mut *work)));
        });
        let gone = || Trouble::Refused(io::Error::other("the thread that speaks to the database has ended"));
        self.work.send(job).map_err(|_| gone())?;
        match answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => Err(Trouble::Away("no answer in time".to_owned())),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    /// The same for work that changes something, which a later flush makes durable.
    pub(crate) fn change<T, F>(&self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Attempt<'_>) -> Result<T, Trouble> + Send + 'static,
    {
        self.unflushed.store(true, Ordering::SeqCst);
        self.ask(work)
    }

    /// Makes durable what was committed so far, by whomever: the server writes its journal in order.
    pub(crate) fn flush(&self) -> io::Result<()> {
        if !self.unflushed.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let flushed = self.ask(|at| {
            let mut change = durable(at.client)?;
            change.execute("select pg_logical_emit_message(true, 'minke', '')", &[])?;
            Ok(change.commit()?)
        });
        if flushed.is_err() {
            self.unflushed.store(true, Ordering::SeqCst);
        }
        flushed
    }
}

/// A transaction that is on the server's disk when it is committed.
pub(crate) fn durable(client: &mut Client) -> Result<postgres::Transaction<'_>, Trouble> {
    let mut change = client.transaction()?;
    change.batch_execute("set local synchronous_commit = on")?;
    Ok(change)
}

impl Held {
    fn leases(&self) -> MutexGuard<'_, HashMap<(i64, &'static str), Lease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn on_loss(&self, lost: Lost) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(lost);
    }

    /// `since` is a moment before the server was asked: its own clock began later.
    pub(crate) fn took(&self, session: i64, name: &'static str, fence: i64, since: Instant) {
        self.leases().insert((session, name), Lease { fence, renewed: since });
    }

    /// Forgets a lease, unless it was taken again meanwhile.
    pub(crate) fn let_go(&self, session: i64, name: &'static str, fence: i64) {
        let mut leases = self.leases();
        if leases.get(&(session, name)).is_some_and(|lease| lease.fence == fence) {
            leases.remove(&(session, name));
        }
    }

    pub(crate) fn fence(&self, session: i64, name: &'static str) -> Option<i64> {
        self.leases().get(&(session, name)).map(|lease| lease.fence)
    }

    /// Says that a lease is gone, once.
    pub(crate) fn lose(&self, session: i64, name: &'static str, why: &str) {
        if self.leases().remove(&(session, name)).is_none() {
            return;
        }
        let lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(lost) = lost {
            lost(why);
        }
    }

    fn renew(&self, server: &mut Server, owner: Uuid, times: Times) {
        let now = Instant::now();
        let wanted: Vec<((i64, &'static str), i64)> =
            self.leases().iter().map(|(key, lease)| (*key, lease.fence)).collect();
        if wanted.is_empty() {
            return;
        }
        let sessions: Vec<i64> = wanted.iter().map(|((session, _), _)| *session).collect();
        let names: Vec<&str> = wanted.iter().map(|((_, name), _)| *name).collect();
        let fences: Vec<i64> = wanted.iter().map(|(_, fence)| *fence).collect();
        let renewed = server.attempt(false, &mut |at| {
            let rows = at.client.query(
                "update minke.lease l set expires = clock_timestamp() + $5 * interval '1 millisecond'
                 from unnest($1::bigint[], $2::text[], $3::bigint[]) as w(session, name, fence)
                 where l.session = w.session and l.name = w.name and l.fence = w.fence and l.owner = $4
                 returning l.session, l.name, l.fence",
                &[&sessions, &names, &fences, &owner, &times.lease_ms()],
            )?;
            rows.iter()
                .map(|row| {
                    Ok((row.try_get::<_, i64>(0)?, row.try_get::<_, String>(1)?, row.try_get::<_, i64>(2)?))
                })
                .collect::<Result<Vec<_>, Trouble>>()
        });
        // Without an answer nothing is known; the watch says so when it lasts.
        let Ok(renewed) = renewed else { return };
        for ((session, name), fence) in wanted {
            let ours = renewed.iter().any(|(s, n, f)| *s == session && n == name && *f == fence);
            let current = self.fence(session, name) == Some(fence);
            if ours && current {
                self.took(session, name, fence, now);
            } else if !ours && current {
                self.lose(session, name, "another process holds the session now");
            }
        }
    }

    fn watch(&self, times: Times) {
        let late: Vec<(i64, &'static str)> = self
            .leases()
            .iter()
            .filter(|(_, lease)| lease.renewed.elapsed() > times.doubt)
            .map(|(key, _)| *key)
            .collect();
        for (session, name) in late {
            self.lose(session, name, "the database could not be reached in time to keep the session's lease");
        }
    }
}
