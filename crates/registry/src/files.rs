//! Private files and directories: made 0700 and 0600, replaced whole, their ends kept.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_files::Removal;

pub(crate) const PRIVATE_DIR: u32 = 0o700;
pub(crate) const PRIVATE_FILE: u32 = 0o600;

/// Directories that are being removed.
const REMOVED: &str = "removed";
/// What the removal of its files may take a pod that ends …
pub(crate) const REMOVAL_TIME: Duration = Duration::from_secs(1);
/// … and what it may take a process that removes a dead pod's files while others wait for the table.
pub(crate) const DEAD_REMOVAL_TIME: Duration = Duration::from_millis(200);
/// Makes the names of directories that are being removed differ.
static REMOVALS: AtomicU64 = AtomicU64::new(0);

/// Makes a directory and its missing parents, all private.
pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(path)
}

/// Opens a lock file for reading and writing, making it if it is missing. What it holds stays: truncating it here
/// would wipe the row of a live pod.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE).open(path)
}

/// Tries for a lock. A signal in the middle is no answer, so it is asked again.
pub(crate) fn ask_lock(attempt: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    loop {
        match attempt() {
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Takes a directory of the runtime directory `root` out of its place: its name is free at once. Gives where it is now.
pub(crate) fn set_aside(root: &Path, dir: &Path) -> io::Result<PathBuf> {
    let removed = root.join(REMOVED);
    make_dir(&removed)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let number = REMOVALS.fetch_add(1, Ordering::Relaxed);
    let moved = removed.join(format!("{}-{number}-{since}", std::process::id()));
    fs::rename(dir, &moved)?;
    Ok(moved)
}

/// Removes a directory that was set aside with everything in it, also what a pod's commands took the rights from. What
/// takes longer than `time` stays until the next removal, which tries whatever earlier ones left as well.
pub(crate) fn remove_aside(root: &Path, moved: &Path, time: Duration) -> io::Result<()> {
    let until = Instant::now() + time;
    // Its own directory first: the caller must hear what is wrong with it.
    let Removal::Complete = minke_files::remove_tree(moved, Some(until))? else { return Ok(()) };
    for left in fs::read_dir(root.join(REMOVED))? {
        match minke_files::remove_tree(&left?.path(), Some(until)) {
            Ok(Removal::Complete) => {}
            Ok(Removal::Unfinished) => return Ok(()),
            // Another process may be removing the same directory; if none is, the next removal tries again.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Puts new content in a file's place at once: temp file, then rename. The temp file's name is fixed because every
/// file here has one writer.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temp = path.as_os_str().to_owned();
    temp.push(".tmp");
    let temp = Path::new(&temp);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(temp)?;
    file.write_all(content)?;
    fs::rename(temp, path)
}

/// The last bytes of a file, at most `limit`; `None` if there is no file or nothing in it.
pub(crate) fn tail(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(if bytes.is_empty() { None } else { Some(bytes) })
}

/// A whole small file; `None` if there is none. A longer one than `limit` is an error, not a cut.
pub(crate) fn read_small(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("longer than {limit} bytes")));
    }
    Ok(Some(bytes))
}
