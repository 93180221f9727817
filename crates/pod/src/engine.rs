//! The engine: everything of a pod that is not in its log.

use minke_record::{Extension, Millis, Route};

use crate::calls::CallProgress;
use crate::calls::hooks::HookQueue;
use crate::calls::table::CallTable;
use crate::calls::undo_snapshot::CaptureState;
use crate::children::scope_yield::ScopeYield;
use crate::children::table::{ChildStarts, ChildTable};
use crate::clients::{ClientTable, StateWaiter};
use crate::environment::Environment;
use crate::exit::{ExitState, StopMode};
use crate::input::{InputKind, PodTimer, WaitCondition};
use crate::job::JobTimers;
use crate::run::RunProgress;
use crate::run::reply::ReplyState;
use crate::state::State;
use crate::step::{Effect, PodPhase, ReplyBody};
use crate::step_builder::StepBuilder;

/// The extension domain for network accesses of commands.
pub const NETWORK_DOMAIN: &str = "network";

/// The state of this process, in the part that survives a rebuild and the part that does not.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodEngine {
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
    pub(crate) fn without_work(self) -> ProcessState {
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

impl PodEngine {
    /// Keeps the state of the process but not of running work, after a failed write.
    pub(crate) fn after_failed_write(self) -> PodEngine {
        PodEngine { process: self.process.without_work(), work: RunningWork::default() }
    }
}

/// The handling of one input: the engine and the step that it builds.
pub(crate) struct InputHandler<'a, 's> {
    pub(crate) engine: &'a mut PodEngine,
    pub(crate) step: &'a mut StepBuilder<'s>,
}

impl InputHandler<'_, '_> {
    pub(crate) fn handle_input(&mut self, kind: InputKind) {
        self.engine.process.environment.now = self.step.now;
        match kind {
            InputKind::Boot(boot) => self.boot_pod(boot),
            InputKind::Command(request) => self.handle_command(*request),
            InputKind::Model { call, event } => self.apply_model_event(call, event),
            InputKind::ModelFailed { call, failure } => self.handle_model_failure(call, failure),
            InputKind::Prepared { call_id, prepared } => self.handle_prepared(&call_id, *prepared),
            InputKind::CallEnded { call_id, ended } => self.finish_call(&call_id, ended),
            InputKind::FileChecked { call_id, result } => self.apply_file_check(&call_id, result),
            InputKind::Captured { run, when, captured } => self.apply_capture(run, &when, captured),
            InputKind::NetworkAccess(payload) => {
                self.step.append_entry(Extension { domain: NETWORK_DOMAIN.to_owned(), payload });
            }
            InputKind::RulesChanged(rules) => self.step.update_rules(&rules),
            InputKind::HookReply { point, verdict } => self.apply_hook_reply(point, *verdict),
            InputKind::Child(news) => self.apply_child_event(*news),
            InputKind::Timer(timer) => self.handle_timer(timer),
            InputKind::Signal => self.stop_interrupted("a signal"),
            InputKind::ClientCount(count) => self.engine.process.clients.client_count = count,
            InputKind::OwnerDisconnected => self.engine.process.clients.handle_owner_disconnect(self.step),
            InputKind::CommandCount(count) => self.engine.process.clients.command_count = count,
            InputKind::StorageFailed { message } => self.handle_storage_failure(message),
            InputKind::StorageRestored => self.handle_storage_restored(),
            InputKind::Routes { route, no_route, fallbacks, costs } => {
                if let Some(boot) = &mut self.engine.process.environment.boot {
                    (boot.route, boot.no_route, boot.fallbacks) = (route, no_route, fallbacks);
                    boot.costs = costs;
                }
            }
            InputKind::Alert { level, source, message } => self.step.append_alert(level, source, message),
        }
        self.finish_step();
    }

    /// Finishes a step: waits, job, carry, reports, timers, status.
    pub(crate) fn finish_step(&mut self) {
        self.finish_pod_waits();
        self.update_job();
        self.step.carry_if_due();
        self.send_next_report();
        self.engine.process.update_wall_timer(self.step);
        self.engine.publish_status(self.step);
        self.engine.process.clients.answer_waiters(self.step);
        self.update_idle_timer();
    }

    pub(crate) fn handle_timer(&mut self, timer: PodTimer) {
        match timer {
            PodTimer::PauseGrace => self.end_pause_grace(),
            PodTimer::IdleExit => {
                self.engine.process.clients.idle_timer_set = false;
                if self.can_exit_idle() {
                    self.engine.process.exit.exits_idle = true;
                    self.stop_interrupted("idle exit");
                }
            }
            PodTimer::Retry(call) => self.engine.work.reply.retry_request(self.step, call),
            PodTimer::Wait(reply) => {
                if let Some(at) =
                    self.engine.process.clients.waiters.iter().position(|waiter| waiter.reply == reply)
                {
                    self.engine.process.clients.waiters.remove(at);
                    self.step.accept_request(Some(reply), ReplyBody::Waited { reached: false });
                }
            }
            PodTimer::AskExpires(id) => self.expire_ask(id),
            PodTimer::Resume => self.resume_after_wait(),
            PodTimer::WaitPods(_) => {} // every step checks the waits
            PodTimer::BudgetWall => self.end_run_at_wall(),
            PodTimer::OutboxFlush => self.engine.process.exit.end_flush(self.step),
            PodTimer::JobRetry => self.engine.start_attempt(self.step),
            PodTimer::JobDeadline => self.enforce_deadline(),
        }
    }

    /// Returns whether the process may exit: no client, child, command or call, and no run except one that
    /// waits for an ask.
    pub(crate) fn can_exit_idle(&self) -> bool {
        let waits =
            self.engine.status(self.step.state).waiting.is_some_and(|w| w.on == minke_record::WaitingOn::Ask);
        self.engine.process.clients.client_count == 0
            && self.engine.process.clients.command_count == 0
            && self.engine.process.hooks.pending_inputs.is_empty()
            && self.engine.work.calls.client_calls.iter().all(|guest| guest.ask.is_some())
            && self.step.state.live_children().next().is_none()
            && self.engine.work.run.resume_at.is_none()
            && !self.engine.process.job_timers.job_keeps_process(self.step.state)
            && self
                .engine
                .work
                .calls
                .call_progress
                .values()
                .all(|work| matches!(work, CallProgress::Asking(_)))
            && self.engine.process.exit.stop_mode.is_none()
            && (self.step.state.facts.run.is_none() || waits)
    }

    pub(crate) fn update_idle_timer(&mut self) {
        let seconds = self.engine.process.clients.idle_exit_seconds(self.step.state);
        let can_exit = self.engine.process.environment.boot.is_some() && seconds > 0 && self.can_exit_idle();
        if can_exit && !self.engine.process.clients.idle_timer_set {
            self.engine.process.clients.idle_timer_set = true;
            self.step.add_effect(Effect::SetTimer {
                timer: PodTimer::IdleExit,
                at: self.step.now + seconds * 1_000,
            });
        } else if !can_exit && self.engine.process.clients.idle_timer_set {
            self.engine.process.clients.idle_timer_set = false;
            self.step.add_effect(Effect::ClearTimer { timer: PodTimer::IdleExit });
        }
    }
}

impl Environment {
    /// Returns the route of the next request.
    pub(crate) fn current_route(&self) -> Option<&Route> {
        if let Some(last) = self.failed_models.checked_sub(1) {
            return self.boot.as_ref().and_then(|boot| boot.fallbacks.get(last));
        }
        self.changed_route.as_ref().or_else(|| self.boot.as_ref().and_then(|boot| boot.route.as_ref()))
    }
}

impl ExitState {
    /// Returns the phase: the one that the log implies, or stopping.
    pub(crate) fn phase(&self, state: &State) -> PodPhase {
        match self.stop_mode {
            Some(StopMode::Now) => PodPhase::Stopping,
            Some(StopMode::AfterRun) | None => state.phase(),
        }
    }
}

impl ClientTable {
    pub(crate) fn answer_waiters(&mut self, step: &mut StepBuilder<'_>) {
        let reached = |state: &State, until: WaitCondition| match until {
            WaitCondition::Idle => state.facts.run.is_none(),
            WaitCondition::Ask => !state.facts.asks.is_empty(),
            WaitCondition::Seq(seq) => state.next_seq > seq,
        };
        let (done, rest): (Vec<StateWaiter>, Vec<StateWaiter>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|w| reached(step.state, w.condition));
        self.waiters = rest;
        for waiter in done {
            step.add_effect(Effect::ClearTimer { timer: PodTimer::Wait(waiter.reply) });
            step.accept_request(Some(waiter.reply), ReplyBody::Waited { reached: true });
        }
    }

    /// Handles the disconnect of the owner client: the pod exits soon after its work is done.
    pub(crate) fn handle_owner_disconnect(&mut self, step: &mut StepBuilder<'_>) {
        self.is_orphaned = true;
        if std::mem::take(&mut self.idle_timer_set) {
            step.add_effect(Effect::ClearTimer { timer: PodTimer::IdleExit });
        }
    }
}
