//! The scope table opened for a change, under `scope.lock`.
//!
//! Here: taking the lock, and two ways to open the table: as it lies there (`open_at_once`), which costs the same however
//! many pods live, and with a look at every pod's lease, after which the dead are cleared away (`open`).
//! Elsewhere: what is changed (`runtime`, `leaving`), who is asked without the lock (`look`).
//! Invariant: whoever is refused by the table as it lies there gets a second answer from one without the dead
//! (`a_killed_pod_is_not_shown_and_its_name_is_free`, `the_dead_refuse_nobody`).

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use minke_record::PodName;

use crate::error::{RegistryError, at};
use crate::files::{ask_lock, make_dir, open_lock};
use crate::graves::{Found, Life};
use crate::ledger;
use crate::look::Reclaimed;
use crate::runtime::{Runtime, now};
use crate::shelf::Files;
use crate::table::Table;

/// `scope.lock` is held for a few file operations; a holder that needs this long hangs.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How often a busy `scope.lock` is tried again: soon, then less and less, so that a thousand who wait leave the processor
/// to the one who works.
const LOCK_RETRY: Duration = Duration::from_millis(1);
const LOCK_RETRY_MOST: Duration = Duration::from_millis(16);
/// How long one waits for what a dead pod had started to end, where it is in the way, and how often one looks.
const FENCES_WAIT: Duration = Duration::from_secs(2);
const FENCES_RETRY: Duration = Duration::from_millis(10);

/// The pauses between two attempts at `scope.lock`.
pub(crate) struct Pauses(Duration);

impl Pauses {
    pub(crate) fn new() -> Pauses {
        Pauses(LOCK_RETRY)
    }

    pub(crate) fn wait(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(LOCK_RETRY_MOST);
    }
}

impl Runtime {
    /// Holds `scope.lock` as long as the file lives.
    pub(crate) fn lock(&self) -> Result<File, RegistryError> {
        let (until, mut pauses) = (Instant::now() + LOCK_WAIT, Pauses::new());
        loop {
            match self.try_lock()? {
                Some(lock) => return Ok(lock),
                None if Instant::now() < until => pauses.wait(),
                None => return Err(self.busy()),
            }
        }
    }

    /// Nothing, if somebody has it.
    pub(crate) fn try_lock(&self) -> Result<Option<File>, RegistryError> {
        let path = self.root.join("scope.lock");
        let file = open_lock(&path).map_err(at("open", &path))?;
        match ask_lock(|| file.try_lock()) {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(at("lock", path)(e)),
        }
    }

    pub(crate) fn busy(&self) -> RegistryError {
        RegistryError::LockBusy { path: self.root.join("scope.lock"), seconds: LOCK_WAIT.as_secs() }
    }

    /// The table as it lies there, the dead included, without a look at anybody's lease. `None` if it has to be put together or
    /// completed first, or if there is a directory without a row.
    pub(crate) fn open_at_once(&self) -> Result<Option<Open<'_>>, RegistryError> {
        self.at_once(self.lock()?)
    }

    /// The same for somebody who has the lock.
    pub(crate) fn at_once(&self, lock: File) -> Result<Option<Open<'_>>, RegistryError> {
        let Some(table) = ledger::at_once(&Files { root: &self.root })? else { return Ok(None) };
        // A lease that no row speaks of would count should the table be lost one day: it is cleared away first.
        let explained = self.has_no_others(&table)?;
        Ok(explained.then(|| Open { table, ..Open::locked(self, lock) }))
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

    pub(crate) fn open(&self) -> Result<Open<'_>, RegistryError> {
        let mut open = self.open_any()?;
        match open.damage.take() {
            Some(damage) => Err(damage),
            None => Ok(open),
        }
    }

    /// Takes `scope.lock`, reads the table, and clears away what is dead.
    pub(crate) fn open_any(&self) -> Result<Open<'_>, RegistryError> {
        self.any(self.lock()?)
    }

    /// The same for somebody who has the lock.
    pub(crate) fn any(&self, lock: File) -> Result<Open<'_>, RegistryError> {
        let (leases, strange) = self.survey()?;
        let mut open = Open { leases, ..Open::locked(self, lock) };
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
    /// Every pod's directory, if they were looked at.
    pub(crate) leases: Vec<Found>,
    pub(crate) reclaimed: Vec<Reclaimed>,
    /// Directories of the dead that could not be cleared away, and why.
    unburied: Vec<(PathBuf, RegistryError)>,
    pub(crate) problems: Vec<String>,
    /// Why nothing can be changed.
    pub(crate) damage: Option<RegistryError>,
}

impl<'a> Open<'a> {
    fn locked(runtime: &'a Runtime, lock: File) -> Open<'a> {
        Open {
            runtime,
            _lock: lock,
            table: Table::default(),
            leases: Vec::new(),
            reclaimed: Vec::new(),
            unburied: Vec::new(),
            problems: Vec::new(),
            damage: None,
        }
    }

    /// Makes the next table the table.
    pub(crate) fn change(&mut self, next: Table) -> Result<(), RegistryError> {
        self.table = ledger::write(&mut Files { root: &self.runtime.root }, &self.table, next)?;
        Ok(())
    }

    /// Removes the directories that belong to no row and in which nobody lives.
    pub(crate) fn bury_the_rest(&mut self) {
        let mut kept = Vec::new();
        let rows = ledger::by_name(&self.table);
        for lease in std::mem::take(&mut self.leases) {
            let needed = lease.name().is_some_and(|name| rows.contains_key(name));
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
    pub(crate) fn fresh_dir(&mut self, name: &PodName) -> Result<PathBuf, RegistryError> {
        let dir = self.runtime.pod_dir(name);
        if let Some(place) = self.unburied.iter().position(|(left, _)| *left == dir) {
            return Err(self.unburied.remove(place).1);
        }
        make_dir(&dir).map_err(at("make", &dir))?;
        Ok(dir)
    }
}
