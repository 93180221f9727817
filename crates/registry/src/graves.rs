//! Graves: how a pod that died is told from one that lives, and what is kept of it.
//!
//! Here: looking at every pod's directory, and clearing a dead one away. Elsewhere: what becomes of its row (`table`).
//! Invariants: liveness is a kernel lock, and a pod whose commands still run is not gone
//! (`a_watch_ends_when_the_scope_is_back`); the end of its stderr and the notes of its fences are kept.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use minke_record::SessionId;

use crate::error::{RegistryError, at};
use crate::files::{DEAD_REMOVAL_TIME, ask_lock, make_dir, remove_aside, replace, set_aside, tail};
use crate::lease::{FENCES, Row};
use crate::look::Reclaimed;
use crate::runtime::Runtime;

/// What is kept of a dead pod's stderr: its end, where the reason stands.
const STDERR_BYTES: u64 = 256 * 1024;

/// A pod's directory as it was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) dir: PathBuf,
    /// What its lease says; none if that is empty, missing or no row.
    pub(crate) row: Option<Row>,
    /// Why it is no row.
    pub(crate) damage: Option<String>,
    pub(crate) life: Life,
    pub(crate) has_lease: bool,
    /// Keeps a shared lock on a lease that was free, so that it is unlinked before it is unlocked.
    pub(crate) _lock: Option<File>,
}

impl Found {
    /// The name of the pod whose directory this is.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.dir.file_name()
    }
}

/// What can be seen of a pod from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its process holds the lease.
    Held,
    /// The process is gone, something that it started is not.
    Dying,
    Gone,
}

impl Runtime {
    /// Every pod's directory, and in words what lies beside them and is none. To be called under `scope.lock`.
    pub(crate) fn survey(&self) -> Result<(Vec<Found>, Vec<String>), RegistryError> {
        let pods = self.root.join("pods");
        let entries = match fs::read_dir(&pods) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
            Err(e) => return Err(at("read", pods)(e)),
        };
        let (mut found, mut strange) = (Vec::new(), Vec::new());
        for entry in entries {
            let entry = entry.map_err(at("read", &pods))?;
            let path = entry.path();
            if entry.file_type().map_err(at("look at", &path))?.is_dir() {
                found.push(find(path)?);
            } else {
                strange.push(format!("{} is no pod's directory; remove it", path.display()));
            }
        }
        Ok((found, strange))
    }

    /// Removes a dead pod's directory, the lease before its lock goes, and keeps what somebody may want of it.
    pub(crate) fn bury(&self, grave: &Found) -> Result<Option<Reclaimed>, RegistryError> {
        let dir = &grave.dir;
        let session = grave.row.as_ref().map(|row| row.session);
        let (stderr, unkept) = match self.keep_stderr(dir, session) {
            Ok(kept) => (kept, None),
            Err(e) => (None, Some(e.to_string())),
        };
        let problem = grave.damage.clone().or(unkept);
        self.keep_fences(&dir.join(FENCES))?;
        let mut found_any = session.is_some() || problem.is_some();
        for found in fs::read_dir(dir).map_err(at("read", dir))? {
            found_any |= found.map_err(at("read", dir))?.file_name() != "lease";
        }
        let moved = set_aside(&self.root, dir).map_err(at("remove", dir))?;
        remove_aside(&self.root, &moved, DEAD_REMOVAL_TIME).map_err(at("remove", &moved))?;
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // Whoever has said that it leaves is not missed.
        let left = grave.name().map_or(Ok(false), |name| self.has_left(name))?;
        found_any &= !left || problem.is_some() || stderr.is_some();
        Ok(found_any.then_some(Reclaimed { name, session, stderr, problem }))
    }

    /// Moves what a dead pod's fences noted to where the next pod finds it.
    fn keep_fences(&self, path: &Path) -> Result<(), RegistryError> {
        let noted = match fs::symlink_metadata(path) {
            Ok(noted) => noted,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(at("look at", path)(e)),
        };
        if !noted.is_file() || noted.len() == 0 {
            return Ok(());
        }
        let left = self.root.join("left");
        make_dir(&left).map_err(at("make", &left))?;
        // Its inode's number is its own as long as it lies there.
        fs::rename(path, left.join(noted.ino().to_string())).map_err(at("move", path))
    }

    /// The notes of dead pods' fences, of what they could not remove. Whoever has dealt with one removes the file.
    pub fn left_fences(&self) -> Result<Vec<PathBuf>, RegistryError> {
        let left = self.root.join("left");
        match fs::read_dir(&left) {
            Ok(found) => {
                let paths: io::Result<_> = found.map(|entry| Ok(entry?.path())).collect();
                paths.map_err(at("read", left))
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(e) => Err(at("read", left)(e)),
        }
    }

    fn keep_stderr(&self, dir: &Path, session: Option<SessionId>) -> Result<Option<PathBuf>, RegistryError> {
        let from = dir.join("stderr.log");
        let (Some(session), Some(bytes)) = (session, tail(&from, STDERR_BYTES).map_err(at("read", from))?)
        else {
            return Ok(None);
        };
        let kept = self.state.join("pods");
        make_dir(&kept).map_err(at("make", &kept))?;
        let path = kept.join(format!("{session}.log"));
        replace(&path, &bytes).map_err(at("write", &path))?;
        Ok(Some(path))
    }
}

pub(crate) fn find(dir: PathBuf) -> Result<Found, RegistryError> {
    let path = dir.join("lease");
    let lease = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let life = if fences_live(&dir)? { Life::Dying } else { Life::Gone };
            return Ok(Found { dir, row: None, damage: None, life, has_lease: false, _lock: None });
        }
        Err(e) => return Err(at("open", path)(e)),
    };
    let life = match ask_lock(|| lease.try_lock_shared()) {
        Ok(()) if fences_live(&dir)? => Life::Dying,
        Ok(()) => Life::Gone,
        Err(TryLockError::WouldBlock) => Life::Held,
        Err(TryLockError::Error(e)) => return Err(at("lock", path)(e)),
    };
    let (row, damage) = match Row::read(&path).map_err(at("read", path)) {
        Ok(row) => (row, None),
        Err(e) => (None, Some(e.to_string())),
    };
    Ok(Found { dir, row, damage, life, has_lease: true, _lock: Some(lease) })
}

/// Whether anything lives that the pod in this directory started.
pub(crate) fn fences_live(dir: &Path) -> Result<bool, RegistryError> {
    let path = dir.join(FENCES);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(at("open", path)(e)),
    };
    match ask_lock(|| file.try_lock()) {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(e)) => Err(at("lock", path)(e)),
    }
}
