//! What a store of sessions is: the traits that the file store here, and a store elsewhere, implement.
//!
//! Here: `Store`, `Writer`, `Reader`, `Syncer` and the values that pass through them. Elsewhere: how sessions lie on a
//! disk (`file`), what went wrong (`error`).
//! Promise: the entries of a step are written whole or not at all, and one process holds a session
//! (`a_log_torn_at_every_byte_opens_with_its_good_prefix`, `a_second_writer_is_told_who_holds_the_session`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use minke_record::{Blob, BlobRef, Draft, Entry, ForkedFrom, Millis, PodName, Position, SessionId};
use serde::{Deserialize, Serialize};

use crate::error::{AppendError, Damage, StoreError, SyncError};

/// An entry and the bytes that stand for it in the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Sealed {
    /// As it is folded: spilled lists are back in their place, spilled texts are not.
    pub entry: Entry,
    /// Exactly the bytes of the log, without the newline.
    pub line: Arc<str>,
}

/// Who holds a session lease.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// When the lease was taken, or handed on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Millis>,
    /// The pod's name, once it has introduced itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PodName>,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.name, self.pid) {
            (Some(name), Some(pid)) => write!(f, "pod `{name}`, process {pid}")?,
            (Some(name), None) => write!(f, "pod `{name}`")?,
            (None, Some(pid)) => write!(f, "process {pid}")?,
            (None, None) => f.write_str("a process that has not said who it is")?,
        }
        if let Some(host) = &self.host {
            write!(f, " on {host}")?;
        }
        if let Some(since) = self.since {
            write!(f, ", since {since} ms of the epoch")?;
        }
        Ok(())
    }
}

/// Sessions, wherever they are kept.
pub trait Store: Send + Sync {
    /// Makes a session with its first step, synced, and keeps the lease.
    fn create(
        &self,
        id: SessionId,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Box<dyn Writer>, StoreError>;

    /// Takes the lease and reads what is needed to go on.
    fn open(&self, id: SessionId) -> Result<OpenLog, StoreError>;

    /// Takes the lease and reads nothing: for whoever starts a pod with it, which opens the log itself.
    fn lease(&self, id: SessionId) -> Result<OwnedFd, StoreError>;

    /// The same with a lease that somebody else took and handed on.
    fn adopt(&self, id: SessionId, lease: OwnedFd) -> Result<OpenLog, StoreError>;

    /// Reads without the lease, beside a live writer. Never sees an unfinished step.
    fn reader(&self, id: SessionId) -> Result<Box<dyn Reader>, StoreError>;

    /// Every session, oldest first.
    fn list(&self) -> Result<Vec<SessionId>, StoreError>;

    /// What a log looks like from outside, for whoever keeps something that was made from it: it is another one whenever
    /// the log is.
    fn stamp(&self, id: SessionId) -> Result<Stamp, StoreError>;

    /// The same of every session that there is, all at once where the store can. `None` if it cannot: then each is asked
    /// for by itself.
    fn stamps(&self) -> Result<Option<BTreeMap<SessionId, Stamp>>, StoreError> {
        Ok(None)
    }

    /// How sessions stand, one answer for each, for whoever starts their pods.
    fn standing(&self, ids: &[SessionId]) -> Result<Vec<Standing>, StoreError> {
        let one = |id: &SessionId| match self.holder(*id) {
            Ok(Some(_)) => Standing::Held,
            Ok(None) => Standing::Free,
            // Deleted since, or it cannot be read: nobody starts it.
            Err(_) => Standing::Gone,
        };
        Ok(ids.iter().map(one).collect())
    }

    /// Refuses if the pod of a session cannot be started here, because its workspace is on another machine.
    fn may_start(&self, id: SessionId) -> Result<(), StoreError> {
        let _ = id;
        Ok(())
    }

    /// Which of these sessions this home may start a pod for now. Where hosts on several machines share a store, each
    /// session is given to one of them at a time.
    fn claim(&self, ids: &[SessionId]) -> Result<Vec<SessionId>, StoreError> {
        Ok(ids.to_vec())
    }

    /// Whether sessions may come and go without a trace on this machine.
    fn is_shared(&self) -> bool {
        false
    }

    /// Where a session lies, for a person who wants to look; `None` if it is not in files.
    fn lies_at(&self, id: SessionId) -> Option<PathBuf> {
        let _ = id;
        None
    }

    /// Who holds the lease at this moment, if anybody does.
    fn holder(&self, id: SessionId) -> Result<Option<Holder>, StoreError>;

    /// A new session that begins at a position of another. Copies nothing; keeps the new session's lease.
    fn fork(&self, fork: Fork<'_>) -> Result<Box<dyn Writer>, StoreError>;

    /// Copies what a fork needs of its parents to itself, so that they may be deleted.
    fn detach(&self, id: SessionId) -> Result<(), StoreError>;

    /// Moves a session that nobody holds, and that no fork needs, to the trash.
    fn delete(&self, id: SessionId) -> Result<(), StoreError>;

    /// Adds a blob without the lease: blobs are named by their content.
    fn put_blob(&self, id: SessionId, content: Vec<u8>) -> Result<BlobRef, StoreError>;

    /// Keeps the recording of a stream that an entry names. Not synced: a power cut may take it, which `verify` notes,
    /// because no run waits for evidence.
    fn keep_recording(&self, id: SessionId, recording: &Blob) -> Result<(), StoreError>;
}

/// How a session stands, for whoever starts its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Free,
    /// Somebody of this home holds it.
    Held,
    /// Another home holds it, or its workspace is on another machine.
    Elsewhere,
    Gone,
}

/// Builds a fork's first step from where it begins and the parent's entries up to there (its last carry first), with
/// the blobs that it names; or says why there can be none.
pub type ForkStep<'a> =
    Box<dyn FnOnce(&ForkedFrom, &[Sealed]) -> Result<(Vec<Draft>, Vec<Blob>), String> + 'a>;

/// What a fork is made from.
pub struct Fork<'a> {
    pub parent: SessionId,
    /// The last entry that the fork shares with its parent; without it, the newest.
    pub at: Option<u64>,
    pub id: SessionId,
    pub step: ForkStep<'a>,
}

/// A session whose lease was taken.
pub struct OpenLog {
    pub writer: Box<dyn Writer>,
    /// The session's own first entry, which `replay` holds only if there is no later carry. `None` only if the log
    /// has no whole step, because its first one is torn or damaged.
    pub start: Option<Sealed>,
    /// The last carry's `segment_start`, the carry, and everything after it; everything, if there is no carry. For a
    /// fork without a carry of its own: the same of its parent up to where they part, then the fork's own entries.
    pub replay: Vec<Sealed>,
    /// For the person: what was cut, what is damaged, what is missing.
    pub alerts: Vec<String>,
    /// Set if only a good prefix could be read: then `writer` refuses to append, and the way on is a fork.
    pub damaged: Option<Damage>,
    /// What stands before the last carry is long and was not checked: `Reader::damage` checks it, and `writer` must
    /// hear what it finds (`Writer::refuse_after`).
    pub unchecked: bool,
}

/// The right to write one session: holds its lease for its whole life.
pub trait Writer: Send {
    /// Writes the step with one call, after its blobs. On an error nothing of it stands, and the writer goes on.
    fn append(&mut self, step: Vec<Draft>, blobs: Vec<Blob>) -> Result<Vec<Sealed>, AppendError>;

    /// The same, after the ballast was given up: for the end of a run when the disk is full.
    fn append_with_ballast(&mut self, step: Vec<Draft>, blobs: Vec<Blob>)
    -> Result<Vec<Sealed>, AppendError>;

    /// Makes the ballast again. An error means that there is still no space.
    fn restore_ballast(&mut self) -> std::io::Result<()>;

    /// The last entry that was written; `None` only if a torn first step was cut off at the opening.
    fn head(&self) -> Option<Position>;

    fn next_seq(&self) -> u64 {
        self.head().map_or(0, |head| head.seq + 1)
    }

    /// Damage was found before what was read at the opening: from now on nothing is appended, and each later opening
    /// checks the whole log.
    fn refuse_after(&mut self, damage: Damage) -> std::io::Result<()>;

    /// Syncs beside the writer, from another thread.
    fn syncer(&self) -> Arc<dyn Syncer>;

    /// Says whose lease this is, for whoever is refused.
    fn introduce(&mut self, name: &PodName) -> std::io::Result<()>;

    /// The locked lease once more, for handing to a pod that is being started. Close-on-exec.
    fn lease_fd(&self) -> std::io::Result<OwnedFd>;

    /// Stops writing and gives the locked lease away.
    fn into_lease(self: Box<Self>) -> std::io::Result<OwnedFd>;

    /// Adds a blob, synced.
    fn put_blob(&self, content: Vec<u8>) -> Result<BlobRef, AppendError>;

    /// The content of a blob, wherever in the lineage it lies.
    fn blob(&self, name: &str) -> Result<Vec<u8>, StoreError>;
}

/// Makes what was written survive a power cut. Calls that come together share one sync.
pub trait Syncer: Send + Sync {
    /// Syncs everything written so far and says up to which entry that is.
    fn sync(&self) -> Result<u64, SyncError>;

    /// Everything up to this entry is known to be synced.
    fn synced(&self) -> Option<u64>;
}

/// A log as it looks without being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The number of its newest file.
    pub file: u32,
    pub bytes: u64,
    /// When that was last written, where the disk knows.
    pub modified: Option<Millis>,
}

/// Some entries in a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub entries: Vec<Sealed>,
    /// Where the next page begins; absent if there is nothing more.
    pub next_seq: Option<u64>,
}

/// How a reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanEnd {
    /// At the last whole step; `tail` bytes of an unfinished one stand after it.
    Clean { tail: u64 },
    /// The caller had enough.
    Stopped,
    /// At a bad line in the middle.
    Damaged(Damage),
}

/// Reads one session without its lease.
pub trait Reader: Send {
    fn id(&self) -> SessionId;

    /// The last entry of the last whole step.
    fn head(&self) -> Result<Option<Position>, StoreError>;

    /// Makes durable what the log holds now. For whoever acts on what a dead writer has left: what it had not synced could
    /// still be lost, and its numbers be given to other entries.
    fn sync(&self) -> Result<(), StoreError>;

    /// Whole entries from a number on, as many as fit both limits, at least one.
    fn page(&self, from_seq: u64, max_entries: usize, max_bytes: usize) -> Result<Page, StoreError>;

    /// Gives each entry from a number on, of whole steps only, with the chain checked. Memory stays small.
    fn scan(
        &self,
        from_seq: u64,
        each: &mut dyn FnMut(Sealed) -> ControlFlow<()>,
    ) -> Result<ScanEnd, StoreError>;

    /// The verdict on the whole log: where it is damaged, if it is. Whoever has to judge a log asks this.
    fn damage(&self) -> Result<Option<Damage>, StoreError> {
        Ok(match self.scan(0, &mut |_| ControlFlow::Continue(()))? {
            ScanEnd::Damaged(damage) => Some(damage),
            ScanEnd::Clean { .. } | ScanEnd::Stopped => None,
        })
    }

    /// What `Store::open` gives as `replay`.
    fn replay(&self) -> Result<Vec<Sealed>, StoreError>;

    /// Part of a blob, wherever in the lineage it lies.
    fn blob(&self, name: &str, offset: u64, limit: usize) -> Result<Vec<u8>, StoreError>;

    /// The position of an entry.
    fn position(&self, seq: u64) -> Result<Option<Position>, StoreError>;

    /// Where this session began as a fork.
    fn from(&self) -> Result<Option<ForkedFrom>, StoreError>;

    /// What is wrong beside the entries, in the store's own keeping (caches, reserves); for `verify`.
    fn doubtful(&self) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// A fork's parent, bounded to the entries that they share.
    fn parent(&self) -> Result<Option<Box<dyn Reader>>, StoreError>;
}
