//! Grants: the registry opens a path before a loan and records its identity.
//!
//! Here: finding the directory at a path and comparing it with the granted one. Elsewhere: the rules of lending
//! (`table`), opening files below a grant (`files`).
//! Invariants: a path that is not canonical is refused, never resolved (`a_target_is_what_it_says_or_is_refused`); a
//! directory that was replaced after its grant is neither lent nor adopted (`a_place_that_was_exchanged_is_refused`).

use std::io;
use std::path::Path;

use minke_policy::is_canonical;
use minke_record::ScopeRule;
use serde::{Deserialize, Serialize};

use crate::error::RegistryError;

/// A path with the identity that it had when it was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathGrant {
    pub path: String,
    pub device: u64,
    pub inode: u64,
}

/// Opens a target. It must be absolute and canonical, must exist, and may contain no symbolic link.
pub fn open_target(target: &str) -> Result<PathGrant, RegistryError> {
    let bad = |reason: String| RegistryError::BadTarget { target: target.to_owned(), why: reason };
    if !is_canonical(target) {
        return Err(bad("it is not an absolute path without `.`, `..` and double slashes".to_owned()));
    }
    match open_path(Path::new(target)) {
        Ok(FileIdentity { device, inode, .. }) => Ok(PathGrant { path: target.to_owned(), device, inode }),
        Err(e) => Err(bad(error_reason(&e))),
    }
}

/// Returns grants for the existing directories among the targets of these rules. Files and missing targets have no
/// stable identity: each write may replace them. A symbolic link is refused.
pub(crate) fn existing_grants<'a>(
    rules: impl IntoIterator<Item = &'a ScopeRule>,
) -> Result<Vec<PathGrant>, RegistryError> {
    let identity = rules.into_iter().map(|rule| find_grant(&rule.target));
    identity.filter_map(Result::transpose).collect()
}

fn find_grant(target: &str) -> Result<Option<PathGrant>, RegistryError> {
    match open_path(Path::new(target)) {
        Ok(FileIdentity { device, inode, directory }) => {
            Ok(directory.then(|| PathGrant { path: target.to_owned(), device, inode }))
        }
        Err(e) if is_missing(&e) => Ok(None),
        Err(e) => Err(RegistryError::BadTarget { target: target.to_owned(), why: error_reason(&e) }),
    }
}

/// Refuses if a target of these rules is no longer the directory that was granted.
pub(crate) fn check_unchanged<'a>(
    granted: &[PathGrant],
    rules: impl Iterator<Item = &'a ScopeRule>,
) -> Result<(), RegistryError> {
    for rule in rules {
        check_target(&rule.target, granted.iter().find(|grant| grant.path == rule.target))?;
    }
    Ok(())
}

/// Refuses to lend below a grant that is no longer the directory that the lender got.
pub(crate) fn check_lender_grants(granted: &[PathGrant], wanted: &[&ScopeRule]) -> Result<(), RegistryError> {
    let beneath =
        |grant: &&PathGrant| wanted.iter().any(|rule| Path::new(&rule.target).starts_with(&grant.path));
    for grant in granted.iter().filter(beneath) {
        check_target(&grant.path, Some(grant))?;
    }
    Ok(())
}

fn check_target(target: &str, granted: Option<&PathGrant>) -> Result<(), RegistryError> {
    if find_grant(target)?.as_ref() == granted {
        return Ok(());
    }
    let reason = "it was replaced after it was granted".to_owned();
    Err(RegistryError::BadTarget { target: target.to_owned(), why: reason })
}

fn error_reason(error: &io::Error) -> String {
    if is_link(error) {
        return "a component is a symbolic link".to_owned();
    }
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Also true if a component of the path is a file.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The identity of an opened path.
struct FileIdentity {
    device: u64,
    inode: u64,
    directory: bool,
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// Resolves the path in one system call, so that no component can be replaced in between.
#[cfg(target_os = "linux")]
fn open_path(path: &Path) -> io::Result<FileIdentity> {
    use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), resolve)?;
    let identity = rustix::fs::fstat(&opened)?;
    let directory = FileType::from_raw_mode(identity.st_mode) == FileType::Directory;
    Ok(FileIdentity { device: identity.st_dev, inode: identity.st_ino, directory })
}

/// Opens each component in turn without following links.
#[cfg(not(target_os = "linux"))]
fn open_path(path: &Path) -> io::Result<FileIdentity> {
    use std::os::unix::fs::MetadataExt;
    let parts: Vec<&Path> = path.ancestors().collect();
    for part in parts.into_iter().rev() {
        if std::fs::symlink_metadata(part)?.is_symlink() {
            return Err(rustix::io::Errno::LOOP.into());
        }
    }
    let found = std::fs::symlink_metadata(path)?;
    Ok(FileIdentity { device: find_grant.dev(), inode: find_grant.ino(), directory: find_grant.is_dir() })
}
