//! Syncing: from written to safe from a power cut, beside the writer.
//!
//! Here: the open log file that writer and syncer share, group commit, and what is done when a sync fails.
//! Promise: a failed `fdatasync` is never retried on the same descriptor, because the kernel may have dropped the
//! pages and forgotten the error. What was not yet synced is kept in memory, and written again once
//! (`a_failed_sync_writes_again_once_from_memory`).

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_record::Chain;

use crate::disk::{Disk, DiskFile, OpenHow};
use crate::doubt;
use crate::error::SyncError;
use crate::locate::link_ending_at;
use crate::store::Syncer;

/// More than this is not kept in memory: the writer syncs first. A step is at most a few lines of 2 MiB.
pub(crate) const PENDING_BYTES: usize = 16 * 1024 * 1024;

/// The log file that is written to now. Shared by the writer and whoever syncs.
#[derive(Debug)]
pub(crate) struct Shared {
    disk: Arc<dyn Disk>,
    /// An ephemeral session is never synced.
    sync: bool,
    state: Mutex<State>,
    /// Held while a sync runs, so that those who come meanwhile share the next one.
    turn: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) path: PathBuf,
    /// The length of the file up to the last whole step.
    pub(crate) good: u64,
    /// The last entry that was written.
    pub(crate) written: Option<u64>,
    /// Its link.
    pub(crate) link: Chain,
    synced: Option<u64>,
    /// Up to this offset of the file everything is synced, and this is the link there.
    durable: (u64, Chain),
    /// The bytes after it, as they were written.
    pending: VecDeque<Vec<u8>>,
    pending_bytes: usize,
    failed: Option<SyncError>,
}

impl State {
    /// A file whose content is synced.
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        path: PathBuf,
        good: u64,
        written: Option<u64>,
        link: Chain,
    ) -> State {
        State {
            file,
            path,
            good,
            written,
            link,
            synced: written,
            durable: (good, link),
            pending: VecDeque::new(),
            pending_bytes: 0,
            failed: None,
        }
    }
}

impl Shared {
    pub(crate) fn new(disk: Arc<dyn Disk>, sync: bool, state: State) -> Shared {
        Shared { disk, sync, state: Mutex::new(state), turn: Mutex::new(()) }
    }

    /// A panic while the lock was held left plain data behind, each field true on its own.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn failed(&self) -> Option<SyncError> {
        self.state().failed.clone()
    }

    /// A step has been written with one call.
    pub(crate) fn wrote(&self, bytes: Vec<u8>, last: u64, link: Chain) {
        let mut state = self.state();
        state.good += bytes.len() as u64;
        state.written = Some(last);
        state.link = link;
        if self.sync {
            state.pending_bytes += bytes.len();
            state.pending.push_back(bytes);
        }
    }

    /// Whether so much waits for a sync that no more should be kept.
    pub(crate) fn is_full(&self, coming: usize) -> bool {
        let state = self.state();
        state.pending_bytes > 0 && state.pending_bytes + coming > PENDING_BYTES
    }

    /// Syncs what was written and goes on in another, empty file. Nobody syncs meanwhile.
    pub(crate) fn rotate(
        &self,
        next: impl FnOnce() -> io::Result<(Arc<dyn DiskFile>, PathBuf)>,
    ) -> Result<(), Rotation> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.sync_now().map_err(Rotation::Sync)?;
        let (file, path) = next().map_err(Rotation::Disk)?;
        let mut state = self.state();
        let fresh = State::new(file, path, 0, state.written, state.link);
        *state = fresh;
        Ok(())
    }

    /// The caller has the turn.
    fn sync_now(&self) -> Result<u64, SyncError> {
        let (file, count, target) = {
            let state = self.state();
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            (state.file.clone(), state.pending.len(), (state.written, state.good, state.link))
        };
        if self.sync
            && count > 0
            && let Err(first) = file.sync_data()
        {
            return self.write_again(&first);
        }
        let mut state = self.state();
        Ok(settle(&mut state, count, target))
    }

    /// Through a new descriptor, with what is in memory; nothing is appended meanwhile.
    fn write_again(&self, first: &io::Error) -> Result<u64, SyncError> {
        let mut state = self.state();
        match self.rewrite(&state) {
            Ok(file) => {
                state.file = file;
                let (count, target) = (state.pending.len(), (state.written, state.good, state.link));
                Ok(settle(&mut state, count, target))
            }
            Err(then) => {
                let path = state.path.clone();
                let mut then = then.to_string();
                let marked = path.parent().map_or(Ok(()), |dir| doubt::mark(&*self.disk, dir));
                if let Err(error) = marked {
                    then.push_str(&format!("; the next writer could not be warned of it: {error}"));
                }
                let failed = SyncError::Fatal { path, first: first.to_string(), then };
                state.failed = Some(failed.clone());
                Err(failed)
            }
        }
    }

    fn rewrite(&self, state: &State) -> io::Result<Arc<dyn DiskFile>> {
        let file = self.disk.open(&state.path, OpenHow::Write)?;
        let (durable, link) = state.durable;
        if durable > 0 && link_ending_at(&*file, durable)? != Some(link) {
            return Err(io::Error::other("what was synced before is no longer there"));
        }
        // The same bytes to the same place: a reader beside us sees no difference at any moment.
        let mut at = durable;
        for bytes in &state.pending {
            doubt::write_exactly(&*file, bytes, at)?;
            at += bytes.len() as u64;
        }
        if file.size()? != at {
            file.truncate(at)?;
        }
        file.sync_data()?;
        Ok(Arc::from(self.disk.open(&state.path, OpenHow::Append)?))
    }
}

fn settle(state: &mut State, count: usize, target: (Option<u64>, u64, Chain)) -> u64 {
    let freed: usize = state.pending.drain(..count).map(|bytes| bytes.len()).sum();
    state.pending_bytes -= freed;
    state.synced = target.0;
    state.durable = (target.1, target.2);
    target.0.unwrap_or(0)
}

/// Why no new file was begun.
pub(crate) enum Rotation {
    Sync(SyncError),
    Disk(io::Error),
}

impl Syncer for Shared {
    fn sync(&self) -> Result<u64, SyncError> {
        let wanted = self.state().written;
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        {
            // Whoever had the turn before may have synced what this caller wrote.
            let state = self.state();
            if state.failed.is_none() && state.synced >= wanted {
                return Ok(state.synced.unwrap_or(0));
            }
        }
        self.sync_now()
    }

    fn synced(&self) -> Option<u64> {
        self.state().synced
    }
}
