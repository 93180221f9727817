//! The runtime directory: one directory for each live pod.
//!
//! Here: claiming a name, looking who lives, reclaiming what the dead left. Everything that changes it happens under
//! `scope.lock`. Elsewhere: what a holder does with its lease (`lease`).
//! Invariant: one name has one holder (`one_name_has_one_holder_under_a_race`), and what a dead pod left stops nobody
//! (`a_killed_pod_is_not_shown_and_its_name_is_free`).

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use minke_record::{PodName, SessionId};

use crate::error::{RegistryError, at};
use crate::files::{ask_lock, make_dir, open_lock, read_small, remove_tree, replace, tail};
use crate::lease::{FENCES, Row, ScopeLease};
use crate::paths::Paths;
use crate::status::PodStatus;

/// A pod that holds its lease and has not beaten for this long shows as stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);
/// `scope.lock` is held for a few file operations; a holder that needs this long hangs.
const LOCK_WAIT: Duration = Duration::from_secs(10);
/// How often a busy `scope.lock` is tried again.
const LOCK_RETRY: Duration = Duration::from_millis(2);
/// How many numbered names are tried before giving up.
const NAMES_TRIED: u32 = 1_000;
/// What is kept of a dead pod's stderr: its end, where the reason stands.
const STDERR_BYTES: u64 = 256 * 1024;
/// `status.json` is a few hundred bytes.
const STATUS_BYTES: u64 = 64 * 1024;
/// A pod name's longest form.
const NAME_BYTES: usize = 40;

/// The runtime directory, and the state directory where the stderr of dead pods is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    root: PathBuf,
    state: PathBuf,
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

    /// Where a launcher sends a pod's stderr until the pod has its directory; `claim` takes it along.
    pub fn starting_log(&self, session: SessionId) -> Result<PathBuf, RegistryError> {
        let dir = self.root.join("starting");
        make_dir(&dir).map_err(at("make", &dir))?;
        Ok(dir.join(format!("{session}.log")))
    }

    /// Takes the name in the row, with a fresh directory. What a dead pod of that name left is cleared away first.
    pub fn claim(&self, row: Row) -> Result<ScopeLease, RegistryError> {
        let _table = self.lock()?;
        self.claim_locked(row)
    }

    /// Takes the name in the row or, if it is taken, the first free of `name-2`, `name-3` …
    pub fn claim_unique(&self, row: Row) -> Result<ScopeLease, RegistryError> {
        let _table = self.lock()?;
        let base = row.name.clone();
        for number in 1..=NAMES_TRIED {
            let name = numbered(&base, number);
            match self.claim_locked(Row { name, ..row.clone() }) {
                Err(RegistryError::DuplicateName { .. }) => {}
                done => return done,
            }
        }
        Err(RegistryError::NoFreeName { name: base, tried: NAMES_TRIED })
    }

    /// Who lives. What the dead left is cleared away by whoever looks.
    pub fn look(&self) -> Result<Look, RegistryError> {
        let pods = self.root.join("pods");
        let mut look = Look::default();
        if !pods.try_exists().map_err(at("look at", &pods))? {
            return Ok(look);
        }
        let _table = self.lock()?;
        for found in fs::read_dir(&pods).map_err(at("read", &pods))? {
            let dir = found.map_err(at("read", &pods))?.path();
            if let Err(e) = self.look_at(&dir, &mut look) {
                look.problems.push(e.to_string());
            }
        }
        look.live.sort_by(|a, b| a.row.name.cmp(&b.row.name));
        Ok(look)
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

    fn claim_locked(&self, mut row: Row) -> Result<ScopeLease, RegistryError> {
        let dir = self.pod_dir(&row.name);
        make_dir(&dir).map_err(at("make", &dir))?;
        let path = dir.join("lease");
        let file = open_lock(&path).map_err(at("open", &path))?;
        match ask_lock(|| file.try_lock()) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = Row::read(&path).map_err(at("read", &path))?.map(Box::new);
                return Err(RegistryError::DuplicateName { name: row.name, holder });
            }
            Err(TryLockError::Error(e)) => return Err(at("lock", path)(e)),
        }
        let reclaimed = self.clear(&dir)?;
        row.socket = dir.join("sock");
        let lease = ScopeLease { file, row, runtime: self.clone(), reclaimed };
        self.furnish(&lease, &dir).inspect_err(|_| {
            // A claim that fails leaves nothing behind; if even that fails, the next look clears it.
            drop(fs::remove_dir_all(&dir));
        })?;
        Ok(lease)
    }

    /// Writes the row and makes what a pod finds in its directory.
    fn furnish(&self, lease: &ScopeLease, dir: &Path) -> Result<(), RegistryError> {
        lease.write_row().map_err(at("write", dir.join("lease")))?;
        lease.beat()?;
        for name in ["tmp", "output"] {
            let path = dir.join(name);
            make_dir(&path).map_err(at("make", path))?;
        }
        let starting = self.root.join("starting").join(format!("{}.log", lease.row.session));
        match fs::rename(&starting, dir.join("stderr.log")) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at("move", starting)(e)),
            _ => Ok(()),
        }
    }

    fn look_at(&self, dir: &Path, look: &mut Look) -> Result<(), RegistryError> {
        let path = dir.join("lease");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // Only a claim that died between two file operations leaves this, and none is under way now.
                look.reclaimed.extend(self.bury(dir)?);
                return Ok(());
            }
            Err(e) => return Err(at("open", path)(e)),
        };
        match ask_lock(|| file.try_lock_shared()) {
            Ok(()) => {
                look.reclaimed.extend(self.bury(dir)?);
                return Ok(());
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(at("lock", path)(e)),
        }
        let Some(row) = Row::read(&path).map_err(at("read", &path))? else {
            return Err(at("read", path)(io::Error::new(io::ErrorKind::InvalidData, "held, but has no row")));
        };
        let beat = file.metadata().and_then(|found| found.modified()).map_err(at("look at", path))?;
        let beat_age = SystemTime::now().duration_since(beat).unwrap_or_default();
        let status = read_status(&dir.join("status.json")).unwrap_or_else(|e| {
            look.problems.push(e.to_string());
            None
        });
        look.live.push(Live { row, status, beat_age });
        Ok(())
    }

    /// Clears a dead pod's directory and removes it, the lease last of all but before its lock goes.
    fn bury(&self, dir: &Path) -> Result<Option<Reclaimed>, RegistryError> {
        let reclaimed = self.clear(dir)?;
        remove_tree(dir).map_err(at("remove", dir))?;
        Ok(reclaimed)
    }

    /// Removes everything from a dead pod's directory but the lease, and keeps the end of its stderr.
    fn clear(&self, dir: &Path) -> Result<Option<Reclaimed>, RegistryError> {
        let lease = dir.join("lease");
        let (session, unread) = match Row::read(&lease).map_err(at("read", lease)) {
            Ok(row) => (row.map(|row| row.session), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let (stderr, unkept) = match self.keep_stderr(dir, session) {
            Ok(kept) => (kept, None),
            Err(e) => (None, Some(e.to_string())),
        };
        let problem = unread.or(unkept);
        let mut found_any = session.is_some() || problem.is_some();
        for found in fs::read_dir(dir).map_err(at("read", dir))? {
            let found = found.map_err(at("read", dir))?;
            if found.file_name() == "lease" {
                continue;
            }
            found_any = true;
            let path = found.path();
            if found.file_name() == FENCES && self.keep_fences(&path)? {
                continue;
            }
            let is_dir = found.file_type().map_err(at("look at", &path))?.is_dir();
            let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(at("remove", path))?;
        }
        let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Ok(found_any.then_some(Reclaimed { name, session, stderr, problem }))
    }

    /// Moves what a dead pod's fences noted to where the next pod finds it. Says whether there was anything.
    fn keep_fences(&self, path: &Path) -> Result<bool, RegistryError> {
        let noted = fs::symlink_metadata(path).map_err(at("look at", path))?;
        if !noted.is_file() || noted.len() == 0 {
            return Ok(false);
        }
        let left = self.root.join("left");
        make_dir(&left).map_err(at("make", &left))?;
        // Its inode's number is its own as long as it lies there.
        fs::rename(path, left.join(noted.ino().to_string())).map_err(at("move", path))?;
        Ok(true)
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

fn read_status(path: &Path) -> Result<Option<PodStatus>, RegistryError> {
    let Some(bytes) = read_small(path, STATUS_BYTES).map_err(at("read", path))? else {
        return Ok(None);
    };
    let status = serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(at("understand", path))?;
    Ok(Some(status))
}

/// `name`, `name-2`, `name-3` …, shortened so that it stays a name.
fn numbered(base: &PodName, number: u32) -> PodName {
    if number == 1 {
        return base.clone();
    }
    let suffix = format!("-{number}");
    let room = NAME_BYTES - suffix.len();
    let stem: String = base.as_str().chars().take(room).collect();
    PodName::from_any(&format!("{}{suffix}", stem.trim_end_matches('-')))
}
