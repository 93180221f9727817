//! A temporary file that replaces another one, with the old one's mode, owner and attributes.
//!
//! Invariant: it is moved into place complete, or removed (`with_and_without_a_name_a_file_comes_into_place_or_goes`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use crate::safe_open::{self, retry_interrupted};

/// Permission bits and the sticky bit. A changed program does not keep its set-ID bits.
const MODE_BITS: u32 = 0o1777;
pub(crate) const NEW_FILE_MODE: u32 = 0o666;

static FILE_UMASK: std::sync::OnceLock<u32> = std::sync::OnceLock::new();

/// Sets the umask, the user's own, for new files of a scope. The process itself has a stricter umask for its own files.
/// Only the first call has an effect.
pub fn set_file_umask(umask: u32) {
    let _first = FILE_UMASK.set(umask);
}

/// Returns the mode of a new file under the user's umask, if one is set.
pub(crate) fn mode_under_umask(mode: u32) -> Option<u32> {
    FILE_UMASK.get().map(|umask| mode & !umask)
}

/// A file that is removed unless it is moved into place. Where the file system supports it, it has no name until it is
/// complete, so that nothing is left if this process is killed.
pub(crate) struct TemporaryFile<'a> {
    dir: &'a OwnedFd,
    name: Option<OsString>,
    pub(crate) file: File,
}

/// The failed action and the error.
pub(crate) type ActionError = (&'static str, io::Error);

impl<'a> TemporaryFile<'a> {
    /// `private` if it gets the old file's mode later; otherwise it has the mode of a new file.
    pub(crate) fn create(dir: &'a OwnedFd, private: bool) -> Result<TemporaryFile<'a>, ActionError> {
        let mode = Mode::from_raw_mode((if private { 0o600 } else { NEW_FILE_MODE }) as rustix::fs::RawMode);
        if let Some(file) = create_unnamed(dir, mode) {
            return Ok(TemporaryFile { dir, name: None, file: File::from(file) });
        }
        TemporaryFile::create_named(dir, mode)
    }

    fn create_named(dir: &'a OwnedFd, mode: Mode) -> Result<TemporaryFile<'a>, ActionError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        loop {
            let name = temporary_name();
            match safe_open::open_below(dir.as_fd(), Path::new(&name), flags, mode) {
                // Left by a killed process with the same id.
                Err(Errno::EXIST) => {}
                Err(e) => return Err(("creating a temporary file next to it", e.into())),
                Ok(file) => return Ok(TemporaryFile { dir, name: Some(name), file: File::from(file) }),
            }
        }
    }

    /// Copies the owner and group. Returns whether that was impossible.
    pub(crate) fn copy_owner(&self, old: &Stat) -> Result<bool, ActionError> {
        let mine = rustix::fs::fstat(&self.file).map_err(|e| ("reading its metadata", e.into()))?;
        let user = (mine.st_uid != old.st_uid).then(|| Uid::from_raw(old.st_uid));
        let group = (mine.st_gid != old.st_gid).then(|| Gid::from_raw(old.st_gid));
        let lost = |result: Result<(), Errno>| match result {
            Ok(()) => Ok(false),
            Err(Errno::PERM) => Ok(true),
            Err(e) => Err(("keeping its owner", e.into())),
        };
        // One at a time: a user who cannot change the owner may still change to one of their own groups.
        let group =
            group.map_or(Ok(false), |group| lost(rustix::fs::fchown(&self.file, None, Some(group))))?;
        let user = user.map_or(Ok(false), |user| lost(rustix::fs::fchown(&self.file, Some(user), None)))?;
        Ok(group || user)
    }

    pub(crate) fn set_mode(&self, mode: u32) -> Result<(), ActionError> {
        let mode = Mode::from_raw_mode((mode & MODE_BITS) as rustix::fs::RawMode);
        retry_interrupted(|| rustix::fs::fchmod(&self.file, mode)).map_err(|e| ("keeping its mode", e.into()))
    }

    /// Copies user attributes and access lists. Capabilities are not kept, like set-ID bits.
    pub(crate) fn copy_attributes(&self, dir: &OwnedFd, name: &OsStr) -> Result<(), ActionError> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        // An unreadable file hides its attributes as well as its content.
        let Ok(old) = safe_open::open_below(dir.as_fd(), Path::new(name), flags, Mode::empty()) else {
            return Ok(());
        };
        attributes::copy_all(&old, &self.file).map_err(|e| ("keeping its attributes", e.into()))
    }

    /// Moves it into place. If `fresh`, an existing file is never replaced.
    pub(crate) fn move_into_place(mut self, name: &OsStr, fresh: bool) -> Result<(), Errno> {
        let temporary = match self.name.take() {
            Some(temporary) => temporary,
            None if fresh => return link_into(&self.file, self.dir, name),
            None => loop {
                let temporary = temporary_name();
                match link_into(&self.file, self.dir, &temporary) {
                    Err(Errno::EXIST) => {}
                    linked => break linked.map(|()| temporary)?,
                }
            },
        };
        let placed = if fresh {
            rename_exclusive(self.dir, &temporary, name)
        } else {
            retry_interrupted(|| rustix::fs::renameat(self.dir, &temporary, self.dir, name))
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

/// Creates a file without a name, where the file system supports it and can link it later.
#[cfg(target_os = "linux")]
fn create_unnamed(dir: &OwnedFd, mode: Mode) -> Option<OwnedFd> {
    static CAN_LINK_UNNAMED: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| Path::new(DESCRIPTOR_DIR).exists());
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    // The error does not matter: a named file is created instead, and reports its own error.
    CAN_LINK_UNNAMED.then(|| rustix::fs::openat(dir, ".", flags, mode).ok())?
}

#[cfg(not(target_os = "linux"))]
fn create_unnamed(_dir: &OwnedFd, _mode: Mode) -> Option<OwnedFd> {
    None
}

/// The directory of this process's descriptors. Other processes cannot change it.
const DESCRIPTOR_DIR: &str = "/proc/self/fd";

fn link_into(file: &File, dir: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
    use std::os::fd::AsRawFd;
    let own = format!("{DESCRIPTOR_DIR}/{}", file.as_raw_fd());
    retry_interrupted(|| {
        rustix::fs::linkat(rustix::fs::CWD, own.as_str(), dir, name, AtFlags::SYMLINK_FOLLOW)
    })
}

/// Renames without replacing an existing file, where the file system supports it.
fn rename_exclusive(dir: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    #[cfg(any(target_os = "linux", target_os = "macos"))]
    match retry_interrupted(|| {
        rustix::fs::renameat_with(dir, from, dir, to, rustix::fs::RenameFlags::NOREPLACE)
    }) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
        answer => return answer,
    }
    retry_interrupted(|| rustix::fs::renameat(dir, from, dir, to))
}

impl Drop for TemporaryFile<'_> {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // If removal fails, the file stays, under a name that identifies its owner.
            let _left = rustix::fs::unlinkat(self.dir, name, AtFlags::empty());
        }
    }
}

mod attributes {
    use super::{Errno, File, OwnedFd};
    use rustix::fs::XattrFlags;

    /// The size limit of the kernel for the list of names and for one value.
    const MAX_BYTES: usize = 64 * 1024;

    pub(super) fn copy_all(old: &OwnedFd, new: &File) -> Result<(), Errno> {
        let mut names = vec![0_u8; MAX_BYTES];
        let length = match rustix::fs::flistxattr(old, &mut names[..]) {
            Ok(0) | Err(Errno::NOTSUP) => return Ok(()),
            length => length?,
        };
        let mut value = vec![0_u8; MAX_BYTES];
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

    /// Most file systems support unnamed files, so no other test runs the other branch on this machine.
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
            if named {
                TemporaryFile::create_named(&dir, mode).unwrap()
            } else {
                TemporaryFile::create(&dir, true).unwrap()
            }
        };
        for named in [false, true] {
            drop(make(named));
            assert!(names().is_empty());
            let mut first = make(named);
            first.file.write_all(b"first").unwrap();
            first.move_into_place(OsStr::new("f"), true).unwrap();
            // `fresh` requires that the name does not exist.
            assert_eq!(make(named).move_into_place(OsStr::new("f"), true), Err(Errno::EXIST));
            assert_eq!(std::fs::read(home.path().join("f")).unwrap(), b"first");
            let mut second = make(named);
            second.file.write_all(b"second").unwrap();
            second.move_into_place(OsStr::new("f"), false).unwrap();
            assert_eq!(std::fs::read(home.path().join("f")).unwrap(), b"second");
            assert_eq!(names(), ["f"]);
            std::fs::create_dir(home.path().join("d")).unwrap();
            assert!(make(named).move_into_place(OsStr::new("d"), false).is_err());
            std::fs::remove_dir(home.path().join("d")).unwrap();
            std::fs::remove_file(home.path().join("f")).unwrap();
            assert!(names().is_empty(), "{:?}", names());
        }
    }
}
