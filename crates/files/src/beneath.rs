//! Beneath: opening something below a directory without ever leaving it or following a link.
//!
//! Linux asks the kernel (`openat2`); where that is missing every part of the path is opened by itself, and a link in the
//! place of a directory is refused. Both refuse `..`.
//! Invariant: both give the same answers (`the_walk_refuses_what_the_kernel_refuses`).

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// A directory that is only passed through: on Linux no permission to list it is needed.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory at `below` (relative; empty means `dir` itself).
pub(crate) fn directory(dir: BorrowedFd<'_>, below: &Path) -> Result<OwnedFd, Errno> {
    open(dir, below, PASS, Mode::empty())
}

/// The same, for whoever lists it.
pub(crate) fn listable(dir: BorrowedFd<'_>, below: &Path) -> Result<OwnedFd, Errno> {
    open(dir, below, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Opens what is at `below`; a link anywhere in it, the last part included, fails with `LOOP`.
pub(crate) fn open(dir: BorrowedFd<'_>, below: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    match kernel(dir, below, flags, mode) {
        // An older kernel, or a fence around us that does not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {}
        opened => return opened,
    }
    walk(dir, below, flags, mode)
}

#[cfg(target_os = "linux")]
fn kernel(dir: BorrowedFd<'_>, below: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;
    /// A rename somewhere else makes the kernel give up with EAGAIN; a few more tries are enough.
    const TRIES: u32 = 32;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mut tries = 1;
    loop {
        match rustix::fs::openat2(dir, below, flags, mode, inside) {
            Err(Errno::AGAIN | Errno::INTR) if tries < TRIES => tries += 1,
            // With O_PATH the kernel hands out the link itself, or says that it is no directory.
            Err(Errno::NOTDIR) if flags.contains(OFlags::DIRECTORY) => {
                return Err(not_a_directory(dir, below));
            }
            opened => return opened,
        }
    }
}

/// Whether the last part, which is no directory, is a link: then it is told as the link that it is.
#[cfg(target_os = "linux")]
fn not_a_directory(dir: BorrowedFd<'_>, below: &Path) -> Errno {
    use rustix::fs::ResolveFlags;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat2(dir, below, look, Mode::empty(), inside).and_then(rustix::fs::fstat) {
        Ok(found) if is(&found, FileType::Symlink) => Errno::LOOP,
        Ok(_) => Errno::NOTDIR,
        Err(e) => e,
    }
}

fn walk(dir: BorrowedFd<'_>, below: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
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
        return again(|| rustix::fs::openat(dir, ".", flags, mode));
    };
    for parent in parents {
        let at = held.as_ref().map_or(dir, AsFd::as_fd);
        let next = again(|| rustix::fs::openat(at, *parent, PASS, Mode::empty()))
            .map_err(|e| as_link(at, parent, e))?;
        held = Some(next);
    }
    let at = held.as_ref().map_or(dir, AsFd::as_fd);
    again(|| rustix::fs::openat(at, *name, flags, mode)).map_err(|e| as_link(at, name, e))
}

/// A link in the place of a directory fails as "not a directory"; it is told as the link that it is.
fn as_link(dir: BorrowedFd<'_>, name: &OsStr, e: Errno) -> Errno {
    let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    if e == Errno::NOTDIR && found.is_ok_and(|found| is(&found, FileType::Symlink)) { Errno::LOOP } else { e }
}

/// A signal in the middle is no answer.
pub(crate) fn again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            answer => return answer,
        }
    }
}

pub(crate) fn is(found: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

/// Type and permission bits; other systems have them in fewer bits.
#[cfg_attr(target_os = "linux", expect(clippy::useless_conversion, reason = "narrower on macOS"))]
pub(crate) fn mode_of(found: &Stat) -> u32 {
    u32::from(found.st_mode)
}

#[cfg(target_os = "linux")]
pub(crate) fn device_of(found: &Stat) -> u64 {
    found.st_dev
}

/// Signed there, and only ever compared.
#[cfg(not(target_os = "linux"))]
pub(crate) fn device_of(found: &Stat) -> u64 {
    i64::from(found.st_dev).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The walk is the fallback, so nothing else would run it on this machine.
    #[test]
    fn the_walk_refuses_what_the_kernel_refuses() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("in");
        std::fs::create_dir_all(dir.join("deep/er")).unwrap();
        std::fs::write(dir.join("file"), "x").unwrap();
        std::os::unix::fs::symlink(home.path(), dir.join("out")).unwrap();
        std::os::unix::fs::symlink("deep", dir.join("near")).unwrap();
        std::os::unix::fs::symlink(home.path().join("target"), dir.join("link")).unwrap();
        let held = rustix::fs::open(&dir, PASS, Mode::empty()).unwrap();
        let read = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let private = Mode::from_raw_mode(0o600);
        for (flags, mode) in [(read, Mode::empty()), (make, private), (PASS, Mode::empty())] {
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
                let walked = walk(held.as_fd(), Path::new(path), flags, mode).map(drop);
                #[cfg(target_os = "linux")]
                assert_eq!(
                    walked,
                    kernel(held.as_fd(), Path::new(path), flags, mode).map(drop),
                    "{path} {flags:?}"
                );
                assert!(walked.is_err(), "{path} {flags:?}");
            }
        }
        assert!(walk(held.as_fd(), Path::new("deep/./new"), make, private).is_ok());
        assert!(dir.join("deep/new").is_file());
        assert!(walk(held.as_fd(), Path::new("."), PASS, Mode::empty()).is_ok());
        assert!(!home.path().join("target").exists() && !home.path().join("x").exists());
    }
}
