//! The traits of a session store, which the file store and the PostgreSQL store implement.
//!
//! Here: [`SessionStore`], [`Writer`], [`Reader`], [`Syncer`] and their parameter types. Elsewhere: sessions on a disk
//! (`file_store`), errors (`error`).
//! Guarantee: the entries of a step are written whole or not at all, and one process holds a session
//! (`a_log_torn_at_every_byte_opens_with_its_good_prefix`, `a_second_writer_is_told_who_holds_the_session`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Blob, BlobRef, Draft, Entry, ForkOrigin, Millis, PodName, Position, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::{AppendError, LogDamage, StoreError, SyncError};

/// An entry with its line in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct SealedEntry {
    /// With spilled lists restored; spilled texts stay spilled.
    pub entry: Entry,
    /// The exact bytes in the log, without the newline.
    pub line: Arc<str>,
}

/// The holder of a session lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When the holder took the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Millis>,
    /// The pod's name, once it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PodName>,
}

impl std::fmt::Display for LeaseHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.name, self.pid) {
            (Some(name), Some(pid)) => write!(f, "pod `{name}`, process {pid}")?,
            (Some(name), None) => write!(f, "pod `{name}`")?,
            (None, Some(pid)) => write!(f, "process {pid}")?,
            (None, None) => f.write_str("an unidentified process")?,
        }
        if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        if let Some(since) = self.since {
            write!(f, ", since {since} ms after the epoch")?;
        }
        Ok(())
    }
}

/// A store of sessions.
pub trait SessionStore: Send + Sync {
    /// Creates a session with its first step, synced, and keeps the lease.
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError>;

    /// Takes the lease and reads the entries that resuming needs.
    fn open(&self, id: SessionId) -> Result<OpenSession, StoreError>;

    /// Takes the lease and reads nothing, for a launcher: its pod opens the log itself.
    fn take_lease(&self, id: SessionId) -> Result<OwnedFd, StoreError>;

    /// Opens the log with a lease that another process took and passed on.
    fn open_with_lease(&self, id: SessionId, lease: OwnedFd) -> Result<OpenSession, StoreError>;

    /// Opens a reader without the lease, while a writer may be active. It never sees an unfinished step.
    fn open_reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError>;

    /// Returns every session, oldest first.
    fn list_sessions(&self) -> Result<Vec<SessionId>, StoreError>;

    /// Returns a stamp that changes whenever the log does, for caches of data derived from the log.
    fn log_stamp(&self, id: SessionId) -> Result<LogStamp, StoreError>;

    /// Returns the stamps of all sessions at once. `None` if the store cannot do this: then request them one by one.
    fn all_stamps(&self) -> Result<Option<BTreeMap<SessionId, LogStamp>>, StoreError> {
        Ok(None)
    }

    /// Returns the availability of each session, for a process that starts their pods.
    fn availability(&self, ids: &[SessionId]) -> Result<Vec<SessionAvailability>, StoreError> {
        let one = |id: &SessionId| match self.lease_holder(*id) {
            Ok(Some(_)) => SessionAvailability::Held,
            Ok(None) => SessionAvailability::Free,
            // The session was deleted or is unreadable, so it cannot start.
            Err(_) => SessionAvailability::Gone,
        };
        Ok(ids.iter().map(one).collect())
    }

    /// Fails if the pod of a session cannot start here because its workspace is on another machine.
    fn check_startable(&self, id: SessionId) -> Result<(), StoreError> {
        let _ = id;
        Ok(())
    }

    /// Returns the sessions for which this home may start a pod now. If hosts on several machines share a store, each
    /// session is assigned to one of them at a time.
    fn claim_sessions(&self, ids: &[SessionId]) -> Result<Vec<SessionId>, StoreError> {
        Ok(ids.to_vec())
    }

    /// Returns whether other machines may add and remove sessions without a trace on this one.
    fn is_shared(&self) -> bool {
        false
    }

    /// Returns the path of a session, for display; `None` if it is not stored in files.
    fn session_path(&self, id: SessionId) -> Option<PathBuf> {
        let _ = id;
        None
    }

    /// Returns the current holder of the lease, if it is held.
    fn lease_holder(&self, id: SessionId) -> Result<Option<LeaseHolder>, StoreError>;

    /// Creates a session that begins at a position of another one. Copies nothing; keeps the new session's lease.
    fn fork(&self, fork: ForkSpec<'_>) -> Result<Box<dyn Writer>, StoreError>;

    /// Copies the shared entries and blobs into a fork, so that its parents may be deleted.
    fn detach_fork(&self, id: SessionId) -> Result<(), StoreError>;

    /// Moves a session to the trash if its lease is free and no fork needs it.
    fn delete(&self, id: SessionId) -> Result<(), StoreError>;

    /// Adds a blob without the lease: blobs are named by their content.
    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError>;

    /// Stores the recording of a stream that an entry names. Not synced: a power cut may remove it, which `verify`
    /// reports as a note.
    fn store_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError>;
}

/// The availability of a session for starting its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionAvailability {
    Free,
    /// A process of this home holds it.
    Held,
    /// Another home holds it, or its workspace is on another machine.
    Elsewhere,
    Gone,
}

/// Builds a fork's first step, with the blobs that it names, from the fork position and the parent's entries up to it
/// (its last carry first); or returns why the fork is impossible.
pub type ForkStepFn<'a> =
    Box<dyn FnOnce(&ForkOrigin, &[SealedEntry]) -> Result<(Vec<Draft>, Vec<Blob>), String> + 'a>;

/// The parameters of a fork.
pub struct ForkSpec<'a> {
    pub parent: SessionId,
    /// The last entry that the fork shares with its parent; by default the newest.
    pub at: Option<u64>,
    pub id: SessionId,
    pub step: ForkStepFn<'a>,
}

/// An opened session with its lease.
pub struct OpenSession {
    pub writer: Box<dyn Writer>,
    /// The session's own first entry, which `replay` contains only if there is no later carry. `None` only if the log
    /// has no whole step, because its first one is torn or damaged.
    pub start: Option<SealedEntry>,
    /// The last carry's `segment_start`, the carry, and everything after it; all entries if there is no carry. For a
    /// fork without a carry of its own: the same of its parent up to the fork position, then the fork's own entries.
    pub replay: Vec<SealedEntry>,
    /// Messages for the user: cut tails, damage, missing parts.
    pub alerts: Vec<String>,
    /// Set if only a good prefix is readable: then `writer` refuses to append, and only a fork can continue.
    pub damaged: Option<LogDamage>,
    /// The part before the last carry is large and was not checked: `Reader::find_damage` checks it, and the caller
    /// must report damage to `writer` (`Writer::mark_damaged`).
    pub unchecked: bool,
}

/// The right to write one session. Holds its lease while it exists.
pub trait Writer: Send {
    /// Writes the step with one call, after its blobs. On an error the log contains no part of it, and the writer stays
    /// usable.
    fn append(&mut self, step: Vec<Draft>, blobs: Vec<Blob>) -> Result<Vec<SealedEntry>, AppendError>;

    /// The same, after freeing the ballast: for the end of a run when the disk is full.
    fn append_with_ballast(
        &mut self,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Vec<SealedEntry>, AppendError>;

    /// Reserves the ballast again. An error means that there is still no space.
    fn restore_ballast(&mut self) -> std::io::Result<()>;

    /// Returns the last written entry; `None` only if opening cut off a torn first step.
    fn head_position(&self) -> Option<Position>;

    fn next_seq(&self) -> u64 {
        self.head_position().map_or(0, |head| head.seq + 1)
    }

    /// Reports damage before the part that opening read: nothing more is appended, and each later opening checks the
    /// whole log.
    fn mark_damaged(&mut self, damage: LogDamage) -> std::io::Result<()>;

    /// Returns a handle that syncs from another thread.
    fn syncer(&self) -> Arc<dyn Syncer>;

    /// Writes the pod's name into the lease, for processes that find it held.
    fn set_holder_name(&mut self, name: &PodName) -> std::io::Result<()>;

    /// Duplicates the locked lease, to pass it to a pod. Close-on-exec.
    fn lease_fd(&self) -> std::io::Result<OwnedFd>;

    /// Stops writing and returns the locked lease.
    fn into_lease(self: Box<Self>) -> std::io::Result<OwnedFd>;

    /// Adds a blob, synced.
    fn put_blob(&self, content: Vec<u8>) -> Result<BlobRef, AppendError>;

    /// Returns the content of a blob of this session or its ancestors.
    fn read_blob(&self, name: &str) -> Result<Vec<u8>, StoreError>;
}

/// Makes written entries durable. Concurrent calls share one sync.
pub trait Syncer: Send + Sync {
    /// Syncs everything written so far and returns the last synced entry.
    fn sync(&self) -> Result<u64, SyncError>;

    /// Returns the last entry known to be synced.
    fn synced_seq(&self) -> Option<u64>;
}

/// The metadata of a log, available without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogStamp {
    /// The number of its newest file.
    pub file: u32,
    pub bytes: u64,
    /// When that file was last written, if known.
    pub modified: Option<Millis>,
}

/// Consecutive entries.
#[derive(Debug, Clone, PartialEq)]
pub struct LogPage {
    pub entries: Vec<SealedEntry>,
    /// The start of the next page; absent on the last one.
    pub next_seq: Option<u64>,
}

/// How a scan ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanEnd {
    /// At the last whole step; `tail` bytes of an unfinished one follow.
    Clean { tail: u64 },
    /// The caller stopped it.
    Stopped,
    /// At a bad line in the middle.
    Damaged(LogDamage),
}

/// Reads one session without its lease.
pub trait Reader: Send {
    fn session_id(&self) -> SessionId;

    /// Returns the last entry of the last whole step.
    fn head_position(&self) -> Result<Option<Position>, StoreError>;

    /// Makes the current log durable, for a caller that acts on entries of a dead writer: unsynced ones could still be
    /// lost and their numbers be reused.
    fn sync(&self) -> Result<(), StoreError>;

    /// Returns whole entries from a number on, as many as fit both limits, at least one.
    fn read_page(&self, from_seq: u64, max_entries: usize, max_bytes: usize) -> Result<LogPage, StoreError>;

    /// Passes each entry of whole steps from a number on to `each`, and checks the chain. Memory use is bounded.
    fn scan_entries(
        &self,
        from_seq: u64,
        each: &mut dyn FnMut(SealedEntry) -> ControlFlow<()>,
    ) -> Result<ScanEnd, StoreError>;

    /// Checks the whole log and returns the damage, if there is any.
    fn find_damage(&self) -> Result<Option<LogDamage>, StoreError> {
        Ok(match self.scan_entries(0, &mut |_| ControlFlow::Continue(()))? {
            ScanEnd::Damaged(damage) => Some(damage),
            ScanEnd::Clean { .. } | ScanEnd::Stopped => None,
        })
    }

    /// Returns the same entries as `OpenSession::replay`.
    fn read_replay(&self) -> Result<Vec<SealedEntry>, StoreError>;

    /// Returns part of a blob of this session or its ancestors.
    fn read_blob(&self, name: &str, offset: u64, limit: usize) -> Result<Vec<u8>, StoreError>;

    /// Returns the position of an entry.
    fn position_of(&self, seq: u64) -> Result<Option<Position>, StoreError>;

    /// Returns the position at which this session was forked.
    fn forked_from(&self) -> Result<Option<ForkOrigin>, StoreError>;

    /// Returns defects of the store's own data (caches, reserves), for `verify`.
    fn store_problems(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// Returns a reader of a fork's parent, limited to the shared entries.
    fn parent_reader(&self) -> Result<Option<Box<dyn Reader>>, StoreError>;
}
