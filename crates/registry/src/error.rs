//! What can go wrong with directories, leases and the scope table: what was tried, on what, why, and what to do.

use std::io;
use std::path::PathBuf;

use minke_policy::Level;
use minke_record::{Millis, PodName, ScopeRule, SessionId};
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

/// A row cannot be had, or the runtime directory cannot be read or changed.
#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("the name `{name}` is taken by {}: choose another name, or talk to that pod", who(holder.as_deref()))]
    DuplicateName { name: PodName, holder: Option<Box<Row>> },
    #[error("all of `{name}`, `{name}-2` … `{name}-{tried}` are taken: choose another name with --name")]
    NoFreeName { name: PodName, tried: u32 },
    #[error(
        "the session already has a live pod, {}, since {since} ms of the epoch: attach to it, or stop it with `minke stop {}`",
        who(Some(pod)), pod.name
    )]
    SessionHeld { pod: Box<Row>, since: Millis },
    #[error(
        "{path} cannot be written by two pods: {}, may write {} ({}); wait until it is stopped (`minke stop {}`), ask it to do the work, or choose another place",
        named(holder), rule.target, reach(rule), holder.name
    )]
    WriteConflict { path: String, holder: Box<Row>, rule: ScopeRule },
    #[error(
        "{path} cannot be lent with {}: the lender itself has {} there now; ask for what lies inside its own scope and is not lent to another pod",
        want.as_str(), have.as_str()
    )]
    NotWithin { path: String, have: Level, want: Level },
    #[error(
        "`{target}` cannot be granted: {why}; name the place by its absolute path, as `pwd -P` prints it"
    )]
    BadTarget { target: String, why: String },
    #[error("the new pod would have {depth} pods above it and {limit} are allowed: do the work in this pod")]
    TooDeep { depth: u32, limit: u32 },
    #[error("there are {count} live {what} and {limit} are allowed: wait for one to end, or stop one")]
    TooMany { what: &'static str, count: usize, limit: usize },
    #[error("no live pod has the session s_{session}: it has ended; `minke ps --tree` shows who is there")]
    UnknownPod { session: SessionId },
    #[error(
        "the ticket for the session s_{session} is not good: it was never given, was used before, or has run out; only the pod's parent can start it, and `minke send` asks it to"
    )]
    BadTicket { session: SessionId },
    #[error(
        "the pod of the session s_{session} belongs to the live pod `{}`, and only that can start it: `minke send` asks it to",
        ancestor.name
    )]
    NeedsTicket { session: SessionId, ancestor: Box<Row> },
    #[error("the pod `{name}` cannot give up its scope: {why}")]
    CannotYield { name: PodName, why: &'static str },
    #[error("the pod `{name}` still lives: stop it first (`minke stop {name}`)")]
    StillHeld { name: PodName },
    #[error(
        "nobody knows what the live pod in {} may write: its row and the scope table are damaged ({why}); end that pod, then try again",
        path.display()
    )]
    TableDamaged { path: PathBuf, why: String },
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

impl RegistryError {
    /// The pod that is in the way, if one is.
    pub fn holder(&self) -> Option<&Row> {
        match self {
            RegistryError::DuplicateName { holder, .. } => holder.as_deref(),
            RegistryError::SessionHeld { pod, .. } => Some(pod),
            RegistryError::WriteConflict { holder, .. } => Some(holder),
            RegistryError::NeedsTicket { ancestor, .. } => Some(ancestor),
            _ => None,
        }
    }
}

fn who(holder: Option<&Row>) -> String {
    match holder {
        Some(row) => format!("a live pod (session s_{}, process {})", row.session, row.pid),
        None => "a live pod that has not written its row yet".to_owned(),
    }
}

fn named(row: &Row) -> String {
    format!("the pod `{}` (session s_{}, process {})", row.name, row.session, row.pid)
}

fn reach(rule: &ScopeRule) -> &'static str {
    if rule.recursive { "with all below it" } else { "and what lies directly in it" }
}

/// Gives an I/O error its place.
pub(crate) fn at(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> RegistryError {
    let path = path.into();
    move |source| RegistryError::Io { what, path, source }
}
