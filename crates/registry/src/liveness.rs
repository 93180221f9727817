//! Liveness: tells dead pods from live ones, and keeps the remains of dead ones.
//!
//! Here: inspecting every pod's directory and removing those of dead pods. Elsewhere: their rows (`table`).
//! Invariants: liveness is a kernel lock, and a pod whose commands still run counts as alive
//! (`a_watch_ends_when_the_scope_is_back`); the registry keeps the end of its stderr and its sandbox notes.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use minke_record::SessionId;

use crate::error::{RegistryError, io_error};
use crate::files::{
    DEAD_REMOVAL_LIMIT, create_private_dir, delete_removed, move_to_removed, read_tail, replace_file,
    retry_lock,
};
use crate::lease::{OLD_SANDBOX_LOCK_FILE, SANDBOX_LOCK_FILE, ScopeRow};
use crate::runtime_dir::RuntimeDir;
use crate::snapshot::ReclaimedPod;

/// The kept part of a dead pod's stderr. Its end contains the cause.
const KEPT_STDERR_BYTES: u64 = 256 * 1024;

/// A pod's directory and its state.
#[derive(Debug)]
pub(crate) struct PodDir {
    pub(crate) dir: PathBuf,
    /// The row in its lease; `None` if the lease is empty, missing or invalid.
    pub(crate) row: Option<ScopeRow>,
    /// Why the lease contains no valid row.
    pub(crate) damage: Option<String>,
    pub(crate) liveness: Liveness,
    pub(crate) has_lease: bool,
    /// A shared lock on a lease that was free, so that the lease is unlinked before it is unlocked.
    pub(crate) _lock: Option<File>,
}

impl PodDir {
    /// Returns the name of the pod that owns this directory.
    pub(crate) fn pod_name(&self) -> Option<&OsStr> {
        self.dir.file_name()
    }
}

/// The state of a pod as seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// Its process holds the lease.
    Alive,
    /// The process has ended, but a process that it started still runs.
    Dying,
    Gone,
}

impl RuntimeDir {
    /// Returns every pod's directory, and messages about other entries. Requires `scope.lock`.
    pub(crate) fn scan_pod_dirs(&self) -> Result<(Vec<PodDir>, Vec<String>), RegistryError> {
        let pods = self.root.join("pods");
        let entries = match fs::read_dir(&pods) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
            Err(e) => return Err(io_error("read", pods)(e)),
        };
        let (mut pod_dirs, mut strange) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.map_err(io_error("read", &pods))?;
            let path = entry.path();
            if entry.file_type().map_err(io_error("look at", &path))?.is_dir() {
                pod_dirs.push(inspect_dir(path)?);
            } else {
                strange.push(format!("{} is not a pod directory; remove it", path.display()));
            }
        }
        Ok((pod_dirs, strange))
    }

    /// Removes a dead pod's directory, the lease before its lock is released, and keeps its stderr and sandbox notes.
    pub(crate) fn remove_dead_pod(&self, pod_dir: &PodDir) -> Result<Option<ReclaimedPod>, RegistryError> {
        let dir = &pod_dir.dir;
        let session = pod_dir.row.as_ref().map(|row| row.session);
        let (stderr, unkept) = match self.keep_stderr(dir, session) {
            Ok(kept) => (kept, None),
            Err(e) => (None, Some(e.to_string())),
        };
        let problem = pod_dir.damage.clone().or(unkept);
        // Both names of one file become the same note.
        for name in [SANDBOX_LOCK_FILE, OLD_SANDBOX_LOCK_FILE] {
            self.keep_sandbox_notes(&dir.join(name))?;
        }
        let mut found_any = session.is_some() || problem.is_some();
        for pod_dirs in fs::read_dir(dir).map_err(io_error("read", dir))? {
            found_any |= pod_dirs.map_err(io_error("read", dir))?.file_name() != "lease";
        }
        let moved = move_to_removed(&self.root, dir).map_err(io_error("remove", dir))?;
        delete_removed(&self.root, &moved, DEAD_REMOVAL_LIMIT).map_err(io_error("remove", &moved))?;
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // A pod that announced its exit is not reported.
        let left = pod_dir.pod_name().map_or(Ok(false), |name| self.has_exited(name))?;
        found_any &= !left || problem.is_some() || stderr.is_some();
        Ok(found_any.then_some(ReclaimedPod { name, session, stderr, problem }))
    }

    /// Moves the sandbox notes of a dead pod to where the next pod finds them.
    fn keep_sandbox_notes(&self, path: &Path) -> Result<(), RegistryError> {
        let noted = match fs::symlink_metadata(path) {
            Ok(noted) => noted,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(io_error("look at", path)(e)),
        };
        if !noted.is_file() || noted.len() == 0 {
            return Ok(());
        }
        let left = self.root.join("left");
        create_private_dir(&left).map_err(io_error("make", &left))?;
        // The inode number is unique while the file exists.
        fs::rename(path, left.join(noted.ino().to_string())).map_err(io_error("move", path))
    }

    /// Returns the sandbox notes of dead pods: files that their sandboxes could not remove. The caller removes each
    /// note once it has dealt with it.
    pub fn leftover_sandbox_notes(&self) -> Result<Vec<PathBuf>, RegistryError> {
        let left = self.root.join("left");
        match fs::read_dir(&left) {
            Ok(pod_dirs) => {
                let paths: io::Result<_> = pod_dirs.map(|entry| Ok(entry?.path())).collect();
                paths.map_err(io_error("read", left))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(io_error("read", left)(e)),
        }
    }

    fn keep_stderr(&self, dir: &Path, session: Option<SessionId>) -> Result<Option<PathBuf>, RegistryError> {
        let from = dir.join("stderr.log");
        let (Some(session), Some(bytes)) =
            (session, read_tail(&from, KEPT_STDERR_BYTES).map_err(io_error("read", from))?)
        else {
            return Ok(None);
        };
        let kept = self.state.join("pods");
        create_private_dir(&kept).map_err(io_error("make", &kept))?;
        let path = kept.join(format!("{session}.log"));
        replace_file(&path, &bytes).map_err(io_error("write", &path))?;
        Ok(Some(path))
    }
}

pub(crate) fn inspect_dir(dir: PathBuf) -> Result<PodDir, RegistryError> {
    let path = dir.join("lease");
    let lease = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let liveness = if has_live_sandbox(&dir)? { Liveness::Dying } else { Liveness::Gone };
            return Ok(PodDir { dir, row: None, damage: None, liveness, has_lease: false, _lock: None });
        }
        Err(e) => return Err(io_error("open", path)(e)),
    };
    let life = match retry_lock(|| lease.try_lock_shared()) {
        Ok(()) if has_live_sandbox(&dir)? => Liveness::Dying,
        Ok(()) => Liveness::Gone,
        Err(TryLockError::WouldBlock) => Liveness::Alive,
        Err(TryLockError::Error(e)) => return Err(io_error("lock", path)(e)),
    };
    let (row, damage) = match ScopeRow::read_lease(&path).map_err(io_error("read", path)) {
        Ok(row) => (row, None),
        Err(e) => (None, Some(e.to_string())),
    };
    Ok(PodDir { dir, row, damage, liveness: life, has_lease: true, _lock: Some(lease) })
}

/// Returns whether a process that the pod in this directory started still runs.
pub(crate) fn has_live_sandbox(dir: &Path) -> Result<bool, RegistryError> {
    let file = match File::open(dir.join(SANDBOX_LOCK_FILE)) {
        // A pod of an older Minke has only the old name.
        Err(e) if e.kind() == io::ErrorKind::NotFound => File::open(dir.join(OLD_SANDBOX_LOCK_FILE)),
        opened => opened,
    };
    let file = match file {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(io_error("open", dir.join(SANDBOX_LOCK_FILE))(e)),
    };
    match retry_lock(|| file.try_lock()) {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(e)) => Err(io_error("lock", dir.join(SANDBOX_LOCK_FILE))(e)),
    }
}
