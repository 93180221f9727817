//! Placeholders: files that exist while a command runs, because a mount needs an existing mount point.
//!
//! A protected name that does not exist yet is therefore created, as a socket without a listener. All names of a
//! command are hard links to one socket. Creating and removing a link takes microseconds; an inode per name took longer
//! than all other steps (`sixty_placeholders_need_one_inode`), and a directory takes milliseconds on a busy disk. A
//! socket cannot be opened, and `git` neither shows, adds nor cleans it. Where `git` itself reads the name, the
//! placeholder is a file without effect. Every placeholder is first noted in the pod's sandbox lock file. The last
//! sandbox of the pod to end removes the noted ones. After a kill, `remove_stale_placeholders` does so; it removes only
//! what Minke created (`tests/sandbox`, `nothing_is_left_on_disk`).

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

/// The kind of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceholderKind {
    Socket,
    /// A file with this content.
    File(&'static str),
}

/// Returns the placeholder for a missing name: files where `git` reads files; `commondir` names its own directory.
pub(super) fn placeholder_kind(name: &Path) -> PlaceholderKind {
    let name = name.to_string_lossy();
    match name.rsplit('/').next().unwrap_or_default() {
        "commondir" => PlaceholderKind::File(SELF_REFERENCE),
        "config" | "config.worktree" if name.contains(".git/") => PlaceholderKind::File(""),
        _ => PlaceholderKind::Socket,
    }
}

const SELF_REFERENCE: &str = ".\n";
/// The largest file that `remove_placeholder` accepts as a placeholder.
const MAX_OWN_BYTES: u64 = 2;
/// The mode of a placeholder: no access for anyone.
const NO_ACCESS: Mode = Mode::empty();

/// Notes and creates placeholders. Returns those whose name now exists. A name that this process may not create cannot
/// be created by a command either.
pub(super) fn create_placeholders(
    mut notes: &File,
    wanted: &[(PathBuf, PlaceholderKind)],
) -> io::Result<HashSet<PathBuf>> {
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
    for (directory, names) in group_by_directory(wanted.iter().map(|(path, kind)| (path, *kind)))? {
        let opened = match open_directory(directory) {
            Err(error) if is_permission_error(&error) => continue,
            opened => opened.map_err(|error| error_at(directory, &error))?,
        };
        preserve_times(&opened, || {
            for (path, name, kind) in names {
                match create_placeholder(&opened, name, kind, &mut model) {
                    Ok(()) => made.insert(path.clone()),
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => made.insert(path.clone()),
                    Err(error) if is_permission_error(&error) => false,
                    Err(error) => return Err(error_at(path, &error)),
                };
            }
            Ok(())
        })?;
    }
    Ok(made)
}

fn is_permission_error(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

fn error_at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The work in one directory: a path, its name there, and a value.
type DirectoryNames<'a, T> = Vec<(&'a PathBuf, &'a OsStr, T)>;

/// Groups paths by directory, so that each directory is opened once.
fn group_by_directory<'a, T>(
    paths: impl Iterator<Item = (&'a PathBuf, T)>,
) -> io::Result<BTreeMap<&'a Path, DirectoryNames<'a, T>>> {
    let mut directories: BTreeMap<&Path, DirectoryNames<'a, T>> = BTreeMap::new();
    for (path, what) in paths {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        directories.entry(parent).or_default().push((path, name, what));
    }
    Ok(directories)
}

fn create_placeholder(
    directory: &OwnedFd,
    name: &OsStr,
    kind: PlaceholderKind,
    model: &mut Option<LinkSource>,
) -> io::Result<()> {
    match kind {
        PlaceholderKind::Socket => {
            if let Some(model) = model
                && let Some(linked) = model.link_to(directory, name)
            {
                return linked;
            }
            match rustix::fs::mknodat(directory, name, FileType::Socket, NO_ACCESS, 0) {
                Err(Errno::EXIST) => Err(Errno::EXIST.into()),
                // Some file systems do not support sockets.
                Err(_) => Ok(rustix::fs::mkdirat(directory, name, Mode::RWXU)?),
                Ok(()) => {
                    *model = LinkSource::open_source(directory, name);
                    Ok(())
                }
            }
        }
        PlaceholderKind::File(text) => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o644))?;
            File::from(file).write_all(text.as_bytes())
        }
    }
}

/// The socket of this command. Further names are links to it: adding a name takes microseconds, finding a free inode
/// hundreds of them on a busy disk.
struct LinkSource(OwnedFd);

impl LinkSource {
    /// Returns `None` if its name has been replaced in the meantime.
    fn open_source(directory: &OwnedFd, name: &OsStr) -> Option<LinkSource> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = rustix::fs::openat(directory, name, flags, Mode::empty()).ok()?;
        let about = rustix::fs::fstat(&socket).ok()?;
        (FileType::from_raw_mode(about.st_mode) == FileType::Socket).then_some(LinkSource(socket))
    }

    /// Returns `None` if it cannot be linked: on another file system, on one without links, or after its removal.
    fn link_to(&self, directory: &OwnedFd, name: &OsStr) -> Option<io::Result<()>> {
        // Link by descriptor, because the name may lead elsewhere by now.
        let socket = format!("/proc/self/fd/{}", self.0.as_raw_fd());
        match rustix::fs::linkat(CWD, socket, directory, name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Some(Ok(())),
            Err(Errno::EXIST) => Some(Err(Errno::EXIST.into())),
            Err(_) => None,
        }
    }
}

/// Opens a directory without following links. This process has all rights of the pod, in directories that commands
/// change at the same time, so a followed link could lead outside the scope (`no_link_leads_a_placeholder_astray`).
fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?)
}

/// Calls `act` and restores the directory's modification time, which build tools check.
fn preserve_times<T>(directory: &OwnedFd, act: impl FnOnce() -> T) -> T {
    let before = rustix::fs::fstat(directory);
    let done = act();
    if let Ok(before) = before {
        let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let modified = Timespec { tv_sec: before.st_mtime as _, tv_nsec: before.st_mtime_nsec as _ };
        let times = Timestamps { last_access: omit, last_modification: modified };
        // Without permission to set the time, the directory shows a change, which is true.
        let _kept = rustix::fs::futimens(directory, &times);
    }
    done
}

/// Removes all noted placeholders, unless another sandbox of the pod is running. Releases the lock in both cases.
pub(super) fn remove_noted(mut notes: &File) -> io::Result<()> {
    if notes.metadata()?.len() == 0 {
        return Ok(());
    }
    if rustix::fs::flock(notes, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Another sandbox is running; the last one removes them.
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
    // A path without a parent is not one of ours.
    paths.retain(|path| path.parent().is_some() && path.file_name().is_some());
    for (directory, names) in group_by_directory(paths.iter().map(|path| (path, ())))?.into_iter().rev() {
        // A directory that was removed or replaced by a link contains no placeholder.
        let Ok(opened) = open_directory(directory) else { continue };
        preserve_times(&opened, || {
            names.into_iter().rev().for_each(|(_, name, ())| remove_placeholder(&opened, name))
        });
    }
    notes.set_len(0)
}

/// Removes one placeholder, unless it has been changed.
fn remove_placeholder(directory: &OwnedFd, name: &OsStr) {
    let Ok(there) = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return };
    let is_ours = || {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut text = String::new();
        let read = rustix::fs::openat(directory, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .and_then(|file| File::from(file).take(MAX_OWN_BYTES + 1).read_to_string(&mut text));
        read.is_ok() && matches!(text.as_str(), "" | SELF_REFERENCE)
    };
    let _filled = match FileType::from_raw_mode(there.st_mode) {
        FileType::Directory => rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR),
        FileType::Socket => rustix::fs::unlinkat(directory, name, AtFlags::empty()),
        FileType::RegularFile if is_ours() => rustix::fs::unlinkat(directory, name, AtFlags::empty()),
        _ => Ok(()),
    };
}

/// Removes the placeholders of a killed pod; the caller passes the path of the pod's lock file. Does nothing while one
/// of its sandboxes is running.
pub fn remove_stale_placeholders(lock_file: &Path) -> io::Result<()> {
    match File::options().read(true).append(true).open(lock_file) {
        Ok(notes) => remove_noted(&notes),
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
        let names = |dir: &Path| {
            (0..30).map(|n| (dir.join(format!(".{n}")), PlaceholderKind::Socket)).collect::<Vec<_>>()
        };
        let wanted = [names(&base), names(&base.join("nested"))].concat();
        assert_eq!(create_placeholders(&notes, &wanted).unwrap().len(), 60);
        let inode = |path: &Path| path.symlink_metadata().unwrap().ino();
        assert!(wanted.iter().all(|(path, _)| inode(path) == inode(&wanted[0].0)), "more than one inode");
        remove_noted(&notes).unwrap();
        assert!(wanted.iter().all(|(path, _)| path.symlink_metadata().is_err()));
    }

    /// Between two names, a command of another pod may replace the first by a file of the user or by a link to one.
    #[test]
    fn a_placeholder_is_linked_to_what_we_made_only() {
        let dir = tempfile::tempdir().unwrap();
        let at = open_directory(&dir.path().canonicalize().unwrap()).unwrap();
        let (first, second) = (OsStr::new("first"), OsStr::new("second"));
        let mut model = None;
        create_placeholder(&at, first, PlaceholderKind::Socket, &mut model).unwrap();
        std::fs::remove_file(dir.path().join(first)).unwrap();
        std::fs::write(dir.path().join(first), "of the user").unwrap();
        create_placeholder(&at, second, PlaceholderKind::Socket, &mut model).unwrap();
        let there = dir.path().join(second).symlink_metadata().unwrap();
        assert_eq!(FileType::from_raw_mode(std::os::unix::fs::MetadataExt::mode(&there)), FileType::Socket);
        assert!(LinkSource::open_source(&at, first).is_none(), "a file was accepted as link source");
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
        create_placeholders(&notes, &wanted("hooks", PlaceholderKind::Socket)).unwrap();
        create_placeholders(&notes, &wanted("config", PlaceholderKind::File(""))).unwrap();
        assert!(grant.join("part/config").exists());
        // A process with write access replaces the directory by a link.
        std::fs::rename(grant.join("part"), grant.join("moved")).unwrap();
        symlink(&outside, grant.join("part")).unwrap();
        remove_noted(&notes).unwrap();
        assert!(outside.join("hooks").exists() && outside.join("config").exists(), "removed outside");
        assert!(
            create_placeholders(&notes, &wanted("commondir", PlaceholderKind::File(SELF_REFERENCE))).is_err()
        );
        assert!(!outside.join("commondir").exists(), "created outside");
    }
}
