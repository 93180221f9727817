//! Leaving: how a pod lets go of its name, its row and its directory at its end.
//!
//! A pod that leaves empties its own directory, says so in `leaving/`, unlocks its lease and only then asks for
//! `scope.lock`: from there on it is like a dead one, and whoever gets the lock takes all that leave out of the table in one
//! change. So a thousand pods that are stopped together do not write the table a thousand times.
//! Invariants: a lease is unlinked under `scope.lock` and with a lock on it, as every dead pod's is
//! (`one_name_has_one_holder_under_a_race`); when `release` returns, the row and the directory are gone, whoever removed
//! them (`many_that_leave_at_once_are_one_change`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use minke_record::{PodName, SessionId};

use crate::error::{RegistryError, at};
use crate::files::{DEAD_REMOVAL_TIME, REMOVAL_TIME, make_dir, open_lock, remove_aside, set_aside};
use crate::graves::{Found, Life, fences_live, find};
use crate::lease::ScopeLease;
use crate::opened::{LOCK_WAIT, Open, Pauses};
use crate::runtime::Runtime;

impl ScopeLease {
    /// Removes the pod's row and directory and lets go of the name. While something that it started still lives, both stay
    /// until somebody sees that it is gone.
    pub fn release(self) -> Result<(), RegistryError> {
        let dir = self.dir();
        if !self.is_in_place(&dir)? {
            let mut open = self.runtime.open()?;
            let next = open.table.release(self.row.session);
            open.change(next)?;
            return Err(RegistryError::LeaseLost { path: dir });
        }
        if fences_live(&dir)? {
            return Ok(());
        }
        // What cannot be removed now is removed with the directory, or is told then.
        drop(clear(&self.runtime.root, &dir));
        let name = &self.row.name;
        // Where nothing can be written, it takes itself out of the table, and others do not see that they might.
        drop(self.runtime.announce(name));
        self.file.unlock().map_err(at("unlock", dir.join("lease")))?;
        let (until, mut pauses) = (Instant::now() + LOCK_WAIT, Pauses::new());
        // Its inode stays ours as long as the file is open, so another pod of this name is not taken for this one.
        while self.is_in_place(&dir)? {
            match self.runtime.try_lock()? {
                Some(lock) => return self.runtime.let_go(lock, name),
                None if Instant::now() < until => pauses.wait(),
                None => return Err(self.runtime.busy()),
            }
        }
        Ok(())
    }

    /// Whether the lease at the path is the one that is held. If somebody cleaned the runtime directory, another pod
    /// may live there by now.
    fn is_in_place(&self, dir: &Path) -> Result<bool, RegistryError> {
        let path = dir.join("lease");
        let held = self.file.metadata().map_err(at("look at", &path))?;
        match fs::metadata(&path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(at("look at", path)(e)),
        }
    }
}

impl Runtime {
    /// Where those who leave say so, each with an empty file of its name.
    fn leaving(&self) -> PathBuf {
        self.root.join("leaving")
    }

    fn announce(&self, name: &PodName) -> Result<(), RegistryError> {
        let leaving = self.leaving();
        make_dir(&leaving).map_err(at("make", &leaving))?;
        let path = leaving.join(name.as_str());
        open_lock(&path).map(drop).map_err(at("make", path))
    }

    /// Whether the pod of this name said that it leaves, and had emptied its directory before. Says it no more.
    pub(crate) fn has_left(&self, name: &std::ffi::OsStr) -> Result<bool, RegistryError> {
        let path = self.leaving().join(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(at("remove", path)(e)),
        }
    }

    /// Takes everybody who has said that it leaves out of the table, in one change, and removes their directories. `own` is
    /// among them, unless somebody has removed it meanwhile.
    fn let_go(&self, lock: File, own: &PodName) -> Result<(), RegistryError> {
        let Some(mut open) = self.at_once(lock)? else {
            // Looking at everybody removes all who are gone.
            return self.open().map(drop);
        };
        let (mut gone, mut sessions): (Vec<Found>, Vec<SessionId>) = Default::default();
        for name in self.those_who_leave(own)? {
            // A row with a ticket waits for its process; a word that was left behind is not that one's.
            let named = open.table.named(&name).filter(|row| row.ticket_hash.is_none());
            let Some(row) = named else { continue };
            let found = find(self.pod_dir(&row.name))?;
            if found.life == Life::Gone && found.has_lease {
                sessions.push(row.session);
                gone.push(found);
            }
        }
        let next = open.table.reclaim(&sessions);
        open.change(next)?;
        gone.iter().try_for_each(|found| self.remove(&open, found))
    }

    fn those_who_leave(&self, own: &PodName) -> Result<BTreeSet<PodName>, RegistryError> {
        let leaving = self.leaving();
        let mut names = BTreeSet::from([own.clone()]);
        let entries = match fs::read_dir(&leaving) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(names),
            entries => entries.map_err(at("read", &leaving))?,
        };
        for entry in entries {
            let name = entry.map_err(at("read", &leaving))?.file_name();
            names.extend(name.to_str().and_then(|name| name.parse().ok()));
        }
        Ok(names)
    }

    /// Removes the directory of somebody who has left, the lease before its lock goes.
    fn remove(&self, _under: &Open<'_>, found: &Found) -> Result<(), RegistryError> {
        let moved = set_aside(&self.root, &found.dir).map_err(at("remove", &found.dir))?;
        remove_aside(&self.root, &moved, DEAD_REMOVAL_TIME).map_err(at("remove", &moved))?;
        found.name().map_or(Ok(false), |name| self.has_left(name)).map(drop)
    }
}

/// Empties a pod's own directory, but for the lease, and for what is shown of it as long as that is held.
fn clear(root: &Path, dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == "lease" || entry.file_name() == "status.json" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            let moved = set_aside(root, &entry.path())?;
            remove_aside(root, &moved, REMOVAL_TIME)?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
