//! The scope table opened for a change, under `scope.lock`.
//!
//! Here: taking the lock, and two ways to open the table: unverified (`open_quick`), at a cost that does not depend on
//! the number of pods, and with a check of every pod's lease, which removes dead pods (`open_table`).
//! Elsewhere: the changes (`runtime_dir`, `release`), reading without the lock (`snapshot`).
//! Invariant: a change that the unverified table refuses is tried again on a table without dead pods
//! (`a_killed_pod_is_not_shown_and_its_name_is_free`, `the_dead_refuse_nobody`).

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use minke_record::PodName;

use crate::error::{RegistryError, io_error};
use crate::files::{create_private_dir, open_lock, retry_lock};
use crate::liveness::{Liveness, PodDir};
use crate::runtime_dir::{RuntimeDir, now_millis};
use crate::snapshot::ReclaimedPod;
use crate::table::ScopeTable;
use crate::table_files::TableFiles;
use crate::table_store;

/// `scope.lock` is held for a few file operations; a holder that takes this long hangs.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The retry interval for a busy `scope.lock`. It grows, so that many waiting processes leave the CPU to the holder.
const MIN_LOCK_RETRY: Duration = Duration::from_millis(1);
const MAX_LOCK_RETRY: Duration = Duration::from_millis(16);
/// How long, and how often, to wait for the child processes of a dead pod to end.
const SANDBOX_EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const SANDBOX_EXIT_RETRY: Duration = Duration::from_millis(10);

/// The pauses between attempts to take `scope.lock`.
pub(crate) struct RetryPauses(Duration);

impl RetryPauses {
    pub(crate) fn new() -> RetryPauses {
        RetryPauses(MIN_LOCK_RETRY)
    }

    pub(crate) fn sleep_next(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(MAX_LOCK_RETRY);
    }
}

impl RuntimeDir {
    /// Holds `scope.lock` while the file is open.
    pub(crate) fn lock_table(&self) -> Result<File, RegistryError> {
        let (until, mut pauses) = (Instant::now() + LOCK_TIMEOUT, RetryPauses::new());
        loop {
            match self.try_lock_table()? {
                Some(lock) => return Ok(lock),
                None if Instant::now() < until => pauses.sleep_next(),
                None => return Err(self.lock_busy_error()),
            }
        }
    }

    /// Returns `None` if another process holds the lock.
    pub(crate) fn try_lock_table(&self) -> Result<Option<File>, RegistryError> {
        let path = self.root.join("scope.lock");
        let file = open_lock(&path).map_err(io_error("open", &path))?;
        match retry_lock(|| file.try_lock()) {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(io_error("lock", path)(e)),
        }
    }

    pub(crate) fn lock_busy_error(&self) -> RegistryError {
        RegistryError::LockBusy { path: self.root.join("scope.lock"), seconds: LOCK_TIMEOUT.as_secs() }
    }

    /// Opens the unverified table, including dead pods, without checking leases. Returns `None` if the table must first
    /// be rebuilt or completed, or if there is a directory without a row.
    pub(crate) fn open_quick(&self) -> Result<Option<LockedTable<'_>>, RegistryError> {
        self.quick_with_lock(self.lock_table()?)
    }

    /// The same for a caller that holds the lock.
    pub(crate) fn quick_with_lock(&self, lock: File) -> Result<Option<LockedTable<'_>>, RegistryError> {
        let Some(table) = table_store::read_quick(&TableFiles { root: &self.root })? else { return Ok(None) };
        // A lease without a row would count if the table were lost later, so it is removed first.
        let explained = self.has_only_listed_dirs(&table)?;
        Ok(explained.then(|| LockedTable { table, ..LockedTable::with_lock(self, lock) }))
    }

    /// Opens the table and tries a change. Retries while the only obstacle is a dead pod whose commands are ending.
    pub(crate) fn retry_until_free<T>(
        &self,
        mut change: impl FnMut(&mut LockedTable<'_>) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let until = Instant::now() + SANDBOX_EXIT_TIMEOUT;
        loop {
            let mut open = self.open_table()?;
            let refused = match change(&mut open) {
                Err(e) if e.conflicting_pod().is_some() => e,
                done => return done,
            };
            let dir = refused.conflicting_pod().map(|row| self.pod_dir(&row.name));
            let dying =
                |lease: &PodDir| lease.liveness == Liveness::Dying && dir.as_ref() == Some(&lease.dir);
            if Instant::now() >= until || !open.pod_dirs.iter().any(dying) {
                return Err(refused);
            }
            drop(open);
            std::thread::sleep(SANDBOX_EXIT_RETRY);
        }
    }

    pub(crate) fn open_table(&self) -> Result<LockedTable<'_>, RegistryError> {
        let mut open = self.open_table_even_damaged()?;
        match open.damage.take() {
            Some(damage) => Err(damage),
            None => Ok(open),
        }
    }

    /// Takes `scope.lock`, reads the table, and removes dead pods.
    pub(crate) fn open_table_even_damaged(&self) -> Result<LockedTable<'_>, RegistryError> {
        self.open_with_lock(self.lock_table()?)
    }

    /// The same for a caller that holds the lock.
    pub(crate) fn open_with_lock(&self, lock: File) -> Result<LockedTable<'_>, RegistryError> {
        let (pod_dirs, strange) = self.scan_pod_dirs()?;
        let mut open = LockedTable { pod_dirs, ..LockedTable::with_lock(self, lock) };
        match table_store::read_and_prune(&mut TableFiles { root: &self.root }, &open.pod_dirs, now_millis())
        {
            Ok(read) => {
                open.problems = read.problems;
                open.problems.extend(strange);
                open.table = read.table;
            }
            Err(e) => open.damage = Some(e),
        }
        if open.damage.is_none() {
            open.remove_dead();
        }
        Ok(open)
    }
}

/// The table while `scope.lock` is held, and the survey of the directories.
pub(crate) struct LockedTable<'a> {
    runtime: &'a RuntimeDir,
    _lock: File,
    pub(crate) table: ScopeTable,
    /// All pod directories, if they were surveyed.
    pub(crate) pod_dirs: Vec<PodDir>,
    pub(crate) reclaimed: Vec<ReclaimedPod>,
    /// Directories of dead pods that could not be removed, and why.
    unremoved: Vec<(PathBuf, RegistryError)>,
    pub(crate) problems: Vec<String>,
    /// Why no change is possible.
    pub(crate) damage: Option<RegistryError>,
}

impl<'a> LockedTable<'a> {
    fn with_lock(runtime: &'a RuntimeDir, lock: File) -> LockedTable<'a> {
        LockedTable {
            runtime,
            _lock: lock,
            table: ScopeTable::default(),
            pod_dirs: Vec::new(),
            reclaimed: Vec::new(),
            unremoved: Vec::new(),
            problems: Vec::new(),
            damage: None,
        }
    }

    /// Writes the next table and makes it the current one.
    pub(crate) fn write_change(&mut self, next: ScopeTable) -> Result<(), RegistryError> {
        self.table =
            table_store::write_table(&mut TableFiles { root: &self.runtime.root }, &self.table, next)?;
        Ok(())
    }

    /// Removes the directories that belong to no row and have no live process.
    pub(crate) fn remove_dead(&mut self) {
        let mut kept_path = Vec::new();
        let rows = table_store::rows_by_name(&self.table);
        for lease in std::mem::take(&mut self.pod_dirs) {
            let needed = lease.pod_name().is_some_and(|name| rows.contains_key(name));
            if needed || lease.liveness != Liveness::Gone {
                kept_path.push(lease);
                continue;
            }
            match self.runtime.remove_dead_pod(&lease) {
                Ok(grave) => self.reclaimed.extend(grave),
                Err(e) => {
                    self.problems.push(e.to_string());
                    self.unremoved.push((lease.dir.clone(), e));
                }
            }
        }
        self.pod_dirs = kept_path;
    }

    /// Creates the directory of a pod.
    pub(crate) fn create_pod_dir(&mut self, name: &PodName) -> Result<PathBuf, RegistryError> {
        let dir = self.runtime.pod_dir(name);
        if let Some(place) = self.unremoved.iter().position(|(left, _)| *left == dir) {
            return Err(self.unremoved.remove(place).1);
        }
        create_private_dir(&dir).map_err(io_error("make", &dir))?;
        Ok(dir)
    }
}
