//! Commit: writes one step, shows it, syncs it, then acknowledges and performs it.
//!
//! Here: the order of these operations, and the handling of write errors. Elsewhere: items that wait for a
//! sync (`release_queue`), the content of a step (`pod`).
//! Invariant: a step that could not be written has no effect
//! (`a_full_disk_ends_the_run_and_the_next_one_works`).

use minke_pod::{
    BootInfo, CommandReply, Effect, InputKind, LiveEvent, LiveEventKind, Pod, PodCommand, PodInput, RunMode,
    State, StatusReport, Step, StepEvent, StepSeed,
};
use minke_protocol::{Event, Refusal};
use minke_record::{Blob, Draft, Durability, ErrorCode, RunId};
use minke_registry::{LogTotals, PendingReasons, PodStatus};
use minke_session::{AppendError, LogDamage, SealedEntry, StoreError};

use crate::PodExit;
use crate::clients::convert;
use crate::event_loop::release_queue::{AfterSync, ReleaseItem};
use crate::event_loop::{Driver, StorageState};
use crate::log::SyncedLog;
use crate::stderr::report;

/// Whether this input may interrupt a streaming reply.
fn interrupts_reply(what: &InputKind) -> bool {
    match what {
        InputKind::Signal => true,
        InputKind::Command(request) => matches!(
            request.command,
            PodCommand::Pause { .. }
                | PodCommand::Cancel { .. }
                | PodCommand::Shutdown { .. }
                | PodCommand::Run { mode: RunMode::Interrupt, .. }
        ),
        _ => false,
    }
}

type AppendFn = fn(&mut SyncedLog, Vec<Draft>, Vec<Blob>) -> Result<Vec<SealedEntry>, AppendError>;

impl Driver {
    /// Handles one input: computes one step and commits it.
    pub(crate) fn handle_input(&mut self, what: InputKind) {
        if self.pod_exit.is_some() {
            return;
        }
        if interrupts_reply(&what)
            && let Some((call, event)) = self.models.partial_recording()
        {
            self.handle_input(InputKind::Model { call, event });
        }
        let step = self.run_step(what);
        if let Err(failed) = self.commit_step(step, SyncedLog::append) {
            self.handle_write_failure(*failed);
        }
    }

    /// Handles the first input. The pod does not start if its first entries cannot be written.
    pub(crate) fn start_session(&mut self, boot: BootInfo) -> Result<(), AppendError> {
        let step = self.run_step(InputKind::Boot(Box::new(boot)));
        self.commit_step(step, SyncedLog::append).map_err(|failed| failed.error)
    }

    fn run_step(&mut self, kind: InputKind) -> Step {
        let input = PodInput { now: self.clock.now_millis(), seed: self.clock.next_seed(), kind };
        self.pod.step(input)
    }

    /// Writes a step and queues its events, replies and effects. On an error returns the replies and effects
    /// that did not happen.
    fn commit_step(&mut self, step: Step, append: AppendFn) -> Result<(), Box<FailedStep>> {
        let Step { blobs, recordings, entries, events, replies, effects } = step;
        let before = self.log.head().seq;
        let barriers: Vec<bool> =
            entries.iter().map(|draft| draft.durability == Durability::Barrier).collect();
        let sealed = if entries.is_empty() {
            Vec::new()
        } else {
            match append(&mut self.log, entries, blobs) {
                Ok(sealed) => sealed,
                Err(error) => return Err(Box::new(FailedStep { error, replies, effects })),
            }
        };
        for recording in recordings {
            self.models.store_recording(recording);
        }
        let last = sealed.last().map(|sealed| sealed.entry.seq);
        if barriers.contains(&true)
            && let Some(seq) = last
        {
            self.log.request_sync(seq);
        }
        self.queue_events(events, sealed, &barriers, before);
        for reply in replies {
            self.queue_reply(reply, last);
        }
        for effect in effects {
            if effect.may_run_before_sync() {
                self.perform_effect(effect);
                continue;
            }
            let gate = last.unwrap_or(self.log.head().seq);
            self.log.request_sync(gate);
            self.release_queue.push_after(gate, AfterSync::Effect(effect));
        }
        Ok(())
    }

    /// Queues the events of a step at their positions between the entries.
    fn queue_events(
        &mut self,
        events: Vec<StepEvent>,
        sealed: Vec<SealedEntry>,
        barriers: &[bool],
        before: u64,
    ) {
        let mut after_seq = before;
        let mut sealed: Vec<Option<SealedEntry>> = sealed.into_iter().map(Some).collect();
        for item in events {
            match item {
                StepEvent::Entry(at) => {
                    let Some(sealed) = sealed.get_mut(at).and_then(Option::take) else { continue };
                    after_seq = sealed.entry.seq;
                    let gate = barriers.get(at).is_some_and(|barrier| *barrier).then_some(after_seq);
                    self.release_queue.push(gate, ReleaseItem::Entry(Box::new(sealed)));
                }
                StepEvent::Live(live) => self.queue_live(&live, after_seq),
            }
        }
    }

    fn queue_live(&mut self, live: &LiveEvent, after_seq: u64) {
        let Some(event) = convert::live_event(live, self.clock.now_millis()) else { return };
        let run = live.run;
        let item = match &live.kind {
            LiveEventKind::Status(status) => {
                let file = Box::new(self.pod_status(status.clone(), run, after_seq));
                ReleaseItem::Status { event, after_seq, run, file }
            }
            _ => ReleaseItem::Live { event, after_seq, run },
        };
        self.release_queue.push(None, item);
    }

    /// The content of `status.json`.
    pub(crate) fn pod_status(&self, status: StatusReport, run: Option<RunId>, head_seq: u64) -> PodStatus {
        PodStatus {
            pod_name: self.scope.row().name.clone(),
            session: self.session_reader.session(),
            state: status.phase.name().to_owned(),
            activity: status.activity.map(|activity| activity.name().to_owned()),
            waiting: status.waiting.map(|waiting| PendingReasons { on: waiting.on, until: waiting.until }),
            run,
            head_seq,
            updated_ms: self.clock.now_millis(),
            tally: None,
        }
    }

    /// The current status and, while no run is open, the totals of the log.
    pub(crate) fn current_status(&self) -> PodStatus {
        let run = self.pod.state().facts.run.as_ref().map(|run| run.id);
        let status = self.pod_status(self.pod.status(), run, self.log.head().seq);
        PodStatus { tally: run.is_none().then(|| self.log_totals()).flatten(), ..status }
    }

    /// Returns `None` for a session with children: their spending is not in this log, so readers must read
    /// the logs.
    fn log_totals(&self) -> Option<LogTotals> {
        let state = self.pod.state();
        let facts = &state.facts;
        let about = facts.about.as_ref().filter(|_| facts.children.is_empty())?;
        // Readers without these totals read the log and find the error there.
        let stamp = self.session_reader.store().log_stamp(self.session_reader.session()).ok()?;
        Some(LogTotals {
            file: stamp.file,
            bytes: stamp.bytes,
            created: about.created,
            usage: facts.usage.clone(),
            asks: facts.asks.len(),
            granted: state.granted_budget(),
            spent: state.total_spent(),
            left: state.remaining_budget(),
            archived: facts.archived,
        })
    }

    /// Writes the totals of the log to `status.json`, once after each change of an idle pod.
    pub(crate) fn write_totals(&mut self) {
        let idle = self.pod.state().facts.run.is_none();
        if !idle || self.health.totals_at == Some(self.log.head().seq) {
            return;
        }
        let status = self.current_status();
        // If this fails, clients read the log instead; the writer of the status reports stale states.
        self.health.totals_at = Some(status.head_seq);
        drop(self.scope.write_status(&status));
    }

    /// Queues a reply. An acknowledged entry is synced first, even if an earlier step wrote it (a repeated
    /// operation, or a `wait` for an existing result).
    fn queue_reply(&mut self, reply: CommandReply, last: Option<u64>) {
        let Some(pending) = reply.to.and_then(|to| self.replies.pending.remove(&to)) else { return };
        let run_open = self.pod.state().facts.run.is_some();
        let status = convert::convert_status(self.pod.status().phase, run_open);
        let result = convert::convert_reply(reply, pending.method, status, self.log.head());
        let gate = match (&result, last) {
            (_, Some(seq)) => seq,
            (Ok(_), None) => self.log.head().seq,
            (Err(_), None) => return self.release_queue.reply_now(pending.reply_handle, result),
        };
        self.log.request_sync(gate);
        self.release_queue.push_after(gate, AfterSync::Reply { reply_handle: pending.reply_handle, result });
    }

    /// Releases all items that no longer wait for a sync, and performs their effects.
    pub(crate) fn release_ready(&mut self) {
        let (scope, mut written) = (&self.scope, None);
        let mut write_status = |status: &PodStatus| written = Some(scope.write_status(status));
        let effects = self.release_queue.release_ready(&self.log, &mut write_status);
        for effect in effects {
            self.perform_effect(effect);
        }
        if written.is_some() {
            // The status was created before its entries were synced; it does not name the log position.
            self.health.totals_at = None;
        }
        match written {
            Some(Ok(())) => self.health.warned.status = false,
            Some(Err(e)) if !self.health.warned.status => {
                self.health.warned.status = true;
                self.warn_user(format!(
                    "could not update the pod's status, so `minke ps` shows an older one: {e}"
                ));
                self.release_ready();
            }
            Some(Err(_)) | None => {}
        }
    }

    /// Performs one effect. Its results come back as events.
    fn perform_effect(&mut self, effect: Effect) {
        match effect {
            Effect::AskModel { call, prompt } => self.models.start_request(call, prompt),
            Effect::StopModel { call } => {
                self.release_queue.drop_effects(
                    |waits| matches!(waits, Effect::AskModel { call: asked, .. } if *asked == call),
                );
                self.models.stop_request(call);
            }
            Effect::Prepare { call_id, tool, arguments } => self.calls.prepare_call(call_id, tool, arguments),
            Effect::RunCall { call_id, tool, arguments, action, checks_scripts, class: _ } => {
                let approved = checks_scripts.then(|| action.scripts.clone());
                self.calls.run_call(crate::calls::ApprovedCall {
                    call_id,
                    tool,
                    arguments,
                    action,
                    approved_scripts: approved,
                });
            }
            Effect::StopCall { call_id } => {
                self.release_queue.drop_effects(
                    |waits| matches!(waits, Effect::RunCall { call_id: id, .. } if *id == call_id),
                );
                self.calls.stop_call(&call_id);
            }
            Effect::CheckFile { call_id, preview } => self.calls.check_file(call_id, preview),
            Effect::Capture { run, when } => self.snapshots.start_capture(run, when),
            Effect::AskHooks { point, question } => self.hook_tasks.ask_hooks(point, *question),
            Effect::Child(order) => {
                let at = StepSeed { now: self.clock.now_millis(), seed: self.clock.next_seed() };
                self.children.execute_order(order, self.pod.state(), at);
            }
            Effect::AddRule { rule } => self.background.add_rule(self.rules.files().clone(), rule),
            Effect::SetTimer { timer, at } => self.timers.set_timer(timer, at, self.clock.now_millis()),
            Effect::ClearTimer { timer } => self.timers.clear_timer(timer),
            Effect::Exit => self.pod_exit = Some(PodExit::Stopped),
        }
    }

    /// Handles a failed write: discards the step, rebuilds the pod from the log and ends its run.
    fn handle_write_failure(&mut self, failed: FailedStep) {
        let message = format!("{}; {}", error_chain(&failed.error), failed.error.hint());
        report!("error: could not write a step: {message}");
        if failed.effects.contains(&Effect::Exit) {
            // The pod was stopping anyway, and nothing on disk depends on an orderly exit.
            self.pod_exit = Some(PodExit::Stopped);
        }
        self.release_queue.drop_effects(|waits| *waits != Effect::Exit);
        self.models.stop_all_requests();
        self.calls.stop_all_calls();
        let refusal = Refusal::new(ErrorCode::StorageFailed, message.clone());
        for reply in failed.replies {
            if let Some(pending) = reply.to.and_then(|to| self.replies.pending.remove(&to)) {
                self.release_queue.reply_now(pending.reply_handle, Err(refusal.clone()));
            }
        }
        // A `wait` stays pending; all other orders were lost with the old pod state and are refused.
        let lost = self.replies.pending.extract_if(|_, pending| pending.method != "wait");
        for (_, pending) in lost.collect::<Vec<_>>() {
            self.release_queue.reply_now(pending.reply_handle, Err(refusal.clone()));
        }
        self.storage = StorageState::Failed;
        if self.rebuild_pod() {
            self.end_open_run(message);
        }
    }

    /// Rebuilds the pod from the log.
    fn rebuild_pod(&mut self) -> bool {
        let replay = match self.session_reader.reader().and_then(|reader| reader.read_replay()) {
            Ok(replay) => replay,
            Err(error) => {
                report!("error: could not read the log back: {error}\n  hint: {}", error.hint());
                self.pod_exit = Some(PodExit::StorageLost);
                return false;
            }
        };
        let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
        let old = std::mem::replace(&mut self.pod, Pod::new(State::default()));
        self.pod = Pod::rebuild_from(state, old);
        true
    }

    /// Writes the end of the open run; the ballast file frees the space for it.
    fn end_open_run(&mut self, message: String) {
        let step = self.run_step(InputKind::StorageFailed { message: message.clone() });
        if let Err(failed) = self.commit_step(step, SyncedLog::append_with_ballast) {
            report!("error: could not write the end of the run: {}", error_chain(&failed.error));
            self.storage = StorageState::Broken(message.clone());
            if self.rebuild_pod() {
                self.announce_run_end(message);
            }
        }
    }

    /// Announces the end of the run as a live event, because no entry could be written: clients that watch or
    /// wait get no other signal.
    fn announce_run_end(&mut self, message: String) {
        let refusal = Refusal::new(ErrorCode::StorageFailed, message);
        let run = self.pod.state().facts.run.as_ref().map(|run| run.id);
        let after_seq = self.log.head().seq;
        self.release_queue
            .push(None, ReleaseItem::Live { event: Event::Error(refusal.clone()), after_seq, run });
        for (_, pending) in self.replies.pending.drain().collect::<Vec<_>>() {
            self.release_queue.reply_now(pending.reply_handle, Err(refusal.clone()));
        }
    }

    /// Handles the result of the full log check. Nothing is appended to a damaged log, so the pod stops.
    pub(crate) fn handle_log_check(&mut self, checked: Result<Option<LogDamage>, StoreError>) {
        let damage = match checked {
            Ok(None) => return,
            Ok(Some(damage)) => damage,
            Err(error) => {
                return self.warn_user(format!("could not check the older part of the log: {error}"));
            }
        };
        let id = self.session_reader.session();
        let hint = damage.hint(id);
        let message = format!("session s_{id}: {damage}; the pod exits; {hint}");
        report!("error: {message}");
        if let Err(error) = self.log.refuse_after(damage) {
            report!("warning: could not record that the log is damaged: {error}");
        }
        self.release_queue.drop_effects(|_| true);
        self.models.stop_all_requests();
        self.calls.stop_all_calls();
        self.announce_run_end(message);
        self.pod_exit = Some(PodExit::StorageLost);
    }

    /// Before an order, after a failed write: checks whether the disk has space again.
    pub(crate) fn restore_storage(&mut self, order: &PodCommand) -> Result<(), Refusal> {
        let broken = match &self.storage {
            StorageState::Writable => return Ok(()),
            StorageState::Failed => None,
            StorageState::Broken(message) => Some(message.clone()),
        };
        if broken.is_some() && matches!(order, PodCommand::Shutdown { .. }) {
            // The end of the run cannot be written; the next process ends the run as interrupted.
            self.pod_exit = Some(PodExit::Stopped);
            return Ok(());
        }
        let room = self.log.restore_ballast();
        match (broken, room) {
            // The pod knows that the log is not writable and refuses new runs.
            (None, Err(_)) => return Ok(()),
            (None, Ok(())) => {}
            (Some(_), Err(e)) => {
                let message = format!("could not write the log: {e}; free disk space and try again");
                return Err(Refusal::new(ErrorCode::StorageFailed, message));
            }
            (Some(message), Ok(())) => {
                self.storage = StorageState::Failed;
                self.end_open_run(message.clone());
                if let StorageState::Broken(_) = self.storage {
                    return Err(Refusal::new(ErrorCode::StorageFailed, message));
                }
            }
        }
        self.storage = StorageState::Writable;
        self.handle_input(InputKind::StorageRestored);
        Ok(())
    }
}

/// A step that could not be written.
struct FailedStep {
    error: AppendError,
    replies: Vec<CommandReply>,
    effects: Vec<Effect>,
}

/// Formats an error and its causes in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
