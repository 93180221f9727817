//! The server link: one connection, and the thread that uses it.
//!
//! The traits of a store are synchronous and are called inside an async runtime, so a separate thread waits for the
//! network: callers send it work and wait for the result. Here: reconnecting, retrying while the server restarts,
//! renewing leases.
//! Elsewhere: the statements (`disk`, `log_file`, `locks`).
//! Guarantee: work passed to `run_work` is done once or fails with an error, even if the connection breaks repeatedly
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
use crate::settings::LeaseTimes;

/// The capacity of the work queue. Callers wait for their results, so it never fills.
const MAX_QUEUE: usize = 1_024;
/// The pause between attempts while the server is unreachable.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(500);

type WorkFn = Box<dyn FnOnce(&mut ServerConnection) + Send>;

/// Called once when another process holds, or may hold, a lease of this process.
pub(crate) type LossHandler = Arc<dyn Fn(&str) + Send + Sync>;

/// The link to the server, shared by all parts of one store.
pub(crate) struct ServerLink {
    work: mpsc::SyncSender<WorkFn>,
    pub(crate) owner: Uuid,
    pub(crate) times: LeaseTimes,
    pub(crate) held_leases: Arc<HeldLeases>,
    /// There are commits that a crash of the server may lose.
    pub(crate) has_unflushed: AtomicBool,
}

/// The leases of this process.
pub(crate) struct HeldLeases {
    leases: Mutex<HashMap<(i64, &'static str), HeldLease>>,
    loss_handler: Mutex<Option<LossHandler>>,
}

#[derive(Debug, Clone, Copy)]
struct HeldLease {
    token: i64,
    renewed: Instant,
}

/// Why an attempt failed.
pub(crate) enum LinkError {
    /// The connection broke or failed: it is unknown whether the work was done. It is retried.
    ServerDown(String),
    /// The server or this process refuses the work.
    Refused(io::Error),
}

impl From<postgres::Error> for LinkError {
    fn from(error: postgres::Error) -> LinkError {
        let reason = error_text(&error);
        let Some(code) = error.code() else {
            // Not an error from the server: the connection broke, failed, or returned an invalid response.
            let config = reason.contains("invalid configuration") || reason.contains("password missing");
            return if config {
                LinkError::Refused(io::Error::new(io::ErrorKind::InvalidInput, reason))
            } else {
                LinkError::ServerDown(reason)
            };
        };
        let away = code.code().starts_with("08")
            || code.code().starts_with("57P")
            || *code == SqlState::TOO_MANY_CONNECTIONS
            || *code == SqlState::T_R_DEADLOCK_DETECTED
            || *code == SqlState::T_R_SERIALIZATION_FAILURE;
        if away {
            return LinkError::ServerDown(reason);
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
        LinkError::Refused(io::Error::new(kind, reason))
    }
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        LinkError::Refused(error)
    }
}

impl From<io::ErrorKind> for LinkError {
    fn from(kind: io::ErrorKind) -> LinkError {
        LinkError::Refused(kind.into())
    }
}

/// Returns the error and its cause on one line. Neither contains the password.
fn error_text(error: &postgres::Error) -> String {
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

/// One attempt to do some work.
pub(crate) struct WorkAttempt<'a> {
    pub(crate) client: &'a mut Client,
    /// An earlier attempt may have done the work already.
    pub(crate) is_retry: bool,
}

struct ServerConnection {
    config: Config,
    client: Option<Client>,
    /// Whether the tables were checked.
    is_schema_checked: bool,
}

impl ServerConnection {
    fn connected_client(&mut self) -> Result<&mut Client, LinkError> {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = None;
            let mut client = crate::tls::connect_client(&self.config)?;
            client.batch_execute("set synchronous_commit = off; set client_min_messages = warning")?;
            if !self.is_schema_checked {
                schema::prepare_tables(&mut client)?;
                self.is_schema_checked = true;
            }
            self.client = Some(client);
        }
        self.client.as_mut().ok_or_else(|| LinkError::ServerDown("there is no connection".to_owned()))
    }

    fn try_work<T>(
        &mut self,
        is_retry: bool,
        work: &mut dyn FnMut(&mut WorkAttempt<'_>) -> Result<T, LinkError>,
    ) -> Result<T, LinkError> {
        let done = self.connected_client().and_then(|client| work(&mut WorkAttempt { client, is_retry }));
        if let Err(LinkError::ServerDown(_)) = done {
            self.client = None;
        }
        done
    }
}

impl ServerLink {
    /// Starts the thread, which ends when the link is dropped. Connects at the first work.
    pub(crate) fn new(config: Config, owner: Uuid, times: LeaseTimes) -> io::Result<Arc<ServerLink>> {
        let (work, queue) = mpsc::sync_channel::<WorkFn>(MAX_QUEUE);
        let leases_held =
            Arc::new(HeldLeases { leases: Mutex::new(HashMap::new()), loss_handler: Mutex::new(None) });
        let leases = Arc::clone(&leases_held);
        std::thread::Builder::new().name("postgres".to_owned()).spawn(move || {
            let mut server = ServerConnection { config, client: None, is_schema_checked: false };
            let mut next = Instant::now() + times.renew;
            loop {
                match queue.recv_timeout(next.saturating_duration_since(Instant::now())) {
                    Ok(work) => work(&mut server),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                if Instant::now() >= next {
                    leases.renew_leases(&mut server, owner, times);
                    next = Instant::now() + times.renew;
                }
            }
        })?;
        // A separate thread, because the other one may wait for an unresponsive server.
        let watched = Arc::downgrade(&leases_held);
        std::thread::Builder::new().name("lease watch".to_owned()).spawn(move || {
            while let Some(held) = watched.upgrade() {
                held.watch_leases(times);
                drop(held);
                std::thread::sleep(times.renew / 2);
            }
        })?;
        Ok(Arc::new(ServerLink {
            work,
            owner,
            times,
            held_leases: leases_held,
            has_unflushed: AtomicBool::new(false),
        }))
    }

    /// Runs some work and retries it while the server is unreachable, until the timeout.
    pub(crate) fn run_work<T, F>(&self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WorkAttempt<'_>) -> Result<T, LinkError> + Send + 'static,
    {
        let until = Instant::now() + self.times.retry_for;
        let work = Arc::new(Mutex::new(work));
        let mut pause = MIN_PAUSE;
        let mut is_retry = false;
        loop {
            let away = match self.run_once(&work, is_retry, until) {
                Ok(done) => return Ok(done),
                Err(LinkError::Refused(error)) => return Err(error),
                Err(LinkError::ServerDown(reason)) => reason,
            };
            if Instant::now() + pause >= until {
                return Err(io::Error::new(
                    io::ErrorKind::NotConnected,
                    format!("the database does not respond: {away}"),
                ));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(MAX_PAUSE);
            is_retry = true;
        }
    }

    fn run_once<T, F>(&self, work: &Arc<Mutex<F>>, again: bool, until: Instant) -> Result<T, LinkError>
    where
        T: Send + 'static,
        F: FnMut(&mut WorkAttempt<'_>) -> Result<T, LinkError> + Send + 'static,
    {
        let (answer, answered) = mpsc::sync_channel(1);
        let work = Arc::clone(work);
        let job: WorkFn = Box::new(move |server| {
            let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
            // The caller may have timed out.
            drop(answer.send(server.try_work(again, &mut *work)));
        });
        let gone = || LinkError::Refused(io::Error::other("the database thread has ended"));
        self.work.send(job).map_err(|_| gone())?;
        match answered.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => {
                Err(LinkError::ServerDown("the database did not respond in time".to_owned()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    /// The same for a change that a later flush makes durable.
    pub(crate) fn run_change<T, F>(&self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WorkAttempt<'_>) -> Result<T, LinkError> + Send + 'static,
    {
        self.has_unflushed.store(true, Ordering::SeqCst);
        self.run_work(work)
    }

    /// Makes all earlier commits durable: the server writes its journal in order.
    pub(crate) fn flush_commits(&self) -> io::Result<()> {
        if !self.has_unflushed.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let flushed = self.run_work(|at| {
            let mut change = durable_transaction(at.client)?;
            change.execute("select pg_logical_emit_message(true, 'minke', '')", &[])?;
            Ok(change.commit()?)
        });
        if flushed.is_err() {
            self.has_unflushed.store(true, Ordering::SeqCst);
        }
        flushed
    }
}

/// Starts a transaction whose commit is durable.
pub(crate) fn durable_transaction(client: &mut Client) -> Result<postgres::Transaction<'_>, LinkError> {
    let mut change = client.transaction()?;
    change.batch_execute("set local synchronous_commit = on")?;
    Ok(change)
}

impl HeldLeases {
    fn lock_leases(&self) -> MutexGuard<'_, HashMap<(i64, &'static str), HeldLease>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn on_loss(&self, lost: LossHandler) {
        *self.loss_handler.lock().unwrap_or_else(PoisonError::into_inner) = Some(lost);
    }

    /// Records a lease. `since` is a time before the request: the server's expiry starts later.
    pub(crate) fn add_lease(&self, session: i64, name: &'static str, token: i64, since: Instant) {
        self.lock_leases().insert((session, name), HeldLease { token, renewed: since });
    }

    /// Removes a lease, unless it was taken again meanwhile.
    pub(crate) fn forget_lease(&self, session: i64, name: &'static str, fence: i64) {
        let mut leases = self.lock_leases();
        if leases.get(&(session, name)).is_some_and(|lease| lease.token == fence) {
            leases.remove(&(session, name));
        }
    }

    pub(crate) fn fencing_token(&self, session: i64, name: &'static str) -> Option<i64> {
        self.lock_leases().get(&(session, name)).map(|lease| lease.token)
    }

    /// Reports a lost lease once.
    pub(crate) fn report_loss(&self, session: i64, name: &'static str, reason: &str) {
        if self.lock_leases().remove(&(session, name)).is_none() {
            return;
        }
        let lost = self.loss_handler.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(lost) = lost {
            lost(reason);
        }
    }

    fn renew_leases(&self, server: &mut ServerConnection, owner: Uuid, times: LeaseTimes) {
        let now = Instant::now();
        let wanted: Vec<((i64, &'static str), i64)> =
            self.lock_leases().iter().map(|(key, lease)| (*key, lease.token)).collect();
        if wanted.is_empty() {
            return;
        }
        let sessions: Vec<i64> = wanted.iter().map(|((session, _), _)| *session).collect();
        let names: Vec<&str> = wanted.iter().map(|((_, name), _)| *name).collect();
        let fences: Vec<i64> = wanted.iter().map(|(_, fence)| *fence).collect();
        let renewed = server.try_work(false, &mut |at| {
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
                .collect::<Result<Vec<_>, LinkError>>()
        });
        // Without a response the state is unknown; `watch_leases` reports it if that lasts.
        let Ok(renewed) = renewed else { return };
        for ((session, name), fence) in wanted {
            let ours = renewed.iter().any(|(s, n, f)| *s == session && n == name && *f == fence);
            let current = self.fencing_token(session, name) == Some(fence);
            if ours && current {
                self.add_lease(session, name, fence, now);
            } else if !ours && current {
                self.report_loss(session, name, "another process holds the session now");
            }
        }
    }

    fn watch_leases(&self, times: LeaseTimes) {
        let late: Vec<(i64, &'static str)> = self
            .lock_leases()
            .iter()
            .filter(|(_, lease)| lease.renewed.elapsed() > times.unsure_after)
            .map(|(key, _)| *key)
            .collect();
        for (session, name) in late {
            self.report_loss(
                session,
                name,
                "could not reach the database in time to renew the session's lease",
            );
        }
    }
}
