//! Commands: executes those that the state table allows.

use minke_record::{
    Actor, ActorKind, Archived, CallId, CallStage, Checkpoint, ConfigChanged, DequeueReason, Dequeued,
    ErrorCode, Goal, GoalChange, History, InputSegment, OpOutcome, OpenCall, Progress, QueueId, QueueMode,
    QueuedInput, Renamed, Rewound, RunId, SegmentReason, StateChange, StateWord, SystemItem, Unarchived,
    limits,
};
use serde_json::Value;

use crate::calls::CallProgress;
use crate::calls::asks::AskAnswer;
use crate::calls::client_calls::ClientCall;
use crate::calls::table::CallTable;
use crate::children::table::ChildTable;
use crate::clients::ClientTable;
use crate::clients::StateWaiter;
use crate::engine::{InputHandler, ProcessState};
use crate::environment::Environment;
use crate::exit::StopMode;
use crate::input::{
    CommandRequest, HookVerdict, PodCommand, RewindRequest, RunMode, SessionUpdate, ShutdownMode,
};
use crate::run::{RunInput, RunStart, SegmentInit, run_trigger};
use crate::state::State;
use crate::step::{CommandRefusal, Effect, PodPhase, ReplyBody};
use crate::step_builder::StepBuilder;
use crate::table::{Disposition, disposition};
use crate::{PodTimer, ReplyId};

/// Maximum duration of a `wait`.
const MAX_WAIT_MS: u64 = 24 * 60 * 60 * 1_000;

/// The tool that restores the files a run has changed. It is not offered to the model; `undo` calls it.
pub const UNDO_TOOL: &str = "Undo";

/// An input with its options.
pub(crate) struct InputRequest {
    input: Vec<InputSegment>,
    attached: Vec<SystemItem>,
    mode: RunMode,
    op_id: Option<String>,
    from: Actor,
}

impl State {
    fn compact_context(&self, disposition: &Disposition) -> Result<ReplyBody, CommandRefusal> {
        match disposition {
            Disposition::NoChange => Ok(ReplyBody::Ok),
            _ => Err(CommandRefusal::new(
                ErrorCode::InvalidRequest,
                "this version cannot compact a context yet",
            )),
        }
    }
}

impl StepBuilder<'_> {
    fn dequeue_input(&mut self, id: QueueId) -> Result<ReplyBody, CommandRefusal> {
        let Some(queued) = self.state.queued_input(id) else {
            return Err(CommandRefusal::new(
                ErrorCode::NotFound,
                format!("no input {id} waits in the queue"),
            ));
        };
        let segments = queued.segments.clone();
        self.append_entry(Dequeued { id, why: DequeueReason::Removed });
        Ok(ReplyBody::Input(segments))
    }

    pub(crate) fn append_state_change(&mut self, state: StateWord, reason: String, by: &Actor) {
        let by = Some(by.clone());
        self.append_entry(StateChange {
            state,
            on: None,
            until: None,
            reason: Some(reason),
            by,
            firing: None,
        });
    }

    fn append_checkpoint(&mut self, id: String, state: Value) -> Result<ReplyBody, CommandRefusal> {
        let bytes = state.to_string().len();
        if bytes > limits::CHECKPOINT_BYTES || id.is_empty() || id.len() > limits::OP_ID_BYTES {
            let message = format!(
                "a checkpoint has an `id` of 1 to {} bytes and a `state` of at most {} bytes (this one: {bytes})",
                limits::OP_ID_BYTES,
                limits::CHECKPOINT_BYTES
            );
            return Err(CommandRefusal::new(ErrorCode::InvalidRequest, message));
        }
        self.append_entry(Checkpoint { id, state });
        Ok(ReplyBody::Ok)
    }
}

impl InputHandler<'_, '_> {
    pub(crate) fn handle_command(&mut self, request: CommandRequest) {
        let Some(request) = self.engine.process.scope_yield.hold_for_scope(self.step, request) else {
            return;
        };
        if matches!(request.command, PodCommand::Cancel { .. }) {
            let dropped = self.engine.process.hooks.refuse_pending_inputs(
                self.step,
                &ErrorCode::Conflict,
                "cancelled before hooks had seen it",
            );
            if dropped > 0 && self.engine.process.exit.phase(self.step.state) == PodPhase::Idle {
                return self.step.accept_request(request.reply, ReplyBody::Ok);
            }
        }
        self.execute_command(request, None);
    }

    /// Executes a command. `hook_verdict` is set if hooks have checked it.
    pub(crate) fn execute_command(&mut self, request: CommandRequest, hook_verdict: Option<&HookVerdict>) {
        let phase = self.engine.process.exit.phase(self.step.state);
        let cell = disposition(request.command.method_kind(), phase);
        let command = &request.command;
        let reply = request.reply;
        // A repeated operation gets the first reply, even if a new one would be refused.
        let again = match command {
            PodCommand::Run { op_id: Some(op_id), .. } => self.step.state.op_result(op_id).cloned(),
            _ => None,
        };
        if let Some(op_result) = again {
            return self.step.accept_request(reply, reply_of_op(&op_result));
        }
        if phase == PodPhase::Idle
            && let Some(result) = self.engine.apply_job_command(self.step, command, &request.from)
        {
            return match result {
                Ok(body) => self.step.accept_request(reply, body),
                Err(refusal) => self.step.refuse_request(reply, refusal),
            };
        }
        if let Disposition::Refuse(code) = &cell {
            return self
                .step
                .refuse_request(reply, CommandRefusal::new(code.clone(), refusal_message(code, phase)));
        }
        if let Some(refusal) = self.engine.process.input_refusal(self.step.state, command) {
            return self.step.refuse_request(reply, refusal);
        }
        let request = match hook_verdict {
            None => match self.engine.process.hold_for_hooks(self.step, request) {
                Some(request) => request,
                None => return,
            },
            Some(run_input) => {
                self.step.append_hook_context(run_input);
                request
            }
        };
        let CommandRequest { from, command, .. } = request;
        let result = match command {
            PodCommand::Run { input, attached, mode, op_id } => {
                let attached = attached.unwrap_or_default();
                self.accept_input(&cell, InputRequest { input, attached, mode, op_id, from })
            }
            PodCommand::Dequeue { id } => self.step.dequeue_input(id),
            PodCommand::Notify { message, auto_run } => self.add_notification(&cell, from, message, auto_run),
            PodCommand::PodEvent { event, from: sender, from_seq } => {
                self.add_pod_event(&cell, event, sender, from_seq)
            }
            PodCommand::Resume { detail } => self.resume_paused_run(from, detail),
            PodCommand::Pause { detail } => Ok(self.pause_run(&cell, detail)),
            PodCommand::Cancel { detail } => Ok(self.handle_cancel(&cell, from, detail)),
            PodCommand::Answer { ask, decision, note } => {
                self.answer_ask(&cell, AskAnswer { ask, decision, note, by: from })
            }
            PodCommand::Compact { .. } => self.step.state.compact_context(&cell),
            PodCommand::Rewind(rewind) => self.rewind_session(*rewind, from),
            PodCommand::Undo { run } => self.engine.work.calls.undo_run(self.step, from, run),
            PodCommand::CallTool { name, arguments, call_id } => {
                self.engine.work.calls.call_client_tool(self.step, from, name, arguments, call_id)
            }
            PodCommand::Checkpoint { id, state } => self.step.append_checkpoint(id, state),
            PodCommand::Set(changes) => {
                self.engine.process.environment.apply_changes(self.step, *changes, &from)
            }
            PodCommand::Yield => match self.yield_scope(reply) {
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            PodCommand::RestartMcp { server } => Err(CommandRefusal::new(
                ErrorCode::NotFound,
                format!("no MCP server `{server}`: this pod uses none"),
            )),
            PodCommand::Shutdown { mode } => Ok(self.handle_shutdown(&cell, mode)),
            PodCommand::RestorePod(stopped) => match self.restore_pod(reply, *stopped) {
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            PodCommand::Wait { until, timeout_ms } => {
                return self.engine.process.clients.add_waiter(self.step, reply, until, timeout_ms);
            }
        };
        match result {
            Ok(body) => self.step.accept_request(reply, body),
            Err(refusal) => self.step.refuse_request(reply, refusal),
        }
    }

    pub(crate) fn accept_input(
        &mut self,
        disposition: &Disposition,
        request: InputRequest,
    ) -> Result<ReplyBody, CommandRefusal> {
        let waits = self.step.state.facts.queue.iter().any(|queued| queued.mode != QueueMode::Steer);
        match disposition {
            // An input of mode `queue` goes behind inputs that already wait.
            Disposition::Start if request.mode == RunMode::Queue && waits => {
                self.engine.work.children.enqueue_input(self.step, request, QueueMode::Queue).inspect(|_| {
                    self.engine.start_next_queued(self.step);
                })
            }
            Disposition::QueueAndStart => {
                self.engine.work.children.enqueue_input(self.step, request, QueueMode::Queue).inspect(|_| {
                    self.engine.start_next_queued(self.step);
                })
            }
            Disposition::Queue => {
                self.engine.work.children.enqueue_input(self.step, request, QueueMode::Queue)
            }
            Disposition::Steer => {
                self.engine.work.children.enqueue_input(self.step, request, QueueMode::Steer)
            }
            Disposition::CancelThenStart => {
                self.engine.work.run.queue_suspended = true;
                self.cancel_run("interrupted by a new input");
                self.engine.work.run.queue_suspended = false;
                Ok(self.start_input_run(request))
            }
            _ => Ok(self.start_input_run(request)),
        }
    }

    pub(crate) fn start_input_run(&mut self, saying: InputRequest) -> ReplyBody {
        let InputRequest { input: segments, attached, op_id, from, .. } = saying;
        let run_input = RunInput { segments, attached, op_id, from: from.clone(), queued: None };
        let trigger = run_trigger(&from);
        ReplyBody::Run(
            self.engine.start_run(self.step, RunStart { trigger, by: from, input: Some(run_input) }),
        )
    }

    pub(crate) fn resume_paused_run(
        &mut self,
        by: Actor,
        detail: Option<String>,
    ) -> Result<ReplyBody, CommandRefusal> {
        if let Some(refusal) = self.engine.process.run_refusal(self.step.state) {
            return Err(refusal);
        }
        if let Some(reason) = detail {
            self.step.append_state_change(StateWord::Working, reason, &by);
        }
        match self.engine.resume_run(self.step, by) {
            Some(run) => Ok(ReplyBody::Run(run)),
            None => Err(CommandRefusal::new(ErrorCode::NotPaused, "no run is paused")),
        }
    }

    pub(crate) fn rewind_session(
        &mut self,
        rewind: RewindRequest,
        by: Actor,
    ) -> Result<ReplyBody, CommandRefusal> {
        if !rewind.head_matches {
            let message = "the log has changed since the targets were listed; list them again";
            return Err(CommandRefusal::new(ErrorCode::Conflict, message));
        }
        let (Some(target), Some(segment)) = (rewind.target, self.step.state.segment.clone()) else {
            let message = format!("entry {} is not an input that can be rewound to", rewind.to_seq);
            return Err(CommandRefusal::new(ErrorCode::NotFound, message));
        };
        self.engine.work.calls.close_model_calls(self.step, "the session was rewound");
        if self.engine.process.exit.phase(self.step.state) == PodPhase::Paused {
            self.step.append_state_change(StateWord::Abandoned, "the session was rewound".to_owned(), &by);
            self.engine.work.run.cancel_scheduled_resume(self.step);
        }
        self.step.append_entry(Rewound { to_seq: rewind.to_seq });
        self.step.start_segment(SegmentInit {
            reason: SegmentReason::Rewind,
            system_prompt: segment.system_prompt,
            tools: segment.tools.as_ref().clone(),
            config: segment.config,
            history: History::Here(target.history),
        });
        Ok(ReplyBody::Input(target.input))
    }

    pub(crate) fn handle_shutdown(&mut self, disposition: &Disposition, mode: ShutdownMode) -> ReplyBody {
        if *disposition == Disposition::NoChange {
            return ReplyBody::Ok;
        }
        if mode == ShutdownMode::AfterRun && self.step.state.facts.run.is_some() {
            self.engine.process.exit.stop_mode = Some(StopMode::AfterRun);
        } else {
            self.shut_down_now();
        }
        ReplyBody::Ok
    }
}

impl ProcessState {
    /// Returns why an input is refused without asking hooks.
    pub(crate) fn input_refusal(&self, state: &State, command: &PodCommand) -> Option<CommandRefusal> {
        let PodCommand::Run { input, attached, op_id, .. } = command else { return None };
        if input.is_empty() {
            return Some(CommandRefusal::new(ErrorCode::InvalidRequest, "`input` is empty"));
        }
        if let Err(why) = attached {
            return Some(CommandRefusal::new(ErrorCode::InvalidRequest, why.clone()));
        }
        if op_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > limits::OP_ID_BYTES) {
            let message = format!("`op_id` must have 1 to {} bytes", limits::OP_ID_BYTES);
            return Some(CommandRefusal::new(ErrorCode::InvalidRequest, message));
        }
        self.run_refusal(state)
    }
}

impl ChildTable {
    pub(crate) fn enqueue_input(
        &mut self,
        step: &mut StepBuilder<'_>,
        request: InputRequest,
        mode: QueueMode,
    ) -> Result<ReplyBody, CommandRefusal> {
        let limit = step.state.manifest.pod.limits.queue;
        if step.state.facts.queue.len() as u64 >= limit {
            let message = format!("the queue is full: {limit} inputs (pod.limits.queue); remove one or wait");
            return Err(CommandRefusal::new(ErrorCode::TooMany, message));
        }
        let id = QueueId(step.ids.next_uuid());
        let InputRequest { input: segments, attached, op_id, from, .. } = request;
        step.append_entry(QueuedInput { id, segments, op_id, from, mode, attached });
        self.mark_message_received();
        Ok(ReplyBody::Queued(id))
    }
}

impl CallTable {
    /// Calls the undo tool as a client call, so it passes the gate and the log names its author.
    pub(crate) fn undo_run(
        &mut self,
        step: &mut StepBuilder<'_>,
        by: Actor,
        run: Option<RunId>,
    ) -> Result<ReplyBody, CommandRefusal> {
        let run = run.or_else(|| step.state.facts.last.as_ref().map(|last| last.id));
        let Some(run) = run else {
            return Err(CommandRefusal::new(
                ErrorCode::NotFound,
                "there is nothing to undo: this session has no run",
            ));
        };
        let arguments = serde_json::json!({ "run": run.to_string() }).to_string();
        self.call_client_tool(step, by, UNDO_TOOL.to_owned(), arguments, None)
    }

    pub(crate) fn call_client_tool(
        &mut self,
        step: &mut StepBuilder<'_>,
        by: Actor,
        name: String,
        arguments: String,
        call_id: Option<CallId>,
    ) -> Result<ReplyBody, CommandRefusal> {
        let limit = step.state.manifest.pod.limits.methods;
        if self.client_calls.len() as u64 >= limit {
            return Err(CommandRefusal::new(
                ErrorCode::TooMany,
                format!("{limit} client calls are already waiting"),
            ));
        }
        let call_id = call_id.unwrap_or_else(|| CallId(format!("client_{}", step.ids.next_uuid())));
        let is_taken = step.state.open_call(&call_id).is_some() || self.is_client_call(&call_id);
        if is_taken
            || call_id.0.is_empty()
            || call_id.0.len() > limits::OP_ID_BYTES
            || call_id.0.starts_with("call_")
            || (call_id.0.starts_with(minke_thread::ACCEPTANCE_CALL_PREFIX) && by.actor != ActorKind::Job)
        {
            let message = format!(
                "`call_id` `{call_id}` is taken, empty, too long, or begins with `call_` or `accept_`"
            );
            return Err(CommandRefusal::new(ErrorCode::InvalidRequest, message));
        }
        let arguments = minke_record::Text::from(arguments);
        step.add_effect(Effect::Prepare {
            call_id: call_id.clone(),
            tool: name.clone(),
            arguments: arguments.clone(),
        });
        let call = OpenCall {
            call_id: call_id.clone(),
            tool: name,
            arguments,
            stage: CallStage::Wished,
            by: Some(by),
        };
        self.client_calls.push(ClientCall { call, progress: CallProgress::Preparing(None), ask: None });
        Ok(ReplyBody::Call(call_id))
    }
}

impl Environment {
    pub(crate) fn apply_changes(
        &mut self,
        step: &mut StepBuilder<'_>,
        changes: SessionUpdate,
        by: &Actor,
    ) -> Result<ReplyBody, CommandRefusal> {
        for (_, value) in changes.config.iter().filter(|(key, _)| key == crate::budget::BUDGET_KEY) {
            step.state.check_budget_change(value, by)?;
        }
        if let Some((rule, reach)) = changes.grant {
            step.add_grant(rule, reach, by)?;
        }
        if let Some(name) = changes.name {
            step.append_entry(Renamed { name, by: by.clone() });
        }
        match changes.archived {
            Some(true) => {
                step.append_entry(Archived { by: by.clone() });
            }
            Some(false) => {
                step.append_entry(Unarchived { by: by.clone() });
            }
            None => {}
        }
        for (key, value) in changes.config {
            step.append_entry(ConfigChanged { key, value, by: by.clone() });
        }
        if let Some(route) = changes.route {
            self.changed_route = Some(route);
            self.changed_cost = changes.cost;
            self.failed_models = 0;
        }
        if let Some(goal) = changes.goal {
            let change = if goal.is_some() { GoalChange::Set } else { GoalChange::Clear };
            step.append_entry(Goal { change, text: goal.unwrap_or_default(), used: 0, evidence: None });
        }
        if let Some((percent, note)) = changes.progress {
            step.append_entry(Progress { percent, note });
        }
        Ok(ReplyBody::Ok)
    }
}

impl ClientTable {
    pub(crate) fn add_waiter(
        &mut self,
        step: &mut StepBuilder<'_>,
        reply: Option<ReplyId>,
        condition: crate::WaitCondition,
        timeout_ms: u64,
    ) {
        let Some(reply) = reply else {
            let message = "`wait` needs an `id` for its reply";
            return step.refuse_request(None, CommandRefusal::new(ErrorCode::InvalidRequest, message));
        };
        let at = step.now.saturating_add(timeout_ms.min(MAX_WAIT_MS));
        step.add_effect(Effect::SetTimer { timer: PodTimer::Wait(reply), at });
        self.waiters.push(StateWaiter { reply, condition });
    }
}

fn reply_of_op(op_result: &OpOutcome) -> ReplyBody {
    match op_result {
        OpOutcome::Run(run) => ReplyBody::Run(*run),
        OpOutcome::Queued(id) => ReplyBody::Queued(*id),
    }
}

/// Returns the message of a refusal, with a hint.
fn refusal_message(code: &ErrorCode, phase: PodPhase) -> String {
    match (code, phase) {
        (ErrorCode::AlreadyRunning, PodPhase::Compacting) => {
            "the context is being compacted; wait or cancel it".into()
        }
        (ErrorCode::AlreadyRunning, _) => {
            "a run is open; wait for its end, or use mode `queue`, `steer` or `interrupt`".into()
        }
        (ErrorCode::NotRunning, _) => "no run is open".into(),
        (ErrorCode::NotPaused, _) => "no run is paused".into(),
        (ErrorCode::Conflict, PodPhase::Stopping) => {
            "the pod is stopping; send the input again to restart it".into()
        }
        (_, phase) => format!("not possible while the pod is {}", phase.name()),
    }
}
