//! Errors of directories, leases and the scope table. Each names the action, its target, the cause and a remedy.

use std::io;
use std::path::PathBuf;

use minke_policy::AccessLevel;
use minke_record::{Millis, PodName, ScopeRule, SessionId};
use thiserror::Error;

use crate::lease::ScopeRow;

/// The directories of this user could not be found or created.
#[derive(Debug, Error)]
pub enum PathsError {
    #[error(
        "could not find a home directory: set HOME, or set MINKE_HOME to the directory for all Minke files"
    )]
    NoHome,
    #[error("${name} is `{value}`, which is not an absolute path: set it to one, or unset it")]
    NotAbsolute { name: &'static str, value: String },
    #[error(
        "could not create the {what} directory {}: {source}; make it writable, or set MINKE_HOME to a directory you can write",
        path.display()
    )]
    CannotMake { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the {what} directory {} belongs to user {owner}, not to you (user {uid}): remove it, or set MINKE_HOME to a directory of your own",
        path.display()
    )]
    NotYours { what: &'static str, path: PathBuf, owner: u32, uid: u32 },
    #[error(
        "the {what} directory {} is a file or a symbolic link: remove it, or set MINKE_HOME to another directory",
        path.display()
    )]
    NotADirectory { what: &'static str, path: PathBuf },
}

/// A row could not be obtained, or the runtime directory could not be read or changed.
#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("the name `{name}` is taken by {}: choose another name, or send to that pod", who(holder.as_deref()))]
    DuplicateName { name: PodName, holder: Option<Box<ScopeRow>> },
    #[error(
        "the names `{name}`, `{name}-2` … `{name}-{tried}` are all taken: choose another name with --name"
    )]
    NoFreeName { name: PodName, tried: u32 },
    #[error(
        "the session already has a live pod, {}, since {since} ms after the epoch: attach to it, or stop it with `minke stop {}`",
        who(Some(pod)), pod.name
    )]
    SessionHeld { pod: Box<ScopeRow>, since: Millis },
    #[error(
        "two pods cannot both write {path}: {}, may write {} ({}); wait until it is stopped (`minke stop {}`), ask it to do the work, or choose another path",
        named(holder), rule.target, reach(rule), holder.name
    )]
    WriteConflict { path: String, holder: Box<ScopeRow>, rule: ScopeRule },
    #[error(
        "could not lend {path} with {}: the lender itself has {} there now; request a path inside its own scope that is not lent to another pod",
        want.as_str(), have.as_str()
    )]
    NotWithin { path: String, have: AccessLevel, want: AccessLevel },
    #[error("could not grant `{target}`: {why}; use the absolute path that `pwd -P` prints")]
    BadTarget { target: String, why: String },
    #[error("the new pod would have {depth} ancestors, and the limit is {limit}: do the work in this pod")]
    TooDeep { depth: u32, limit: u32 },
    #[error("there are {count} live {what}, and the limit is {limit}: wait for one to end, or stop one")]
    TooMany { what: &'static str, count: usize, limit: usize },
    #[error("no live pod has the session s_{session}: it has ended; `minke ps --tree` lists the live pods")]
    UnknownPod { session: SessionId },
    #[error(
        "the ticket for the session s_{session} is invalid, used or expired; only the parent pod can start this pod: use `minke send`"
    )]
    BadTicket { session: SessionId },
    #[error(
        "the pod of the session s_{session} belongs to the live pod `{}`, and only that pod can start it: use `minke send`",
        ancestor.name
    )]
    NeedsTicket { session: SessionId, ancestor: Box<ScopeRow> },
    #[error("could not release the scope of the pod `{name}`: {why}")]
    CannotYield { name: PodName, why: &'static str },
    #[error("the pod `{name}` is still running: stop it first (`minke stop {name}`)")]
    StillHeld { name: PodName },
    #[error(
        "could not determine the scope of the live pod in {}: its row and the scope table are damaged ({why}); end that pod, then try again",
        path.display()
    )]
    TableDamaged { path: PathBuf, why: String },
    #[error(
        "another process has held {} for {seconds} s: it is stopped or hangs; find it with `lsof` and end it",
        path.display()
    )]
    LockBusy { path: PathBuf, seconds: u64 },
    #[error(
        "{} was removed or replaced while the pod held its lease: stop this pod and start it again",
        path.display()
    )]
    LeaseLost { path: PathBuf },
    #[error("could not {what} {}: {source}; check the directory and its permissions with `minke paths`", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl RegistryError {
    /// Returns the conflicting pod, if there is one.
    pub fn conflicting_pod(&self) -> Option<&ScopeRow> {
        match self {
            RegistryError::DuplicateName { holder, .. } => holder.as_deref(),
            RegistryError::SessionHeld { pod, .. } => Some(pod),
            RegistryError::WriteConflict { holder, .. } => Some(holder),
            RegistryError::NeedsTicket { ancestor, .. } => Some(ancestor),
            _ => None,
        }
    }
}

fn who(holder: Option<&ScopeRow>) -> String {
    match holder {
        Some(row) => format!("a live pod (session s_{}, process {})", row.session, row.pid),
        None => "a live pod that has not written its row yet".to_owned(),
    }
}

fn named(row: &ScopeRow) -> String {
    format!("the pod `{}` (session s_{}, process {})", row.name, row.session, row.pid)
}

fn reach(rule: &ScopeRule) -> &'static str {
    if rule.recursive { "recursively" } else { "its direct entries" }
}

/// Adds the action and the path to an I/O error.
pub(crate) fn io_error(
    what: &'static str,
    path: impl Into<PathBuf>,
) -> impl FnOnce(io::Error) -> RegistryError {
    let path = path.into();
    move |source| RegistryError::Io { what, path, source }
}
