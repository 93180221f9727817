//! Placeholders: what stands on disk, for as long as a command runs, where a mount needs something to be mounted on.
//!
//! The kernel mounts only on what exists, so a protected name that does not exist yet can be held only by something
//! real. That is a socket without a listener: it is made and removed in microseconds (a directory takes milliseconds on
//! a busy disk), nobody can open it, and `git` neither shows, adds nor cleans it. Where `git` itself reads the name, it
//! is a file that means nothing. Whatever is made is written down first, in the lock file of the pod's fences, and the
//! last fence of the pod that ends removes what is written there. Who was killed leaves its notes to the next one
//! (`tidy`); nothing that somebody else put there is removed (`tests/fence.rs`, `nothing_is_left_on_disk`).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, Timespec, Timestamps, UTIME_OMIT};

/// What stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Socket,
    /// A file with this in it.
    File(&'static str),
}

/// The stand-in for a missing name: `commondir` that names its own directory, and files where `git` reads files.
pub(super) fn kind_of(name: &Path) -> Kind {
    let name = name.to_string_lossy();
    match name.rsplit('/').next().unwrap_or_default() {
        "commondir" => Kind::File(SELF),
        "config" | "config.worktree" if name.contains(".git/") => Kind::File(""),
        _ => Kind::Socket,
    }
}

const SELF: &str = ".\n";
/// The largest file that `remove` takes for one of ours.
const SMALL: u64 = 2;
/// Nobody may do anything with a stand-in.
const NO_ONE: Mode = Mode::empty();

/// Makes a placeholder and notes it first. Whether something is there now: nobody else can make what we may not.
pub(super) fn make(mut notes: &File, path: &Path, kind: Kind) -> io::Result<bool> {
    let mut note = path.as_os_str().as_bytes().to_vec();
    note.push(0);
    notes.write_all(&note)?;
    let made = quietly(path, || match kind {
        Kind::Socket => rustix::fs::mknodat(CWD, path, FileType::Socket, NO_ONE, 0)
            .map_err(io::Error::from)
            // Some file systems have no sockets.
            .or_else(|error| if is_there(&error) { Err(error) } else { std::fs::create_dir(path) }),
        Kind::File(text) => {
            File::options().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
        }
    });
    match made {
        Ok(()) => Ok(true),
        Err(error) if is_there(&error) => Ok(true),
        Err(error) => match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Ok(false),
            _ => Err(error),
        },
    }
}

fn is_there(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

/// Does something in a directory and gives it back its time of change: build tools look at those.
fn quietly<T>(path: &Path, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let parent = path.parent().unwrap_or(path);
    let before = rustix::fs::stat(parent);
    let done = act()?;
    if let Ok(before) = before {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT.into() };
        let modified = Timespec { tv_sec: before.st_mtime as _, tv_nsec: before.st_mtime_nsec as _ };
        let times = Timestamps { last_access: omit, last_modification: modified };
        // Not ours to change: then its time tells that something happened, which is true.
        let _kept = rustix::fs::utimensat(CWD, parent, &times, AtFlags::empty());
    }
    Ok(done)
}

/// Removes every noted placeholder, unless another fence of the pod is alive. The lock is lost either way.
pub(super) fn sweep(mut notes: &File) -> io::Result<()> {
    if notes.metadata()?.len() == 0 {
        return Ok(());
    }
    if rustix::fs::flock(notes, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Another fence lives; the last one removes them.
        return Ok(());
    }
    let mut noted = Vec::new();
    notes.rewind()?;
    notes.read_to_end(&mut noted)?;
    let mut paths: Vec<PathBuf> = noted
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty())
        .map(|p| OsStr::from_bytes(p).into())
        .collect();
    paths.sort();
    paths.dedup();
    for path in paths.iter().rev() {
        remove(path);
    }
    notes.set_len(0)
}

/// Removes one placeholder. What is not as we made it is not ours any more.
fn remove(path: &Path) {
    let Ok(there) = path.symlink_metadata() else { return };
    let removed = quietly(path, || {
        if there.is_dir() {
            return std::fs::remove_dir(path);
        }
        if there.file_type().is_socket() {
            return std::fs::remove_file(path);
        }
        let is_ours = there.is_file()
            && there.len() <= SMALL
            && matches!(std::fs::read_to_string(path).as_deref(), Ok("" | SELF));
        if is_ours { std::fs::remove_file(path) } else { Ok(()) }
    });
    drop(removed);
}

/// Removes what fences of a pod that was killed left standing: to be called by whoever reclaims the pod, with the path
/// of its `fences` file. Does nothing while one of them is alive.
pub fn tidy(fences: &Path) -> io::Result<()> {
    match File::options().read(true).append(true).open(fences) {
        Ok(notes) => sweep(&notes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
