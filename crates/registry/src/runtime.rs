//! The runtime directory: one directory for each live pod, and the scope table over them.
//!
//! Here: getting a row, by oneself or with a ticket, and lending one, under `scope.lock`. Each is tried on the table as it
//! lies there; only where that refuses, or something lies in the way, the dead are looked for and cleared away first.
//! Elsewhere: the lock and the table under it (`opened`), who lives (`look`), what a change may be (`table`), how it is
//! written (`ledger`), how the dead are found and buried (`graves`), what a holder does with its lease (`lease`), how it
//! lets go (`leaving`).
//! Invariant: one name has one holder (`one_name_has_one_holder_under_a_race`), and what a dead pod left stops nobody
//! (`a_killed_pod_is_not_shown_and_its_name_is_free`).

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_record::{Millis, Permission, PodName, ScopeRule, SessionId};

use crate::error::{RegistryError, at};
use crate::files::{ask_lock, make_dir, open_lock};
use crate::grant;
use crate::graves::Life;
use crate::lease::{Row, ScopeLease};
use crate::opened::Open;
use crate::paths::Paths;
use crate::table::{Lend, Table, TableLimits};
use crate::ticket::Ticket;

/// A child's lease is locked for moments by those who watch it; whoever holds it longer is another pod.
const LEASE_WAIT: Duration = Duration::from_secs(1);
/// How often a lease that somebody watches is tried again.
const LEASE_RETRY: Duration = Duration::from_millis(2);

/// The runtime directory, and the state directory where the stderr of dead pods is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    pub(crate) root: PathBuf,
    pub(crate) state: PathBuf,
}

impl Runtime {
    /// The runtime directory of a user whose directories have been made (`Paths::create`).
    pub fn new(paths: &Paths) -> Runtime {
        Runtime { root: paths.runtime.clone(), state: paths.state.clone() }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn pod_dir(&self, name: &PodName) -> PathBuf {
        self.root.join("pods").join(name.as_str())
    }

    /// Where a launcher sends a pod's stderr until the pod has its directory; it is taken along there.
    pub fn starting_log(&self, session: SessionId) -> Result<PathBuf, RegistryError> {
        let dir = self.root.join("starting");
        make_dir(&dir).map_err(at("make", &dir))?;
        Ok(self.starting(session))
    }

    fn starting(&self, session: SessionId) -> PathBuf {
        self.root.join("starting").join(format!("{session}.log"))
    }

    /// Gives a pod that nobody lends to its row, its name and a fresh directory. With `unique` a taken name is numbered.
    ///
    /// The row says the pod's scope and who was above it (`ancestors`); a session with a living ancestor needs a ticket.
    pub fn register(&self, row: Row, limits: TableLimits, unique: bool) -> Result<ScopeLease, RegistryError> {
        let session = row.session;
        if let Some(mut open) = self.open_at_once()?
            && self.is_new(&open, session, &row.name)?
            && let Ok(next) = registered(&open, &row, limits, unique)
            // A dead pod's name would be numbered for nothing.
            && next.row(session).is_some_and(|own| own.name == row.name)
        {
            return self.settle_in(&mut open, next, session, None);
        }
        self.when_free(|open| {
            let next = registered(open, &row, limits, unique)?;
            self.settle_in(open, next, session, None)
        })
    }

    /// Makes a row for a child, out of the lender's scope, and gives the ticket by which its process gets it.
    pub fn lend(&self, lend: &Lend) -> Result<Ticket, RegistryError> {
        let ticket = Ticket::draw().map_err(at("read", "/dev/urandom"))?;
        if let Some(mut open) = self.open_at_once()?
            && self.is_new(&open, lend.session, &lend.name)?
            && let Ok(next) = self.lent(&open, lend, &ticket)
        {
            make_room(&mut open, next, &lend.name)?;
            return Ok(ticket);
        }
        self.when_free(|open| {
            let next = self.lent(open, lend, &ticket)?;
            make_room(open, next, &lend.name)
        })?;
        Ok(ticket)
    }

    fn lent(&self, open: &Open<'_>, lend: &Lend, ticket: &Ticket) -> Result<Table, RegistryError> {
        let lender = open.table.row(lend.lender);
        let wanted: Vec<&ScopeRule> = lend.scope.allow.iter().chain(&lend.apart.allow).collect();
        grant::still_there(lender.map_or(&[], |row| &row.grants), &wanted)?;
        let patience = Millis::try_from(lend.patience.as_millis()).unwrap_or(Millis::MAX);
        let place = Row {
            socket: self.pod_dir(&lend.name).join("sock"),
            grants: grant::found_all(wanted.iter().copied())?,
            ticket_hash: Some(ticket.hash()),
            deadline: Some(now().saturating_add(patience)),
            ..Row::nowhere(lend.name.clone(), lend.session)
        };
        open.table.lend(lend, place)
    }

    /// Whether nothing is known of a session that wants a row: nothing lies in the directory of its name, and nobody was
    /// spawned below it who might be its own again.
    fn is_new(&self, open: &Open<'_>, session: SessionId, name: &PodName) -> Result<bool, RegistryError> {
        let dir = self.pod_dir(name);
        match fs::symlink_metadata(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(!open.table.has_below(session)),
            Err(e) => Err(at("look at", dir)(e)),
            Ok(_) => Ok(false),
        }
    }

    /// Gives a child's process the row that was made for its session. What was lent stands there; `here` says only which
    /// process it is.
    pub fn adopt(&self, here: &Row, ticket: &Ticket) -> Result<ScopeLease, RegistryError> {
        if let Some(open) = self.open_at_once()?
            && open.table.adopt(here, &ticket.hash(), now()).is_ok()
        {
            return self.move_in(open, here, ticket);
        }
        self.move_in(self.open()?, here, ticket)
    }

    fn move_in(&self, mut open: Open<'_>, here: &Row, ticket: &Ticket) -> Result<ScopeLease, RegistryError> {
        let next = open.table.adopt(here, &ticket.hash(), now())?;
        let lost = || RegistryError::BadTicket { session: here.session };
        let row = next.row(here.session).ok_or_else(lost)?;
        grant::same(&row.grants, row.scope.allow.iter())?;
        let dir = self.pod_dir(&row.name);
        let path = dir.join("lease");
        // Looking whether it is free may have locked it.
        open.leases.retain(|lease| lease.dir != dir);
        let file = File::options().read(true).write(true).open(&path).map_err(at("open", &path))?;
        lock_lease(&file, &path)?;
        self.settle_in(&mut open, next, here.session, Some(file))
    }

    /// Takes back what was lent to a session whose process is gone or never came. Does nothing if nothing is lent.
    pub fn withdraw(&self, session: SessionId) -> Result<(), RegistryError> {
        let mut open = self.open()?;
        // Its launcher may have died between making this and starting it.
        let starting = self.starting(session);
        match fs::remove_file(&starting) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(at("remove", starting)(e)),
            _ => {}
        }
        let Some(row) = open.table.row(session) else { return Ok(()) };
        let (name, dir) = (row.name.clone(), self.pod_dir(&row.name));
        if open.leases.iter().any(|lease| lease.dir == dir && lease.life != Life::Gone) {
            return Err(RegistryError::StillHeld { name });
        }
        let next = open.table.release(session);
        open.change(next)?;
        open.bury_the_rest();
        Ok(())
    }

    /// A pod gives up writing until `take_scope`.
    pub fn give_scope(&self, session: SessionId) -> Result<(), RegistryError> {
        self.change(|table| table.give_scope(session))
    }

    /// A pod takes back what it gave up; refused if somebody has it now.
    pub fn take_scope(&self, session: SessionId) -> Result<(), RegistryError> {
        self.change(|table| table.take_scope(session))
    }

    fn change(&self, change: impl Fn(&Table) -> Result<Table, RegistryError>) -> Result<(), RegistryError> {
        if let Some(mut open) = self.open_at_once()?
            && let Ok(next) = change(&open.table)
        {
            return open.change(next);
        }
        self.when_free(|open| {
            let next = change(&open.table)?;
            open.change(next)
        })
    }

    /// Makes a table with a new row for this process true, and its directory fit to live in. `held` is its lease, if
    /// there is one already.
    fn settle_in(
        &self,
        open: &mut Open<'_>,
        mut next: Table,
        session: SessionId,
        held: Option<File>,
    ) -> Result<ScopeLease, RegistryError> {
        let unknown = || RegistryError::UnknownPod { session };
        let row = next.row_mut(session).ok_or_else(unknown)?;
        row.socket = self.pod_dir(&row.name).join("sock");
        let row = row.clone();
        let adopting = held.is_some();
        let dir = if adopting { self.pod_dir(&row.name) } else { open.fresh_dir(&row.name)? };
        let move_in = || -> Result<File, RegistryError> {
            let path = dir.join("lease");
            let file = match held {
                Some(file) => file,
                None => {
                    let file = open_lock(&path).map_err(at("open", &path))?;
                    lock_lease(&file, &path)?;
                    file
                }
            };
            file.set_modified(SystemTime::now()).map_err(at("touch", &path))?;
            self.furnish(session, &dir)?;
            open.change(next)?;
            Ok(file)
        };
        let file = move_in().inspect_err(|_| {
            if !adopting {
                discard(&dir);
            }
        })?;
        let reclaimed = open.reclaimed.iter().find(|grave| grave.name == row.name.as_str()).cloned();
        Ok(ScopeLease { file, row, runtime: self.clone(), reclaimed })
    }

    /// Makes what a pod finds in its directory.
    fn furnish(&self, session: SessionId, dir: &Path) -> Result<(), RegistryError> {
        for name in ["tmp", "output"] {
            let path = dir.join(name);
            make_dir(&path).map_err(at("make", path))?;
        }
        let starting = self.starting(session);
        match fs::rename(&starting, dir.join("stderr.log")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at("move", starting)(e)),
            _ => Ok(()),
        }
    }
}

/// The table with a row for a pod that nobody lends to.
fn registered(open: &Open<'_>, row: &Row, limits: TableLimits, unique: bool) -> Result<Table, RegistryError> {
    let since = now();
    let writes = row.scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    let grants = grant::found_all(writes)?;
    open.table.register(Row { since, grants, ..row.clone() }, limits, unique)
}

/// Makes a table true in which a row waits for somebody with a ticket, and that row's directory.
fn make_room(open: &mut Open<'_>, next: Table, name: &PodName) -> Result<(), RegistryError> {
    let dir = open.fresh_dir(name)?;
    let lease = dir.join("lease");
    let made = open_lock(&lease).map(drop).map_err(at("make", lease));
    made.and_then(|()| open.change(next)).inspect_err(|_| discard(&dir))
}

pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// Clears away what a refused change had made. If that fails, whoever looks next does it.
fn discard(dir: &Path) {
    drop(fs::remove_dir_all(dir));
}

fn lock_lease(file: &File, path: &Path) -> Result<(), RegistryError> {
    let until = Instant::now() + LEASE_WAIT;
    loop {
        match ask_lock(|| file.try_lock()) {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LEASE_RETRY),
            Err(TryLockError::WouldBlock) => {
                return Err(RegistryError::LockBusy { path: path.to_owned(), seconds: LEASE_WAIT.as_secs() });
            }
            Err(TryLockError::Error(e)) => return Err(at("lock", path)(e)),
        }
    }
}
