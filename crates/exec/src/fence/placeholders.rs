//! Placeholders: what stands on disk, for as long as a command runs, where a mount needs something to be mounted on.
//!
//! The kernel mounts only on what exists, so a protected name that does not exist yet can be held only by something
//! real. That is a socket without a listener, one for all names of a command: further names are links to it, made and removed in
//! microseconds (inodes of their own took longer than all else, `sixty_placeholders_need_one_inode`; a directory takes milliseconds on
//! a busy disk), nobody can open it, and `git` neither shows, adds nor cleans it. Where `git` itself reads the name, it
//! is a file that means nothing. Whatever is made is written down first, in the lock file of the pod's fences, and the
//! last fence of the pod that ends removes what is written there. Who was killed leaves its notes to the next one
//! (`tidy`); nothing that somebody else put there is removed (`tests/fence.rs`, `nothing_is_left_on_disk`).

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
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
pub(super) fn make(mut notes: &File, wanted: &[(PathBuf, Kind)]) -> io::Result<HashSet<PathBuf>> {
    let mut note = Vec::new();
    for (path, _) in wanted {
        note.extend_from_slice(path.as_os_str().as_bytes());
        note.push(0);
    }
    if note.is_empty() {
        return Ok(HashSet::new());
    }
    notes.write_all(&note)?;
    let mut made = HashSet::with_capacity(wanted.len());
    let mut model = None;
    for (directory, names) in by_directory(wanted.iter().map(|(path, kind)| (path, *kind)))? {
        let opened = match open_directory(directory) {
            Err(error) if may_not(&error) => continue,
            opened => opened.map_err(|error| at(directory, &error))?,
        };
        quietly(&opened, || {
            for (path, name, kind) in names {
                match make_one(&opened, name, kind, &mut model) {
                    Ok(()) => made.insert(path.clone()),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => made.insert(path.clone()),
                    Err(error) if may_not(&error) => false,
                    Err(error) => return Err(at(path, &error)),
                };
            }
            Ok(())
        })?;
    }
    Ok(made)
}

fn may_not(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// What is to be done in one directory: a path, its name there, and what for.
type Names<'a, T> = Vec<(&'a PathBuf, &'a OsStr, T)>;

/// Paths by their directories, so that each directory is opened once.
fn by_directory<'a, T>(
    paths: impl Iterator<Item = (&'a PathBuf, T)>,
) -> io::Result<BTreeMap<&'a Path, Names<'a, T>>> {
    let mut directories: BTreeMap<&Path, Names<'a, T>> = BTreeMap::new();
    for (path, what) in paths {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        directories.entry(parent).or_default().push((path, name, what));
    }
    Ok(directories)
}

fn make_one(directory: &OwnedFd, name: &OsStr, kind: Kind, model: &mut Option<Model>) -> io::Result<()> {
    match kind {
        Kind::Socket => {
            if let Some(model) = model
                && let Some(linked) = model.link(directory, name)
            {
                return linked;
            }
            match rustix::fs::mknodat(directory, name, FileType::Socket, NO_ONE, 0) {
                Err(Errno::EXIST) => Err(Errno::EXIST.into()),
                // Some file systems have no sockets.
                Err(_) => Ok(rustix::fs::mkdirat(directory, name, Mode::RWXU)?),
                Ok(()) => {
                    *model = Model::open(directory, name);
                    Ok(())
                }
            }
        }
        Kind::File(text) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
            File::from(file).write_all(text.as_bytes())
        }
    }
}

/// A socket that was made for this command. Further names are links to it: a file system adds a name in microseconds,
/// and looks for a free inode for hundreds where the disk is busy.
struct Model(OwnedFd);

impl Model {
    /// None where something else took its name meanwhile.
    fn open(directory: &OwnedFd, name: &OsStr) -> Option<Model> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
        let about = rustix::fs::fstat(&socket).ok()?;
        (FileType::from_raw_mode(about.st_mode) == FileType::Socket).then_some(Model(socket))
    }

    /// None where it cannot be linked: in another file system, in one without links, or since it is gone.
    fn link(&self, directory: &OwnedFd, name: &OsStr) -> Option<io::Result<()>> {
        // The name of the socket may lead elsewhere by now; its descriptor does not.
        let socket = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        match rustix::fs::linkat(CWD, socket, directory, name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Some(Ok(())),
            Err(Errno::EXIST) => Some(Err(Errno::EXIST.into())),
            Err(_) => None,
        }
    }
}

/// We act here with all that the pod may do, in directories that commands change at the same time: a link on the way is
/// followed nowhere, or it would lead us out of the scope (`no_link_leads_a_placeholder_astray`).
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?)
}

/// Does something in a directory and gives it back its time of change: build tools look at it.
fn quietly<T>(directory: &OwnedFd, act: impl FnOnce() -> T) -> T {
    let before = rustix::fs::fstat(directory);
    let done = act();
    if let Ok(before) = before {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: before.st_mtime as _, tv_nsec: before.st_mtime_nsec as _ };
        let times = Timestamps { last_access: omit, last_modification: modified };
        // Not ours to change: then its time tells that something happened, which is true.
        let _kept = rustix::fs::futimens(directory, &times);
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
    // A path of no directory is none that we made.
    paths.retain(|path| path.parent().is_some() && path.file_name().is_some());
    for (directory, names) in by_directory(paths.iter().map(|path| (path, ())))?.into_iter().rev() {
        // A directory that is gone, or that a link now stands for, has nothing of ours.
        let Ok(opened) = open_directory(directory) else { continue };
        quietly(&opened, || names.into_iter().rev().for_each(|(_, name, ())| remove(&opened, name)));
    }
    notes.set_len(0)
}

/// Removes one placeholder. What is not as we made it is not ours any more.
fn remove(directory: &OwnedFd, name: &OsStr) {
    let Ok(there) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    let is_ours = || {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut text = String::new();
        let read = rustix::fs::openat(directory, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).take(SMALL + 1).read_to_string(&mut text));
        read.is_ok() && matches!(text.as_str(), "" | SELF)
    };
    let _filled = match FileType::from_raw_mode(there.st_mode) {
        FileType::Directory => rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR),
        FileType::Socket => rustix::fs::unlinkat(directory, name, AtFlags::empty()),
        FileType::RegularFile if is_ours() => rustix::fs::unlinkat(directory, name, AtFlags::empty()),
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
    fn sixty_placeholders_need_one_inode() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("nested")).unwrap();
        let notes = File::options().read(true).append(true).create(true).open(base.join("notes")).unwrap();
        let names =
            |dir: &Path| (0..30).map(|n| (dir.join(format!(".{n}")), Kind::Socket)).collect::<Vec<_>>();
        let wanted = [names(&base), names(&base.join("nested"))].concat();
        assert_eq!(make(&notes, &wanted).unwrap().len(), 60);
        let inode = |path: &Path| path.symlink_metadata().unwrap().ino();
        assert!(wanted.iter().all(|(path, _)| inode(path) == inode(&wanted[0].0)), "an inode for each name");
        sweep(&notes).unwrap();
        assert!(wanted.iter().all(|(path, _)| path.symlink_metadata().is_err()));
    }

    /// Between two names, a command of another pod may put a file of the user's, or a link to one, where the first was.
    #[test]
    fn a_placeholder_is_linked_to_what_we_made_only() {
        let dir = tempfile::tempdir().unwrap();
        let at = open_directory(&dir.path().canonicalize().unwrap()).unwrap();
        let (first, second) = (OsStr::new("first"), OsStr::new("second"));
        let mut model = None;
        make_one(&at, first, Kind::Socket, &mut model).unwrap();
        std::fs::remove_file(dir.path().join(first)).unwrap();
        std::fs::write(dir.path().join(first), "of the user").unwrap();
        make_one(&at, second, Kind::Socket, &mut model).unwrap();
        let there = dir.path().join(second).symlink_metadata().unwrap();
        assert_eq!(FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&there)), FileType::Socket);
        assert!(Model::open(&at, first).is_none(), "a file is no model");
    }

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
