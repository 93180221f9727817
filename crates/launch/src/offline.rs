//! Offline edits: steps that are written to a session without a live pod. This is the only place that writes them.
//!
//! Elsewhere: the entries (`pod::offline`), starting a pod with the lease (`deliver`).
//! Invariant: a change is made once, by the pod or by the offline edit, and starts no pod
//! (`a_change_of_a_sleeping_thread_wakes_nobody`).

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use minke_client::UserHome;
use minke_pod::{OfflineEdit, OfflineWriter, State, StepSeed};
use minke_protocol::Refusal;
use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, Blob, Draft, Durability, InputSegment, Kind, Millis, OpOutcome,
    Position, SessionId,
};
use minke_session::{OpenSession, SealedEntry, Writer};

use crate::clock::{now_millis, random_seed};
use crate::deliver::DeliverError;
use crate::error::{SetupError, SetupRefusal};

/// Builds the step of an offline edit from the entries of an open log: `opened{as: visit}` and the change.
/// Without entries nothing is written, because the log contains the change already.
pub type OfflineStep<'a> = dyn Fn(&[SealedEntry]) -> Result<OfflineChange, Refusal> + Send + Sync + 'a;

/// The step of an offline edit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OfflineChange {
    pub entries: Vec<Draft>,
    pub blobs: Vec<Blob>,
}

/// The result of an input that was queued offline.
pub type OfflineReply = Arc<Mutex<Option<OpOutcome>>>;

/// Returns an offline edit that changes one setting.
pub fn edit_step(edit: OfflineEdit, by: Actor) -> Box<OfflineStep<'static>> {
    edit_step_with_reply(edit, by, OfflineReply::default())
}

/// Returns an offline edit that queues an input.
pub fn queue_step(
    segments: Vec<InputSegment>,
    op_id: Option<String>,
    by: Actor,
) -> Box<OfflineStep<'static>> {
    edit_step(OfflineEdit::Queue { segments, op_id }, by)
}

/// Returns an offline edit that stores the result of its input in `reply`.
pub fn edit_step_with_reply(edit: OfflineEdit, by: Actor, reply: OfflineReply) -> Box<OfflineStep<'static>> {
    let seed = random_seed();
    Box::new(move |replay| {
        let state = replay_state(replay);
        let at = StepSeed { now: now_millis(), seed };
        let change = apply_edit(&state, &edit, offline_writer(by.clone()), at)?;
        let queued = change.entries.iter().find_map(|draft| match &draft.kind {
            Kind::QueuedInput(input) => Some(OpOutcome::Queued(input.id)),
            _ => None,
        });
        let before = match &edit {
            OfflineEdit::Queue { op_id: Some(op_id), .. } => state.op_result(op_id).cloned(),
            _ => None,
        };
        *reply.lock().unwrap_or_else(PoisonError::into_inner) = queued.or(before);
        Ok(change)
    })
}

/// Returns an offline edit with a given writer, time and seed.
pub fn edit_step_at(edit: OfflineEdit, writer: OfflineWriter, at: StepSeed) -> Box<OfflineStep<'static>> {
    Box::new(move |replay| apply_edit(&replay_state(replay), &edit, writer.clone(), at))
}

fn replay_state(replay: &[SealedEntry]) -> State {
    State::replay(replay.iter().map(|sealed| &sealed.entry))
}

fn apply_edit(
    state: &State,
    edit: &OfflineEdit,
    writer: OfflineWriter,
    at: StepSeed,
) -> Result<OfflineChange, Refusal> {
    let written = minke_pod::apply_offline_edit(state, at, writer, edit.clone())
        .map_err(|refusal| Refusal { code: refusal.code, message: refusal.message })?;
    Ok(OfflineChange { entries: written.entries, blobs: written.blobs })
}

/// Returns this process as the writer of an offline edit.
pub fn offline_writer(by: Actor) -> OfflineWriter {
    OfflineWriter {
        pid: std::process::id(),
        // Informative only; empty if the system does not provide it.
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        by,
    }
}

/// Writes an offline edit and releases the lease: for changes that start no pod.
pub fn write_offline_edit(
    home: &UserHome,
    session: SessionId,
    step: &OfflineStep<'_>,
) -> Result<(), DeliverError> {
    append_offline_edit(home, session, step).map(|(_, writer)| drop(writer))
}

/// Writes several offline edits and returns the lease for the pod that is to be started.
pub fn write_edits(
    home: &UserHome,
    session: SessionId,
    steps: &[Box<OfflineStep<'_>>],
) -> Result<OwnedFd, DeliverError> {
    let mut log = OfflineLog::open(home, session)?;
    for step in steps {
        log.append_step(step)?;
    }
    let writer = log.sync_writer()?;
    writer.into_lease().map_err(|source| DeliverError::Lease { session, source })
}

/// Writes one offline edit. Returns the last entry before it, and the log with its lease.
pub(crate) fn append_offline_edit(
    home: &UserHome,
    session: SessionId,
    step: &OfflineStep<'_>,
) -> Result<(Option<Position>, Box<dyn Writer>), DeliverError> {
    let mut log = OfflineLog::open(home, session)?;
    let before = log.writer.head_position();
    log.append_step(step)?;
    Ok((before, log.sync_writer()?))
}

/// An open log without a pod.
struct OfflineLog {
    session: SessionId,
    writer: Box<dyn Writer>,
    replay: Vec<SealedEntry>,
    /// Messages about removed partial data, which no entry reports yet.
    alerts: Vec<String>,
    unsynced: bool,
}

impl OfflineLog {
    fn open(home: &UserHome, session: SessionId) -> Result<OfflineLog, DeliverError> {
        let OpenSession { writer, replay, alerts, damaged, unchecked, .. } = home.store.open(session)?;
        // Never appends to a damaged log.
        let damaged = match damaged {
            None if unchecked => home.store.open_reader(session)?.find_damage()?,
            known => known,
        };
        match damaged {
            Some(damage) => Err(DeliverError::Damaged { session, damage }),
            None => Ok(OfflineLog { session, writer, replay, alerts, unsynced: false }),
        }
    }

    fn append_step(&mut self, step: &OfflineStep<'_>) -> Result<(), DeliverError> {
        let session = self.session;
        let mut change =
            step(&self.replay).map_err(|refusal| DeliverError::Refused { pod: None, refusal })?;
        let Some((seq, ts)) = change.entries.last().map(|last| (last.seq, last.ts)) else { return Ok(()) };
        // Removed partial data is reported once, by the process that found it.
        let alerts = std::mem::take(&mut self.alerts).into_iter().zip(1..);
        change.entries.extend(alerts.map(|(message, after)| alert_draft(message, seq + after, ts)));
        let sealed = self
            .writer
            .append(change.entries, change.blobs)
            .map_err(|source| DeliverError::Append { session, source })?;
        self.replay.extend(sealed);
        self.unsynced = true;
        Ok(())
    }

    fn sync_writer(self) -> Result<Box<dyn Writer>, DeliverError> {
        let session = self.session;
        if self.unsynced {
            self.writer.syncer().sync().map_err(|source| DeliverError::Sync { session, source })?;
        }
        Ok(self.writer)
    }
}

fn alert_draft(message: String, seq: u64, ts: Millis) -> Draft {
    let kind = Kind::Alert(Alert { level: AlertLevel::Warn, source: AlertSource::Storage, message });
    Draft { seq, ts, run: None, kind, durability: Durability::Lazy }
}

/// Returns the newest session of a directory.
pub fn newest_session(home: &UserHome, cwd: &Path) -> Result<SessionId, SetupError> {
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    for id in home.store.list_sessions()?.into_iter().rev() {
        // An unreadable session must not hide the others; `log verify --all` reports it.
        let Ok(page) = home.store.open_reader(id).and_then(|reader| reader.read_page(0, 1, usize::MAX))
        else {
            continue;
        };
        let start = page.entries.first().map(|sealed| &sealed.entry.kind);
        if let Some(Kind::SessionStart(start)) = start
            && Path::new(&start.cwd) == cwd
        {
            return Ok(id);
        }
    }
    Err(SetupRefusal::invalid(format!("no session was started in {}", cwd.display()))
        .with_code("not_found")
        .with_hint("`minke exec \"…\"` starts one; `minke ps --all` lists those of other directories")
        .into())
}
