//! Opens paths below a directory without leaving it and without following links.
//!
//! On Linux the kernel checks the path (`openat2`). Where that is missing, each part is opened separately, and a link
//! in place of a directory is refused. Both refuse `..`.
//! Invariant: both return the same results (`the_walk_refuses_what_the_kernel_refuses`).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// Opens a directory for traversal only; on Linux this needs no read permission.
#[cfg(target_os = "linux")]
const PASS_THROUGH: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const PASS_THROUGH: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the directory at `below` (relative; empty means `dir` itself).
pub(crate) fn open_directory(dir: BorrowedFd<'_>, below: &Path) -> Result<OwnedFd, Errno> {
    open_below(dir, below, PASS_THROUGH, Mode::empty())
}

/// Opens a directory for listing.
pub(crate) fn open_listable(dir: BorrowedFd<'_>, below: &Path) -> Result<OwnedFd, Errno> {
    open_below(dir, below, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens the file at `below`. A link anywhere in it, including the last part, fails with `LOOP`.
pub(crate) fn open_below(
    dir: BorrowedFd<'_>,
    below: &Path,
    flags: OFlags,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    match open_by_kernel(dir, below, flags, mode) {
        // An older kernel, or an outer sandbox that refuses the call.
        Err(Errno::NOSYS | Errno::PERM) => {}
        opened => return opened,
    }
    open_by_walk(dir, below, flags, mode)
}

#[cfg(target_os = "linux")]
fn open_by_kernel(dir: BorrowedFd<'_>, below: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    /// A concurrent rename anywhere makes the kernel return EAGAIN; a few retries are enough.
    const MAX_TRIES: u32 = 32;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 1;
    loop {
        match rustix::fs::openat2(dir, below, flags, mode, inside) {
            Err(Errno::AGAIN | Errno::INTR) if tries < MAX_TRIES => tries += 1,
            // With O_PATH the kernel returns the link itself, or reports that it is not a directory.
            Err(Errno::NOTDIR) if flags.contains(OFlags::DIRECTORY) => {
                return Err(classify_not_directory(dir, below));
            }
            opened => return opened,
        }
    }
}

/// Returns `LOOP` if the last part, which is not a directory, is a link.
#[cfg(target_os = "linux")]
fn classify_not_directory(dir: BorrowedFd<'_>, below: &Path) -> Errno {
    use rustix::fs::ResolveFlags;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat2(dir, below, look, Mode::empty(), inside).and_then(rustix::fs::fstat) {
        Ok(found) if has_type(&found, FileType::Symlink) => Errno::LOOP,
        Ok(_) => Errno::NOTDIR,
        Err(e) => e,
    }
}

fn open_by_walk(dir: BorrowedFd<'_>, below: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut parts = Vec::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    let mut held: Option<OwnedFd> = None;
    let Some((name, parents)) = parts.split_last() else {
        return retry_interrupted(|| rustix::fs::openat(dir, ".", flags, mode));
    };
    for parent in parents {
        let at = held.as_ref().map_or(dir, AsFd::as_fd);
        let next = retry_interrupted(|| rustix::fs::openat(at, *parent, PASS_THROUGH, Mode::empty()))
            .map_err(|e| link_error(at, parent, e))?;
        held = Some(next);
    }
    let at = held.as_ref().map_or(dir, AsFd::as_fd);
    retry_interrupted(|| rustix::fs::openat(at, *name, flags, mode)).map_err(|e| link_error(at, name, e))
}

/// Returns `LOOP` for a link in place of a directory, which fails as "not a directory".
fn link_error(dir: BorrowedFd<'_>, name: &OsStr, e: Errno) -> Errno {
    let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    if e == Errno::NOTDIR && found.is_ok_and(|found| has_type(&found, FileType::Symlink)) {
        Errno::LOOP
    } else {
        e
    }
}

/// Retries a call that a signal interrupted.
pub(crate) fn retry_interrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

pub(crate) fn has_type(found: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

/// Type and permission bits; narrower on other systems.
#[cfg_attr(target_os = "linux", expect(clippy::useless_conversion, reason = "narrower on macOS"))]
pub(crate) fn file_mode(found: &Stat) -> u32 {
    u32::from(found.st_mode)
}

#[cfg(target_os = "linux")]
pub(crate) fn device_number(found: &Stat) -> u64 {
    found.st_dev
}

/// Signed on this system, and only compared.
#[cfg(not(target_os = "linux"))]
pub(crate) fn device_number(found: &Stat) -> u64 {
    i64::from(found.st_dev).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The walk is only the fallback on this machine, so no other test runs it.
    #[test]
    fn the_walk_refuses_what_the_kernel_refuses() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("in");
        std::fs::create_dir_all(dir.join("deep/er")).unwrap();
        std::fs::write(dir.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(home.path(), dir.join("out")).unwrap();
        std::os::unix::fs::symlink("deep", dir.join("near")).unwrap();
        std::os::unix::fs::symlink(home.path().join("target"), dir.join("link")).unwrap();
        let held = rustix::fs::open(&dir, PASS_THROUGH, Mode::empty()).unwrap();
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let private = Mode::from_raw_mode(0o600);
        for (flags, mode) in [(read, Mode::empty()), (make, private), (PASS_THROUGH, Mode::empty())] {
            for path in [
                "../x",
                "deep/../../x",
                "out/x",
                "near/er",
                "near",
                "link",
                "/etc/x",
                "none/x",
                "file/x",
                "out",
            ] {
                let walked = open_by_walk(held.as_fd(), Path::new(path), flags, mode).map(drop);
                #[cfg(target_os = "linux")]
                assert_eq!(
                    walked,
                    open_by_kernel(held.as_fd(), Path::new(path), flags, mode).map(drop),
                    "{path} {flags:?}"
                );
                assert!(walked.is_err(), "{path} {flags:?}");
            }
        }
        assert!(open_by_walk(held.as_fd(), Path::new("deep/./new"), make, private).is_ok());
        assert!(dir.join("deep/new").is_file());
        assert!(open_by_walk(held.as_fd(), Path::new("."), PASS_THROUGH, Mode::empty()).is_ok());
        assert!(!home.path().join("target").exists() && !home.path().join("x").exists());
    }
}
