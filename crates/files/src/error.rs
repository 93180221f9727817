//! Why a file could not be reached: what, where, and what to do, in words that a model can act on.
//!
//! Invariant: paths are named as they were asked for, `/tmp` where the pod's own is meant
//! (`a_refusal_in_the_moved_tmp_names_the_path_as_it_was_asked_for`).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use minke_policy::Level;

use crate::walls::Walls;

/// Why a scope cannot be held.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilesError {
    #[error(
        "the grant {} cannot be held: {why}; give an absolute path without `..`, `.` or symbolic links",
        Shown(target)
    )]
    NotCanonical { target: PathBuf, why: String },
    #[error("the grant {} cannot be opened: {why}", Shown(target))]
    CannotOpen { target: PathBuf, why: String },
}

/// Why something was not done to a file. Each begins with the path, so that a tool can put what it tried before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("{}: it is not an absolute path; give one that begins with /", Shown(.path))]
    RelativePath { path: PathBuf },
    #[error("{}: {why}", Shown(.path))]
    InvalidPath { path: PathBuf, why: &'static str },
    #[error("{}: it is outside of the scope, which is {scope}; work inside it or ask for a wider one", Shown(.path))]
    OutOfScope { path: PathBuf, scope: String },
    #[error(
        "{}: it may only be read, not written; the scope is {scope}; write somewhere else or ask for a wider one",
        Shown(.path)
    )]
    ReadOnly { path: PathBuf, scope: String },
    #[error(
        "{}: it is lent to the pod `{to}` and can only be read until that has stopped (WaitPods, StopPod)",
        Shown(.path)
    )]
    Lent { path: PathBuf, to: String },
    #[error(
        "{}: {} is protected from agents, because what stands there is run or believed later; a person can lift this",
        Shown(.path), .name
    )]
    Protected { path: PathBuf, name: &'static str },
    #[error("{}: {} is hidden from agents, because it holds secrets or what runs this pod; do without it", Shown(.path), Shown(.wall))]
    Masked { path: PathBuf, wall: PathBuf },
    #[error(
        "{}: it leads through a symbolic link to {}, where {} is not allowed; {why}",
        Shown(.path), Shown(.target), .want.as_str()
    )]
    SymlinkOutOfScope { path: PathBuf, target: PathBuf, want: Level, why: String },
    #[error("{}: it is a symbolic link to {}, where there is nothing; name the file that you want", Shown(.path), Shown(.target))]
    BrokenSymlink { path: PathBuf, target: PathBuf },
    #[error("{}: its symbolic links lead in a circle or through more than {} others", Shown(.path), crate::resolve::LINKS)]
    LinkLoop { path: PathBuf },
    #[error("{}: a symbolic link stands in the path, and here none is followed", Shown(.path))]
    SymlinkNotFollowed { path: PathBuf },
    #[error("{}: there is no such file; check the path", Shown(.path))]
    NotFound { path: PathBuf },
    #[error("{}: its directory {} does not exist", Shown(.path), Shown(.missing))]
    NoDirectory { path: PathBuf, missing: PathBuf },
    #[error("{}: it is a directory; give a file in it", Shown(.path))]
    IsDirectory { path: PathBuf },
    #[error("{}: something in its path is not a directory", Shown(.path))]
    NotADirectory { path: PathBuf },
    #[error("{}: it is {what}; give a regular file", Shown(.path))]
    Special { path: PathBuf, what: &'static str },
    #[error("{}: it has been changed since; read it again", Shown(.path))]
    Changed { path: PathBuf },
    #[error("{}: it exists already", Shown(.path))]
    Exists { path: PathBuf },
    #[error("{}: {why}", Shown(.path))]
    Denied { path: PathBuf, why: &'static str },
    #[error("{}: it has {bytes} bytes, more than the {most} that can be taken at once", Shown(.path))]
    TooLarge { path: PathBuf, bytes: u64, most: u64 },
    #[error("{}: {doing} did not work: {why}", Shown(.path))]
    Io { path: PathBuf, doing: &'static str, why: String },
}

impl FileError {
    /// From the kernel's answer; those that say something about the path become kinds of their own.
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
                why: "the system does not permit it; it may belong to somebody else or be marked as unchangeable",
            },
            Some(Errno::ROFS) => FileError::Denied { path, why: "it lies on a read-only file system" },
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

    /// The same about the path as it was asked for.
    pub(crate) fn about(mut self, asked: PathBuf) -> FileError {
        match &mut self {
            FileError::NotFound { path }
            | FileError::NoDirectory { path, .. }
            | FileError::NotADirectory { path }
            | FileError::Denied { path, .. }
            | FileError::InvalidPath { path, .. }
            | FileError::Io { path, .. } => *path = asked,
            _ => {}
        }
        self
    }

    /// The same with every path as the model and the shell name it, which is what they can act on.
    pub(crate) fn named_by(mut self, walls: &Walls) -> FileError {
        for path in self.paths() {
            *path = walls.shown(path);
        }
        self
    }

    fn paths(&mut self) -> Vec<&mut PathBuf> {
        match self {
            FileError::Masked { path, wall: other }
            | FileError::SymlinkOutOfScope { path, target: other, .. }
            | FileError::BrokenSymlink { path, target: other }
            | FileError::NoDirectory { path, missing: other } => vec![path, other],
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
        matches!(self, FileError::NotFound { .. } | FileError::NoDirectory { .. })
    }
}

/// The most of a path that a message repeats; of a path the end counts.
const SHOWN_CHARS: usize = 200;

/// A path in a message: bounded, and without characters that would break the line.
pub(crate) struct Shown<'a>(pub(crate) &'a Path);

impl fmt::Display for Shown<'_> {
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
