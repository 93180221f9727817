//! Syncing: makes written entries durable, concurrently with the writer.
//!
//! Here: the open log file that writer and syncer share, group commit, and the handling of failed syncs.
//! Guarantee: a failed `fdatasync` is never retried on the same descriptor, because the kernel may have dropped the
//! pages and forgotten the error. Unsynced bytes stay in memory and are written once more
//! (`a_failed_sync_writes_again_once_from_memory`).

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_record::ChainHash;

use crate::error::SyncError;
use crate::files::disk::{Disk, DiskFile, OpenMode};
use crate::files::locate::link_ending_at;
use crate::log::unsynced;
use crate::store::Syncer;

/// The maximum number of unsynced bytes in memory: beyond it the writer syncs first. A step has a few lines of up to 2
/// MiB.
pub(crate) const MAX_PENDING_BYTES: usize = 16 * 1024 * 1024;

/// The current log file, shared by the writer and the syncing threads.
#[derive(Debug)]
pub(crate) struct SharedLogFile {
    disk: Arc<dyn Disk>,
    /// False for an ephemeral session, which is never synced.
    sync_enabled: bool,
    state: Mutex<SyncState>,
    /// Held during a sync, so that concurrent callers share the next one.
    sync_lock: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct SyncState {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) path: PathBuf,
    /// The length of the file up to the last whole step.
    pub(crate) good_bytes: u64,
    /// The last written entry.
    pub(crate) written_seq: Option<u64>,
    /// Its link.
    pub(crate) link: ChainHash,
    synced_seq: Option<u64>,
    /// The offset up to which the file is synced, and the link there.
    durable_end: (u64, ChainHash),
    /// The bytes after it.
    pending: VecDeque<Vec<u8>>,
    pending_bytes: usize,
    error: Option<SyncError>,
}

impl SyncState {
    /// Creates the state of a file whose content is synced.
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        path: PathBuf,
        good_bytes: u64,
        written_seq: Option<u64>,
        link: ChainHash,
    ) -> SyncState {
        SyncState {
            file,
            path,
            good_bytes,
            written_seq,
            link,
            synced_seq: written_seq,
            durable_end: (good_bytes, link),
            pending: VecDeque::new(),
            pending_bytes: 0,
            error: None,
        }
    }

    fn written_end(&self) -> WrittenEnd {
        WrittenEnd { seq: self.written_seq, bytes: self.good_bytes, link: self.link }
    }
}

/// The end of the entries that are written completely.
#[derive(Debug, Clone, Copy)]
struct WrittenEnd {
    seq: Option<u64>,
    bytes: u64,
    link: ChainHash,
}

impl SharedLogFile {
    pub(crate) fn new(disk: Arc<dyn Disk>, sync_enabled: bool, state: SyncState) -> SharedLogFile {
        SharedLogFile { disk, sync_enabled, state: Mutex::new(state), sync_lock: Mutex::new(()) }
    }

    /// Locks the state. After a panic each field is still valid on its own.
    pub(crate) fn lock_state(&self) -> MutexGuard<'_, SyncState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sync_error(&self) -> Option<SyncError> {
        self.lock_state().error.clone()
    }

    /// Records a step that was written with one call.
    pub(crate) fn record_write(&self, bytes: Vec<u8>, last: u64, link: ChainHash) {
        let mut state = self.lock_state();
        state.good_bytes += bytes.len() as u64;
        state.written_seq = Some(last);
        state.link = link;
        if self.sync_enabled {
            state.pending_bytes += bytes.len();
            state.pending.push_back(bytes);
        }
    }

    /// Returns whether the unsynced bytes would exceed the limit.
    pub(crate) fn is_pending_full(&self, coming: usize) -> bool {
        let state = self.lock_state();
        state.pending_bytes > 0 && state.pending_bytes + coming > MAX_PENDING_BYTES
    }

    /// Syncs and switches to another, empty file. Blocks other syncs.
    pub(crate) fn rotate_file(
        &self,
        next: impl FnOnce() -> io::Result<(Arc<dyn DiskFile>, PathBuf)>,
    ) -> Result<(), RotateError> {
        let _turn = self.sync_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sync_now().map_err(RotateError::Sync)?;
        let (file, path) = next().map_err(RotateError::Disk)?;
        let mut state = self.lock_state();
        let fresh = SyncState::new(file, path, 0, state.written_seq, state.link);
        *state = fresh;
        Ok(())
    }

    /// Syncs. The caller holds the sync lock.
    fn sync_now(&self) -> Result<u64, SyncError> {
        let (file, count, end) = {
            let state = self.lock_state();
            if let Some(failed) = &state.error {
                return Err(failed.clone());
            }
            (state.file.clone(), state.pending.len(), state.written_end())
        };
        if self.sync_enabled
            && count > 0
            && let Err(first) = file.sync_data()
        {
            return self.retry_sync(&first);
        }
        let mut state = self.lock_state();
        Ok(mark_synced(&mut state, count, end))
    }

    /// Writes the pending bytes again through a new descriptor. Blocks appends.
    fn retry_sync(&self, first: &io::Error) -> Result<u64, SyncError> {
        let mut state = self.lock_state();
        match self.rewrite_pending(&state) {
            Ok(file) => {
                state.file = file;
                let (count, end) = (state.pending.len(), state.written_end());
                Ok(mark_synced(&mut state, count, end))
            }
            Err(then) => {
                let path = state.path.clone();
                let mut then = then.to_string();
                let marked = path.parent().map_or(Ok(()), |dir| unsynced::mark_unsynced(&*self.disk, dir));
                if let Err(error) = marked {
                    then.push_str(&format!("; could not mark the log for the next writer: {error}"));
                }
                let failed = SyncError::Fatal { path, first: first.to_string(), then };
                state.error = Some(failed.clone());
                Err(failed)
            }
        }
    }

    fn rewrite_pending(&self, state: &SyncState) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(&state.path, OpenMode::Write)?;
        let (durable, link) = state.durable_end;
        if durable > 0 && link_ending_at(&*file, durable)? != Some(link) {
            return Err(io::Error::other("synced bytes are missing from the file"));
        }
        // The same bytes at the same offset: a concurrent reader sees no difference.
        let mut at = durable;
        for bytes in &state.pending {
            unsynced::write_all_at(&*file, bytes, at)?;
            at += bytes.len() as u64;
        }
        if file.size()? != at {
            file.truncate(at)?;
        }
        file.sync_data()?;
        Ok(Arc::from(self.disk.open(&state.path, OpenMode::Append)?))
    }
}

fn mark_synced(state: &mut SyncState, count: usize, end: WrittenEnd) -> u64 {
    let freed: usize = state.pending.drain(..count).map(|bytes| bytes.len()).sum();
    state.pending_bytes -= freed;
    state.synced_seq = end.seq;
    state.durable_end = (end.bytes, end.link);
    end.seq.unwrap_or(0)
}

/// Why no new file was created.
pub(crate) enum RotateError {
    Sync(SyncError),
    Disk(io::Error),
}

impl Syncer for SharedLogFile {
    fn sync(&self) -> Result<u64, SyncError> {
        let wanted = self.lock_state().written_seq;
        let _turn = self.sync_lock.lock().unwrap_or_else(PoisonError::into_inner);
        {
            // The previous holder of the lock may have synced this caller's entries.
            let state = self.lock_state();
            if state.error.is_none() && state.synced_seq >= wanted {
                return Ok(state.synced_seq.unwrap_or(0));
            }
        }
        self.sync_now()
    }

    fn synced_seq(&self) -> Option<u64> {
        self.lock_state().synced_seq
    }
}
