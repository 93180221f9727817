//! The runtime directory: one directory for each live pod, and the scope table.
//!
//! Here: registering a pod, with or without a ticket, and lending, under `scope.lock`. Each is tried on the unverified
//! table first; only if that refuses, or a directory is in the way, dead pods are looked for and removed.
//! Elsewhere: the lock and the table (`locked_table`), live pods (`snapshot`), the rules of changes (`table`), writing
//! (`table_store`), dead pods (`liveness`), the operations of a lease holder (`lease`), its exit (`release`).
//! Invariant: one name has one holder (`one_name_has_one_holder_under_a_race`), and the remains of a dead pod do not
//! block other pods (`a_killed_pod_is_not_shown_and_its_name_is_free`).

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_record::{Millis, Permission, PodName, ScopeRule, SessionId};

use crate::error::{RegistryError, io_error};
use crate::files::{create_private_dir, open_lock, retry_lock};
use crate::grant;
use crate::lease::{ScopeLease, ScopeRow};
use crate::liveness::Liveness;
use crate::locked_table::LockedTable;
use crate::paths::UserPaths;
use crate::table::{LoanRequest, PodLimits, ScopeTable};
use crate::ticket::ScopeTicket;

/// Watchers lock a child's lease for moments; a longer holder is another pod.
const LEASE_TIMEOUT: Duration = Duration::from_secs(1);
/// The retry interval for a watched lease.
const LEASE_RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The runtime directory, and the state directory that keeps the stderr of dead pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeDir {
    pub(crate) root: PathBuf,
    pub(crate) state: PathBuf,
}

impl RuntimeDir {
    /// Uses directories that already exist ([`UserPaths::create_dirs`]).
    pub fn new(paths: &UserPaths) -> RuntimeDir {
        RuntimeDir { root: paths.runtime.clone(), state: paths.state.clone() }
    }

    pub fn root_dir(&self) -> &Path {
        &self.root
    }

    pub fn pod_dir(&self, name: &PodName) -> PathBuf {
        self.root.join("pods").join(name.as_str())
    }

    /// Returns the file for a pod's stderr until the pod has its directory, where the file is moved then.
    pub fn starting_log(&self, session: SessionId) -> Result<PathBuf, RegistryError> {
        let dir = self.root.join("starting");
        create_private_dir(&dir).map_err(io_error("make", &dir))?;
        Ok(self.starting_log_path(session))
    }

    fn starting_log_path(&self, session: SessionId) -> PathBuf {
        self.root.join("starting").join(format!("{session}.log"))
    }

    /// Gives a pod without a lender its row, its name and a new directory. With `unique` a taken name gets a number.
    ///
    /// The row contains the pod's scope and its ancestors; a session with a live ancestor needs a ticket.
    pub fn register_pod(
        &self,
        row: ScopeRow,
        limits: PodLimits,
        unique: bool,
    ) -> Result<ScopeLease, RegistryError> {
        let session = row.session;
        if let Some(mut open) = self.open_quick()?
            && self.is_unknown(&open, session, &row.name)?
            && let Ok(next) = table_with_row(&open, &row, limits, unique)
            // The name of a dead pod would get a number needlessly.
            && next.find_row(session).is_some_and(|own| own.name == row.name)
        {
            return self.commit_row(&mut open, next, session, None);
        }
        self.retry_until_free(|open| {
            let next = table_with_row(open, &row, limits, unique)?;
            self.commit_row(open, next, session, None)
        })
    }

    /// Creates a row for a child out of the lender's scope, and returns the ticket for its process.
    pub fn lend_scope(&self, lend: &LoanRequest) -> Result<ScopeTicket, RegistryError> {
        let ticket = ScopeTicket::generate().map_err(io_error("read", "/dev/urandom"))?;
        if let Some(mut open) = self.open_quick()?
            && self.is_unknown(&open, lend.session, &lend.name)?
            && let Ok(next) = self.table_with_loan(&open, lend, &ticket)
        {
            remove_leftover_dir(&mut open, next, &lend.name)?;
            return Ok(ticket);
        }
        self.retry_until_free(|open| {
            let next = self.table_with_loan(open, lend, &ticket)?;
            remove_leftover_dir(open, next, &lend.name)
        })?;
        Ok(ticket)
    }

    fn table_with_loan(
        &self,
        open: &LockedTable<'_>,
        lend: &LoanRequest,
        ticket: &ScopeTicket,
    ) -> Result<ScopeTable, RegistryError> {
        let lender = open.table.find_row(lend.lender);
        let wanted: Vec<&ScopeRule> = lend.scope.allow.iter().chain(&lend.extra_scope.allow).collect();
        grant::check_lender_grants(lender.map_or(&[], |row| &row.grants), &wanted)?;
        let patience = Millis::try_from(lend.ticket_timeout.as_millis()).unwrap_or(Millis::MAX);
        let place = ScopeRow {
            socket: self.pod_dir(&lend.name).join("sock"),
            grants: grant::existing_grants(wanted.iter().copied())?,
            ticket_hash: Some(ticket.ticket_hash()),
            deadline: Some(now_millis().saturating_add(patience)),
            ..ScopeRow::without_process(lend.name.clone(), lend.session)
        };
        open.table.with_loan(lend, place)
    }

    /// Returns whether a session that needs a row is new: no directory of its name, and no descendants that it could
    /// get back.
    fn is_unknown(
        &self,
        open: &LockedTable<'_>,
        session: SessionId,
        name: &PodName,
    ) -> Result<bool, RegistryError> {
        let dir = self.pod_dir(name);
        match fs::symlink_metadata(&dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(!open.table.has_descendants(session)),
            Err(e) => Err(io_error("look at", dir)(e)),
            Ok(_) => Ok(false),
        }
    }

    /// Gives a child's process the row of its session. The row already contains the lent scope; `here` only identifies
    /// the process.
    pub fn adopt_row(
        &self,
        process_row: &ScopeRow,
        ticket: &ScopeTicket,
    ) -> Result<ScopeLease, RegistryError> {
        if let Some(open) = self.open_quick()?
            && open.table.with_adopted(process_row, &ticket.ticket_hash(), now_millis()).is_ok()
        {
            return self.adopt_in_table(open, process_row, ticket);
        }
        self.adopt_in_table(self.open_table()?, process_row, ticket)
    }

    fn adopt_in_table(
        &self,
        mut open: LockedTable<'_>,
        here: &ScopeRow,
        ticket: &ScopeTicket,
    ) -> Result<ScopeLease, RegistryError> {
        let next = open.table.with_adopted(here, &ticket.ticket_hash(), now_millis())?;
        let lost = || RegistryError::BadTicket { session: here.session };
        let row = next.find_row(here.session).ok_or_else(lost)?;
        grant::check_unchanged(&row.grants, row.scope.allow.iter())?;
        let dir = self.pod_dir(&row.name);
        let path = dir.join("lease");
        // The liveness check may have locked it.
        open.pod_dirs.retain(|lease| lease.dir != dir);
        let file = File::options().read(true).write(true).open(&path).map_err(io_error("open", &path))?;
        lock_lease(&file, &path)?;
        self.commit_row(&mut open, next, here.session, Some(file))
    }

    /// Takes back a loan to a session whose process has ended or never started. Does nothing if there is no loan.
    pub fn withdraw_loan(&self, session: SessionId) -> Result<(), RegistryError> {
        let mut open = self.open_table()?;
        // Its launcher may have died after creating this file and before starting the pod.
        let starting = self.starting_log_path(session);
        match fs::remove_file(&starting) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", starting)(e)),
            _ => {}
        }
        let Some(row) = open.table.find_row(session) else { return Ok(()) };
        let (name, dir) = (row.name.clone(), self.pod_dir(&row.name));
        if open.pod_dirs.iter().any(|lease| lease.dir == dir && lease.liveness != Liveness::Gone) {
            return Err(RegistryError::StillHeld { name });
        }
        let next = open.table.without_pod(session);
        open.write_change(next)?;
        open.remove_dead();
        Ok(())
    }

    /// Releases a pod's write access until `take_scope`.
    pub fn give_scope(&self, session: SessionId) -> Result<(), RegistryError> {
        self.change_table(|table| table.give_scope(session))
    }

    /// Takes a pod's write access back; refused if another pod has it now.
    pub fn take_scope(&self, session: SessionId) -> Result<(), RegistryError> {
        self.change_table(|table| table.take_scope(session))
    }

    fn change_table(
        &self,
        change: impl Fn(&ScopeTable) -> Result<ScopeTable, RegistryError>,
    ) -> Result<(), RegistryError> {
        if let Some(mut open) = self.open_quick()?
            && let Ok(next) = change(&open.table)
        {
            return open.write_change(next);
        }
        self.retry_until_free(|open| {
            let next = change(&open.table)?;
            open.write_change(next)
        })
    }

    /// Writes a table with a new row for this process, and prepares its directory. `held` is its lease, if it already
    /// has one.
    fn commit_row(
        &self,
        open: &mut LockedTable<'_>,
        mut next: ScopeTable,
        session: SessionId,
        held_lease: Option<File>,
    ) -> Result<ScopeLease, RegistryError> {
        let unknown = || RegistryError::UnknownPod { session };
        let row = next.row_mut(session).ok_or_else(unknown)?;
        row.socket = self.pod_dir(&row.name).join("sock");
        let row = row.clone();
        let adopting = held_lease.is_some();
        let dir = if adopting { self.pod_dir(&row.name) } else { open.create_pod_dir(&row.name)? };
        let move_in = || -> Result<File, RegistryError> {
            let path = dir.join("lease");
            let file = match held_lease {
                Some(file) => file,
                None => {
                    let file = open_lock(&path).map_err(io_error("open", &path))?;
                    lock_lease(&file, &path)?;
                    file
                }
            };
            file.set_modified(SystemTime::now()).map_err(io_error("touch", &path))?;
            self.create_pod_files(session, &dir)?;
            open.write_change(next)?;
            Ok(file)
        };
        let file = move_in().inspect_err(|_| {
            if !adopting {
                discard_dir(&dir);
            }
        })?;
        let reclaimed = open.reclaimed.iter().find(|pod_dir| pod_dir.name == row.name.as_str()).cloned();
        Ok(ScopeLease { file, row, runtime: self.clone(), reclaimed })
    }

    /// Creates the content of a pod's directory.
    fn create_pod_files(&self, session: SessionId, dir: &Path) -> Result<(), RegistryError> {
        for name in ["tmp", "output"] {
            let path = dir.join(name);
            create_private_dir(&path).map_err(io_error("make", path))?;
        }
        let starting = self.starting_log_path(session);
        match fs::rename(&starting, dir.join("stderr.log")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error("move", starting)(e)),
            _ => Ok(()),
        }
    }
}

/// Returns the table with a row for a pod without a lender.
fn table_with_row(
    open: &LockedTable<'_>,
    row: &ScopeRow,
    limits: PodLimits,
    unique: bool,
) -> Result<ScopeTable, RegistryError> {
    let since = now_millis();
    let writes = row.scope.allow.iter().filter(|rule| rule.permission == Permission::Write);
    let grants = grant::existing_grants(writes)?;
    open.table.with_root_pod(ScopeRow { since, grants, ..row.clone() }, limits, unique)
}

/// Writes a table with a row that waits for a ticket, and removes a leftover directory of its name.
fn remove_leftover_dir(
    open: &mut LockedTable<'_>,
    next: ScopeTable,
    name: &PodName,
) -> Result<(), RegistryError> {
    let dir = open.create_pod_dir(name)?;
    let lease = dir.join("lease");
    let child_row = open_lock(&lease).map(drop).map_err(io_error("make", lease));
    child_row.and_then(|()| open.write_change(next)).inspect_err(|_| discard_dir(&dir))
}

pub(crate) fn now_millis() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// Removes the files of a refused change. If that fails, the next snapshot removes them.
fn discard_dir(dir: &Path) {
    drop(fs::remove_dir_all(dir));
}

fn lock_lease(file: &File, path: &Path) -> Result<(), RegistryError> {
    let until = Instant::now() + LEASE_TIMEOUT;
    loop {
        match retry_lock(|| file.try_lock()) {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                std::thread::sleep(LEASE_RETRY_INTERVAL)
            }
            Err(TryLockError::WouldBlock) => {
                return Err(RegistryError::LockBusy {
                    path: path.to_owned(),
                    seconds: LEASE_TIMEOUT.as_secs(),
                });
            }
            Err(TryLockError::Error(e)) => return Err(io_error("lock", path)(e)),
        }
    }
}
