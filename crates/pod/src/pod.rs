//! The pod: `step` handles every input in every state.

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, AskId, CallId, Carry, Draft, Durability, Entry, Extension,
    IdGenerator, Kind, Millis, QueueId, Route, RunId, SessionId, limits,
};

use crate::calls::CallProgress;
use crate::input::{BootInfo, InputKind, ModelCost, PodInput, WaitCondition};
use crate::run::reply::ReplyDraft;
use crate::state::State;
use crate::step::{
    CommandRefusal, CommandReply, Effect, LiveEvent, LiveEventKind, OpenBlock, PodPhase, ReplyBody,
    StatusReport, Step, StepEvent,
};
use crate::{PodTimer, ReplyId, ShutdownMode};

/// Margin before the carry limit, so that no step exceeds it.
const CARRY_MARGIN: u64 = 1_000;

/// The extension domain for network accesses of commands.
pub const NETWORK_DOMAIN: &str = "network";

/// One agent: its durable state and the volatile state of this process.
#[derive(Debug, Clone)]
pub struct Pod {
    pub(crate) state: State,
    pub(crate) volatile: Volatile,
}

/// State that is lost with the process. A restart must not depend on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Volatile {
    pub(crate) boot: Option<Box<BootInfo>>,
    /// The route of a changed model.
    pub(crate) changed_route: Option<Route>,
    /// Number of models that failed in this run; the fallbacks before this index are skipped.
    pub(crate) failed_models: usize,
    /// When the interrupted run that waited for a time is resumed.
    pub(crate) resume_at: Option<Millis>,
    /// The user has been warned that no more recordings are stored.
    pub(crate) warned_recordings_full: bool,
    /// The streaming reply.
    pub(crate) reply_draft: Option<ReplyDraft>,
    /// Why the model stopped in the current turn.
    pub(crate) stop_reason: String,
    /// The current turn has calls, so another request must show their results.
    pub(crate) turn_had_calls: bool,
    /// Progress of the open calls.
    pub(crate) call_progress: BTreeMap<CallId, CallProgress>,
    /// Client calls that are not dispatched yet.
    pub(crate) client_calls: Vec<crate::calls::client_calls::ClientCall>,
    /// Instruction files for the next request, with the calls that led to them.
    pub(crate) pending_instructions: Vec<(CallId, crate::input::NestedInstructions)>,
    /// The number of the newest hook request.
    pub(crate) last_hook_number: u64,
    /// Inputs that wait for hooks.
    pub(crate) pending_inputs: Vec<crate::calls::hooks::PendingInput>,
    /// Queued inputs that hooks have checked, with their replacement text.
    pub(crate) hooked_inputs: BTreeMap<QueueId, Option<String>>,
    /// The run that ends unless hooks continue it.
    pub(crate) pending_end: Option<crate::calls::hooks::PendingEnd>,
    /// The run whose write scope is captured before its first command.
    pub(crate) capturing_before: Option<RunId>,
    /// The run whose write scope is captured after its end.
    pub(crate) capturing_after: Option<RunId>,
    /// The pod stops when this capture is done.
    pub(crate) stop_after_capture: bool,
    /// The write scope cannot be captured; the user has been warned.
    pub(crate) capture_failed: bool,
    /// A `pause` waits for calls to end.
    pub(crate) pause: Option<PauseRequest>,
    pub(crate) stop_mode: Option<StopMode>,
    /// Another run follows the ending one, so the queue must not start a run.
    pub(crate) queue_suspended: bool,
    pub(crate) waiters: Vec<StateWaiter>,
    pub(crate) client_count: usize,
    pub(crate) command_count: usize,
    pub(crate) idle_timer_set: bool,
    /// The owner client has disconnected, so the pod exits when it is idle.
    pub(crate) is_orphaned: bool,
    /// The log cannot be written; new runs are refused.
    pub(crate) storage_error: Option<String>,
    pub(crate) published_status: Option<StatusReport>,
    /// The time of the current step.
    pub(crate) now: Millis,
    /// Price and limits of a changed model.
    pub(crate) changed_cost: Option<ModelCost>,
    /// Children that this process is starting.
    pub(crate) starting_children: BTreeSet<SessionId>,
    /// Children of earlier processes whose state is being checked.
    pub(crate) watched_children: BTreeSet<SessionId>,
    /// Clients that wait for a child to restart.
    pub(crate) restore_waiters: Vec<(SessionId, ReplyId)>,
    /// Calls that stop a child.
    pub(crate) stop_calls: BTreeMap<SessionId, CallId>,
    /// Deadlines of spawn calls that wait for their child.
    pub(crate) spawn_deadlines: BTreeMap<CallId, Millis>,
    /// Calls of an earlier process that end when the state of their child is known.
    pub(crate) lost_calls: Vec<(CallId, SessionId)>,
    pub(crate) pod_waits: Vec<crate::children::wait::PodWait>,
    pub(crate) last_wait_number: u64,
    /// A message arrived in this step.
    pub(crate) message_received: bool,
    /// Asks of children that a wait has already returned.
    pub(crate) reported_asks: BTreeSet<AskId>,
    /// The report in flight.
    pub(crate) report_in_flight: Option<u64>,
    /// The pod is exiting and waits for its reports to arrive.
    pub(crate) outbox_flushing: bool,
    /// The pod exits because it is idle.
    pub(crate) exits_idle: bool,
    pub(crate) scope_yield: crate::children::scope_yield::ScopeYield,
    /// The deadline of the budget, as the timer is set.
    pub(crate) wall_deadline: Option<Millis>,
    pub(crate) repeated_failure: Option<crate::run::loop_guard::RepeatedFailure>,
    pub(crate) loop_warned_at: Option<u32>,
    pub(crate) job_timers: crate::job::JobTimers,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PauseRequest {
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StopMode {
    /// After the open run.
    AfterRun,
    Now,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StateWaiter {
    pub(crate) reply: ReplyId,
    pub(crate) condition: WaitCondition,
}

/// The step being built: its time, ids and result.
pub(crate) struct StepBuilder {
    pub(crate) now: Millis,
    pub(crate) ids: IdGenerator,
    pub(crate) result: Step,
}

impl StepBuilder {
    pub(crate) fn add_effect(&mut self, effect: Effect) {
        self.result.effects.push(effect);
    }

    pub(crate) fn accept_request(&mut self, to: Option<ReplyId>, body: ReplyBody) {
        if to.is_some() {
            self.result.replies.push(CommandReply { to, result: Ok(body) });
        }
    }

    pub(crate) fn refuse_request(&mut self, to: Option<ReplyId>, refusal: CommandRefusal) {
        self.result.replies.push(CommandReply { to, result: Err(refusal) });
    }
}

impl Pod {
    /// Creates a pod from its log. Its first input is `InputKind::Boot`.
    pub fn new(state: State) -> Pod {
        Pod { state, volatile: Volatile::default() }
    }

    /// Rebuilds the pod from the log after a failed write. Keeps the state of the process but not of running
    /// work.
    pub fn rebuild_from(state: State, old: Pod) -> Pod {
        let volatile = Volatile {
            boot: old.volatile.boot,
            changed_route: old.volatile.changed_route,
            stop_mode: old.volatile.stop_mode,
            capturing_after: old.volatile.capturing_after,
            stop_after_capture: old.volatile.stop_after_capture,
            client_count: old.volatile.client_count,
            command_count: old.volatile.command_count,
            waiters: old.volatile.waiters,
            idle_timer_set: old.volatile.idle_timer_set,
            is_orphaned: old.volatile.is_orphaned,
            published_status: old.volatile.published_status,
            storage_error: old.volatile.storage_error,
            last_hook_number: old.volatile.last_hook_number,
            pending_inputs: old.volatile.pending_inputs,
            hooked_inputs: old.volatile.hooked_inputs,
            changed_cost: old.volatile.changed_cost,
            starting_children: old.volatile.starting_children,
            restore_waiters: old.volatile.restore_waiters,
            scope_yield: old.volatile.scope_yield,
            outbox_flushing: old.volatile.outbox_flushing,
            exits_idle: old.volatile.exits_idle,
            last_wait_number: old.volatile.last_wait_number,
            wall_deadline: old.volatile.wall_deadline,
            job_timers: old.volatile.job_timers,
            ..Volatile::default()
        };
        Pod { state, volatile }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the blocks of the reply that have begun and not ended.
    pub fn open_blocks(&self) -> Vec<OpenBlock> {
        self.volatile.reply_draft.as_ref().map(ReplyDraft::open_blocks).unwrap_or_default()
    }

    /// Handles one input. The result is already applied to this pod: if it cannot be written, rebuild the pod
    /// from the log (`rebuild_from`).
    pub fn step(&mut self, input: PodInput) -> Step {
        let mut m = StepBuilder {
            now: input.now.max(self.state.facts.last_ts),
            ids: IdGenerator::new(input.now, input.seed),
            result: Step::default(),
        };
        self.volatile.now = m.now;
        match input.kind {
            InputKind::Boot(boot) => self.boot_pod(&mut m, boot),
            InputKind::Command(request) => self.handle_command(&mut m, *request),
            InputKind::Model { call, event } => self.apply_model_event(&mut m, call, event),
            InputKind::ModelFailed { call, failure } => self.handle_model_failure(&mut m, call, failure),
            InputKind::Prepared { call_id, prepared } => self.handle_prepared(&mut m, &call_id, *prepared),
            InputKind::CallEnded { call_id, ended } => self.finish_call(&mut m, &call_id, ended),
            InputKind::FileChecked { call_id, result } => self.apply_file_check(&mut m, &call_id, result),
            InputKind::Captured { run, when, captured } => self.apply_capture(&mut m, run, &when, captured),
            InputKind::NetworkAccess(payload) => {
                self.append_entry(&mut m, Extension { domain: NETWORK_DOMAIN.to_owned(), payload });
            }
            InputKind::RulesChanged(rules) => self.update_rules(&mut m, &rules),
            InputKind::HookReply { point, verdict } => self.apply_hook_reply(&mut m, point, *verdict),
            InputKind::Child(news) => self.apply_child_event(&mut m, *news),
            InputKind::Timer(timer) => self.handle_timer(&mut m, timer),
            InputKind::Signal => self.stop_interrupted(&mut m, "a signal"),
            InputKind::ClientCount(count) => self.volatile.client_count = count,
            InputKind::OwnerDisconnected => self.handle_owner_disconnect(&mut m),
            InputKind::CommandCount(count) => self.volatile.command_count = count,
            InputKind::StorageFailed { message } => self.handle_storage_failure(&mut m, message),
            InputKind::StorageRestored => self.handle_storage_restored(&mut m),
            InputKind::Routes { route, no_route, fallbacks, costs } => {
                if let Some(boot) = &mut self.volatile.boot {
                    (boot.route, boot.no_route, boot.fallbacks) = (route, no_route, fallbacks);
                    boot.costs = costs;
                }
            }
            InputKind::Alert { level, source, message } => self.append_alert(&mut m, level, source, message),
        }
        self.finish_step(&mut m);
        m.result
    }

    /// Finishes a step: waits, job, carry, reports, timers, status.
    fn finish_step(&mut self, step: &mut StepBuilder) {
        self.finish_pod_waits(step);
        self.update_job(step);
        self.carry_if_due(step);
        self.send_next_report(step);
        self.update_wall_timer(step);
        self.publish_status(step);
        self.answer_waiters(step);
        self.update_idle_timer(step);
    }

    /// Appends an entry: moves long texts to blobs, applies the entry and adds it to the step.
    pub(crate) fn append_entry(&mut self, m: &mut StepBuilder, kind: impl Into<Kind>) -> u64 {
        let kind = kind.into();
        let durability = kind.durability();
        self.append_with_durability(m, kind, durability)
    }

    /// Appends an entry whose durability the caller chooses (results of pure calls).
    pub(crate) fn append_with_durability(
        &mut self,
        step: &mut StepBuilder,
        mut kind: Kind,
        durability: Durability,
    ) -> u64 {
        step.result.blobs.extend(kind.spill_texts());
        let run = match &kind {
            Kind::Invoke(_) => Some(RunId(step.ids.next_uuid())),
            _ => self.state.facts.run.as_ref().map(|run| run.id),
        };
        let run = run.filter(|_| belongs_to_run(&kind));
        let seq = self.state.next_seq;
        let entry = Entry { seq, ts: step.now, run, more: false, kind, h: minke_record::ChainHash::ZERO };
        self.state.apply_entry(&entry);
        let mut kind = entry.kind;
        step.result.blobs.extend(kind.spill_lists());
        step.result.events.push(StepEvent::Entry(step.result.entries.len()));
        step.result.entries.push(Draft { seq, ts: step.now, run, kind, durability });
        seq
    }

    pub(crate) fn append_alert(
        &mut self,
        m: &mut StepBuilder,
        level: AlertLevel,
        source: AlertSource,
        message: String,
    ) {
        let mut message = message;
        if message.len() > limits::ALERT_BYTES {
            let end = (0..=limits::ALERT_BYTES).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message.truncate(end);
            message.push('…');
        }
        self.append_entry(m, Alert { level, source, message });
    }

    pub(crate) fn publish_live(&self, step: &mut StepBuilder, kind: LiveEventKind) {
        let run = self.state.facts.run.as_ref().map(|run| run.id);
        step.result.events.push(StepEvent::Live(LiveEvent { run, kind }));
    }

    pub(crate) fn carry_if_due(&mut self, m: &mut StepBuilder) {
        if self.state.entries_since_carry < limits::CARRY_EVERY - CARRY_MARGIN || m.result.entries.is_empty()
        {
            return;
        }
        let Some(start) = self.state.segment.as_ref().map(|segment| segment.start) else { return };
        let (history, carry) = self.state.carry_contents();
        let segment = self.state.facts.segment;
        self.append_entry(m, Carry { segment, start, history, carry });
    }

    /// Returns the route of the next request.
    pub(crate) fn current_route(&self) -> Option<&Route> {
        if let Some(last) = self.volatile.failed_models.checked_sub(1) {
            return self.volatile.boot.as_ref().and_then(|boot| boot.fallbacks.get(last));
        }
        self.volatile
            .changed_route
            .as_ref()
            .or_else(|| self.volatile.boot.as_ref().and_then(|boot| boot.route.as_ref()))
    }

    pub(crate) fn minke_actor(&self) -> Actor {
        Actor::from_minke()
    }

    /// Returns the phase: the one that the log implies, or stopping.
    pub fn phase(&self) -> PodPhase {
        match self.volatile.stop_mode {
            Some(StopMode::Now) => PodPhase::Stopping,
            Some(StopMode::AfterRun) | None => self.state.phase(),
        }
    }

    fn handle_timer(&mut self, step: &mut StepBuilder, timer: PodTimer) {
        match timer {
            PodTimer::PauseGrace => self.end_pause_grace(step),
            PodTimer::IdleExit => {
                self.volatile.idle_timer_set = false;
                if self.can_exit_idle() {
                    self.volatile.exits_idle = true;
                    self.stop_interrupted(step, "idle exit");
                }
            }
            PodTimer::Retry(call) => self.retry_request(step, call),
            PodTimer::Wait(reply) => {
                if let Some(at) = self.volatile.waiters.iter().position(|waiter| waiter.reply == reply) {
                    self.volatile.waiters.remove(at);
                    step.accept_request(Some(reply), ReplyBody::Waited { reached: false });
                }
            }
            PodTimer::AskExpires(id) => self.expire_ask(step, id),
            PodTimer::Resume => self.resume_after_wait(step),
            PodTimer::WaitPods(_) => {} // every step checks the waits
            PodTimer::BudgetWall => self.end_run_at_wall(step),
            PodTimer::OutboxFlush => self.end_flush(step),
            PodTimer::JobRetry => self.start_attempt(step),
            PodTimer::JobDeadline => self.enforce_deadline(step),
        }
    }

    fn answer_waiters(&mut self, m: &mut StepBuilder) {
        let reached = |pod: &Pod, until: WaitCondition| match until {
            WaitCondition::Idle => pod.state.facts.run.is_none(),
            WaitCondition::Ask => !pod.state.facts.asks.is_empty(),
            WaitCondition::Seq(seq) => pod.state.next_seq > seq,
        };
        let (done, rest): (Vec<StateWaiter>, Vec<StateWaiter>) =
            std::mem::take(&mut self.volatile.waiters).into_iter().partition(|w| reached(self, w.condition));
        self.volatile.waiters = rest;
        for waiter in done {
            m.add_effect(Effect::ClearTimer { timer: PodTimer::Wait(waiter.reply) });
            m.accept_request(Some(waiter.reply), ReplyBody::Waited { reached: true });
        }
    }

    /// Returns whether the process may exit: no client, child, command or call, and no run except one that
    /// waits for an ask.
    fn can_exit_idle(&self) -> bool {
        let waits = self.status().waiting.is_some_and(|w| w.on == minke_record::WaitingOn::Ask);
        self.volatile.client_count == 0
            && self.volatile.command_count == 0
            && self.volatile.pending_inputs.is_empty()
            && self.volatile.client_calls.iter().all(|guest| guest.ask.is_some())
            && self.state.live_children().next().is_none()
            && self.volatile.resume_at.is_none()
            && !self.job_keeps_process()
            && self.volatile.call_progress.values().all(|work| matches!(work, CallProgress::Asking(_)))
            && self.volatile.stop_mode.is_none()
            && (self.state.facts.run.is_none() || waits)
    }

    /// Handles the disconnect of the owner client: the pod exits soon after its work is done.
    fn handle_owner_disconnect(&mut self, step: &mut StepBuilder) {
        self.volatile.is_orphaned = true;
        if std::mem::take(&mut self.volatile.idle_timer_set) {
            step.add_effect(Effect::ClearTimer { timer: PodTimer::IdleExit });
        }
    }

    fn update_idle_timer(&mut self, m: &mut StepBuilder) {
        let seconds = self.idle_exit_seconds();
        let can_exit = self.volatile.boot.is_some() && seconds > 0 && self.can_exit_idle();
        if can_exit && !self.volatile.idle_timer_set {
            self.volatile.idle_timer_set = true;
            m.add_effect(Effect::SetTimer { timer: PodTimer::IdleExit, at: m.now + seconds * 1_000 });
        } else if !can_exit && self.volatile.idle_timer_set {
            self.volatile.idle_timer_set = false;
            m.add_effect(Effect::ClearTimer { timer: PodTimer::IdleExit });
        }
    }
}

/// Returns whether an entry belongs to the open run. Entries about the session and client calls do not.
fn belongs_to_run(kind: &Kind) -> bool {
    match kind {
        Kind::SessionStart(_)
        | Kind::Opened(_)
        | Kind::SegmentStart(_)
        | Kind::Carry(_)
        | Kind::QueuedInput(_)
        | Kind::Inbox(_)
        | Kind::Checkpoint(_)
        | Kind::Rewound(_)
        | Kind::ConfigChanged(_)
        | Kind::Renamed(_)
        | Kind::Archived(_)
        | Kind::Unarchived(_)
        | Kind::OutboxAck(_)
        | Kind::Extension(_) => false,
        Kind::ToolDispatch(e) => e.by.is_none(),
        Kind::ToolResult(e) => e.by.is_none(),
        _ => true,
    }
}

impl From<ShutdownMode> for StopMode {
    fn from(mode: ShutdownMode) -> StopMode {
        match mode {
            ShutdownMode::AfterRun => StopMode::AfterRun,
            ShutdownMode::Now => StopMode::Now,
        }
    }
}
