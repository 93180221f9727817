//! A simulated process: the product's pod and log on a simulated disk, driven as by the driver, one action at
//! a time.
//!
//! Elsewhere: the choice of actions (`sim`), clients (`client`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use minke_model::Prompt;
use minke_pod::{
    CommandRefusal, CommandReply, Effect, InputKind, LiveEventKind, Pod, PodInput, PodTimer, ReplyBody,
    ReplyId, State, Step, StepEvent,
};
use minke_record::{Durability, Entry, ErrorCode, Millis, Position, SessionId, Text};
use minke_session::{AppendError, FileStore, OpenSession, SessionStore, StoreError, Syncer, Writer};

use crate::checker::LogChecker;
use crate::disk::SimDisk;
use crate::scripted::tools::ScriptedTools;

/// The counter name of a failed sync.
pub(crate) const SYNC_FAILED: &str = "sync failed for good";

/// The state that outlives a process.
#[derive(Debug, Default)]
pub(crate) struct PodRecord {
    pub(crate) checker: LogChecker,
    pub(crate) tools: ScriptedTools,
    /// The counters of branches.
    pub(crate) branches: BTreeMap<&'static str, u64>,
}

impl PodRecord {
    pub(crate) fn count_branch(&mut self, what: &'static str) {
        *self.branches.entry(what).or_default() += 1;
    }
}

/// The client that waits for a step, and the time and seed of its input.
#[derive(Debug, Clone, Copy)]
struct StepOrigin {
    asker: Option<ReplyId>,
    now: Millis,
    seed: u64,
}

/// The state of a process after an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessFate {
    Alive,
    /// Killed, or exited because the content of the disk is unknown.
    Dead,
    /// Exited cleanly.
    Exited,
}

/// An output for clients.
#[derive(Debug, Clone)]
pub(crate) enum SimOutput {
    Text(String),
    Reply(ReplyId, Result<ReplyBody, CommandRefusal>),
}

#[expect(clippy::large_enum_variant, reason = "a few of them wait at once, in a simulation")]
#[derive(Debug)]
enum PendingKind {
    Entry(Position, bool),
    Live(LiveEventKind),
    Reply(CommandReply),
    Effect(Effect),
}

#[derive(Debug)]
struct PendingOutput {
    need: Option<u64>,
    upto: Option<u64>,
    kind: PendingKind,
}

/// A running pod.
pub(crate) struct SimProcess {
    pub(crate) disk: SimDisk,
    pub(crate) store: FileStore,
    id: SessionId,
    writer: Box<dyn Writer>,
    syncer: Arc<dyn Syncer>,
    pub(crate) pod: Pod,
    log_state: State,
    pending: VecDeque<PendingOutput>,
    /// Open requests to the model.
    pub(crate) requests: BTreeMap<u64, Arc<Prompt>>,
    /// Inputs that the pod has not handled yet.
    pub(crate) inbox: Vec<InputKind>,
    pub(crate) timers: BTreeMap<PodTimer, Millis>,
    synced: Option<u64>,
    /// The last entry that clients may see.
    pub(crate) shown: Option<u64>,
    pub(crate) outputs: Vec<SimOutput>,
    /// The log could not be written.
    pub(crate) is_full: bool,
}

impl SimProcess {
    /// Creates a process with an opened log; its pod has not booted yet.
    pub(crate) fn new(disk: SimDisk, store: FileStore, id: SessionId, open: OpenSession) -> SimProcess {
        let state = State::replay(open.replay.iter().map(|sealed| &sealed.entry));
        let head = open.writer.head_position().map(|head| head.seq);
        let syncer = open.writer.syncer();
        SimProcess {
            disk,
            store,
            id,
            syncer,
            writer: open.writer,
            log_state: state.clone(),
            pod: Pod::new(state),
            pending: VecDeque::new(),
            requests: BTreeMap::new(),
            inbox: Vec::new(),
            timers: BTreeMap::new(),
            synced: head,
            shown: head,
            outputs: Vec::new(),
            is_full: false,
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.log_state
    }

    /// Returns all entries of the log, read next to the writer.
    pub(crate) fn read_all_entries(store: &FileStore, id: SessionId) -> Result<Vec<Entry>, StoreError> {
        let reader = store.open_reader(id)?;
        let mut entries = Vec::new();
        reader.scan_entries(0, &mut |sealed| {
            entries.push(sealed.entry);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    pub(crate) fn feed_input(
        &mut self,
        record: &mut PodRecord,
        input: PodInput,
    ) -> Result<ProcessFate, String> {
        let asker = match &input.kind {
            InputKind::Command(request) => request.reply,
            _ => None,
        };
        let origin = StepOrigin { asker, now: input.now, seed: input.seed };
        let step = self.pod.step(input);
        self.commit_step(record, step, origin)
    }

    fn commit_step(
        &mut self,
        ground: &mut PodRecord,
        step: Step,
        origin: StepOrigin,
    ) -> Result<ProcessFate, String> {
        let barriers: Vec<bool> = step.entries.iter().map(|d| d.durability == Durability::Barrier).collect();
        let mut upto = None;
        let mut written = Vec::new();
        if !step.entries.is_empty() {
            match self.writer.append(step.entries, step.blobs) {
                Ok(sealed) => written = sealed,
                Err(error) => return self.handle_append_error(ground, &error, origin),
            }
            upto = written.last().map(|sealed| sealed.entry.seq);
            for sealed in &written {
                self.log_state.apply_entry(&sealed.entry);
                ground.checker.add_written(&sealed.entry);
            }
            self.compare_state()?;
            if self.disk.is_dead() {
                return Ok(ProcessFate::Dead);
            }
        }
        for news in step.events {
            let (need, kind) = match news {
                StepEvent::Entry(at) => {
                    let entry = &written[at].entry;
                    let position = Position { seq: entry.seq, h: entry.h };
                    (barriers[at].then_some(entry.seq), PendingKind::Entry(position, barriers[at]))
                }
                StepEvent::Live(live) => (None, PendingKind::Live(live.kind)),
            };
            self.pending.push_back(PendingOutput { need, upto, kind });
        }
        let mut at_once: Vec<PendingKind> = Vec::new();
        for reply in step.replies {
            // An acknowledgement waits for the sync, even if an earlier step wrote the entries.
            let rests = if reply.result.is_ok() { self.log_state.next_seq.checked_sub(1) } else { upto };
            self.queue_or_run(rests, PendingKind::Reply(reply), &mut at_once);
        }
        for effect in step.effects {
            if effect.may_run_before_sync() {
                at_once.push(PendingKind::Effect(effect));
            } else {
                self.queue_or_run(upto, PendingKind::Effect(effect), &mut at_once);
            }
        }
        let mut fate = self.release_pending(ground)?;
        for kind in at_once {
            if fate == ProcessFate::Alive {
                fate = self.deliver_output(ground, PendingOutput { need: None, upto, kind })?;
            }
        }
        Ok(fate)
    }

    fn queue_or_run(&mut self, upto: Option<u64>, what: PendingKind, at_once: &mut Vec<PendingKind>) {
        match upto {
            None => at_once.push(what),
            Some(_) => self.pending.push_back(PendingOutput { need: upto, upto, kind: what }),
        }
    }

    fn compare_state(&self) -> Result<(), String> {
        if *self.pod.state() == self.log_state {
            return Ok(());
        }
        let (a, b) = (format!("{:#?}", self.pod.state()), format!("{:#?}", self.log_state));
        Err(format!(
            "the pod's state differs from the state of its log: {}",
            crate::describe::first_difference(&a, &b)
        ))
    }

    /// Returns whether an output waits for a sync.
    pub(crate) fn wants_sync(&self) -> bool {
        self.pending.iter().any(|held| held.need.is_some())
    }

    pub(crate) fn sync_log(&mut self, record: &mut PodRecord) -> Result<ProcessFate, String> {
        match self.syncer.sync() {
            Ok(upto) => self.synced = Some(upto),
            // The real process exits here with code 74, because the content of the disk is unknown.
            Err(_) => {
                record.count_branch(SYNC_FAILED);
                return Ok(ProcessFate::Dead);
            }
        }
        if self.disk.is_dead() {
            return Ok(ProcessFate::Dead);
        }
        self.release_pending(record)
    }

    fn release_pending(&mut self, ground: &mut PodRecord) -> Result<ProcessFate, String> {
        while let Some(first) = self.pending.front() {
            if first.need.is_some_and(|need| self.synced.is_none_or(|synced| synced < need)) {
                ground.count_branch("an output waits for a sync");
                return Ok(ProcessFate::Alive);
            }
            let Some(held) = self.pending.pop_front() else { break };
            let fate = self.deliver_output(ground, held)?;
            if fate != ProcessFate::Alive {
                return Ok(fate);
            }
        }
        Ok(ProcessFate::Alive)
    }

    fn deliver_output(&mut self, record: &mut PodRecord, held: PendingOutput) -> Result<ProcessFate, String> {
        match held.kind {
            PendingKind::Entry(position, barrier) => {
                self.shown = Some(position.seq);
                let safe = barrier && self.synced.is_some_and(|synced| synced >= position.seq);
                record.checker.add_shown(position, safe)?;
            }
            PendingKind::Live(LiveEventKind::TextDelta { text }) => self.outputs.push(SimOutput::Text(text)),
            PendingKind::Live(_) => {}
            PendingKind::Reply(reply) => {
                let run = match &reply.result {
                    Ok(ReplyBody::Run(run)) => Some(*run),
                    _ => None,
                };
                record.checker.check_acknowledged(held.upto, self.synced, run)?;
                if let Some(to) = reply.to {
                    self.outputs.push(SimOutput::Reply(to, reply.result));
                }
            }
            PendingKind::Effect(effect) => return self.perform_effect(record, effect, held.upto),
        }
        Ok(ProcessFate::Alive)
    }

    fn perform_effect(
        &mut self,
        ground: &mut PodRecord,
        effect: Effect,
        upto: Option<u64>,
    ) -> Result<ProcessFate, String> {
        ground.checker.check_effect(&effect, upto, self.synced)?;
        match effect {
            Effect::AskModel { call, prompt } => {
                if let Some(orphan) = self.log_state.context.orphan_call() {
                    return Err(format!("request {call} shows call {orphan} without its result"));
                }
                self.requests.insert(call, prompt);
            }
            Effect::StopModel { call } => {
                self.drop_pending(
                    |waits| matches!(waits, Effect::AskModel { call: asked, .. } if *asked == call),
                );
                self.requests.remove(&call);
            }
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = ground.tools.prepare_call(&tool, &self.resolve_text(&arguments));
                self.inbox.push(InputKind::Prepared { call_id, prepared: Box::new(prepared) });
            }
            Effect::RunCall { call_id, tool, arguments, .. } => {
                let arguments = self.resolve_text(&arguments);
                if let Some(ended) = ground.tools.start_call(&call_id, &tool, &arguments) {
                    self.inbox.push(InputKind::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => {
                let before = self.pending.len();
                self.drop_pending(
                    |waits| matches!(waits, Effect::RunCall { call_id: id, .. } if *id == call_id),
                );
                if self.pending.len() < before {
                    ground.count_branch("a call was stopped before it could start");
                }
                ground.tools.stop_call(&call_id);
                self.inbox.retain(|what| !crate::world::concerns_call(what, &call_id));
            }
            Effect::CheckFile { call_id, preview } => {
                ground.count_branch("a file was checked after a crash");
                let result = ground.tools.check_file(&preview);
                self.inbox.push(InputKind::FileChecked { call_id, result });
            }
            Effect::Capture { run, when } => {
                self.inbox.push(InputKind::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, .. } => {
                let verdict = Box::new(minke_pod::HookVerdict::allow());
                self.inbox.push(InputKind::HookReply { point, verdict });
            }
            Effect::AddRule { .. } | Effect::Child(_) => {}
            Effect::SetTimer { timer, at } => {
                self.timers.insert(timer, at);
            }
            Effect::ClearTimer { timer } => {
                self.timers.remove(&timer);
            }
            Effect::Exit => return Ok(ProcessFate::Exited),
        }
        Ok(ProcessFate::Alive)
    }

    /// Drops a pending effect that was stopped before its sync.
    fn drop_pending(&mut self, stopped: impl Fn(&Effect) -> bool) {
        self.pending.retain(|held| !matches!(&held.kind, PendingKind::Effect(effect) if stopped(effect)));
    }

    fn resolve_text(&self, text: &Text) -> String {
        match text {
            Text::Inline(text) => text.clone(),
            Text::Blob(name) => {
                let content = self.writer.read_blob(&name.blob).unwrap_or_default();
                String::from_utf8_lossy(&content).into_owned()
            }
        }
    }

    /// Handles a failed write like the driver: stops all work and rebuilds the pod from the log.
    fn handle_append_error(
        &mut self,
        record: &mut PodRecord,
        error: &AppendError,
        origin: StepOrigin,
    ) -> Result<ProcessFate, String> {
        if self.disk.is_dead() {
            return Ok(ProcessFate::Dead);
        }
        match error {
            AppendError::Storage { .. } => record.count_branch("a write failed"),
            AppendError::Sync(_) => {
                record.count_branch(SYNC_FAILED);
                return Ok(ProcessFate::Dead);
            }
            other => return Err(format!("the log refused a step: {other}")),
        }
        let message = error.to_string();
        self.requests.clear();
        self.inbox.clear();
        self.timers.clear();
        record.tools.drop_calls();
        self.pending.retain(|held| !matches!(held.kind, PendingKind::Effect(_)));
        if let Some(to) = origin.asker {
            let refusal = CommandRefusal::new(ErrorCode::StorageFailed, message.clone());
            self.outputs.push(SimOutput::Reply(to, Err(refusal)));
        }
        if self.rebuild_pod().is_err() {
            return Ok(ProcessFate::Dead); // the log is unreadable: the process exits
        }
        self.is_full = true;
        let step = self.pod.step(PodInput {
            now: origin.now,
            seed: origin.seed ^ 1,
            kind: InputKind::StorageFailed { message },
        });
        if step.entries.is_empty() {
            return Ok(ProcessFate::Alive);
        }
        match self.writer.append_with_ballast(step.entries, step.blobs) {
            Ok(written) => {
                record.count_branch("the ballast helped");
                for sealed in &written {
                    self.log_state.apply_entry(&sealed.entry);
                    record.checker.add_written(&sealed.entry);
                    let position = Position { seq: sealed.entry.seq, h: sealed.entry.h };
                    let kind = PendingKind::Entry(position, true);
                    self.pending.push_back(PendingOutput { need: Some(position.seq), upto: None, kind });
                }
                self.compare_state()?;
            }
            Err(AppendError::Storage { .. }) if !self.disk.is_dead() => {
                record.count_branch("not even the ballast helped");
                if self.rebuild_pod().is_err() {
                    return Ok(ProcessFate::Dead);
                }
            }
            Err(_) => return Ok(ProcessFate::Dead),
        }
        Ok(if self.disk.is_dead() { ProcessFate::Dead } else { ProcessFate::Alive })
    }

    fn rebuild_pod(&mut self) -> Result<(), StoreError> {
        let sealed = self.store.open_reader(self.id)?.read_replay()?;
        let state = State::replay(sealed.iter().map(|sealed| &sealed.entry));
        self.log_state = state.clone();
        let old = std::mem::replace(&mut self.pod, Pod::new(State::default()));
        self.pod = Pod::rebuild_from(state, old);
        Ok(())
    }

    /// Tries to recreate the ballast; if it succeeds, the pod learns about the free space.
    pub(crate) fn try_restore_ballast(&mut self) -> bool {
        self.is_full && self.writer.restore_ballast().is_ok()
    }
}
