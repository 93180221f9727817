//! Temporary: a file on its way into its place, with the old one's mode, owner and attributes.
//!
//! Invariant: it comes into its place whole, or goes (`with_and_without_a_name_a_file_comes_into_place_or_goes`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::beneath::{self, again};

/// Permissions and the sticky bit. Who changes a program's content does not keep the rights that its owner gave it.
const MODE_BITS: u32 = 0o1777;
pub(crate) const NEW_FILE: u32 = 0o666;

static UMASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();

/// Gives new files of a scope the mode that they have under this umask, the user's own, where this process has another
/// for files of its own. The first one counts.
pub fn make_files_under(umask: u32) {
    let _first = UMASK.set(umask);
}

/// What something new gets instead of what this process's own umask leaves of it.
pub(crate) fn under_umask(mode: u32) -> Option<u32> {
    UMASK.get().map(|umask| mode & !umask)
}

/// A file without a place yet; gone again unless it gets one. Where the file system can do it, it has no name until it
/// is complete, so that nothing is left behind if this process is killed.
pub(crate) struct Temporary<'a> {
    dir: &'a OwnedFd,
    name: Option<OsString>,
    pub(crate) file: File,
}

/// What was being done, and what the system said.
pub(crate) type Doing = (&'static str, io::Error);

impl<'a> Temporary<'a> {
    /// `private` until it has the old file's mode; else with what a new file gets.
    pub(crate) fn create(dir: &'a OwnedFd, private: bool) -> Result<Temporary<'a>, Doing> {
        let mode = Mode::from_raw_mode((if private { 0o600 } else { NEW_FILE }) as rustix::fs::RawMode);
        if let Some(file) = nameless(dir, mode) {
            return Ok(Temporary { dir, name: None, file: File::from(file) });
        }
        Temporary::named(dir, mode)
    }

    fn named(dir: &'a OwnedFd, mode: Mode) -> Result<Temporary<'a>, Doing> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        loop {
            let name = temporary_name();
            match beneath::open(dir.as_fd(), Path::new(&name), flags, mode) {
                // Left behind by a process of the same number that was killed.
                Err(Errno::EXIST) => {}
                Err(e) => return Err(("making a temporary file beside it", e.into())),
                Ok(file) => return Ok(Temporary { dir, name: Some(name), file: File::from(file) }),
            }
        }
    }

    /// Whether the owner or group had to be left behind.
    pub(crate) fn take_owner(&self, old: &Stat) -> Result<bool, Doing> {
        let mine = rustix::fs::fstat(&self.file).map_err(|e| ("looking at it", e.into()))?;
        let user = (mine.st_uid != old.st_uid).then(|| Uid::from_raw(old.st_uid));
        let group = (mine.st_gid != old.st_gid).then(|| Gid::from_raw(old.st_gid));
        let lost = |result: Result<(), Errno>| match result {
            Ok(()) => Ok(false),
            Err(Errno::PERM) => Ok(true),
            Err(e) => Err(("keeping its owner", e.into())),
        };
        // One after the other: who may not give a file away may still choose among its own groups.
        let group =
            group.map_or(Ok(false), |group| lost(rustix::fs::fchown(&self.file, None, Some(group))))?;
        let user = user.map_or(Ok(false), |user| lost(rustix::fs::fchown(&self.file, Some(user), None)))?;
        Ok(group || user)
    }

    pub(crate) fn take_mode(&self, mode: u32) -> Result<(), Doing> {
        let mode = Mode::from_raw_mode((mode & MODE_BITS) as rustix::fs::RawMode);
        again(|| rustix::fs::fchmod(&self.file, mode)).map_err(|e| ("keeping its mode", e.into()))
    }

    /// A person's own attributes and access lists. Rights of programs are not kept, as with the mode.
    pub(crate) fn take_attributes(&self, dir: &OwnedFd, name: &OsStr) -> Result<(), Doing> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        // One that we may write and not read keeps its content from us, and its attributes with it.
        let Ok(old) = beneath::open(dir.as_fd(), Path::new(name), flags, Mode::empty()) else {
            return Ok(());
        };
        attributes::copy(&old, &self.file).map_err(|e| ("keeping its attributes", e.into()))
    }

    /// Puts it in its place; a `fresh` one never over something that has come meanwhile.
    pub(crate) fn place(mut self, name: &OsStr, fresh: bool) -> Result<(), Errno> {
        let temporary = match self.name.take() {
            Some(temporary) => temporary,
            None if fresh => return link(&self.file, self.dir, name),
            None => loop {
                let temporary = temporary_name();
                match link(&self.file, self.dir, &temporary) {
                    Err(Errno::EXIST) => {}
                    linked => break linked.map(|()| temporary)?,
                }
            },
        };
        let placed = if fresh {
            rename_fresh(self.dir, &temporary, name)
        } else {
            again(|| rustix::fs::renameat(self.dir, &temporary, self.dir, name))
        };
        if placed.is_err() {
            self.name = Some(temporary);
        }
        placed
    }
}

fn temporary_name() -> OsString {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".minke-new-{}-{number}", std::process::id()).into()
}

/// A file without a name, where the file system has such and a name can be given to it later.
#[cfg(target_os = "linux")]
fn nameless(dir: &OwnedFd, mode: Mode) -> Option<OwnedFd> {
    static CAN_BE_NAMED: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| Path::new(DESCRIPTORS).exists());
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    // Why not is of no interest: a named file is made instead, and says so if that cannot be done either.
    CAN_BE_NAMED.then(|| rustix::fs::openat(dir, ".", flags, mode).ok())?
}

#[cfg(not(target_os = "linux"))]
fn nameless(_dir: &OwnedFd, _mode: Mode) -> Option<OwnedFd> {
    None
}

/// Where this process's own descriptors have names. They are ours alone, nobody can lead them elsewhere.
const DESCRIPTORS: &str = "/proc/self/fd";

fn link(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let own = format!("{DESCRIPTORS}/{}", file.as_raw_fd());
    again(|| rustix::fs::linkat(rustix::fs::CWD, own.as_str(), dir, name, AtFlags::SYMLINK_FOLLOW))
}

/// Never over something that has come meanwhile, where the file system can say so.
fn rename_fresh(dir: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    match again(|| rustix::fs::renameat_with(dir, from, dir, to, rustix::fs::RenameFlags::NOREPLACE)) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        answer => return answer,
    }
    again(|| rustix::fs::renameat(dir, from, dir, to))
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Nothing better can be done than to leave it, under a name that says whose it is.
            let _left = rustix::fs::unlinkat(self.dir, name, AtFlags::empty());
        }
    }
}

mod attributes {
    use super::{Errno, File, OwnedFd};
    use rustix::fs::XattrFlags;

    /// What the kernel takes at most, for the list of names and for one value.
    const MOST: usize = 64 * 1024;

    pub(super) fn copy(old: &OwnedFd, new: &File) -> Result<(), Errno> {
        let mut names = vec![0_u8; MOST];
        let length = match rustix::fs::flistxattr(old, &mut names[..]) {
            Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
            length => length?,
        };
        let mut value = vec![0_u8; MOST];
        for name in names.get(..length).unwrap_or_default().split(|byte| *byte == 0) {
            if name.starts_with(b"user.") || name == b"system.posix_acl_access" {
                let length = rustix::fs::fgetxattr(old, name, &mut value[..])?;
                let value = value.get(..length).unwrap_or_default();
                rustix::fs::fsetxattr(new, name, value, XattrFlags::empty())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Most file systems have files without names, so nothing else would run the other way on this machine.
    #[test]
    fn with_and_without_a_name_a_file_comes_into_place_or_goes() {
        let home = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(home.path(), flags, Mode::empty()).unwrap();
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir(home.path()).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let mode = Mode::from_raw_mode(0o600);
        let make = |named: bool| {
            if named { Temporary::named(&dir, mode).unwrap() } else { Temporary::create(&dir, true).unwrap() }
        };
        for named in [false, true] {
            drop(make(named));
            assert!(names().is_empty());
            let mut first = make(named);
            first.file.write_all(b"first").unwrap();
            first.place(OsStr::new("f"), true).unwrap();
            // Fresh means that nothing is there.
            assert_eq!(make(named).place(OsStr::new("f"), true), Err(Errno::EXIST));
            assert_eq!(std::fs::read(home.path().join("f")).unwrap(), b"first");
            let mut second = make(named);
            second.file.write_all(b"second").unwrap();
            second.place(OsStr::new("f"), false).unwrap();
            assert_eq!(std::fs::read(home.path().join("f")).unwrap(), b"second");
            assert_eq!(names(), ["f"]);
            std::fs::create_dir(home.path().join("d")).unwrap();
            assert!(make(named).place(OsStr::new("d"), false).is_err());
            std::fs::remove_dir(home.path().join("d")).unwrap();
            std::fs::remove_file(home.path().join("f")).unwrap();
            assert!(names().is_empty(), "{:?}", names());
        }
    }
}
