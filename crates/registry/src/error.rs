//! What can go wrong with directories and leases: what was tried, on what, why, and what to do.

use std::io;
use std::path::PathBuf;

use minke_record::{PodName, SessionId};
use thiserror::Error;

use crate::lease::Row;

/// The directories of this user cannot be found or made.
#[derive(Debug, Error)]
pub enum PathsError {
    #[error(
        "no home directory is known: set HOME, or MINKE_HOME to the directory that should hold everything"
    )]
    NoHome,
    #[error("${name} is `{value}`, which is not an absolute path: set it to one, or unset it")]
    NotAbsolute { name: &'static str, value: String },
    #[error(
        "cannot make the {what} directory {}: {source}; make it writable, or set MINKE_HOME to a directory you can write",
        path.display()
    )]
    CannotMake { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the {what} directory {} belongs to user {owner}, not to you (user {uid}): somebody else made it; remove it, or set MINKE_HOME to a directory of your own",
        path.display()
    )]
    NotYours { what: &'static str, path: PathBuf, owner: u32, uid: u32 },
    #[error(
        "the {what} directory {} is not a directory (a file or a symbolic link stands there): remove it, or set MINKE_HOME elsewhere",
        path.display()
    )]
    NotADirectory { what: &'static str, path: PathBuf },
}

/// A name cannot be claimed, or the runtime directory cannot be read or changed.
#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("the name `{name}` is taken by {}: choose another one with --name, or attach to it", who(holder.as_deref()))]
    DuplicateName { name: PodName, holder: Option<Box<Row>> },
    #[error("all of `{name}`, `{name}-2` … `{name}-{tried}` are taken: choose another name with --name")]
    NoFreeName { name: PodName, tried: u32 },
    #[error(
        "another process has held {} for {seconds} s: it is stopped or hangs; find it with `lsof` and end it",
        path.display()
    )]
    LockBusy { path: PathBuf, seconds: u64 },
    #[error(
        "{} is gone or was replaced while the pod held its lease: somebody cleaned the runtime directory; stop this pod and start it again",
        path.display()
    )]
    LeaseLost { path: PathBuf },
    #[error("cannot {what} {}: {source}; check the directory and its permissions with `minke paths`", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

fn who(holder: Option<&Row>) -> String {
    match holder {
        Some(row) => format!("a live pod (session {}, process {})", show(row.session), row.pid),
        None => "a live pod that has not written its row yet".to_owned(),
    }
}

fn show(session: SessionId) -> String {
    format!("s_{session}")
}

/// Gives an I/O error its place.
pub(crate) fn at(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RegistryError {
    let path = path.into();
    move |source| RegistryError::Io { what, path, source }
}
