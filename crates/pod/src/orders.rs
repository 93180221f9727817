//! Orders: what somebody wants of the pod. The table says what becomes of each; here it is done.

use minke_record::{
    Actor, ActorKind, Archived, CallId, CallStage, Checkpoint, ConfigChanged, DequeueReason, Dequeued,
    ErrorCode, Goal, GoalChange, History, InputSegment, OpGave, OpenCall, Progress, QueueId, QueueMode,
    QueuedInput, Renamed, Rewound, RunId, SegmentReason, StateChange, StateWord, SystemItem, Unarchived,
    limits,
};
use serde_json::Value;

use crate::asks::Answering;
use crate::calls::Work;
use crate::guests::Guest;
use crate::input::{Changes, HooksSaid, Order, Request, Rewind, RunMode, ShutdownMode};
use crate::pod::{Making, Pod, Stopping, Waiter};
use crate::run::{Beginning, Opening, Said, trigger_of};
use crate::step::{Effect, Given, Phase, Refusal};
use crate::table::{Cell, cell};
use crate::{ReplyTo, Timer};

/// The longest a `wait` may wait.
const WAIT_MS: u64 = 24 * 60 * 60 * 1_000;

/// The tool that puts back what a run changed. It is offered to nobody: `undo` calls it.
pub const UNDO: &str = "Undo";

/// An input with everything that goes with it.
struct Saying {
    input: Vec<InputSegment>,
    attached: Vec<SystemItem>,
    mode: RunMode,
    op_id: Option<String>,
    from: Actor,
}

impl Pod {
    pub(crate) fn order(&mut self, m: &mut Making, request: Request) {
        let Some(request) = self.wait_for_scope(m, request) else { return };
        if matches!(request.order, Order::Cancel { .. }) {
            let dropped = self.drop_parked(m, &ErrorCode::Conflict, "cancelled before hooks had seen it");
            if dropped > 0 && self.phase() == Phase::Idle {
                return m.accept(request.reply, Given::Ok);
            }
        }
        self.run_order(m, request, None);
    }

    /// Carries an order out; `heard` is what hooks said about it, if they were asked.
    pub(crate) fn run_order(&mut self, m: &mut Making, request: Request, heard: Option<&HooksSaid>) {
        let phase = self.phase();
        let cell = cell(request.order.kind(), phase);
        let order = &request.order;
        let reply = request.reply;
        // The same operation twice gets the first answer, also when a new one would be refused.
        let again = match order {
            Order::Run { op_id: Some(op_id), .. } => self.state.op(op_id).cloned(),
            _ => None,
        };
        if let Some(gave) = again {
            return m.accept(reply, given(&gave));
        }
        if phase == Phase::Idle
            && let Some(result) = self.job_order(m, order, &request.from)
        {
            return match result {
                Ok(given) => m.accept(reply, given),
                Err(refusal) => m.refuse(reply, refusal),
            };
        }
        if let Cell::Refuse(code) = &cell {
            return m.refuse(reply, Refusal::new(code.clone(), refusal_text(code, phase)));
        }
        if let Some(refusal) = self.cannot_say(order) {
            return m.refuse(reply, refusal);
        }
        let request = match heard {
            None => match self.park(m, request) {
                Some(request) => request,
                None => return,
            },
            Some(said) => {
                self.note_context(m, said);
                request
            }
        };
        let Request { from, order, .. } = request;
        let result = match order {
            Order::Run { input, attached, mode, op_id } => {
                let attached = attached.unwrap_or_default();
                self.say(m, &cell, Saying { input, attached, mode, op_id, from })
            }
            Order::Dequeue { id } => self.dequeue(m, id),
            Order::Notify { message, auto_run } => self.notify(m, &cell, from, message, auto_run),
            Order::PodEvent { event, from: sender, from_seq } => {
                self.pod_event(m, &cell, event, sender, from_seq)
            }
            Order::Resume { detail } => self.resume(m, from, detail),
            Order::Pause { detail } => Ok(self.pause(m, &cell, detail)),
            Order::Cancel { detail } => Ok(self.cancel(m, &cell, from, detail)),
            Order::Answer { ask, decision, note } => {
                self.answer(m, &cell, Answering { ask, decision, note, by: from })
            }
            Order::Compact { .. } => self.compact(&cell),
            Order::Rewind(rewind) => self.rewind(m, *rewind, from),
            Order::Undo { run } => self.undo(m, from, run),
            Order::CallTool { name, arguments, call_id } => self.call_tool(m, from, name, arguments, call_id),
            Order::Checkpoint { id, state } => self.checkpoint(m, id, state),
            Order::Set(changes) => self.set(m, *changes, &from),
            Order::Yield => match self.give_way(m, reply) {
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            Order::RestartMcp { server } => Err(Refusal::new(
                ErrorCode::NotFound,
                format!("no MCP server `{server}`: this pod uses none"),
            )),
            Order::Shutdown { mode } => Ok(self.shutdown(m, &cell, mode)),
            Order::RestorePod(stopped) => match self.restore_pod(m, reply, *stopped) {
                Ok(()) => return,
                Err(refusal) => Err(refusal),
            },
            Order::Wait { until, timeout_ms } => return self.wait(m, reply, until, timeout_ms),
        };
        match result {
            Ok(given) => m.accept(reply, given),
            Err(refusal) => m.refuse(reply, refusal),
        }
    }

    /// Why an input is not accepted, whatever hooks would say.
    fn cannot_say(&self, order: &Order) -> Option<Refusal> {
        let Order::Run { input, attached, op_id, .. } = order else { return None };
        if input.is_empty() {
            return Some(Refusal::new(ErrorCode::InvalidRequest, "`input` is empty: say something"));
        }
        if let Err(why) = attached {
            return Some(Refusal::new(ErrorCode::InvalidRequest, why.clone()));
        }
        if op_id.as_ref().is_some_and(|id| id.is_empty() || id.len() > limits::OP_ID_BYTES) {
            let message = format!("`op_id` must have 1 to {} bytes", limits::OP_ID_BYTES);
            return Some(Refusal::new(ErrorCode::InvalidRequest, message));
        }
        self.cannot_run()
    }

    fn say(&mut self, m: &mut Making, cell: &Cell, saying: Saying) -> Result<Given, Refusal> {
        let waits = self.state.facts.queue.iter().any(|queued| queued.mode != QueueMode::Steer);
        match cell {
            // In Idle with inputs that wait, a queued input takes its place behind them.
            Cell::Start if saying.mode == RunMode::Queue && waits => {
                self.enqueue(m, saying, QueueMode::Queue).inspect(|_| {
                    self.next_from_queue(m);
                })
            }
            Cell::QueueAndStart => self.enqueue(m, saying, QueueMode::Queue).inspect(|_| {
                self.next_from_queue(m);
            }),
            Cell::Queue => self.enqueue(m, saying, QueueMode::Queue),
            Cell::Steer => self.enqueue(m, saying, QueueMode::Steer),
            Cell::CancelThenStart => {
                self.life.suspend_queue = true;
                self.cancel_run(m, "interrupted by a new input");
                self.life.suspend_queue = false;
                Ok(self.start_said(m, saying))
            }
            _ => Ok(self.start_said(m, saying)),
        }
    }

    fn start_said(&mut self, m: &mut Making, saying: Saying) -> Given {
        let Saying { input: segments, attached, op_id, from, .. } = saying;
        let said = Said { segments, attached, op_id, from: from.clone(), queued: None };
        let trigger = trigger_of(&from);
        Given::Run(self.start_run(m, Opening { trigger, by: from, input: Some(said) }))
    }

    fn enqueue(&mut self, m: &mut Making, saying: Saying, mode: QueueMode) -> Result<Given, Refusal> {
        let limit = self.state.manifest.pod.limits.queue;
        if self.state.facts.queue.len() as u64 >= limit {
            let message = format!("{limit} inputs wait already (pod.limits.queue); take one out or wait");
            return Err(Refusal::new(ErrorCode::TooMany, message));
        }
        let id = QueueId(m.ids.next_uuid());
        let Saying { input: segments, attached, op_id, from, .. } = saying;
        self.note(m, QueuedInput { id, segments, op_id, from, mode, attached });
        self.end_waits_for_message();
        Ok(Given::Queued(id))
    }

    fn dequeue(&mut self, m: &mut Making, id: QueueId) -> Result<Given, Refusal> {
        let Some(queued) = self.state.queued(id) else {
            return Err(Refusal::new(ErrorCode::NotFound, format!("no input {id} waits in the queue")));
        };
        let segments = queued.segments.clone();
        self.note(m, Dequeued { id, why: DequeueReason::Removed });
        Ok(Given::Input(segments))
    }

    fn resume(&mut self, m: &mut Making, by: Actor, detail: Option<String>) -> Result<Given, Refusal> {
        if let Some(refusal) = self.cannot_run() {
            return Err(refusal);
        }
        if let Some(reason) = detail {
            self.note_state(m, StateWord::Working, reason, &by);
        }
        match self.resume_run(m, by) {
            Some(run) => Ok(Given::Run(run)),
            None => Err(Refusal::new(ErrorCode::NotPaused, "no run is paused")),
        }
    }

    pub(crate) fn note_state(&mut self, m: &mut Making, state: StateWord, reason: String, by: &Actor) {
        let by = Some(by.clone());
        self.note(m, StateChange { state, on: None, until: None, reason: Some(reason), by, firing: None });
    }

    fn compact(&self, cell: &Cell) -> Result<Given, Refusal> {
        match cell {
            Cell::Nothing => Ok(Given::Ok),
            _ => Err(Refusal::new(ErrorCode::InvalidRequest, "this version cannot compact a context yet")),
        }
    }

    fn rewind(&mut self, m: &mut Making, rewind: Rewind, by: Actor) -> Result<Given, Refusal> {
        if !rewind.head_fits {
            let message = "the log has moved on since the targets were listed; list them again";
            return Err(Refusal::new(ErrorCode::Conflict, message));
        }
        let (Some(target), Some(segment)) = (rewind.target, self.state.segment.clone()) else {
            let message = format!("entry {} is not an input that can be gone back to", rewind.to_seq);
            return Err(Refusal::new(ErrorCode::NotFound, message));
        };
        self.close_calls(m, "the session was rewound");
        if self.phase() == Phase::Paused {
            self.note_state(m, StateWord::Abandoned, "the session was rewound".to_owned(), &by);
            self.forget_wait(m);
        }
        self.note(m, Rewound { to_seq: rewind.to_seq });
        self.begin_segment(
            m,
            Beginning {
                reason: SegmentReason::Rewind,
                system_prompt: segment.system_prompt,
                tools: segment.tools.as_ref().clone(),
                config: segment.config,
                history: History::Here(target.history),
            },
        );
        Ok(Given::Input(target.input))
    }

    /// A client's call like any other: the same gate, and it is in the log with whoever asked for it.
    fn undo(&mut self, m: &mut Making, by: Actor, run: Option<RunId>) -> Result<Given, Refusal> {
        let run = run.or_else(|| self.state.facts.last.as_ref().map(|last| last.id));
        let Some(run) = run else {
            return Err(Refusal::new(
                ErrorCode::NotFound,
                "there is nothing to undo: this session has no run",
            ));
        };
        let arguments = serde_json::json!({ "run": run.to_string() }).to_string();
        self.call_tool(m, by, UNDO.to_owned(), arguments, None)
    }

    pub(crate) fn call_tool(
        &mut self,
        m: &mut Making,
        by: Actor,
        name: String,
        arguments: String,
        call_id: Option<CallId>,
    ) -> Result<Given, Refusal> {
        let limit = self.state.manifest.pod.limits.methods;
        if self.life.guests.len() as u64 >= limit {
            return Err(Refusal::new(ErrorCode::TooMany, format!("{limit} calls of clients wait already")));
        }
        let call_id = call_id.unwrap_or_else(|| CallId(format!("client_{}", m.ids.next_uuid())));
        let taken = self.state.call(&call_id).is_some() || self.is_guest(&call_id);
        if taken
            || call_id.0.is_empty()
            || call_id.0.len() > limits::OP_ID_BYTES
            || call_id.0.starts_with("call_")
            || (call_id.0.starts_with(minke_thread::ACCEPT) && by.actor != ActorKind::Job)
        {
            let message = format!(
                "`call_id` `{call_id}` is taken, empty, too long, or begins with `call_` or `accept_`"
            );
            return Err(Refusal::new(ErrorCode::InvalidRequest, message));
        }
        let arguments = minke_record::Text::from(arguments);
        m.effect(Effect::Prepare {
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
        self.life.guests.push(Guest { call, work: Work::Preparing(None), ask: None });
        Ok(Given::Call(call_id))
    }

    fn checkpoint(&mut self, m: &mut Making, id: String, state: Value) -> Result<Given, Refusal> {
        let bytes = state.to_string().len();
        if bytes > limits::CHECKPOINT_BYTES || id.is_empty() || id.len() > limits::OP_ID_BYTES {
            let message = format!(
                "a checkpoint has an `id` of 1 to {} bytes and a `state` of at most {} bytes (this one: {bytes})",
                limits::OP_ID_BYTES,
                limits::CHECKPOINT_BYTES
            );
            return Err(Refusal::new(ErrorCode::InvalidRequest, message));
        }
        self.note(m, Checkpoint { id, state });
        Ok(Given::Ok)
    }

    fn set(&mut self, m: &mut Making, changes: Changes, by: &Actor) -> Result<Given, Refusal> {
        for (_, value) in changes.config.iter().filter(|(key, _)| key == crate::budget::KEY) {
            self.may_set_budget(value, by)?;
        }
        if let Some(grant) = changes.grant {
            self.take_grant(m, grant, by)?;
        }
        if let Some(name) = changes.name {
            self.note(m, Renamed { name, by: by.clone() });
        }
        match changes.archived {
            Some(true) => {
                self.note(m, Archived { by: by.clone() });
            }
            Some(false) => {
                self.note(m, Unarchived { by: by.clone() });
            }
            None => {}
        }
        for (key, value) in changes.config {
            self.note(m, ConfigChanged { key, value, by: by.clone() });
        }
        if let Some(route) = changes.route {
            self.life.route = Some(route);
            self.life.cost = changes.cost;
            self.life.fallen = 0;
        }
        if let Some(goal) = changes.goal {
            let change = if goal.is_some() { GoalChange::Set } else { GoalChange::Clear };
            self.note(m, Goal { change, text: goal.unwrap_or_default(), used: 0, evidence: None });
        }
        if let Some((percent, note)) = changes.progress {
            self.note(m, Progress { percent, note });
        }
        Ok(Given::Ok)
    }

    fn shutdown(&mut self, m: &mut Making, cell: &Cell, mode: ShutdownMode) -> Given {
        if *cell == Cell::Nothing {
            return Given::Ok;
        }
        if mode == ShutdownMode::AfterRun && self.state.facts.run.is_some() {
            self.life.stopping = Some(Stopping::AfterRun);
        } else {
            self.shut_down(m);
        }
        Given::Ok
    }

    fn wait(&mut self, m: &mut Making, reply: Option<ReplyTo>, until: crate::Until, timeout_ms: u64) {
        let Some(reply) = reply else {
            let message = "`wait` needs an `id`: its reply is all it gives";
            return m.refuse(None, Refusal::new(ErrorCode::InvalidRequest, message));
        };
        let at = m.now.saturating_add(timeout_ms.min(WAIT_MS));
        m.effect(Effect::SetTimer { timer: Timer::Wait(reply), at });
        self.life.waiters.push(Waiter { reply, until });
    }
}

fn given(gave: &OpGave) -> Given {
    match gave {
        OpGave::Run(run) => Given::Run(*run),
        OpGave::Queued(id) => Given::Queued(*id),
    }
}

/// A refusal in words: what stands in the way and what to do.
fn refusal_text(code: &ErrorCode, phase: Phase) -> String {
    match (code, phase) {
        (ErrorCode::AlreadyRunning, Phase::Compacting) => {
            "the context is being compacted; wait or cancel it".into()
        }
        (ErrorCode::AlreadyRunning, _) => {
            "a run is open; wait for its end, or use mode `queue`, `steer` or `interrupt`".into()
        }
        (ErrorCode::NotRunning, _) => "no run is open".into(),
        (ErrorCode::NotPaused, _) => "no run is paused".into(),
        (ErrorCode::Conflict, Phase::Stopping) => {
            "the pod is stopping; send it again, it will be started anew".into()
        }
        (_, phase) => format!("not possible while the pod is {}", phase.name()),
    }
}
