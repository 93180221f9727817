//! Opens a session for writing: moves an unfinished tail aside, reads and checks the rest.
//!
//! Guarantee: a session opens after any crash, full disk or bad sector; at worst with a good prefix and a writer that
//! refuses to append (`random_mutations_always_open_with_the_good_prefix`).

use std::sync::Arc;

use crate::check::soundness::CheckDepth;
use crate::error::{LogDamage, StoreError};
use crate::files::disk::{DiskFile, OpenMode};
use crate::files::file_store::FileStore;
use crate::files::layout;
use crate::files::lease;
use crate::log::replay::{LogDir, ReplayedLog};
use crate::log::syncer::{SharedLogFile, SyncState};
use crate::log::tail::{self, LogTail};
use crate::log::unsynced;
use crate::log::writer::{LogWriter, LogWriterState, make_ballast};
use crate::store::OpenSession;

/// Opens the log. The caller holds the lease.
pub(crate) fn open_log(
    store: &FileStore,
    log: LogDir,
    lease: Box<dyn DiskFile>,
) -> Result<OpenSession, StoreError> {
    let mut alerts = Vec::new();
    if let Err(error) = lease::write_holder(&*lease, &store.holder) {
        alerts.push(format!("could not sign the lease, so other processes cannot see its holder: {error}"));
    }
    let start = log.read_start()?;
    let (mut replayed, broken) = log.replay(CheckDepth::Quick)?;
    if replayed.damage.is_none()
        && let Some(reason) = broken
    {
        replayed.damage = Some(lineage_damage(reason));
    }
    let state = writer_state(store, &log, &replayed, &mut alerts);
    if let Some(damage) = &replayed.damage {
        alerts.push(format!("{damage}. {}", damage.hint(log.id)));
    }
    if let Err(error) = make_ballast(store.disk(), &log) {
        alerts.push(format!(
            "could not reserve the ballast ({error}): the end of a run may not be written when the disk is full"
        ));
    }
    let mut writer = make_writer(store, log, lease, &replayed, state)?;
    if replayed.is_cache_stale && replayed.damage.is_none() {
        writer.pending_head = replayed.head;
        writer.write_head();
    }
    let ReplayedLog { entries, damage, is_unchecked, .. } = replayed;
    Ok(OpenSession {
        writer: Box::new(writer),
        start,
        replay: entries,
        alerts,
        damaged: damage,
        unchecked: is_unchecked,
    })
}

fn lineage_damage(reason: String) -> LogDamage {
    LogDamage { file: layout::log_file_name(0), line: 1, offset: 0, seq: 0, reason }
}

/// Moves the tail aside. If that fails, the writer tries again before its first step.
fn writer_state(
    store: &FileStore,
    log: &LogDir,
    replayed: &ReplayedLog,
    alerts: &mut Vec<String>,
) -> LogWriterState {
    if let Some(damage) = &replayed.damage {
        return LogWriterState::Damaged(damage.clone());
    }
    if replayed.tail_bytes == 0 {
        return LogWriterState::Ready;
    }
    let (file, offset, bytes) = (replayed.good_end.file, replayed.good_end.offset, replayed.tail_bytes);
    let tail = LogTail { log: layout::log_file_path(&log.dir, file), dir: log.dir.clone(), offset, bytes };
    let name = layout::log_file_name(file);
    let lost = format!("{bytes} bytes at the end of {name}, from byte {offset}, were not a whole step");
    match tail::move_tail_aside(store.disk(), &tail, store.sync) {
        Ok(to) => {
            let to = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
            alerts.push(format!("{lost} and were moved to {to}; the entries before them are unchanged"));
            LogWriterState::Ready
        }
        Err(error) => {
            alerts.push(format!("{lost}; could not move them aside yet: {error}"));
            LogWriterState::Tail(tail)
        }
    }
}

fn make_writer(
    store: &FileStore,
    log: LogDir,
    lease: Box<dyn DiskFile>,
    replayed: &ReplayedLog,
    state: LogWriterState,
) -> Result<LogWriter, StoreError> {
    let good = replayed.good_end;
    let path = layout::log_file_path(&log.dir, good.file);
    let file = log.io_result("open the log of", store.disk().open(&path, OpenMode::Append))?;
    if store.sync && replayed.damage.is_none() {
        // A killed writer may have left pages that this process's memory does not cover. After this sync, all unsynced
        // bytes are in memory, and a failed sync can be repaired.
        let synced = match unsynced::is_marked_unsynced(store.disk(), &log.dir) {
            Ok(false) => file.sync_data(),
            Ok(true) => unsynced::rewrite_end(store.disk(), &path, good.offset),
            Err(error) => Err(error),
        };
        if let Err(error) = synced {
            log.io_result("mark the log of", unsynced::mark_unsynced(store.disk(), &log.dir))?;
            return log.io_result("sync the log of", Err(error));
        }
    }
    let shared = SyncState::new(
        Arc::from(file),
        path,
        good.offset,
        good.head_position().map(|head| head.seq),
        good.prev,
    );
    Ok(LogWriter {
        shared: Arc::new(SharedLogFile::new(store.home.disk.clone(), store.sync, shared)),
        log,
        lease,
        holder: store.holder.clone(),
        file: good.file,
        file_bytes: store.file_bytes,
        sync: store.sync,
        last_ts: replayed.last_ts,
        segment: replayed.segment,
        pending_head: None,
        state,
    })
}
