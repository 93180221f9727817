//! A stand-in for the pod: small and fast enough for millions of steps. It handles its children like a pod,
//! and uses the product's entries and fold.
//!
//! It has one run and one request at a time, and calls that spawn, send and stop. Elsewhere: the product's
//! pod (`minke_pod`), which runs in the same simulation.

use std::collections::BTreeSet;
use std::sync::Arc;

use minke_model::{BlockKind, ModelEvent, Prompt};
use minke_pod::{
    BootInfo, CallEnd, ChildCommand, ChildEvent, CommandRefusal, CommandReply, Effect, InputKind,
    OutgoingMessage, PodCommand, PodInput, ReplyBody, ReplyId, RunMode, SpawnRequest, State, Step,
};
use minke_record::{
    Actor, Budget, CallId, Child, ChildEnd, ChildOutcome, ChildSpent, DequeueReason, Dequeued, Draft, Entry,
    ErrorCode, Holder, IdGenerator, Inbox, InternalCall, Invoke, Kind, LlmCall, LlmEnd, LlmOutcome, LlmUsage,
    Millis, OpenChild, Opened, Outbox, OutboxAck, PodEvent, PodToolCall, Purpose, QueueId, QueueMode,
    QueuedInput, Reserved, Route, RunCompleted, RunId, RunResult, Scope, SessionId, Trigger, UserInput,
};
use serde_json::Value;

use super::agent;

/// Tokens of a request: its input and its maximum output.
const INPUT_TOKENS: u64 = 500;
const MAX_OUTPUT_TOKENS: u64 = 1_500;
/// Minimum useful output.
const MIN_OUTPUT_TOKENS: u64 = 1_024;
/// Maximum number of requests of one run.
const MAX_TURNS: u64 = 6;

/// One agent with its state and pending work.
#[derive(Debug)]
pub(super) struct StandInPod {
    state: State,
    route: Option<Route>,
    /// Calls of the streaming reply: tool and arguments.
    calls: Vec<(String, String)>,
    has_request: bool,
    turn: u64,
    had_calls: bool,
    /// Children and calls that the run waits for.
    starting_children: BTreeSet<SessionId>,
    open_calls: BTreeSet<CallId>,
    is_stopping: bool,
}

struct StandInStep {
    now: Millis,
    ids: IdGenerator,
    step: Step,
}

impl StandInPod {
    pub(super) fn new(state: State) -> StandInPod {
        StandInPod {
            state,
            route: None,
            calls: Vec::new(),
            has_request: false,
            turn: 0,
            had_calls: false,
            starting_children: BTreeSet::new(),
            open_calls: BTreeSet::new(),
            is_stopping: false,
        }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn step(&mut self, input: PodInput) -> Step {
        let now = input.now.max(self.state.facts.last_ts);
        let mut m = StandInStep { now, ids: IdGenerator::new(input.now, input.seed), step: Step::default() };
        match input.kind {
            InputKind::Boot(boot) => self.handle_boot(&mut m, *boot),
            InputKind::Command(request) => {
                self.handle_command(&mut m, request.command, request.from, request.reply)
            }
            InputKind::Model { event, .. } => self.handle_model_event(&mut m, event),
            InputKind::ModelFailed { call, .. } => {
                self.has_request = false;
                self.append_entry(&mut m, LlmEnd { outcome: LlmOutcome::Failed, ..llm_end(call) });
                self.end_run(&mut m, RunResult::Cancelled);
            }
            InputKind::Child(event) => self.handle_child_event(&mut m, *event),
            InputKind::Signal => self.stop_pod(&mut m, RunResult::Interrupted),
            _ => {}
        }
        self.continue_run(&mut m);
        m.step
    }

    fn append_entry(&mut self, m: &mut StandInStep, kind: impl Into<Kind>) -> u64 {
        let kind = kind.into();
        let durability = kind.durability();
        let run = match &kind {
            Kind::Invoke(_) => Some(RunId(m.ids.next_uuid())),
            _ => self.state.facts.run.as_ref().map(|run| run.id),
        };
        let seq = self.state.next_seq;
        let h = minke_record::ChainHash::ZERO;
        let entry = Entry { seq, ts: m.now, run, more: false, kind, h };
        self.state.apply_entry(&entry);
        m.step.entries.push(Draft { seq, ts: m.now, run, kind: entry.kind, durability });
        seq
    }

    fn handle_boot(&mut self, m: &mut StandInStep, boot: BootInfo) {
        let opened = Opened {
            epoch: self.state.facts.epoch + 1,
            pid: boot.pid,
            boot_id: boot.boot_id,
            host: boot.host,
            version: boot.version,
            holder: Holder::Pod,
            sandbox: minke_record::LoggedBackend::NONE,
            own: None,
        };
        self.route = boot.route;
        self.append_entry(m, opened);
        if self.state.facts.run.is_some() {
            self.append_entry(m, RunCompleted { result: RunResult::Interrupted, reason: None });
        }
        for child in &self.state.facts.children {
            let since = self.state.facts.heard.get(&child.session).copied().unwrap_or(0);
            let (session, name) = (child.session, child.name.clone());
            m.step.effects.push(Effect::Child(ChildCommand::ReadReports { child: session, since }));
            if child.ended.is_none() {
                m.step.effects.push(Effect::Child(ChildCommand::Watch { child: session, name }));
            }
        }
        self.send_report(m);
        self.start_queued(m);
    }

    /// Sends the oldest unacknowledged report.
    fn send_report(&mut self, m: &mut StandInStep) {
        if let Some(report) = self.state.facts.outbox.front() {
            let (seq, to, event) = (report.seq, report.to, report.event.clone());
            m.step.effects.push(Effect::Child(ChildCommand::Report { seq, to, event }));
        }
    }

    fn report_to_parent(&mut self, m: &mut StandInStep, event: PodEvent) {
        let Some(parent) = self.state.facts.about.as_ref().and_then(|about| about.parent.as_ref()) else {
            return;
        };
        let to = parent.session;
        let first = self.state.facts.outbox.is_empty();
        self.append_entry(m, Outbox { to, event });
        if first {
            self.send_report(m);
        }
    }

    fn handle_command(
        &mut self,
        m: &mut StandInStep,
        order: PodCommand,
        from: Actor,
        reply: Option<ReplyId>,
    ) {
        let result = match order {
            _ if self.is_stopping => Err(CommandRefusal::new(ErrorCode::Conflict, "it is stopping")),
            PodCommand::Run { mode: RunMode::Reject, .. } if self.state.facts.run.is_some() => {
                Err(CommandRefusal::new(ErrorCode::AlreadyRunning, "it runs"))
            }
            PodCommand::Run { op_id: Some(op_id), .. } if self.state.op_result(&op_id).is_some() => {
                Ok(ReplyBody::Ok)
            }
            PodCommand::Run { input, op_id, .. } if self.state.facts.run.is_none() => {
                self.append_entry(
                    m,
                    Invoke { trigger: Trigger::UserSend, by: from.clone(), attempt: 1, continues: None },
                );
                self.append_entry(m, UserInput { segments: input, op_id, from, queued: None });
                self.begin_run(m);
                Ok(self.state.facts.run.as_ref().map_or(ReplyBody::Ok, |run| ReplyBody::Run(run.id)))
            }
            PodCommand::Run { input, op_id, .. } => {
                let id = QueueId(m.ids.next_uuid());
                self.append_entry(
                    m,
                    QueuedInput {
                        id,
                        segments: input,
                        op_id,
                        from,
                        mode: QueueMode::Queue,
                        attached: Vec::new(),
                    },
                );
                Ok(ReplyBody::Queued(id))
            }
            PodCommand::PodEvent { event, from: sender, from_seq } => {
                let heard = sender.and_then(|sender| self.state.facts.heard.get(&sender));
                if heard.is_none_or(|heard| from_seq.is_some_and(|seq| seq > *heard)) {
                    let from = sender.map_or_else(Actor::from_minke, Actor::from_pod);
                    self.append_entry(
                        m,
                        Inbox { from, from_seq, event: Some(event), message: None, wake: false },
                    );
                }
                Ok(ReplyBody::Ok)
            }
            PodCommand::Shutdown { .. } => {
                self.stop_pod(m, RunResult::Cancelled);
                Ok(ReplyBody::Ok)
            }
            _ => Err(CommandRefusal::new(ErrorCode::NotFound, "a stand-in does not support that")),
        };
        m.step.replies.push(CommandReply { to: reply, result });
    }

    fn start_queued(&mut self, m: &mut StandInStep) {
        if self.is_stopping || self.state.facts.run.is_some() {
            return;
        }
        let Some(next) = self.state.facts.queue.front().cloned() else { return };
        self.append_entry(
            m,
            Invoke { trigger: Trigger::UserSend, by: next.from.clone(), attempt: 1, continues: None },
        );
        self.append_entry(m, Dequeued { id: next.id, why: DequeueReason::Run });
        let (op_id, queued) = (next.op_id, Some(next.id));
        self.append_entry(m, UserInput { segments: next.segments, op_id, from: next.from, queued });
        self.begin_run(m);
    }

    fn begin_run(&mut self, m: &mut StandInStep) {
        self.turn = 0;
        self.had_calls = false;
        self.send_request(m);
    }

    fn remaining_tokens(&self) -> Option<u64> {
        self.state.remaining_budget().tokens
    }

    fn send_request(&mut self, m: &mut StandInStep) {
        let left = self.remaining_tokens().unwrap_or(u64::MAX);
        let output = MAX_OUTPUT_TOKENS.min(left.saturating_sub(INPUT_TOKENS));
        let Some(route) = self.route.clone().filter(|_| output >= MIN_OUTPUT_TOKENS && self.turn < MAX_TURNS)
        else {
            return self.end_run(m, RunResult::LimitReached);
        };
        let call = self.state.facts.llm_calls;
        self.append_entry(
            m,
            LlmCall {
                call,
                turn: self.turn,
                purpose: Purpose::Turn,
                route: route.clone(),
                request_hash: String::new(),
                builder: 0,
                reserved: Reserved { input: INPUT_TOKENS, output, usd: None },
                continues: None,
            },
        );
        self.turn += 1;
        self.has_request = true;
        self.calls.clear();
        m.step.effects.push(Effect::AskModel { call, prompt: Arc::new(Prompt::new(route, Vec::new())) });
    }

    fn handle_model_event(&mut self, m: &mut StandInStep, event: ModelEvent) {
        match event {
            ModelEvent::BlockStart { kind: BlockKind::ToolCall { name, .. }, .. } => {
                self.calls.push((name, String::new()));
            }
            ModelEvent::Delta { text, .. } => {
                if let Some((_, arguments)) = self.calls.last_mut() {
                    arguments.push_str(&text);
                }
            }
            ModelEvent::Usage(usage) => {
                if let Some(open) = &self.state.facts.open_llm {
                    let call = open.call;
                    self.append_entry(m, llm_usage(call, usage.input, usage.output));
                }
            }
            ModelEvent::Done { .. } => {
                if let Some(open) = &self.state.facts.open_llm {
                    let call = open.call;
                    self.append_entry(m, llm_end(call));
                }
                self.has_request = false;
                let calls = std::mem::take(&mut self.calls);
                self.had_calls = !calls.is_empty();
                for (tool, arguments) in calls {
                    self.start_call(m, &tool, &arguments);
                }
            }
            _ => {}
        }
    }

    fn start_call(&mut self, m: &mut StandInStep, tool: &str, arguments: &str) {
        let Ok(prepared) = agent::prepare_call(tool, arguments) else { return };
        let call_id = CallId(format!("{}", m.ids.next_uuid()));
        if tool == agent::COMMAND_TOOL {
            self.open_calls.insert(call_id.clone());
            let (tool, class, action) = (tool.to_owned(), prepared.class, prepared.action);
            m.step.effects.push(Effect::RunCall {
                call_id,
                tool,
                arguments: "".into(),
                class,
                action,
                checks_scripts: false,
            });
            return;
        }
        let Some(InternalCall::Pods(pods)) = prepared.internal_call else { return };
        let known = |name: &minke_record::PodName| {
            self.state.facts.children.iter().find(|child| child.name == *name).cloned()
        };
        match *pods {
            PodToolCall::Spawn(spawn) => match known(&spawn.name) {
                Some(_) => {}
                None => self.spawn_child(m, call_id, spawn),
            },
            PodToolCall::Send { name, message, mode } => {
                let Some(child) = known(&name) else { return };
                let send = OutgoingMessage { message, mode, op_id: call_id.0.clone() };
                if child.ended.is_none() {
                    self.open_calls.insert(call_id.clone());
                    let order = ChildCommand::Send { call_id, child: child.session, name, message: send };
                    return m.step.effects.push(Effect::Child(order));
                }
                self.restore_child(m, call_id, child, send);
            }
            PodToolCall::Stop { name, after_run } => {
                let Some(child) = known(&name).filter(|child| child.ended.is_none()) else { return };
                self.open_calls.insert(call_id.clone());
                let order = ChildCommand::Stop { call_id, child: child.session, name, after_run };
                m.step.effects.push(Effect::Child(order));
            }
            PodToolCall::Read { name, .. } => {
                let Some(child) = known(&name) else { return };
                self.open_calls.insert(call_id.clone());
                let (child, since) = (child.session, 0);
                let order = ChildCommand::Read { call_id, child, name, since, max_bytes: 1, detail: false };
                m.step.effects.push(Effect::Child(order));
            }
            PodToolCall::List { tree } => {
                self.open_calls.insert(call_id.clone());
                let children = self.state.facts.children.clone();
                m.step.effects.push(Effect::Child(ChildCommand::List { call_id, children, tree }));
            }
            PodToolCall::Wait { .. } | PodToolCall::Answer { .. } => {}
        }
    }

    /// Returns a child's budget: the requested one or half of the remaining budget, at most the remaining
    /// one.
    fn child_budget(&self, wanted: Option<u64>) -> Option<Budget> {
        let tokens = match self.remaining_tokens() {
            Some(left) => Some(wanted.unwrap_or(left / 2).min(left)),
            None => wanted,
        };
        tokens.map(|tokens| Budget { tokens: Some(tokens), ..Budget::default() })
    }

    fn spawn_child(&mut self, m: &mut StandInStep, call_id: CallId, spawn: minke_record::SpawnPod) {
        let Some(about) = self.state.facts.about.clone() else { return };
        let session = SessionId(m.ids.next_uuid());
        let scope = Scope { allow: spawn.scope, deny: about.scope.deny.clone() };
        let budget = self.child_budget(spawn.budget.and_then(|budget| budget.tokens));
        let child = Child {
            session,
            name: spawn.name.clone(),
            call_id: call_id.clone(),
            scope: scope.clone(),
            budget,
            adopted_from: None,
            line: Vec::new(),
            clone: None,
        };
        self.append_entry(m, child);
        self.starting_children.insert(session);
        let request = SpawnRequest {
            call_id,
            parent: about.session,
            session,
            name: spawn.name,
            scope,
            task: spawn.task,
            cwd: about.cwd,
            workspace: about.workspace,
            profile: None,
            instruction: None,
            manifest: Value::Object(serde_json::Map::new()),
            budget,
            permissions: Value::Null,
            clone: false,
            depth: 0,
        };
        m.step.effects.push(Effect::Child(ChildCommand::Spawn(Box::new(request))));
    }

    fn restore_child(
        &mut self,
        m: &mut StandInStep,
        call_id: CallId,
        child: OpenChild,
        send: OutgoingMessage,
    ) {
        let OpenChild { session, name, scope, line, .. } = child;
        // Its adopted children go back to it with their budgets.
        let theirs =
            self.state.children_adopted_from(session).map(|open| self.state.unspent_budget_of(open).tokens);
        let spent = self.state.spent_by(session).tokens + theirs.sum::<u64>();
        let tokens = self.child_budget(None).and_then(|part| part.tokens).map(|part| part + spent);
        let budget = tokens.map(|tokens| Budget { tokens: Some(tokens), ..Budget::default() });
        let again = Child {
            session,
            name: name.clone(),
            call_id: call_id.clone(),
            scope: scope.clone(),
            budget,
            adopted_from: line.first().copied(),
            line,
            clone: None,
        };
        self.append_entry(m, again);
        self.starting_children.insert(session);
        let (message, call_id) = (Some(send), Some(call_id));
        let descendants = Box::new(self.state.descendant_state(session));
        let order =
            ChildCommand::Restore { child: session, name, scope, budget, descendants, message, call_id };
        m.step.effects.push(Effect::Child(order));
    }

    fn handle_child_event(&mut self, m: &mut StandInStep, event: ChildEvent) {
        let open = |state: &State, child: SessionId| {
            state.live_children().find(|open| open.session == child).cloned()
        };
        match event {
            ChildEvent::Spawned { child, .. } => {
                self.starting_children.remove(&child);
            }
            ChildEvent::SpawnFailed { child, .. } => {
                self.starting_children.remove(&child);
                if let Some(open) = open(&self.state, child) {
                    let outcome = ChildOutcome::FailedToStart;
                    self.append_entry(
                        m,
                        ChildEnd { session: child, name: open.name, outcome, exit: None, spent: None },
                    );
                }
            }
            ChildEvent::Ended { child, outcome, exit, paid } => {
                self.starting_children.remove(&child);
                if let Some(open) = open(&self.state, child) {
                    if !paid.is_empty() {
                        self.append_entry(m, ChildSpent { paid });
                    }
                    self.append_entry(
                        m,
                        ChildEnd { session: child, name: open.name, outcome, exit, spent: None },
                    );
                }
            }
            ChildEvent::Adopted { known, paid } if open(&self.state, known.session).is_none() => {
                self.append_entry(m, ChildSpent { paid });
                let OpenChild { session, name, call_id, scope, budget, adopted_from, line, clone, .. } =
                    *known;
                self.append_entry(
                    m,
                    Child { session, name, call_id, scope, budget, adopted_from, line, clone },
                );
            }
            ChildEvent::Spending { paid } => {
                self.append_entry(m, ChildSpent { paid });
            }
            ChildEvent::CallFinished { call_id, ended: CallEnd::Done(_) | CallEnd::Failed { .. } }
            | ChildEvent::Read { call_id, .. } => {
                self.open_calls.remove(&call_id);
            }
            ChildEvent::ReportAcked { seq }
                if self.state.facts.outbox.front().is_some_and(|r| r.seq == seq) =>
            {
                self.append_entry(m, OutboxAck { seq });
                self.send_report(m);
            }
            _ => {}
        }
    }

    fn continue_run(&mut self, m: &mut StandInStep) {
        let waits = self.has_request || !self.starting_children.is_empty() || !self.open_calls.is_empty();
        if self.is_stopping || self.state.facts.run.is_none() || waits {
            return;
        }
        if std::mem::take(&mut self.had_calls) {
            self.send_request(m);
        } else {
            self.end_run(m, RunResult::Finished);
        }
    }

    pub(super) fn remove_call(&mut self, call_id: &CallId) {
        self.open_calls.remove(call_id);
    }

    fn end_run(&mut self, m: &mut StandInStep, result: RunResult) {
        if self.state.facts.run.is_none() {
            return;
        }
        let told = result != RunResult::Interrupted;
        self.append_entry(m, RunCompleted { result, reason: None });
        if told {
            let event = PodEvent::TurnEnded { pod_name: String::new(), result: None, wake: None };
            self.report_to_parent(m, event);
        }
        self.start_queued(m);
    }

    fn stop_pod(&mut self, m: &mut StandInStep, result: RunResult) {
        if std::mem::replace(&mut self.is_stopping, true) {
            return;
        }
        if let Some(call) =
            self.state.facts.open_llm.as_ref().map(|open| open.call).filter(|_| self.has_request)
        {
            m.step.effects.push(Effect::StopModel { call });
            self.append_entry(m, LlmEnd { outcome: LlmOutcome::Cancelled, ..llm_end(call) });
        }
        self.has_request = false;
        self.end_run(m, result);
        let outcome = Some(ChildOutcome::Stopped);
        self.report_to_parent(
            m,
            PodEvent::ShutDown { pod_name: String::new(), outcome, result: None, wake: None },
        );
        m.step.effects.push(Effect::Exit);
    }
}

fn llm_usage(call: u64, input: u64, output: u64) -> LlmUsage {
    LlmUsage { call, input, output, cache_read: 0, cache_write: 0, cost_usd: None, cache_drop: None }
}

fn llm_end(call: u64) -> LlmEnd {
    LlmEnd { call, outcome: LlmOutcome::Done, attempts: 1, stream_blob: None, stream_bytes: None }
}
