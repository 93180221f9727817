//! Grants: a place that is to be lent is opened, not spelled.
//!
//! Here: finding what stands at a target, and whether it is what stood there. Elsewhere: who may lend it (`table`), how
//! files beneath it are opened (`files`).
//! Invariants: a target that is not what it says is refused, never worked out (`a_target_is_what_it_says_or_is_refused`);
//! a place that was exchanged since it was granted is neither lent nor taken (`a_place_that_was_exchanged_is_refused`).

use std::io;
use std::path::Path;

use minke_policy::is_canonical;
use minke_record::ScopeRule;
use serde::{Deserialize, Serialize};

use crate::error::RegistryError;

/// A place as it was found when it was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
        Ok(Stands { device, inode, .. }) => Ok(Grant { path: target.to_owned(), device, inode }),
        Err(e) => Err(bad(why(&e))),
    }
}

/// The directories among the targets of these rules. What is not there yet has nothing to be known by, nor has a file: each
/// write puts another one in its place. A symbolic link is refused.
pub(crate) fn found_all<'a>(
    rules: impl IntoIterator<Item = &'a ScopeRule>,
) -> Result<Vec<Grant>, RegistryError> {
    let found = rules.into_iter().map(|rule| found(&rule.target));
    found.filter_map(Result::transpose).collect()
}

fn found(target: &str) -> Result<Option<Grant>, RegistryError> {
    match open(Path::new(target)) {
        Ok(Stands { device, inode, directory }) => {
            Ok(directory.then(|| Grant { path: target.to_owned(), device, inode }))
        }
        Err(e) if is_missing(&e) => Ok(None),
        Err(e) => Err(RegistryError::BadTarget { target: target.to_owned(), why: why(&e) }),
    }
}

/// Refuses if anything else stands at the targets of these rules than stood there when they were granted.
pub(crate) fn same<'a>(
    granted: &[Grant],
    rules: impl Iterator<Item = &'a ScopeRule>,
) -> Result<(), RegistryError> {
    for rule in rules {
        check(&rule.target, granted.iter().find(|grant| grant.path == rule.target))?;
    }
    Ok(())
}

/// Refuses to lend beneath a grant that is not what the lender got.
pub(crate) fn still_there(granted: &[Grant], wanted: &[&ScopeRule]) -> Result<(), RegistryError> {
    let beneath = |grant: &&Grant| wanted.iter().any(|rule| Path::new(&rule.target).starts_with(&grant.path));
    for grant in granted.iter().filter(beneath) {
        check(&grant.path, Some(grant))?;
    }
    Ok(())
}

fn check(target: &str, granted: Option<&Grant>) -> Result<(), RegistryError> {
    if found(target)?.as_ref() == granted {
        return Ok(());
    }
    let why = "something else stands there than when it was granted".to_owned();
    Err(RegistryError::BadTarget { target: target.to_owned(), why })
}

fn why(error: &io::Error) -> String {
    if is_link(error) {
        return "a part of it is a symbolic link".to_owned();
    }
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Also where a part of the path is a file.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What was opened.
struct Stands {
    device: u64,
    inode: u64,
    directory: bool,
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// One walk by the kernel, so that nothing can be exchanged between looking and opening.
#[cfg(target_os = "linux")]
fn open(path: &Path) -> io::Result<Stands> {
    use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
    let found = rustix::fs::fstat(&opened)?;
    let directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
    Ok(Stands { device: found.st_dev, inode: found.st_ino, directory })
}

/// Part by part, each without following.
#[cfg(not(target_os = "linux"))]
fn open(path: &Path) -> io::Result<Stands> {
    use std::os::unix::fs::MetadataExt;
    let parts: Vec<&Path> = path.ancestors().collect();
    for part in parts.into_iter().rev() {
        if std::fs::symlink_metadata(part)?.is_symlink() {
            return Err(rustix::io::Errno::LOOP.into());
        }
    }
    let found = std::fs::symlink_metadata(path)?;
    Ok(Stands { device: found.dev(), inode: found.ino(), directory: found.is_dir() })
}
