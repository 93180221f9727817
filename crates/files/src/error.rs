//! Why a file could not be used, and what to do about it, in words that the model can act on.
//!
//! Invariant: paths are named as requested; `/tmp` names the pod's own temporary directory
//! (`a_refusal_in_the_moved_tmp_names_the_path_as_it_was_asked_for`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use minke_policy::AccessLevel;

use crate::access::AccessRules;

/// Why a scope cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    #[error(
        "could not use the grant {}: {why}; give an absolute path without `..`, `.` or symbolic links",
        PrintablePath(target)
    )]
    NotCanonical { target: PathBuf, why: String },
    #[error("could not open the grant {}: {why}", PrintablePath(target))]
    CannotOpen { target: PathBuf, why: String },
}

/// Why a file operation failed. The text begins with the path, so that a tool can put the attempted action before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("{}: it is not an absolute path; give one that begins with /", PrintablePath(.path))]
    RelativePath { path: PathBuf },
    #[error("{}: {why}", PrintablePath(.path))]
    InvalidPath { path: PathBuf, why: &'static str },
    #[error("{}: it is outside of the scope, which is {scope}; work inside it or ask for a wider one", PrintablePath(.path))]
    OutOfScope { path: PathBuf, scope: String },
    #[error(
        "{}: it is read-only; the scope is {scope}; write somewhere else or ask for a wider one",
        PrintablePath(.path)
    )]
    ReadOnly { path: PathBuf, scope: String },
    #[error(
        "{}: it is lent to the pod `{to}` and is read-only until that pod has ended (WaitPods, StopPod)",
        PrintablePath(.path)
    )]
    Lent { path: PathBuf, to: String },
    #[error(
        "{}: {} is protected from agents, because programs run or trust it; the user can allow it with `--lift`",
        PrintablePath(.path), .name
    )]
    Protected { path: PathBuf, name: &'static str },
    #[error("{}: {} is hidden from agents, because it contains secrets or files that control this pod", PrintablePath(.path), PrintablePath(.wall))]
    Masked { path: PathBuf, wall: PathBuf },
    #[error(
        "{}: it leads through a symbolic link to {}, where {} is not allowed; {why}",
        PrintablePath(.path), PrintablePath(.target), .want.as_str()
    )]
    SymlinkOutOfScope { path: PathBuf, target: PathBuf, want: AccessLevel, why: String },
    #[error("{}: it is a symbolic link to {}, where there is nothing; name the file that you want", PrintablePath(.path), PrintablePath(.target))]
    BrokenSymlink { path: PathBuf, target: PathBuf },
    #[error("{}: its symbolic links lead in a circle or through more than {} others", PrintablePath(.path), crate::resolve::MAX_LINKS)]
    LinkLoop { path: PathBuf },
    #[error("{}: the path contains a symbolic link, which is not followed here", PrintablePath(.path))]
    SymlinkNotFollowed { path: PathBuf },
    #[error("{}: there is no such file; check the path", PrintablePath(.path))]
    NotFound { path: PathBuf },
    #[error("{}: its directory {} does not exist", PrintablePath(.path), PrintablePath(.missing))]
    MissingDirectory { path: PathBuf, missing: PathBuf },
    #[error("{}: it is a directory; give a file in it", PrintablePath(.path))]
    IsDirectory { path: PathBuf },
    #[error("{}: a part of its path is not a directory", PrintablePath(.path))]
    NotADirectory { path: PathBuf },
    #[error("{}: it is {what}; give a regular file", PrintablePath(.path))]
    Special { path: PathBuf, what: &'static str },
    #[error("{}: it has changed in the meantime; read it again", PrintablePath(.path))]
    Changed { path: PathBuf },
    #[error("{}: it exists already", PrintablePath(.path))]
    Exists { path: PathBuf },
    #[error("{}: {why}", PrintablePath(.path))]
    Denied { path: PathBuf, why: &'static str },
    #[error("{}: it has {bytes} bytes, the limit is {most}", PrintablePath(.path))]
    TooLarge { path: PathBuf, bytes: u64, most: u64 },
    #[error("{}: {doing} failed: {why}", PrintablePath(.path))]
    Io { path: PathBuf, doing: &'static str, why: String },
}

impl FileError {
    /// Converts an I/O error. Errors about the path itself get their own variants.
    pub(crate) fn from_io(path: &Path, doing: &'static str, e: impl Into<io::Error>) -> FileError {
        use rustix::io::Errno;
        let e = e.into();
        let path = path.to_owned();
        match e.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NOENT) => FileError::NotFound { path },
            Some(Errno::NOTDIR) => FileError::NotADirectory { path },
            Some(Errno::ISDIR) => FileError::IsDirectory { path },
            Some(Errno::LOOP) => FileError::SymlinkNotFollowed { path },
            Some(Errno::EXIST) => FileError::Exists { path },
            Some(Errno::NAMETOOLONG) => {
                FileError::InvalidPath { path, why: "the path is too long for the system; use a shorter one" }
            }
            Some(Errno::ACCESS) => FileError::Denied { path, why: "its permissions forbid it" },
            Some(Errno::PERM) => FileError::Denied {
                path,
                why: "the system does not permit it; it may belong to another user or be immutable",
            },
            Some(Errno::ROFS) => FileError::Denied { path, why: "it is on a read-only file system" },
            Some(Errno::NOSPC | Errno::DQUOT) => FileError::Denied {
                path,
                why: "the disk is full; nothing was changed; free some space and try again",
            },
            Some(Errno::NXIO) => {
                FileError::Special { path, what: "a FIFO, a socket or a device without a driver" }
            }
            _ => FileError::Io { path, doing, why: e.to_string() },
        }
    }

    /// Replaces the path by the requested one.
    pub(crate) fn with_path(mut self, asked: PathBuf) -> FileError {
        match &mut self {
            FileError::NotFound { path }
            | FileError::MissingDirectory { path, .. }
            | FileError::NotADirectory { path }
            | FileError::Denied { path, .. }
            | FileError::InvalidPath { path, .. }
            | FileError::Io { path, .. } => *path = asked,
            _ => {}
        }
        self
    }

    /// Replaces every path by the one that the model and the shell use.
    pub(crate) fn with_shown_paths(mut self, walls: &AccessRules) -> FileError {
        for path in self.paths_mut() {
            *path = walls.to_shown_path(path);
        }
        self
    }

    fn paths_mut(&mut self) -> Vec<&mut PathBuf> {
        match self {
            FileError::Masked { path, wall: other }
            | FileError::SymlinkOutOfScope { path, target: other, .. }
            | FileError::BrokenSymlink { path, target: other }
            | FileError::MissingDirectory { path, missing: other } => vec![path, other],
            FileError::RelativePath { path }
            | FileError::InvalidPath { path, .. }
            | FileError::OutOfScope { path, .. }
            | FileError::ReadOnly { path, .. }
            | FileError::Lent { path, .. }
            | FileError::Protected { path, .. }
            | FileError::LinkLoop { path }
            | FileError::SymlinkNotFollowed { path }
            | FileError::NotFound { path }
            | FileError::IsDirectory { path }
            | FileError::NotADirectory { path }
            | FileError::Special { path, .. }
            | FileError::Changed { path }
            | FileError::Exists { path }
            | FileError::Denied { path, .. }
            | FileError::TooLarge { path, .. }
            | FileError::Io { path, .. } => vec![path],
        }
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, FileError::NotFound { .. } | FileError::MissingDirectory { .. })
    }
}

/// The most characters of a path in a message; the end is shown.
const SHOWN_CHARS: usize = 200;

/// Formats a path for a message: shortened, with control characters escaped.
pub(crate) struct PrintablePath<'a>(pub(crate) &'a Path);

impl fmt::Display for PrintablePath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string_lossy();
        let count = text.chars().count();
        if count > SHOWN_CHARS {
            f.write_str("…")?;
        }
        for c in text.chars().skip(count.saturating_sub(SHOWN_CHARS)) {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
        }
        Ok(())
    }
}
