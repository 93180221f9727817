//! What can go wrong with a session, each said with what was tried, on what, why and what to do.

use std::io;
use std::path::PathBuf;

use minke_record::SessionId;
use serde::Serialize;

use crate::store::Holder;

/// A place in the log from which on it cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    /// In that file.
    pub offset: u64,
    /// The first entry that is not in the good prefix.
    pub seq: u64,
    pub reason: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} is damaged at line {} (byte {}): {}; everything before entry {} is intact",
            self.file, self.line, self.offset, self.reason, self.seq
        )
    }
}

impl Damage {
    /// What a person can do about it.
    pub fn hint(&self, session: SessionId) -> String {
        let repair = format!("`minke log repair s_{session}` shows what can still be read");
        match self.seq.checked_sub(1) {
            Some(last) => format!("`minke fork s_{session} --at {last}` goes on before the damage; {repair}"),
            None => repair,
        }
    }
}

/// A session could not be made, opened, read, forked or removed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("there is no session {id} in {}", .place.display())]
    NotFound { id: SessionId, place: PathBuf },
    #[error("session {id} is already there")]
    Exists { id: SessionId },
    #[error("session {id} is held by {who}")]
    Held { id: SessionId, who: Holder },
    #[error("session {id} is held by {who}, which belongs to another home of this store")]
    HeldElsewhere { id: SessionId, who: Holder },
    #[error("the workspace of session {id} is on `{label}`, and this is `{here}`")]
    WorkspaceElsewhere { id: SessionId, label: String, here: String },
    #[error("the descriptor that was handed on is not the lease of session {id}")]
    NotTheLease { id: SessionId },
    #[error(
        "session {id} was written in format {format} by minke {version}; this version reads up to {}",
        minke_record::FORMAT
    )]
    NewerFormat { id: SessionId, format: u32, version: String },
    #[error("session {id} has no entry {seq}; its last one is {}", .head.map_or("none".to_owned(), |h| h.to_string()))]
    NoSuchEntry { id: SessionId, seq: u64, head: Option<u64> },
    #[error("session {id} cannot be deleted: {} forked from it", some(.forks))]
    HasForks { id: SessionId, forks: Vec<SessionId> },
    #[error("session {id}: {damage}")]
    Damaged { id: SessionId, damage: Damage },
    #[error("session {id} is a fork of {parent}: {reason}")]
    Lineage { id: SessionId, parent: SessionId, reason: String },
    #[error("session {id} cannot be forked: {reason}")]
    NoFork { id: SessionId, reason: String },
    #[error("session {id} has no good blob {name}: {reason}")]
    Blob { id: SessionId, name: String, reason: String },
    #[error("cannot {what} {}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot write the first step of session {id}")]
    Append { id: SessionId, source: AppendError },
}

fn some(forks: &[SessionId]) -> String {
    let names: Vec<String> = forks.iter().take(3).map(ToString::to_string).collect();
    let more = if forks.len() > 3 { format!(" and {} more", forks.len() - 3) } else { String::new() };
    format!("{}{more}", names.join(", "))
}

impl StoreError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            StoreError::NotFound { .. } => "`minke ps --all` lists the sessions".to_owned(),
            StoreError::Exists { .. } => "use another id".to_owned(),
            StoreError::Held { .. } => "send to that pod, or stop it first".to_owned(),
            StoreError::HeldElsewhere { who, .. } => match &who.host {
                Some(host) => format!("talk to it on {host}, or stop it there first"),
                None => "talk to it where it runs, or stop it there first".to_owned(),
            },
            StoreError::WorkspaceElsewhere { label, .. } => {
                format!(
                    "talk to it on {label}; machines that share workspaces say so by the same MINKE_STORE_LABEL"
                )
            }
            StoreError::NotTheLease { .. } => {
                "start the pod through `minke`, which hands on the lease".to_owned()
            }
            StoreError::NewerFormat { version, .. } => format!("use minke {version} or newer"),
            StoreError::NoSuchEntry { .. } => "`minke log show` lists the entries".to_owned(),
            StoreError::HasForks { .. } => "detach or delete the forks first".to_owned(),
            StoreError::Damaged { id, damage } => damage.hint(*id),
            StoreError::Lineage { parent, .. } => format!("`minke log verify {parent}` says more"),
            StoreError::NoFork { id, .. } | StoreError::Blob { id, .. } => {
                format!("`minke log verify {id}` says more")
            }
            StoreError::Io { source, .. } => hint_for(source),
            StoreError::Append { source, .. } => source.hint(),
        }
    }

    /// The disk is full, or a quota is.
    pub fn is_full(&self) -> bool {
        match self {
            StoreError::Io { source, .. } => is_full(source),
            StoreError::Append { source, .. } => source.is_full(),
            _ => false,
        }
    }
}

/// A step was not written. Nothing of it stands in the log.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    #[error("a step without entries was given to be written")]
    Empty,
    #[error("entry {given} was given to be written where entry {expected} comes next")]
    WrongSeq { given: u64, expected: u64 },
    #[error("entry {seq} is of kind `{kind}`, which this version does not write")]
    UnknownKind { seq: u64, kind: String },
    #[error("entry {seq} takes {bytes} bytes, more than a line may have")]
    TooLong { seq: u64, bytes: usize },
    #[error("the log is not written on after damage: {0}")]
    Damaged(Damage),
    #[error("cannot {what} {}", .path.display())]
    Storage { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Sync(SyncError),
}

impl AppendError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            AppendError::Empty | AppendError::WrongSeq { .. } | AppendError::UnknownKind { .. } => {
                "this is a mistake of minke; please report it".to_owned()
            }
            AppendError::TooLong { .. } => "make the input smaller".to_owned(),
            AppendError::Damaged(_) => "go on in a fork".to_owned(),
            AppendError::Storage { source, .. } => hint_for(source),
            AppendError::Sync(error) => error.hint(),
        }
    }

    /// The disk is full, or a quota is.
    pub fn is_full(&self) -> bool {
        matches!(self, AppendError::Storage { source, .. } if is_full(source))
    }
}

/// What was written could not be made durable, and writing it once more did not help either. The process must end
/// (exit 74): it no longer knows what the disk holds.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SyncError {
    #[error("{path} could not be synced ({first}), and writing it again failed: {then}", path = .path.display())]
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
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room on that disk".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => {
            "the disk is mounted read-only; set MINKE_HOME elsewhere".to_owned()
        }
        io::ErrorKind::PermissionDenied => "check owner and mode of that path".to_owned(),
        io::ErrorKind::NotFound => "somebody removed it; `minke paths` shows where sessions lie".to_owned(),
        io::ErrorKind::NotConnected | io::ErrorKind::TimedOut => {
            "check that the database of MINKE_STORE runs and can be reached".to_owned()
        }
        io::ErrorKind::StaleNetworkFileHandle => "another process goes on with it".to_owned(),
        _ => "check the disk".to_owned(),
    }
}
