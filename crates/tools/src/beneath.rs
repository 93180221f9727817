//! Opening a file beneath a directory without ever leaving it.
//!
//! Linux asks the kernel (`openat2`); where that is missing every part of the path is opened by itself and a symbolic
//! link is never followed. Both refuse `..` and links.
//! Invariant: what is opened lies inside (`a_note_never_leaves_the_working_directory`).

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};

const MODE: u32 = 0o644;

/// Opens a file for appending, making it if it is missing. `below` is relative. Never waits: a FIFO is refused.
pub(crate) fn open_append(dir: &Path, below: &Path) -> io::Result<File> {
    let dir = rustix::fs::open(dir, OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
    #[cfg(target_os = "linux")]
    match kernel(&dir, below) {
        // An older kernel, or a fence that does not know the call.
        Err(e) if [rustix::io::Errno::NOSYS, rustix::io::Errno::PERM].contains(&e) => {}
        opened => return Ok(File::from(opened?)),
    }
    walk(dir, below).map(File::from)
}

/// Readable too, because the end of the file says whether a line break is missing there.
fn append_flags() -> OFlags {
    OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY
}

#[cfg(target_os = "linux")]
fn kernel(dir: &OwnedFd, below: &Path) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::ResolveFlags;
    /// A rename somewhere else makes the kernel give up with EAGAIN; a few more tries are enough.
    const TRIES: u32 = 16;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let mode = Mode::from_raw_mode(MODE);
    let mut tries = 1;
    loop {
        match rustix::fs::openat2(dir, below, append_flags(), mode, inside) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) if tries < TRIES => tries += 1,
            opened => return opened,
        }
    }
}

fn walk(dir: OwnedFd, below: &Path) -> io::Result<OwnedFd> {
    let mut parts = Vec::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::Error::from(rustix::io::Errno::XDEV));
            }
        }
    }
    let Some((name, parents)) = parts.split_last() else {
        return Err(io::Error::from(rustix::io::Errno::ISDIR));
    };
    let mut dir = dir;
    for parent in parents {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY;
        dir =
            rustix::fs::openat(&dir, *parent, flags, Mode::empty()).map_err(|e| as_link(&dir, parent, e))?;
    }
    let mode = Mode::from_raw_mode(MODE as rustix::fs::RawMode);
    Ok(rustix::fs::openat(&dir, *name, append_flags() | OFlags::NOFOLLOW, mode)?)
}

/// A link in the place of a directory fails as "not a directory"; it is told as the link that it is.
fn as_link(dir: &OwnedFd, name: &OsStr, e: rustix::io::Errno) -> io::Error {
    use rustix::fs::{AtFlags, FileType};
    let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let link = found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Symlink);
    io::Error::from(if link { rustix::io::Errno::LOOP } else { e })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The walk is the fallback, so nothing else would run it on this machine.
    #[test]
    fn the_walk_refuses_what_the_kernel_refuses() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("in");
        std::fs::create_dir_all(dir.join("deep")).unwrap();
        std::os::unix::fs::symlink(home.path(), dir.join("out")).unwrap();
        std::os::unix::fs::symlink("deep", dir.join("near")).unwrap();
        std::os::unix::fs::symlink(home.path().join("target"), dir.join("link")).unwrap();
        let open = || rustix::fs::open(&dir, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        for bad in ["../x", "deep/../../x", "out/x", "near/x", "link", "/etc/x", "none/x", "."] {
            let walked = walk(open(), Path::new(bad)).unwrap_err();
            #[cfg(target_os = "linux")]
            {
                let asked = kernel(&open(), Path::new(bad)).unwrap_err();
                assert_eq!(walked.raw_os_error(), Some(asked.raw_os_error()), "{bad}");
            }
            #[cfg(not(target_os = "linux"))]
            drop(walked);
        }
        assert!(walk(open(), Path::new("deep/./new")).is_ok());
        assert!(dir.join("deep/new").is_file());
        assert!(!home.path().join("target").exists() && !home.path().join("x").exists());
    }
}
