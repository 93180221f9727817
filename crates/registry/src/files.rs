//! Private files and directories: made 0700 and 0600, replaced whole, their ends kept.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

pub(crate) const PRIVATE_DIR: u32 = 0o700;
pub(crate) const PRIVATE_FILE: u32 = 0o600;

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

/// Removes a directory with everything in it, also what a pod's commands took the rights from.
pub(crate) fn remove_tree(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            open_up(dir)?;
            fs::remove_dir_all(dir)
        }
        removed => removed,
    }
}

/// Gives us back the right to every directory. Links are not followed.
fn open_up(dir: &Path) -> io::Result<()> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(PRIVATE_DIR))?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                dirs.push(entry.path());
            }
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
