//! The runtime directory: one directory for each live pod, and the scope table over them.
//!
//! Here: getting a row, by oneself or with a ticket, lending one, and looking who lives. Everything happens under
//! `scope.lock`, after what the dead left was cleared away. Elsewhere: what a change may be (`table`), how it is written
//! (`ledger`), how the dead are found and buried (`graves`), what a holder does with its lease (`lease`).
//! Invariant: one name has one holder (`one_name_has_one_holder_under_a_race`), and what a dead pod left stops nobody
//! (`a_killed_pod_is_not_shown_and_its_name_is_free`).

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_record::{Millis, Permission, PodName, ScopeRule, SessionId};

use crate::error::{RegistryError, at};
use crate::files::{ask_lock, make_dir, open_lock, read_small};
use crate::grant;
use crate::graves::{Found, Life};
use crate::lease::{Row, ScopeLease};
use crate::ledger;
use crate::paths::Paths;
use crate::shelf::Files;
use crate::status::PodStatus;
use crate::table::{Lend, Table, TableLimits};
use crate::ticket::Ticket;

/// A pod that holds its lease and has not beaten for this long shows as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// `scope.lock` is held for a few file operations; a holder that needs this long hangs.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How often a busy `scope.lock` is tried again.
const LOCK_RETRY: Duration = Duration::from_millis(2);
/// A child's lease is locked for moments by those who watch it; whoever holds it longer is another pod.
const LEASE_WAIT: Duration = Duration::from_secs(1);
/// How long one waits for what a dead pod had started to end, where it is in the way, and how often one looks.
const FENCES_WAIT: Duration = Duration::from_secs(2);
const FENCES_RETRY: Duration = Duration::from_millis(10);
/// `status.json` is a few hundred bytes.
const STATUS_BYTES: u64 = 64 * 1024;

/// The runtime directory, and the state directory where the stderr of dead pods is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    pub(crate) root: PathBuf,
    pub(crate) state: PathBuf,
}

/// A pod that holds its lease.
#[derive(Debug, Clone, PartialEq)]
pub struct Live {
    pub row: Row,
    /// Absent while the pod starts.
    pub status: Option<PodStatus>,
    pub beat_age: Duration,
}

impl Live {
    pub fn stuck(&self) -> bool {
        self.beat_age >= STUCK_AFTER
    }

    /// The word that `minke ps` shows.
    pub fn state(&self) -> &str {
        match &self.status {
            _ if self.stuck() => "stuck",
            Some(status) => &status.state,
            None => "starting",
        }
    }
}

/// A dead pod's directory that was cleared away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reclaimed {
    pub name: String,
    pub session: Option<SessionId>,
    /// Where the end of its stderr is kept, if it had said anything.
    pub stderr: Option<PathBuf>,
    /// Why its row could not be read or its stderr not be kept.
    pub problem: Option<String>,
}

/// What a look at the runtime directory found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Look {
    /// By name.
    pub live: Vec<Live>,
    pub reclaimed: Vec<Reclaimed>,
    /// What could not be read, in words for a person.
    pub problems: Vec<String>,
}

impl Look {
    pub fn by_name(&self, name: &PodName) -> Option<&Live> {
        self.live.iter().find(|live| live.row.name == *name)
    }

    pub fn by_session(&self, session: SessionId) -> Option<&Live> {
        self.live.iter().find(|live| live.row.session == session)
    }
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
        self.when_free(|open| {
            let since = now();
            let writes = row.scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
            let grants = grant::found_all(writes)?;
            let next = open.table.register(Row { since, grants, ..row.clone() }, limits, unique)?;
            self.settle_in(open, next, session, None)
        })
    }

    /// Makes a row for a child, out of the lender's scope, and gives the ticket by which its process gets it.
    pub fn lend(&self, lend: &Lend) -> Result<Ticket, RegistryError> {
        let ticket = Ticket::draw().map_err(at("read", "/dev/urandom"))?;
        self.when_free(|open| {
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
            let next = open.table.lend(lend, place)?;
            let dir = open.fresh_dir(&lend.name)?;
            let lease = dir.join("lease");
            let made = open_lock(&lease).map(drop).map_err(at("make", lease));
            made.and_then(|()| open.change(next)).inspect_err(|_| discard(&dir))
        })?;
        Ok(ticket)
    }

    /// Gives a child's process the row that was made for its session. What was lent stands there; `here` says only which
    /// process it is.
    pub fn adopt(&self, here: &Row, ticket: &Ticket) -> Result<ScopeLease, RegistryError> {
        let mut open = self.open()?;
        let next = open.table.adopt(here, &ticket.hash(), now())?;
        let lost = || RegistryError::BadTicket { session: here.session };
        let row = next.row(here.session).ok_or_else(lost)?;
        grant::same(&row.grants, row.scope.allow.iter())?;
        let dir = self.pod_dir(&row.name);
        let path = dir.join("lease");
        // Looking whether it is free has locked it.
        open.leases.retain(|lease| lease.dir != dir);
        let file = File::options().read(true).write(true).open(&path).map_err(at("open", &path))?;
        // The survey has found it free and keeps a shared lock on it, which would stand in our own way.
        open.leases.retain(|lease| lease.dir != dir);
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
        let mut open = self.open()?;
        let next = open.table.give_scope(session)?;
        open.change(next)
    }

    /// A pod takes back what it gave up; refused if somebody has it now.
    pub fn take_scope(&self, session: SessionId) -> Result<(), RegistryError> {
        self.when_free(|open| {
            let next = open.table.take_scope(session)?;
            open.change(next)
        })
    }

    /// Who lives. What the dead left is cleared away by whoever looks.
    pub fn look(&self) -> Result<Look, RegistryError> {
        let pods = self.root.join("pods");
        let mut look = Look::default();
        if !pods.try_exists().map_err(at("look at", &pods))? {
            return Ok(look);
        }
        let open = self.open_any()?;
        look.reclaimed = open.reclaimed;
        look.problems = open.problems;
        look.problems.extend(open.damage.map(|e| e.to_string()));
        for lease in open.leases.into_iter().filter(|lease| lease.life == Life::Held) {
            match live(lease, &open.table, &mut look.problems) {
                Ok(found) => look.live.push(found),
                Err(e) => look.problems.push(e.to_string()),
            }
        }
        look.live.sort_by(|a, b| a.row.name.cmp(&b.row.name));
        Ok(look)
    }

    /// The scope table, without the dead.
    pub fn table(&self) -> Result<Table, RegistryError> {
        Ok(self.open()?.table)
    }

    /// The first of these sessions that has a live pod.
    pub fn ancestor(&self, of: &[SessionId]) -> Result<Option<Row>, RegistryError> {
        Ok(self.table()?.first_living(of).cloned())
    }

    /// Holds `scope.lock` as long as the file lives.
    pub(crate) fn lock(&self) -> Result<File, RegistryError> {
        let path = self.root.join("scope.lock");
        let file = open_lock(&path).map_err(at("open", &path))?;
        let until = Instant::now() + LOCK_WAIT;
        loop {
            match ask_lock(|| file.try_lock()) {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
                Err(TryLockError::WouldBlock) => {
                    return Err(RegistryError::LockBusy { path, seconds: LOCK_WAIT.as_secs() });
                }
                Err(TryLockError::Error(e)) => return Err(at("lock", path)(e)),
            }
        }
    }

    /// Opens the table and tries a change; while the only thing in the way is a dead pod whose commands are just ending,
    /// tries again.
    pub(crate) fn when_free<T>(
        &self,
        mut change: impl FnMut(&mut Open<'_>) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let until = Instant::now() + FENCES_WAIT;
        loop {
            let mut open = self.open()?;
            let refused = match change(&mut open) {
                Err(e) if e.holder().is_some() => e,
                done => return done,
            };
            let dir = refused.holder().map(|row| self.pod_dir(&row.name));
            let dying = |lease: &Found| lease.life == Life::Dying && dir.as_ref() == Some(&lease.dir);
            if Instant::now() >= until || !open.leases.iter().any(dying) {
                return Err(refused);
            }
            drop(open);
            std::thread::sleep(FENCES_RETRY);
        }
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

    pub(crate) fn open(&self) -> Result<Open<'_>, RegistryError> {
        let mut open = self.open_any()?;
        match open.damage.take() {
            Some(damage) => Err(damage),
            None => Ok(open),
        }
    }

    /// Takes `scope.lock`, reads the table, and clears away what is dead.
    fn open_any(&self) -> Result<Open<'_>, RegistryError> {
        let lock = self.lock()?;
        let (leases, strange) = self.survey()?;
        let mut open = Open {
            runtime: self,
            _lock: lock,
            table: Table::default(),
            leases,
            reclaimed: Vec::new(),
            unburied: Vec::new(),
            problems: Vec::new(),
            damage: None,
        };
        match ledger::catch_up(&mut Files { root: &self.root }, &open.leases, now()) {
            Ok(read) => {
                open.problems = read.problems;
                open.problems.extend(strange);
                open.table = read.table;
            }
            Err(e) => open.damage = Some(e),
        }
        if open.damage.is_none() {
            open.bury_the_rest();
        }
        Ok(open)
    }
}

/// The table while `scope.lock` is held, and what was found beside it.
pub(crate) struct Open<'a> {
    runtime: &'a Runtime,
    _lock: File,
    pub(crate) table: Table,
    pub(crate) leases: Vec<Found>,
    reclaimed: Vec<Reclaimed>,
    /// Directories of the dead that could not be cleared away, and why.
    unburied: Vec<(PathBuf, RegistryError)>,
    problems: Vec<String>,
    /// Why nothing can be changed.
    damage: Option<RegistryError>,
}

impl Open<'_> {
    /// Makes the next table the table.
    pub(crate) fn change(&mut self, next: Table) -> Result<(), RegistryError> {
        self.table = ledger::write(&mut Files { root: &self.runtime.root }, &self.table, next)?;
        Ok(())
    }

    /// Removes the directories that belong to no row and in which nobody lives.
    pub(crate) fn bury_the_rest(&mut self) {
        let mut kept = Vec::new();
        for lease in std::mem::take(&mut self.leases) {
            let needed = self.table.pods.iter().any(|row| lease.is_of(row));
            if needed || lease.life != Life::Gone {
                kept.push(lease);
                continue;
            }
            match self.runtime.bury(&lease) {
                Ok(grave) => self.reclaimed.extend(grave),
                Err(e) => {
                    self.problems.push(e.to_string());
                    self.unburied.push((lease.dir.clone(), e));
                }
            }
        }
        self.leases = kept;
    }

    /// A new directory for a pod.
    fn fresh_dir(&mut self, name: &PodName) -> Result<PathBuf, RegistryError> {
        let dir = self.runtime.pod_dir(name);
        if let Some(place) = self.unburied.iter().position(|(left, _)| *left == dir) {
            return Err(self.unburied.remove(place).1);
        }
        make_dir(&dir).map_err(at("make", &dir))?;
        Ok(dir)
    }
}

fn now() -> Millis {
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
            Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::sleep(LOCK_RETRY),
            Err(TryLockError::WouldBlock) => {
                return Err(RegistryError::LockBusy { path: path.to_owned(), seconds: LEASE_WAIT.as_secs() });
            }
            Err(TryLockError::Error(e)) => return Err(at("lock", path)(e)),
        }
    }
}

fn live(lease: Found, table: &Table, problems: &mut Vec<String>) -> Result<Live, RegistryError> {
    let path = lease.dir.join("lease");
    let named = table.pods.iter().find(|row| lease.is_of(row));
    let Some(row) = named.cloned().or(lease.row) else {
        let why = lease.damage.unwrap_or_else(|| "held, but has no row".to_owned());
        return Err(at("read", path)(io::Error::new(io::ErrorKind::InvalidData, why)));
    };
    let beat = fs::metadata(&path).and_then(|found| found.modified()).map_err(at("look at", path))?;
    let beat_age = SystemTime::now().duration_since(beat).unwrap_or_default();
    let status = read_status(&lease.dir.join("status.json")).unwrap_or_else(|e| {
        problems.push(e.to_string());
        None
    });
    Ok(Live { row, status, beat_age })
}

fn read_status(path: &Path) -> Result<Option<PodStatus>, RegistryError> {
    let Some(bytes) = read_small(path, STATUS_BYTES).map_err(at("read", path))? else {
        return Ok(None);
    };
    let status = serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(at("understand", path))?;
    Ok(Some(status))
}
