//! Jobs: acts on the state of a session's mandate, which `thread::job_fold` derives from the log.
//!
//! After every step `update_job` schedules the next attempt after a failure, runs the acceptance command
//! after a finished run, and sets the timers. A crash in between changes nothing, because the next process
//! checks again. Elsewhere: when a job is started (`host`).
//! Invariant: at most one attempt at a time, and no more than the mandate allows (`a_job_is_tried_again`,
//! killed everywhere).

pub(crate) mod schedule;

use minke_prompts::Snippet;
use minke_record::{
    Actor, ActorKind, CallId, DequeueReason, Dequeued, ErrorCode, InputSegment, JobFacts, JobState, OpenCall,
    Outcome, QueueId, QueueMode, QueuedInput, RunResult, StateChange, StateWord, Trigger, TurnResult,
    WaitingOn,
};
use minke_thread::{ACCEPTANCE_CALL_PREFIX, JobAction, JobTransition, Mandate, RestartPolicy, retry_wait};

use crate::PodTimer;
use crate::calls::CallResult;
use crate::calls::table::CallTable;
use crate::clients::ClientTable;
use crate::engine::{InputHandler, PodEngine, RunningWork};
use crate::exit::StopMode;
use crate::input::PodCommand;
use crate::run::RunStart;
use crate::state::State;
use crate::step::{CommandRefusal, Effect, ReplyBody};
use crate::step_builder::StepBuilder;

/// The tool that runs the acceptance command.
const SHELL_TOOL: &str = "Bash";

/// Idle time of a pod whose client has disconnected, in seconds, so that another client can connect.
const ORPHAN_IDLE_S: u64 = 3;
/// Idle time of a pod whose job has ended, in seconds, so that clients can still send input.
const FINISHED_IDLE_S: u64 = 1;

/// The end reason of a job after its deadline.
pub const DEADLINE_REASON: &str = "the deadline of the job has passed";

/// The timers of the job as they are set.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct JobTimers {
    retry_at: Option<u64>,
    deadline: Option<u64>,
}

impl State {
    /// Returns the job if it has not ended.
    fn open_job(&self) -> Option<&JobFacts> {
        self.facts.job.as_ref().filter(|job| !job.state.is_final())
    }

    /// Returns its mandate. An unreadable mandate has left the job paused.
    pub(crate) fn job_mandate(&self) -> Option<Mandate> {
        let about = self.facts.about.as_ref()?;
        Mandate::from_value(about.mandate.as_ref()).ok().flatten()
    }

    fn job_actor(&self) -> Actor {
        let session = self.facts.about.as_ref().map(|about| about.session);
        session.map_or_else(Actor::from_minke, Actor::from_job)
    }

    /// Returns whether the mandate resumes an interrupted run automatically.
    pub(crate) fn job_auto_resumes(&self) -> bool {
        self.open_job().is_some_and(|job| job.state == JobState::Interrupted)
            && self.job_mandate().is_some_and(|mandate| mandate.restart != RestartPolicy::Never)
    }

    /// Returns whether the job waits for a person.
    pub(crate) fn is_job_stopped(&self) -> bool {
        self.open_job().is_some_and(|job| match job.state {
            JobState::Paused => true,
            JobState::Interrupted => !self.job_auto_resumes(),
            _ => false,
        })
    }

    /// Returns whether all queued inputs come from the job itself.
    pub(crate) fn only_job_input_queued(&self) -> bool {
        self.facts.queue.iter().all(|queued| queued.from.actor == ActorKind::Job)
    }

    /// Returns whether a call is the job's acceptance command, and not a client call with a similar id.
    pub(crate) fn is_acceptance_call(&self, call: &OpenCall) -> bool {
        call.call_id.0.starts_with(ACCEPTANCE_CALL_PREFIX)
            && call.by.as_ref().is_some_and(|by| by.actor == ActorKind::Job)
    }
}

impl StepBuilder<'_> {
    /// Schedules the next attempt after a failed one, once.
    fn schedule_job_retry(&mut self, job: &JobFacts) {
        if job.state != JobState::Waiting || !job.failed || job.until.is_some() {
            return;
        }
        let Some(mandate) = self.state.job_mandate() else { return };
        if let Some(rejected) = &job.rejected {
            let text =
                self.state.session_catalog().render(Snippet::Rejected, &[("how", rejected.summary.as_str())]);
            let output = rejected.content.clone().map(|content| InputSegment::Text { content });
            let segments = [InputSegment::Text { content: text.into() }].into_iter().chain(output).collect();
            let (id, from) = (QueueId(self.ids.next_uuid()), self.state.job_actor());
            let (op_id, attached) = (None, Vec::new());
            self.append_entry(QueuedInput { id, segments, op_id, from, mode: QueueMode::Queue, attached });
        }
        let random = self.ids.next_uuid().as_u128() as u64;
        let requested_wait = job.not_before.map(|end| end.saturating_sub(self.now));
        let wait = retry_wait(&mandate.retry, job.retries.saturating_add(1), random, requested_wait)
            .unwrap_or_default();
        let (state, on) = (StateWord::Waiting, Some(WaitingOn::Time));
        let until = Some(self.now.saturating_add(wait));
        self.append_entry(StateChange {
            state,
            on,
            until,
            reason: None,
            by: Some(self.state.job_actor()),
            firing: None,
        });
    }

    /// Pauses the job until a person has looked at it.
    pub(crate) fn pause_job(&mut self, why: &str) {
        if self.state.open_job().is_some_and(|job| job.state != JobState::Paused && !job.is_scheduled()) {
            let by = Actor::from_minke();
            self.append_state_change(StateWord::Paused, format!("needs attention: {why}"), &by);
        }
    }
}

impl InputHandler<'_, '_> {
    /// Updates retries, acceptance and timers after a step.
    pub(crate) fn update_job(&mut self) {
        if self.engine.process.environment.boot.is_none() || self.step.state.facts.job.is_none() {
            return;
        }
        let idle = self.step.state.facts.run.is_none() && self.engine.process.exit.stop_mode.is_none();
        if let Some(job) = self.step.state.open_job().filter(|_| idle).cloned() {
            self.step.schedule_job_retry(&job);
            self.engine.work.calls.start_acceptance(self.step, &job);
        }
        let leaving = self.engine.process.exit.stop_mode == Some(StopMode::Now);
        let open = self.step.state.open_job().filter(|_| !leaving);
        // The host fires schedules; no pod waits for them.
        let waits = |job: &&JobFacts| job.state == JobState::Waiting && idle && !job.is_scheduled();
        let retry_at = open.filter(waits).and_then(|job| job.until);
        let deadline =
            open.and_then(|_| self.step.state.job_mandate()).and_then(|mandate| mandate.deadline_ms());
        let wanted = JobTimers { retry_at, deadline };
        let now = self.step.now;
        let mut set = |timer: PodTimer, was: Option<u64>, is: Option<u64>| {
            if was != is {
                self.step.add_effect(match is {
                    Some(at) => Effect::SetTimer { timer, at: at.max(now) },
                    None => Effect::ClearTimer { timer },
                });
            }
        };
        set(PodTimer::JobRetry, self.engine.process.job_timers.retry_at, wanted.retry_at);
        set(PodTimer::JobDeadline, self.engine.process.job_timers.deadline, wanted.deadline);
        self.engine.process.job_timers = wanted;
    }

    pub(crate) fn enforce_deadline(&mut self) {
        let over = self
            .step
            .state
            .job_mandate()
            .and_then(|mandate| mandate.deadline_ms())
            .is_some_and(|end| self.step.now >= end);
        if !over
            || self.step.state.open_job().is_none()
            || self.engine.process.exit.stop_mode == Some(StopMode::Now)
        {
            return;
        }
        if self.step.state.facts.run.is_none() || self.step.state.is_scheduled() {
            let by = Actor::from_minke();
            return self.engine.work.abandon_job(self.step, DEADLINE_REASON, &by);
        }
        self.engine.work.run.pause = None;
        self.engine.work.reply.cancel_reply(self.step);
        self.engine.work.calls.close_model_calls(self.step, DEADLINE_REASON);
        self.engine.work.reply.stop_reason = "limit".to_owned();
        self.engine.work.reply.end_turn(self.step, TurnResult::Cancelled);
        self.engine.end_run(self.step, RunResult::LimitReached, Some(DEADLINE_REASON.to_owned()));
    }
}

impl PodEngine {
    /// Starts the next attempt: its time has come or a person skipped the wait.
    pub(crate) fn start_attempt(&mut self, step: &mut StepBuilder<'_>) {
        let waits =
            step.state.open_job().is_some() && step.state.facts.run.is_none() && !step.state.is_scheduled();
        if !waits || self.process.exit.stop_mode.is_some() {
            return;
        }
        let by = step.state.job_actor();
        if let Some(refusal) = self.process.run_refusal(step.state) {
            return step.pause_job(&refusal.message);
        }
        if step.state.resumable_run().is_some() {
            self.resume_run(step, by);
        } else if self.start_oldest_queued(step).is_none() && step.state.facts.run.is_none() {
            self.start_run(step, RunStart { trigger: Trigger::Job, by, input: None });
        }
    }

    /// Applies an action while no pod runs. An open run counts as interrupted.
    pub(crate) fn apply_job_action_offline(
        &mut self,
        step: &mut StepBuilder<'_>,
        action: JobAction,
        detail: Option<String>,
        by: &Actor,
    ) -> Result<(), CommandRefusal> {
        if step.state.facts.job.is_none() {
            return Err(CommandRefusal::new(
                ErrorCode::NotFound,
                "this session is not a job: it has no mandate",
            ));
        }
        if step.state.facts.run.is_some() {
            self.interrupt_open_run(step, "the process ended");
        }
        let order = match action {
            JobAction::Pause => PodCommand::Pause { detail },
            JobAction::Cancel => PodCommand::Cancel { detail },
            JobAction::Resume => {
                step.state.check_offline_resume()?;
                PodCommand::Resume { detail }
            }
            JobAction::Retry | JobAction::Progress => {
                return Err(CommandRefusal::new(
                    ErrorCode::Conflict,
                    "this needs a running pod; send it to the session",
                ));
            }
        };
        let state = step.state.facts.job.as_ref().map(|job| job.state);
        match self.apply_job_command(step, &order, by) {
            Some(done) => done.map(drop),
            // The job has ended; the transition table gives the reason.
            None => action
                .transition_from(state.unwrap_or(JobState::Unknown), true)
                .map(drop)
                .map_err(|why| CommandRefusal::new(ErrorCode::Conflict, why)),
        }
    }

    /// Applies `pause`, `resume` and `cancel` to the job while no run is open; `None` if there is no open
    /// job.
    pub(crate) fn apply_job_command(
        &mut self,
        step: &mut StepBuilder<'_>,
        order: &PodCommand,
        by: &Actor,
    ) -> Option<Result<ReplyBody, CommandRefusal>> {
        let state = step.state.open_job()?.state;
        let (action, detail) = match order {
            PodCommand::Pause { detail } => (JobAction::Pause, detail),
            PodCommand::Resume { detail } => (JobAction::Resume, detail),
            PodCommand::Cancel { detail } => (JobAction::Cancel, detail),
            _ => return None,
        };
        let word = |usual: &str| detail.clone().unwrap_or_else(|| usual.to_owned());
        match action.transition_from(state, true) {
            Err(why) => return Some(Err(CommandRefusal::new(ErrorCode::Conflict, why))),
            Ok(JobTransition::Unchanged | JobTransition::Fork) => {}
            Ok(JobTransition::To(JobState::Paused)) => {
                self.work.calls.stop_acceptance(step, "the job was paused");
                step.append_state_change(StateWord::Paused, word("paused"), by);
            }
            Ok(JobTransition::To(JobState::Cancelled)) => self.work.abandon_job(step, &word("cancelled"), by),
            Ok(JobTransition::To(_)) if step.state.is_scheduled() => step.resume_schedule(by),
            Ok(JobTransition::To(_)) => {
                if let Some(refusal) = self.process.run_refusal(step.state) {
                    return Some(Err(refusal));
                }
                if step.state.open_job().is_some_and(|job| job.accepting) {
                    step.append_state_change(StateWord::Working, word("resumed"), by);
                } else {
                    self.start_attempt(step);
                }
            }
        }
        Some(Ok(match &step.state.facts.run {
            Some(run) => ReplyBody::Run(run.id),
            None => ReplyBody::Ok,
        }))
    }
}

impl JobTimers {
    /// Returns whether the job needs this process to keep running.
    pub(crate) fn job_keeps_process(&self, state: &State) -> bool {
        self.retry_at.is_some() || state.open_job().is_some_and(|job| job.accepting)
    }
}

impl ClientTable {
    /// Returns the seconds of idleness after which the process exits; 0 means never. A pod without its client
    /// or with an ended job exits sooner.
    pub(crate) fn idle_exit_seconds(&self, state: &State) -> u64 {
        if self.is_orphaned {
            return ORPHAN_IDLE_S;
        }
        let usual = state.manifest.pod.idle_exit;
        // A running pod of a scheduled job would block the next firing.
        let over = state.facts.job.as_ref().is_some_and(|job| job.state.is_final() || job.is_scheduled());
        if over && usual > 0 { usual.min(FINISHED_IDLE_S) } else { usual }
    }
}

impl CallTable {
    /// Runs the acceptance command after a finished run. A command that a crash interrupted runs again.
    pub(crate) fn start_acceptance(&mut self, step: &mut StepBuilder<'_>, job: &JobFacts) {
        let here = |id: &CallId| id.0.starts_with(ACCEPTANCE_CALL_PREFIX);
        let is_started = step.state.facts.calls.iter().any(|call| here(&call.call_id))
            || self.client_calls.iter().any(|client_call| here(&client_call.call.call_id));
        if !job.accepting || job.state != JobState::Running || is_started {
            return;
        }
        let Some(command) = step.state.job_mandate().and_then(|mandate| mandate.acceptance) else { return };
        let id = CallId(format!("{ACCEPTANCE_CALL_PREFIX}{}", job.acceptances));
        let arguments = serde_json::json!({ "command": command }).to_string();
        let by = step.state.job_actor();
        if let Err(refusal) =
            self.call_client_tool(step, by.clone(), SHELL_TOOL.to_owned(), arguments, Some(id))
        {
            step.append_state_change(StateWord::Paused, refusal.message, &by);
        }
    }

    pub(crate) fn stop_acceptance(&mut self, step: &mut StepBuilder<'_>, why: &str) {
        self.client_calls
            .retain(|client_call| !client_call.call.call_id.0.starts_with(ACCEPTANCE_CALL_PREFIX));
        let calls = step.state.facts.calls.iter().map(|call| call.call_id.clone());
        let open: Vec<CallId> = calls.filter(|id| id.0.starts_with(ACCEPTANCE_CALL_PREFIX)).collect();
        for call_id in open {
            step.add_effect(Effect::StopCall { call_id: call_id.clone() });
            self.settle_call(step, &call_id, CallResult::error(Outcome::Cancelled, why));
        }
    }
}

impl RunningWork {
    /// Abandons the job and removes its queued inputs.
    pub(crate) fn abandon_job(&mut self, step: &mut StepBuilder<'_>, why: &str, by: &Actor) {
        if step.state.is_scheduled() {
            return step.abandon_schedule(why, by);
        }
        self.calls.stop_acceptance(step, why);
        let own = |from: &Actor| from.actor == ActorKind::Job;
        let queue = step.state.facts.queue.iter();
        let left: Vec<QueueId> = queue.filter(|queued| own(&queued.from)).map(|queued| queued.id).collect();
        for id in left {
            step.append_entry(Dequeued { id, why: DequeueReason::Removed });
        }
        self.abandon_run(step, why, by);
    }
}
