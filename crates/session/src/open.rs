//! Opening a session to write it: what never happened is moved aside, the rest is read and checked.
//!
//! Promise: a session opens whatever a crash, a full disk or a bad sector did to it; at worst with a good prefix and
//! a writer that refuses (`random_mutations_always_open_with_the_good_prefix`).

use std::sync::Arc;

use crate::cut::{self, Tail};
use crate::disk::{DiskFile, OpenHow};
use crate::doubt;
use crate::error::{Damage, StoreError};
use crate::file::FileStore;
use crate::layout;
use crate::lease;
use crate::replay::{LogDir, Replayed};
use crate::sound::Check;
use crate::store::OpenLog;
use crate::syncer::{Shared, State};
use crate::writer::{LogWriter, WriterState, make_ballast};

/// The lease is taken.
pub(crate) fn open(store: &FileStore, log: LogDir, lease: Box<dyn DiskFile>) -> Result<OpenLog, StoreError> {
    let mut alerts = Vec::new();
    if let Err(error) = lease::sign(&*lease, &store.holder) {
        alerts.push(format!("the lease could not be signed, others will not see who holds it: {error}"));
    }
    let start = log.start()?;
    let (mut replayed, broken) = log.replay(Check::Short)?;
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
            "the disk has no room for the ballast ({error}): the end of a run may not be written"
        ));
    }
    let mut writer = make_writer(store, log, lease, &replayed, state)?;
    if replayed.stale && replayed.damage.is_none() {
        writer.head_due = replayed.head;
        writer.write_head();
    }
    let Replayed { entries, damage, unchecked, .. } = replayed;
    Ok(OpenLog { writer: Box::new(writer), start, replay: entries, alerts, damaged: damage, unchecked })
}

fn lineage_damage(reason: String) -> Damage {
    Damage { file: layout::log_name(0), line: 1, offset: 0, seq: 0, reason }
}

/// Moves the tail aside. If there is no room even for that, the writer tries again before its first step.
fn writer_state(
    store: &FileStore,
    log: &LogDir,
    replayed: &Replayed,
    alerts: &mut Vec<String>,
) -> WriterState {
    if let Some(damage) = &replayed.damage {
        return WriterState::Damaged(damage.clone());
    }
    if replayed.tail == 0 {
        return WriterState::Ready;
    }
    let (file, offset, bytes) = (replayed.good.file, replayed.good.offset, replayed.tail);
    let tail = Tail { log: layout::log_path(&log.dir, file), dir: log.dir.clone(), offset, bytes };
    let name = layout::log_name(file);
    let lost = format!("{bytes} bytes at the end of {name}, from byte {offset}, were not a whole step");
    match cut::move_aside(store.disk(), &tail, store.sync) {
        Ok(to) => {
            let to = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
            alerts.push(format!("{lost} and were moved to {to}; nothing before them is touched"));
            WriterState::Ready
        }
        Err(error) => {
            alerts.push(format!("{lost}; they could not be moved aside yet: {error}"));
            WriterState::Tail(tail)
        }
    }
}

fn make_writer(
    store: &FileStore,
    log: LogDir,
    lease: Box<dyn DiskFile>,
    replayed: &Replayed,
    state: WriterState,
) -> Result<LogWriter, StoreError> {
    let good = replayed.good;
    let path = layout::log_path(&log.dir, good.file);
    let file = log.io("open the log of", store.disk().open(&path, OpenHow::Append))?;
    if store.sync && replayed.damage.is_none() {
        // A writer that was killed may have left pages that no sync of ours covers in memory. From here on what is
        // not synced is in our own memory, and a failed sync can be made good.
        let synced = match doubt::is_marked(store.disk(), &log.dir) {
            Ok(false) => file.sync_data(),
            Ok(true) => doubt::settle(store.disk(), &path, good.offset),
            Err(error) => Err(error),
        };
        if let Err(error) = synced {
            log.io("mark the log of", doubt::mark(store.disk(), &log.dir))?;
            return log.io("sync the log of", Err(error));
        }
    }
    let shared = State::new(Arc::from(file), path, good.offset, good.head().map(|head| head.seq), good.prev);
    Ok(LogWriter {
        shared: Arc::new(Shared::new(store.home.disk.clone(), store.sync, shared)),
        log,
        lease,
        holder: store.holder.clone(),
        file: good.file,
        file_bytes: store.file_bytes,
        sync: store.sync,
        last_ts: replayed.last_ts,
        segment: replayed.segment,
        head_due: None,
        state,
    })
}
