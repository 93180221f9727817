//! Errors of sessions. Each names the action, its target, the cause and a remedy.

use std::io;
use std::path::PathBuf;

use minke_record::SessionId;
use serde::Serialize;

use crate::store::LeaseHolder;

/// The position in a log from which it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogDamage {
    pub file: String,
    /// The line number, starting at 1.
    pub line: u64,
    /// The byte offset in the file.
    pub offset: u64,
    /// The first entry after the good prefix.
    pub seq: u64,
    pub reason: String,
}

impl std::fmt::Display for LogDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} is damaged at line {} (byte {}): {}; everything before entry {} is intact",
            self.file, self.line, self.offset, self.reason, self.seq
        )
    }
}

impl LogDamage {
    /// Returns a hint for the user.
    pub fn hint(&self, session: SessionId) -> String {
        let repair = format!("`minke log repair s_{session}` shows the entries that are still readable");
        match self.seq.checked_sub(1) {
            Some(last) => {
                format!("`minke fork s_{session} --at {last}` continues before the damage; {repair}")
            }
            None => repair,
        }
    }
}

/// A session could not be created, opened, read, forked or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("there is no session {id} in {}", .place.display())]
    NotFound { id: SessionId, place: PathBuf },
    #[error("session {id} already exists")]
    Exists { id: SessionId },
    #[error("session {id} is held by {who}")]
    Held { id: SessionId, who: LeaseHolder },
    #[error("session {id} is held by {who}, which belongs to another home of this store")]
    HeldByOtherHome { id: SessionId, who: LeaseHolder },
    #[error("the workspace of session {id} is on `{label}`, but this host is `{here}`")]
    WorkspaceOnOtherHost { id: SessionId, label: String, here: String },
    #[error("the inherited descriptor is not the lease of session {id}")]
    WrongLease { id: SessionId },
    #[error(
        "session {id} was written in format {format} by minke {version}; this version reads up to {}",
        minke_record::LOG_FORMAT
    )]
    NewerFormat { id: SessionId, format: u32, version: String },
    #[error("session {id} has no entry {seq}; its last one is {}", .head.map_or("none".to_owned(), |h| h.to_string()))]
    NoSuchEntry { id: SessionId, seq: u64, head: Option<u64> },
    #[error("could not delete session {id}: {} forked from it", some(.forks))]
    HasForks { id: SessionId, forks: Vec<SessionId> },
    #[error("session {id}: {damage}")]
    Damaged { id: SessionId, damage: LogDamage },
    #[error("session {id} is a fork of {parent}: {reason}")]
    Lineage { id: SessionId, parent: SessionId, reason: String },
    #[error("could not fork session {id}: {reason}")]
    CannotFork { id: SessionId, reason: String },
    #[error("could not read blob {name} of session {id}: {reason}")]
    Blob { id: SessionId, name: String, reason: String },
    #[error("could not {what} {}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("could not write the first step of session {id}")]
    Append { id: SessionId, source: AppendError },
}

fn some(forks: &[SessionId]) -> String {
    let names: Vec<String> = forks.iter().take(3).map(ToString::to_string).collect();
    let more = if forks.len() > 3 { format!(" and {} more", forks.len() - 3) } else { String::new() };
    format!("{}{more}", names.join(", "))
}

impl StoreError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            StoreError::NotFound { .. } => "`minke ps --all` lists the sessions".to_owned(),
            StoreError::Exists { .. } => "use another id".to_owned(),
            StoreError::Held { .. } => "send to that pod, or stop it first".to_owned(),
            StoreError::HeldByOtherHome { who, .. } => match &who.host {
                Some(host) => format!("connect to it on {host}, or stop it there first"),
                None => "connect to it on its host, or stop it there first".to_owned(),
            },
            StoreError::WorkspaceOnOtherHost { label, .. } => {
                format!(
                    "connect to it on {label}; set the same MINKE_STORE_LABEL on hosts that share workspaces"
                )
            }
            StoreError::WrongLease { .. } => {
                "start the pod through `minke`, which passes the lease to it".to_owned()
            }
            StoreError::NewerFormat { version, .. } => format!("use minke {version} or newer"),
            StoreError::NoSuchEntry { .. } => "`minke log show` lists the entries".to_owned(),
            StoreError::HasForks { .. } => "detach or delete the forks first".to_owned(),
            StoreError::Damaged { id, damage } => damage.hint(*id),
            StoreError::Lineage { parent, .. } => format!("`minke log verify {parent}` shows details"),
            StoreError::CannotFork { id, .. } | StoreError::Blob { id, .. } => {
                format!("`minke log verify {id}` shows details")
            }
            StoreError::Io { source, .. } => hint_for(source),
            StoreError::Append { source, .. } => source.hint(),
        }
    }

    /// Returns whether the disk or a quota is full.
    pub fn is_disk_full(&self) -> bool {
        match self {
            StoreError::Io { source, .. } => is_full(source),
            StoreError::Append { source, .. } => source.is_disk_full(),
            _ => false,
        }
    }
}

/// A step was not written. The log contains no part of it.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("the step has no entries")]
    Empty,
    #[error("the step has entry {given} where entry {expected} comes next")]
    WrongSeq { given: u64, expected: u64 },
    #[error("entry {seq} is of kind `{kind}`, which this version cannot write")]
    UnknownKind { seq: u64, kind: String },
    #[error("entry {seq} takes {bytes} bytes, more than the line limit")]
    TooLong { seq: u64, bytes: usize },
    #[error("could not append to a damaged log: {0}")]
    Damaged(LogDamage),
    #[error("could not {what} {}", .path.display())]
    Storage { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Sync(SyncError),
}

impl AppendError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            AppendError::Empty | AppendError::WrongSeq { .. } | AppendError::UnknownKind { .. } => {
                "this is a bug in Minke; please report it".to_owned()
            }
            AppendError::TooLong { .. } => "make the input smaller".to_owned(),
            AppendError::Damaged(_) => "continue in a fork".to_owned(),
            AppendError::Storage { source, .. } => hint_for(source),
            AppendError::Sync(error) => error.hint(),
        }
    }

    /// Returns whether the disk or a quota is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, AppendError::Storage { source, .. } if is_full(source))
    }
}

/// A sync failed, and so did writing the data again. The process must exit (exit code 74): the content of the disk is
/// unknown.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SyncError {
    #[error("could not sync {path} ({first}), and writing it again failed: {then}", path = .path.display())]
    Fatal { path: PathBuf, first: String, then: String },
}

impl SyncError {
    pub fn hint(&self) -> String {
        "check the disk (`dmesg`); everything acknowledged before is safe".to_owned()
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

fn hint_for(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space on that disk".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => {
            "the disk is mounted read-only; set MINKE_HOME to a writable directory".to_owned()
        }
        io::ErrorKind::PermissionDenied => "check the owner and mode of that path".to_owned(),
        io::ErrorKind::NotFound => {
            "the file was removed; `minke paths` shows the session directory".to_owned()
        }
        io::ErrorKind::NotConnected | io::ErrorKind::TimedOut => {
            "check that the database of MINKE_STORE is running and reachable".to_owned()
        }
        io::ErrorKind::StaleNetworkFileHandle => "another process has taken the session over".to_owned(),
        _ => "check the disk".to_owned(),
    }
}
