//! Private files and directories: created with modes 0700 and 0600, replaced atomically, read from the end.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use minke_files::Removal;

pub(crate) const PRIVATE_DIR_MODE: u32 = 0o700;
pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;

/// Contains directories that are being removed.
const REMOVED_DIR: &str = "removed";
/// The time limit for removing the files of an exiting pod.
pub(crate) const REMOVAL_LIMIT: Duration = Duration::from_secs(1);
/// The time limit for removing the files of a dead pod while other processes wait for the table.
pub(crate) const DEAD_REMOVAL_LIMIT: Duration = Duration::from_millis(200);
/// Makes the names of removed directories unique.
static REMOVALS: AtomicU64 = AtomicU64::new(0);

/// Creates a directory and its missing parents, all private.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PRIVATE_DIR_MODE).create(path)
}

/// Opens a lock file for reading and writing and creates it if it is missing. Does not truncate it: that would erase
/// the row of a live pod.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(PRIVATE_FILE_MODE).open(path)
}

/// Tries to take a lock, and repeats attempts that a signal interrupted.
pub(crate) fn retry_lock(attempt: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    loop {
        match attempt() {
            Err(TryLockError::Error(e)) if e.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Moves a directory out of the way, so that its name is free at once. Returns its new path.
pub(crate) fn move_to_removed(root: &Path, dir: &Path) -> io::Result<PathBuf> {
    let removed = root.join(REMOVED_DIR);
    create_private_dir(&removed)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let number = REMOVALS.fetch_add(1, Ordering::Relaxed);
    let moved_dir = removed.join(format!("{}-{number}-{since}", std::process::id()));
    fs::rename(dir, &moved_dir)?;
    Ok(moved_dir)
}

/// Removes a directory that was moved aside, with all its content, including entries that a command made unreadable.
/// After `time` the rest stays until the next removal, which also removes the remains of earlier ones.
pub(crate) fn delete_removed(root: &Path, moved_dir: &Path, time: Duration) -> io::Result<()> {
    let until = Instant::now() + time;
    // The process's own directory comes first, so that the caller gets its error.
    let Removal::Complete = minke_files::remove_tree(moved_dir, Some(until))? else { return Ok(()) };
    for left in fs::read_dir(root.join(REMOVED_DIR))? {
        match minke_files::remove_tree(&left?.path(), Some(until)) {
            Ok(Removal::Complete) => {}
            Ok(Removal::Unfinished) => return Ok(()),
            // Another process may be removing the same directory; otherwise the next removal tries again.
            Err(_) => {}
        }
    }
    Ok(())
}

/// Replaces a file atomically: writes a temporary file, then renames it. The temporary name is fixed because every file
/// here has one writer.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temp = path.as_os_str().to_owned();
    temp.push(".tmp");
    let temp = Path::new(&temp);
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(PRIVATE_FILE_MODE).open(temp)?;
    file.write_all(content)?;
    fs::rename(temp, path)
}

/// Size of the first read. Without it the standard library begins with 32 bytes and needs five reads for a row.
const READ_BYTES: usize = 4 * 1024;

/// Returns the last bytes of a file, at most `limit`; `None` if the file is missing or empty.
pub(crate) fn read_tail(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
    let mut bytes = Vec::with_capacity(READ_BYTES);
    file.take(limit).read_to_end(&mut bytes)?;
    Ok(if bytes.is_empty() { None } else { Some(bytes) })
}

/// Reads a whole small file; `None` if it is missing. A file longer than `limit` is an error.
pub(crate) fn read_small(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let mut bytes = Vec::with_capacity(READ_BYTES);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("longer than {limit} bytes")));
    }
    Ok(Some(bytes))
}
