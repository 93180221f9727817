//! Release: how an exiting pod gives up its name, its row and its directory.
//!
//! An exiting pod empties its own directory, announces its exit in `leaving/`, unlocks its lease, and only then takes
//! `scope.lock`. From then on it counts as dead, and the next holder of the lock removes all exiting pods from the
//! table in one change. So stopping a thousand pods does not write the table a thousand times.
//! Invariants: a lease is unlinked under `scope.lock` and while it is locked, as for dead pods
//! (`one_name_has_one_holder_under_a_race`); when `release` returns, the row and the directory are gone, regardless of
//! which process removed them (`many_that_leave_at_once_are_one_change`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use minke_record::{PodName, SessionId};

use crate::error::{RegistryError, io_error};
use crate::files::{
    DEAD_REMOVAL_LIMIT, REMOVAL_LIMIT, create_private_dir, delete_removed, move_to_removed, open_lock,
};
use crate::lease::ScopeLease;
use crate::liveness::{Liveness, PodDir, has_live_sandbox, inspect_dir};
use crate::locked_table::{LOCK_TIMEOUT, LockedTable, RetryPauses};
use crate::runtime_dir::RuntimeDir;

impl ScopeLease {
    /// Removes the pod's row and directory and releases the name. Both stay while a process that the pod started still
    /// runs.
    pub fn release_pod(self) -> Result<(), RegistryError> {
        let dir = self.pod_dir();
        if !self.holds_lease_at(&dir)? {
            let mut open = self.runtime.open_table()?;
            let next = open.table.without_pod(self.row.session);
            open.write_change(next)?;
            return Err(RegistryError::LeaseLost { path: dir });
        }
        if has_live_sandbox(&dir)? {
            return Ok(());
        }
        // Files that cannot be removed now are removed or reported with the directory.
        drop(empty_pod_dir(&self.runtime.root, &dir));
        let name = &self.row.name;
        // If nothing can be written, the pod removes its row without an announcement.
        drop(self.runtime.announce_exit(name));
        self.file.unlock().map_err(io_error("unlock", dir.join("lease")))?;
        let (until, mut pauses) = (Instant::now() + LOCK_TIMEOUT, RetryPauses::new());
        // Its inode number is not reused while the file is open, so another pod of this name cannot be taken for this
        // one.
        while self.holds_lease_at(&dir)? {
            match self.runtime.try_lock_table()? {
                Some(lock) => return self.runtime.remove_exited_rows(lock, name),
                None if Instant::now() < until => pauses.sleep_next(),
                None => return Err(self.runtime.lock_busy_error()),
            }
        }
        Ok(())
    }

    /// Returns whether the lease at the path is the held one. If the runtime directory was cleaned, it may belong to
    /// another pod by now.
    fn holds_lease_at(&self, dir: &Path) -> Result<bool, RegistryError> {
        let path = dir.join("lease");
        let held = self.file.metadata().map_err(io_error("look at", &path))?;
        match fs::metadata(&path) {
            Ok(pod_dir) => Ok((pod_dir.dev(), pod_dir.ino()) == (held.dev(), held.ino())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(io_error("look at", path)(e)),
        }
    }
}

impl RuntimeDir {
    /// The directory in which exiting pods announce their exit, each with an empty file of its name.
    fn leaving_dir(&self) -> PathBuf {
        self.root.join("leaving")
    }

    fn announce_exit(&self, name: &PodName) -> Result<(), RegistryError> {
        let leaving = self.leaving_dir();
        create_private_dir(&leaving).map_err(io_error("make", &leaving))?;
        let path = leaving.join(name.as_str());
        open_lock(&path).map(drop).map_err(io_error("make", path))
    }

    /// Returns whether the pod of this name announced its exit after emptying its directory. Removes the announcement.
    pub(crate) fn has_exited(&self, name: &std::ffi::OsStr) -> Result<bool, RegistryError> {
        let path = self.leaving_dir().join(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(io_error("remove", path)(e)),
        }
    }

    /// Removes all exiting pods from the table in one change, with their directories. This includes `own`, unless
    /// another process has removed it.
    fn remove_exited_rows(&self, lock: File, own: &PodName) -> Result<(), RegistryError> {
        let Some(mut open) = self.quick_with_lock(lock)? else {
            // The full snapshot removes all dead pods.
            return self.open_table().map(drop);
        };
        let (mut exited, mut sessions): (Vec<PodDir>, Vec<SessionId>) = Default::default();
        for name in self.exiting_pods(own)? {
            // A row with a ticket waits for its process; a leftover announcement does not belong to it.
            let named = open.table.find_by_name(&name).filter(|row| row.ticket_hash.is_none());
            let Some(row) = named else { continue };
            let pod_dir = inspect_dir(self.pod_dir(&row.name))?;
            if pod_dir.liveness == Liveness::Gone && pod_dir.has_lease {
                sessions.push(row.session);
                exited.push(pod_dir);
            }
        }
        let next = open.table.without_pods(&sessions);
        open.write_change(next)?;
        exited.iter().try_for_each(|found| self.remove_pod_dir(&open, found))
    }

    fn exiting_pods(&self, own: &PodName) -> Result<BTreeSet<PodName>, RegistryError> {
        let leaving = self.leaving_dir();
        let mut names = BTreeSet::from([own.clone()]);
        let entries = match fs::read_dir(&leaving) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(names),
            entries => entries.map_err(io_error("read", &leaving))?,
        };
        for entry in entries {
            let name = entry.map_err(io_error("read", &leaving))?.file_name();
            names.extend(name.to_str().and_then(|name| name.parse().ok()));
        }
        Ok(names)
    }

    /// Removes the directory of an exited pod, the lease before its lock is released.
    fn remove_pod_dir(&self, _under: &LockedTable<'_>, pod_dir: &PodDir) -> Result<(), RegistryError> {
        let removed_dir =
            move_to_removed(&self.root, &pod_dir.dir).map_err(io_error("remove", &pod_dir.dir))?;
        delete_removed(&self.root, &removed_dir, DEAD_REMOVAL_LIMIT)
            .map_err(io_error("remove", &removed_dir))?;
        pod_dir.pod_name().map_or(Ok(false), |name| self.has_exited(name)).map(drop)
    }
}

/// Empties a pod's own directory, except for the lease and the files that are shown while the lease is held.
fn empty_pod_dir(root: &Path, dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name() == "lease" || entry.file_name() == "status.json" {
            continue;
        }
        if entry.file_type()?.is_dir() {
            let removed_dir = move_to_removed(root, &entry.path())?;
            delete_removed(root, &removed_dir, REMOVAL_LIMIT)?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
