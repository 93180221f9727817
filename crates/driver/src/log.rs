//! The log as the loop uses it: written at once, synced beside the loop.
//!
//! Here: one sync in flight at most, on a thread of its own, and the time after which lazy entries are synced anyway.
//! Everything written before a sync began is covered by it (group commit). Elsewhere: what waits for which sync
//! (`outlet`), the file itself (`session`).
//! Invariant: `is_synced(seq)` is true only if a sync that began after `seq` was written has ended well.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use minke_record::limits::LAZY_SYNC_MS;
use minke_record::{Blob, Draft, Position};
use minke_session::{AppendError, Damage, Sealed, SyncError, Syncer, Writer};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The last word of the sync thread: everything up to this entry is on the disk, or it cannot be made so.
pub(crate) type Synced = Result<u64, SyncError>;

pub(crate) struct Log {
    writer: Box<dyn Writer>,
    thread: SyncThread,
    /// Nobody waits for the disk (`session.durability = "lazy"`).
    lazy: bool,
    synced: Option<u64>,
    /// The newest entry that somebody waits for.
    wanted: Option<u64>,
    syncing: bool,
    /// When lazy entries are synced though nobody waits for them.
    due: Option<Instant>,
}

impl Log {
    /// Takes over a writer whose entries so far are synced up to `synced`.
    pub(crate) fn new(writer: Box<dyn Writer>, lazy: bool) -> std::io::Result<Log> {
        let syncer = writer.syncer();
        let synced = syncer.synced();
        let thread = SyncThread::start(syncer)?;
        Ok(Log { writer, thread, lazy, synced, wanted: None, syncing: false, due: None })
    }

    /// Writes a step, whole or not at all.
    pub(crate) fn append(&mut self, step: Vec<Draft>, blobs: Vec<Blob>) -> Result<Vec<Sealed>, AppendError> {
        let sealed = self.writer.append(step, blobs)?;
        self.due.get_or_insert_with(|| Instant::now() + Duration::from_millis(LAZY_SYNC_MS));
        Ok(sealed)
    }

    /// Writes the end of a run when the disk is full.
    pub(crate) fn append_with_ballast(
        &mut self,
        step: Vec<Draft>,
        blobs: Vec<Blob>,
    ) -> Result<Vec<Sealed>, AppendError> {
        let sealed = self.writer.append_with_ballast(step, blobs)?;
        self.due.get_or_insert_with(|| Instant::now() + Duration::from_millis(LAZY_SYNC_MS));
        Ok(sealed)
    }

    /// From now on nothing is appended, here and in later lives.
    pub(crate) fn refuse_after(&mut self, damage: Damage) -> std::io::Result<()> {
        self.writer.refuse_after(damage)
    }

    /// Whether there is space again.
    pub(crate) fn restore_ballast(&mut self) -> std::io::Result<()> {
        self.writer.restore_ballast()
    }

    pub(crate) fn head(&self) -> Position {
        self.writer.head().expect("a session with a session_start has a head")
    }

    /// Whether what rests on this entry may leave.
    pub(crate) fn may_rest_on(&self, seq: u64) -> bool {
        self.lazy || self.synced.is_some_and(|synced| seq <= synced)
    }

    /// The last entry that is on the disk, as far as was heard in this life.
    pub(crate) fn synced(&self) -> Option<u64> {
        self.synced
    }

    /// Whether everything written is on the disk.
    pub(crate) fn is_clean(&self) -> bool {
        self.synced.is_some_and(|synced| self.head().seq <= synced)
    }

    /// Somebody waits for this entry to be synced: begin at once, or right after the sync that is under way.
    pub(crate) fn want(&mut self, seq: u64) {
        self.wanted = self.wanted.max(Some(seq));
        self.begin();
    }

    /// When `sync_lazy` is due, if it is.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The time of lazy entries has come.
    pub(crate) fn sync_lazy(&mut self) {
        self.due = None;
        self.want(self.head().seq);
    }

    /// Waits for the end of the sync that is under way; forever if there is none.
    pub(crate) async fn next(&mut self) -> Synced {
        self.thread.done.recv().await.unwrap_or_else(|| {
            // The thread ends only with this value, so it has panicked: nobody knows what the disk holds.
            let (first, then) = ("the thread that syncs has died".to_owned(), "nobody syncs".to_owned());
            Err(SyncError::Fatal { path: "log.jsonl".into(), first, then })
        })
    }

    /// A sync has ended.
    pub(crate) fn heard(&mut self, done: Synced) -> Result<(), SyncError> {
        self.syncing = false;
        let seq = done?;
        self.synced = self.synced.max(Some(seq));
        if self.is_clean() {
            self.due = None;
        }
        self.begin();
        Ok(())
    }

    fn begin(&mut self) {
        if self.wanted <= self.synced {
            self.wanted = None;
        } else if !self.syncing {
            self.syncing = true;
            self.due = None;
            self.thread.ask();
        }
    }
}

/// A thread that does nothing but sync when it is asked to: `fdatasync` may take longer than anything else here.
struct SyncThread {
    ask: Option<SyncSender<()>>,
    done: mpsc::Receiver<Synced>,
    handle: Option<JoinHandle<()>>,
}

impl SyncThread {
    fn start(syncer: Arc<dyn Syncer>) -> std::io::Result<SyncThread> {
        let (ask, asked) = sync_channel(1);
        let (tell, done) = mpsc::channel(1);
        let handle = std::thread::Builder::new()
            .name("sync".to_owned())
            .stack_size(256 * 1024)
            .spawn(move || work(&asked, syncer.as_ref(), &tell))?;
        Ok(SyncThread { ask: Some(ask), done, handle: Some(handle) })
    }

    fn ask(&self) {
        match self.ask.as_ref().map(|ask| ask.try_send(())) {
            // One sync is in flight at most, so there is room; a second wish would mean the same.
            Some(Ok(()) | Err(TrySendError::Full(()))) | None => {}
            // It has died: `next` says so.
            Some(Err(TrySendError::Disconnected(()))) => {}
        }
    }
}

fn work(asked: &Receiver<()>, syncer: &dyn Syncer, tell: &mpsc::Sender<Synced>) {
    while asked.recv().is_ok() {
        if tell.blocking_send(syncer.sync()).is_err() {
            return;
        }
    }
}

impl Drop for SyncThread {
    fn drop(&mut self) {
        // The lease may be let go only when nobody touches the file any more.
        self.done.close();
        drop(self.ask.take());
        if let Some(handle) = self.handle.take() {
            drop(handle.join());
        }
    }
}
