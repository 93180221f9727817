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
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT,
};
use rustix::io::Errno;

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

/// Makes placeholders and notes them first. Gives those where something is now: nobody else can make what we may not.
pub(super) fn make(mut notes: &File, wanted: &[(PathBuf, Kind)]) -> io::Result<Vec<PathBuf>> {
    let mut note = Vec::new();
    for (path, _) in wanted {
        note.extend_from_slice(path.as_os_str().as_bytes());
        note.push(0);
    }
    if note.is_empty() {
        return Ok(Vec::new());
    }
    notes.write_all(&note)?;
    let mut made = Vec::new();
    quietly(wanted.iter().map(|(path, _)| path), || {
        for (path, kind) in wanted {
            match make_one(path, *kind) {
                Ok(()) => made.push(path.clone()),
                Err(error) => match error.kind() {
                    io::ErrorKind::AlreadyExists => made.push(path.clone()),
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {}
                    kind => return Err(io::Error::new(kind, format!("{}: {error}", path.display()))),
                },
            }
        }
        Ok(())
    })?;
    Ok(made)
}

fn make_one(path: &Path, kind: Kind) -> io::Result<()> {
    let (directory, name) = place(path)?;
    match kind {
        Kind::Socket => match rustix::fs::mknodat(&directory, name, FileType::Socket, NO_ONE, 0) {
            Err(Errno::EXIST) => Err(Errno::EXIST.into()),
            // Some file systems have no sockets.
            Err(_) => Ok(rustix::fs::mkdirat(&directory, name, Mode::RWXU)?),
            Ok(()) => Ok(()),
        },
        Kind::File(text) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o644))?;
            File::from(file).write_all(text.as_bytes())
        }
    }
}

/// A path by its directory and its name. We act here with all that the pod may do, in directories that commands change
/// at the same time: a link on the way is followed nowhere, or it would lead us out of the scope
/// (`no_link_leads_a_placeholder_astray`).
fn place(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok((open_directory(parent)?, name))
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?)
}

/// Does something in the directories of these paths and gives them back their time of change: build tools look at it.
fn quietly<'a, T>(paths: impl Iterator<Item = &'a PathBuf>, act: impl FnOnce() -> T) -> T {
    let mut directories: Vec<&Path> = paths.filter_map(|path| path.parent()).collect();
    directories.sort_unstable();
    directories.dedup();
    let before: Vec<_> = directories
        .into_iter()
        .filter_map(|directory| open_directory(directory).ok())
        .filter_map(|directory| rustix::fs::fstat(&directory).ok().map(|before| (directory, before)))
        .collect();
    let done = act();
    for (directory, before) in before {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: before.st_mtime as _, tv_nsec: before.st_mtime_nsec as _ };
        let times = Timestamps { last_access: omit, last_modification: modified };
        // Not ours to change: then its time tells that something happened, which is true.
        let _kept = rustix::fs::futimens(&directory, &times);
    }
    done
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
    quietly(paths.iter(), || paths.iter().rev().for_each(|path| remove(path)));
    notes.set_len(0)
}

/// Removes one placeholder. What is not as we made it is not ours any more.
fn remove(path: &Path) {
    let Ok((directory, name)) = place(path) else { return };
    let Ok(there) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    let is_ours = || {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut text = String::new();
        let read = rustix::fs::openat(&directory, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).take(SMALL + 1).read_to_string(&mut text));
        read.is_ok() && matches!(text.as_str(), "" | SELF)
    };
    let _filled = match FileType::from_raw_mode(there.st_mode) {
        FileType::Directory => rustix::fs::unlinkat(&directory, name, AtFlags::REMOVEDIR),
        FileType::Socket => rustix::fs::unlinkat(&directory, name, AtFlags::empty()),
        FileType::RegularFile if is_ours() => rustix::fs::unlinkat(&directory, name, AtFlags::empty()),
        _ => Ok(()),
    };
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_a_placeholder_astray() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (grant, outside) = (base.join("grant"), base.join("outside"));
        std::fs::create_dir_all(grant.join("part")).unwrap();
        std::fs::create_dir_all(outside.join("hooks")).unwrap();
        std::fs::write(outside.join("config"), "").unwrap();
        let notes = File::options().read(true).append(true).create(true).open(base.join("notes")).unwrap();
        let wanted = |name: &str, kind| vec![(grant.join("part").join(name), kind)];
        make(&notes, &wanted("hooks", Kind::Socket)).unwrap();
        make(&notes, &wanted("config", Kind::File(""))).unwrap();
        assert!(grant.join("part/config").exists());
        // Whoever can write in the grant moves the directory aside and leads us elsewhere.
        std::fs::rename(grant.join("part"), grant.join("moved")).unwrap();
        symlink(&outside, grant.join("part")).unwrap();
        sweep(&notes).unwrap();
        assert!(outside.join("hooks").exists() && outside.join("config").exists(), "removed outside");
        assert!(make(&notes, &wanted("commondir", Kind::File(SELF))).is_err());
        assert!(!outside.join("commondir").exists(), "made outside");
    }
}
