//! The pod: `step` handles every input in every state.

use minke_record::{
    Actor, Alert, AlertLevel, AlertSource, Carry, Draft, Durability, Entry, Extension, IdGenerator, Kind,
    Millis, Route, RunId, limits,
};

use crate::calls::CallProgress;
use crate::calls::hooks::HookQueue;
use crate::calls::table::CallTable;
use crate::calls::undo_snapshot::CaptureState;
use crate::children::scope_yield::ScopeYield;
use crate::children::table::{ChildStarts, ChildTable};
use crate::clients::{ClientTable, StateWaiter};
use crate::environment::Environment;
use crate::exit::{ExitState, StopMode};
use crate::input::{InputKind, PodInput, WaitCondition};
use crate::job::JobTimers;
use crate::run::RunProgress;
use crate::run::reply::{ReplyDraft, ReplyState};
use crate::state::State;
use crate::step::{
    CommandRefusal, CommandReply, Effect, LiveEvent, LiveEventKind, OpenBlock, PodPhase, ReplyBody, Step,
    StepEvent,
};
use crate::{PodTimer, ReplyId};

/// Margin before the carry limit, so that no step exceeds it.
const CARRY_MARGIN: u64 = 1_000;

/// The extension domain for network accesses of commands.
pub const NETWORK_DOMAIN: &str = "network";

/// One agent: its durable state and the volatile state of this process.
#[derive(Debug, Clone)]
pub struct Pod {
    pub(crate) state: State,
    pub(crate) process: ProcessState,
    pub(crate) work: RunningWork,
}

/// State of the process that survives a rebuild after a failed write. A restart must not depend on it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessState {
    pub(crate) environment: Environment,
    pub(crate) clients: ClientTable,
    pub(crate) exit: ExitState,
    pub(crate) hooks: HookQueue,
    pub(crate) child_starts: ChildStarts,
    pub(crate) scope_yield: ScopeYield,
    /// The deadline of the budget, as the timer is set.
    pub(crate) wall_deadline: Option<Millis>,
    pub(crate) job_timers: JobTimers,
}

impl ProcessState {
    /// Returns this state without its part of the running work.
    fn without_work(self) -> ProcessState {
        let environment = Environment { failed_models: 0, now: 0, ..self.environment };
        ProcessState { environment, ..self }
    }
}

/// State of the running work. It is lost with the process and by a rebuild after a failed write.
#[derive(Debug, Clone, Default)]
pub(crate) struct RunningWork {
    pub(crate) calls: CallTable,
    pub(crate) children: ChildTable,
    pub(crate) reply: ReplyState,
    pub(crate) run: RunProgress,
    pub(crate) capture: CaptureState,
    /// The report in flight.
    pub(crate) report_in_flight: Option<u64>,
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
        Pod { state, process: ProcessState::default(), work: RunningWork::default() }
    }

    /// Rebuilds the pod from the log after a failed write. Keeps the state of the process but not of running
    /// work.
    pub fn rebuild_from(state: State, old: Pod) -> Pod {
        Pod { state, process: old.process.without_work(), work: RunningWork::default() }
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    /// Returns the blocks of the reply that have begun and not ended.
    pub fn open_blocks(&self) -> Vec<OpenBlock> {
        self.work.reply.reply_draft.as_ref().map(ReplyDraft::open_blocks).unwrap_or_default()
    }

    /// Handles one input. The result is already applied to this pod: if it cannot be written, rebuild the pod
    /// from the log (`rebuild_from`).
    pub fn step(&mut self, input: PodInput) -> Step {
        let mut m = StepBuilder {
            now: input.now.max(self.state.facts.last_ts),
            ids: IdGenerator::new(input.now, input.seed),
            result: Step::default(),
        };
        self.process.environment.now = m.now;
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
            InputKind::ClientCount(count) => self.process.clients.client_count = count,
            InputKind::OwnerDisconnected => self.handle_owner_disconnect(&mut m),
            InputKind::CommandCount(count) => self.process.clients.command_count = count,
            InputKind::StorageFailed { message } => self.handle_storage_failure(&mut m, message),
            InputKind::StorageRestored => self.handle_storage_restored(&mut m),
            InputKind::Routes { route, no_route, fallbacks, costs } => {
                if let Some(boot) = &mut self.process.environment.boot {
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
        if let Some(last) = self.process.environment.failed_models.checked_sub(1) {
            return self.process.environment.boot.as_ref().and_then(|boot| boot.fallbacks.get(last));
        }
        self.process
            .environment
            .changed_route
            .as_ref()
            .or_else(|| self.process.environment.boot.as_ref().and_then(|boot| boot.route.as_ref()))
    }

    pub(crate) fn minke_actor(&self) -> Actor {
        Actor::from_minke()
    }

    /// Returns the phase: the one that the log implies, or stopping.
    pub fn phase(&self) -> PodPhase {
        match self.process.exit.stop_mode {
            Some(StopMode::Now) => PodPhase::Stopping,
            Some(StopMode::AfterRun) | None => self.state.phase(),
        }
    }

    fn handle_timer(&mut self, step: &mut StepBuilder, timer: PodTimer) {
        match timer {
            PodTimer::PauseGrace => self.end_pause_grace(step),
            PodTimer::IdleExit => {
                self.process.clients.idle_timer_set = false;
                if self.can_exit_idle() {
                    self.process.exit.exits_idle = true;
                    self.stop_interrupted(step, "idle exit");
                }
            }
            PodTimer::Retry(call) => self.retry_request(step, call),
            PodTimer::Wait(reply) => {
                if let Some(at) = self.process.clients.waiters.iter().position(|waiter| waiter.reply == reply)
                {
                    self.process.clients.waiters.remove(at);
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
            std::mem::take(&mut self.process.clients.waiters)
                .into_iter()
                .partition(|w| reached(self, w.condition));
        self.process.clients.waiters = rest;
        for waiter in done {
            m.add_effect(Effect::ClearTimer { timer: PodTimer::Wait(waiter.reply) });
            m.accept_request(Some(waiter.reply), ReplyBody::Waited { reached: true });
        }
    }

    /// Returns whether the process may exit: no client, child, command or call, and no run except one that
    /// waits for an ask.
    fn can_exit_idle(&self) -> bool {
        let waits = self.status().waiting.is_some_and(|w| w.on == minke_record::WaitingOn::Ask);
        self.process.clients.client_count == 0
            && self.process.clients.command_count == 0
            && self.process.hooks.pending_inputs.is_empty()
            && self.work.calls.client_calls.iter().all(|guest| guest.ask.is_some())
            && self.state.live_children().next().is_none()
            && self.work.run.resume_at.is_none()
            && !self.job_keeps_process()
            && self.work.calls.call_progress.values().all(|work| matches!(work, CallProgress::Asking(_)))
            && self.process.exit.stop_mode.is_none()
            && (self.state.facts.run.is_none() || waits)
    }

    /// Handles the disconnect of the owner client: the pod exits soon after its work is done.
    fn handle_owner_disconnect(&mut self, step: &mut StepBuilder) {
        self.process.clients.is_orphaned = true;
        if std::mem::take(&mut self.process.clients.idle_timer_set) {
            step.add_effect(Effect::ClearTimer { timer: PodTimer::IdleExit });
        }
    }

    fn update_idle_timer(&mut self, m: &mut StepBuilder) {
        let seconds = self.idle_exit_seconds();
        let can_exit = self.process.environment.boot.is_some() && seconds > 0 && self.can_exit_idle();
        if can_exit && !self.process.clients.idle_timer_set {
            self.process.clients.idle_timer_set = true;
            m.add_effect(Effect::SetTimer { timer: PodTimer::IdleExit, at: m.now + seconds * 1_000 });
        } else if !can_exit && self.process.clients.idle_timer_set {
            self.process.clients.idle_timer_set = false;
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
