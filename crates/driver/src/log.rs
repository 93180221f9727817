//! The log as the event loop uses it: written immediately, synced on another thread.
//!
//! Here: at most one sync in flight, and the delay after which lazy entries are synced. A sync covers all
//! entries written before it started (group commit). Elsewhere: items that wait for a sync (`release_queue`),
//! the file (`session`).
//! Invariant: `is_durable(seq)` is true only if a sync that started after `seq` was written has succeeded.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use minke_record::limits::LAZY_SYNC_MS;
use minke_record::{Blob, Draft, Position};
use minke_session::{AppendError, LogDamage, SealedEntry, SyncError, Syncer, Writer};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The result of a sync: all entries up to this one are on disk, or the sync failed.
pub(crate) type SyncOutcome = Result<u64, SyncError>;

pub(crate) struct SyncedLog {
    writer: Box<dyn Writer>,
    sync_thread: SyncThread,
    /// Releases items without a sync (`session.durability = "lazy"`).
    lazy: bool,
    synced: Option<u64>,
    /// The newest entry for which a sync is requested.
    requested: Option<u64>,
    syncing: bool,
    /// The time at which lazy entries are synced without a request.
    lazy_sync_at: Option<Instant>,
}

impl SyncedLog {
    /// Takes over a writer whose entries so far are synced.
    pub(crate) fn new(writer: Box<dyn Writer>, lazy: bool) -> std::io::Result<SyncedLog> {
        let syncer = writer.syncer();
        let synced = syncer.synced_seq();
        let sync_thread = SyncThread::start(syncer)?;
        Ok(SyncedLog {
            writer,
            sync_thread,
            lazy,
            synced,
            requested: None,
            syncing: false,
            lazy_sync_at: None,
        })
    }

    /// Writes a step, whole or not at all.
    pub(crate) fn append(
        &mut self,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Vec<SealedEntry>, AppendError> {
        let sealed = self.writer.append(step, blobs)?;
        self.lazy_sync_at.get_or_insert_with(|| Instant::now() + Duration::from_millis(LAZY_SYNC_MS));
        Ok(sealed)
    }

    /// Writes the end of a run when the disk is full.
    pub(crate) fn append_with_ballast(
        &mut self,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Vec<SealedEntry>, AppendError> {
        let sealed = self.writer.append_with_ballast(step, blobs)?;
        self.lazy_sync_at.get_or_insert_with(|| Instant::now() + Duration::from_millis(LAZY_SYNC_MS));
        Ok(sealed)
    }

    /// Marks the log as damaged: no process appends to it any more.
    pub(crate) fn refuse_after(&mut self, damage: LogDamage) -> std::io::Result<()> {
        self.writer.mark_damaged(damage)
    }

    /// Checks whether the disk has space again.
    pub(crate) fn restore_ballast(&mut self) -> std::io::Result<()> {
        self.writer.restore_ballast()
    }

    pub(crate) fn head(&self) -> Position {
        self.writer.head_position().expect("a session with a session_start has a head")
    }

    /// Whether items that depend on this entry may be released.
    pub(crate) fn is_durable(&self, seq: u64) -> bool {
        self.lazy || self.synced.is_some_and(|synced| seq <= synced)
    }

    /// The last entry known to be on disk.
    pub(crate) fn synced(&self) -> Option<u64> {
        self.synced
    }

    /// Whether all written entries are on disk.
    pub(crate) fn is_fully_synced(&self) -> bool {
        self.synced.is_some_and(|synced| self.head().seq <= synced)
    }

    /// Requests a sync of this entry: immediately, or after the current sync.
    pub(crate) fn request_sync(&mut self, seq: u64) {
        self.requested = self.requested.max(Some(seq));
        self.start_sync();
    }

    /// The time at which `sync_lazy` must be called, if any.
    pub(crate) fn lazy_sync_due(&self) -> Option<Instant> {
        self.lazy_sync_at
    }

    /// Syncs the lazy entries.
    pub(crate) fn sync_lazy(&mut self) {
        self.lazy_sync_at = None;
        self.request_sync(self.head().seq);
    }

    /// Waits for the end of the current sync; forever if there is none.
    pub(crate) async fn next_sync(&mut self) -> SyncOutcome {
        self.sync_thread.done.recv().await.unwrap_or_else(|| {
            // The thread only exits after a result, so it has panicked: the state of the disk is unknown.
            let (first, then) =
                ("the sync thread has died".to_owned(), "the log is no longer synced".to_owned());
            Err(SyncError::Fatal { path: "log.jsonl".into(), first, then })
        })
    }

    /// Handles the end of a sync.
    pub(crate) fn finish_sync(&mut self, done: SyncOutcome) -> Result<(), SyncError> {
        self.syncing = false;
        let seq = done?;
        self.synced = self.synced.max(Some(seq));
        if self.is_fully_synced() {
            self.lazy_sync_at = None;
        }
        self.start_sync();
        Ok(())
    }

    fn start_sync(&mut self) {
        if self.requested <= self.synced {
            self.requested = None;
        } else if !self.syncing {
            self.syncing = true;
            self.lazy_sync_at = None;
            self.sync_thread.request_sync();
        }
    }
}

/// A thread that only syncs: `fdatasync` may take longer than any other operation.
struct SyncThread {
    requests: Option<SyncSender<()>>,
    done: mpsc::Receiver<SyncOutcome>,
    handle: Option<JoinHandle<()>>,
}

impl SyncThread {
    fn start(syncer: Arc<dyn Syncer>) -> std::io::Result<SyncThread> {
        let (ask, asked) = sync_channel(1);
        let (outcomes, done) = mpsc::channel(1);
        let handle = std::thread::Builder::new()
            .name("sync".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || run_sync_thread(&asked, syncer.as_ref(), &outcomes))?;
        Ok(SyncThread { requests: Some(ask), done, handle: Some(handle) })
    }

    fn request_sync(&self) {
        match self.requests.as_ref().map(|ask| ask.try_send(())) {
            // At most one sync is in flight, so the channel has room; a second request would be redundant.
            Some(Ok(()) | Err(TrySendError::Full(()))) | None => {}
            // The thread has died: `next_sync` returns the error.
            Some(Err(TrySendError::Disconnected(()))) => {}
        }
    }
}

fn run_sync_thread(asked: &Receiver<()>, syncer: &dyn Syncer, outcomes: &mpsc::Sender<SyncOutcome>) {
    while asked.recv().is_ok() {
        if outcomes.blocking_send(syncer.sync()).is_err() {
            return;
        }
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        // The lease may be released only after the thread has stopped using the file.
        self.done.close();
        drop(self.requests.take());
        if let Some(handle) = self.handle.take() {
            drop(handle.join());
        }
    }
}
