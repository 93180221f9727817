//! Grants: a place that is to be lent is opened, not spelled.
//!
//! Here: finding what stands at a target, once. Elsewhere: who may lend it (`table`), how files beneath it are opened
//! (`files`).
//! Invariant: a target that is not what it says is refused, never worked out (`a_target_is_what_it_says_or_is_refused`).

use std::io;
use std::path::Path;

use minke_policy::is_canonical;

use crate::error::RegistryError;

/// A place as it was found when it was granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub path: String,
    pub device: u64,
    pub inode: u64,
}

/// Opens a target. It must be absolute, canonical and there, and no part of it may be a symbolic link.
pub fn resolve(target: &str) -> Result<Grant, RegistryError> {
    let bad = |why: String| RegistryError::BadTarget { target: target.to_owned(), why };
    if !is_canonical(target) {
        return Err(bad("it is not an absolute path without `.`, `..` and double slashes".to_owned()));
    }
    match open(Path::new(target)) {
        Ok((device, inode)) => Ok(Grant { path: target.to_owned(), device, inode }),
        Err(e) if is_link(&e) => Err(bad("a part of it is a symbolic link".to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            Err(bad("there is no such file or directory".to_owned()))
        }
        Err(e) => Err(bad(e.to_string())),
    }
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// One walk by the kernel, so that nothing can be exchanged between looking and opening.
#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<(u64, u64)> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
    let found = rustix::fs::fstat(&opened)?;
    Ok((found.st_dev, found.st_ino))
}

/// Part by part, each without following.
#[cfg(not(target_os = "linux"))]
fn open(path: &Path) -> io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let parts: Vec<&Path> = path.ancestors().collect();
    for part in parts.into_iter().rev() {
        if std::fs::symlink_metadata(part)?.is_symlink() {
            return Err(rustix::io::Errno::LOOP.into());
        }
    }
    let found = std::fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}
