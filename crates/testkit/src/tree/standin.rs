//! A stand-in for a mind: small enough to be seen through, quick enough for millions of steps. It does with its children
//! what a mind must do, and writes it with the product's own entries, folded by the product's own fold.
//!
//! Here: one run at a time, one request at a time, calls that spawn, send and stop. Elsewhere: the product's minds
//! (`minke_pod`), which grow in the same simulation.

use std::collections::BTreeSet;
use std::sync::Arc;

use minke_model::{BlockKind, ModelEvent, Prompt};
use minke_pod::{
    Boot, CallEnd, Effect, Given, Input, Order, Refusal, Reply, ReplyTo, RunMode, Sending, Spawning, State,
    Step, TreeNews, TreeOrder, What,
};
use minke_record::{
    Actor, Budget, CallId, Child, ChildEnd, ChildOutcome, ChildSpent, DequeueReason, Dequeued, Draft, Entry,
    ErrorCode, Holder, Ids, Inbox, Invoke, Kind, LlmCall, LlmEnd, LlmOutcome, LlmUsage, Millis, OpenChild,
    Opened, Outbox, OutboxAck, Own, PodEvent, PodsCall, Purpose, QueueId, QueueMode, QueuedInput, Reserved,
    Route, RunCompleted, RunId, RunResult, Scope, SessionId, Trigger, UserInput,
};
use serde_json::Value;

use super::agent;

/// What a request takes in, and at most gives out.
const INPUT: u64 = 500;
const OUTPUT: u64 = 1_500;
/// Below this a request is not worth making.
const LEAST: u64 = 1_024;
/// Requests of one run.
const TURNS: u64 = 6;

/// One agent's mind, and what is going on in this life of it.
#[derive(Debug)]
pub(super) struct StandIn {
    state: State,
    route: Option<Route>,
    /// Calls of the reply that is streaming in: tool and arguments.
    calls: Vec<(String, String)>,
    asks: bool,
    turn: u64,
    had_calls: bool,
    /// What the run waits for.
    starting: BTreeSet<SessionId>,
    telling: BTreeSet<CallId>,
    stopping: bool,
}

struct Making {
    now: Millis,
    ids: Ids,
    step: Step,
}

impl StandIn {
    pub(super) fn new(state: State) -> StandIn {
        StandIn {
            state,
            route: None,
            calls: Vec::new(),
            asks: false,
            turn: 0,
            had_calls: false,
            starting: BTreeSet::new(),
            telling: BTreeSet::new(),
            stopping: false,
        }
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    pub(super) fn step(&mut self, input: Input) -> Step {
        let now = input.now.max(self.state.facts.last_ts);
        let mut m = Making { now, ids: Ids::new(input.now, input.seed), step: Step::default() };
        match input.what {
            What::Boot(boot) => self.boot(&mut m, *boot),
            What::Order(request) => self.order(&mut m, request.order, request.from, request.reply),
            What::Model { event, .. } => self.model(&mut m, event),
            What::ModelFailed { call, .. } => {
                self.asks = false;
                self.note(&mut m, LlmEnd { outcome: LlmOutcome::Failed, ..ended(call) });
                self.end_run(&mut m, RunResult::Cancelled);
            }
            What::Tree(news) => self.news(&mut m, *news),
            What::Signal => self.stop(&mut m, RunResult::Interrupted),
            _ => {}
        }
        self.go_on(&mut m);
        m.step
    }

    fn note(&mut self, m: &mut Making, kind: impl Into<Kind>) -> u64 {
        let kind = kind.into();
        let durability = kind.durability();
        let run = match &kind {
            Kind::Invoke(_) => Some(RunId(m.ids.next_uuid())),
            _ => self.state.facts.run.as_ref().map(|run| run.id),
        };
        let seq = self.state.next_seq;
        let h = minke_record::Chain::ZERO;
        let entry = Entry { seq, ts: m.now, run, more: false, kind, h };
        self.state.apply(&entry);
        m.step.entries.push(Draft { seq, ts: m.now, run, kind: entry.kind, durability });
        seq
    }

    fn boot(&mut self, m: &mut Making, boot: Boot) {
        let opened = Opened {
            epoch: self.state.facts.epoch + 1,
            pid: boot.pid,
            boot_id: boot.boot_id,
            host: boot.host,
            version: boot.version,
            holder: Holder::Pod,
            fence: None,
            own: None,
        };
        self.route = boot.route;
        self.note(m, opened);
        if self.state.facts.run.is_some() {
            self.note(m, RunCompleted { result: RunResult::Interrupted, reason: None });
        }
        for child in &self.state.facts.children {
            let since = self.state.facts.heard.get(&child.session).copied().unwrap_or(0);
            let (session, name) = (child.session, child.name.clone());
            m.step.effects.push(Effect::Tree(TreeOrder::ReadReports { child: session, since }));
            if child.ended.is_none() {
                m.step.effects.push(Effect::Tree(TreeOrder::Watch { child: session, name }));
            }
        }
        self.report(m);
        self.take_up(m);
    }

    /// The oldest report that nobody has acknowledged.
    fn report(&mut self, m: &mut Making) {
        if let Some(report) = self.state.facts.outbox.front() {
            let (seq, to, event) = (report.seq, report.to, report.event.clone());
            m.step.effects.push(Effect::Tree(TreeOrder::Report { seq, to, event }));
        }
    }

    fn tell_parent(&mut self, m: &mut Making, event: PodEvent) {
        let Some(parent) = self.state.facts.about.as_ref().and_then(|about| about.parent.as_ref()) else {
            return;
        };
        let to = parent.session;
        let first = self.state.facts.outbox.is_empty();
        self.note(m, Outbox { to, event });
        if first {
            self.report(m);
        }
    }

    fn order(&mut self, m: &mut Making, order: Order, from: Actor, reply: Option<ReplyTo>) {
        let result = match order {
            _ if self.stopping => Err(Refusal::new(ErrorCode::Conflict, "it stops")),
            Order::Run { mode: RunMode::Reject, .. } if self.state.facts.run.is_some() => {
                Err(Refusal::new(ErrorCode::AlreadyRunning, "it runs"))
            }
            Order::Run { op_id: Some(op_id), .. } if self.state.op(&op_id).is_some() => Ok(Given::Ok),
            Order::Run { input, op_id, .. } if self.state.facts.run.is_none() => {
                self.note(
                    m,
                    Invoke { trigger: Trigger::UserSend, by: from.clone(), attempt: 1, continues: None },
                );
                self.note(m, UserInput { segments: input, op_id, from, queued: None });
                self.begin(m);
                Ok(self.state.facts.run.as_ref().map_or(Given::Ok, |run| Given::Run(run.id)))
            }
            Order::Run { input, op_id, .. } => {
                let id = QueueId(m.ids.next_uuid());
                self.note(
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
                Ok(Given::Queued(id))
            }
            Order::PodEvent { event, from: sender, from_seq } => {
                let heard = sender.and_then(|sender| self.state.facts.heard.get(&sender));
                if heard.is_none_or(|heard| from_seq.is_some_and(|seq| seq > *heard)) {
                    let from = sender.map_or_else(Actor::minke, Actor::pod);
                    self.note(m, Inbox { from, from_seq, event: Some(event), message: None, wake: false });
                }
                Ok(Given::Ok)
            }
            Order::Shutdown { .. } => {
                self.stop(m, RunResult::Cancelled);
                Ok(Given::Ok)
            }
            _ => Err(Refusal::new(ErrorCode::NotFound, "a stand-in does not do that")),
        };
        m.step.replies.push(Reply { to: reply, result });
    }

    fn take_up(&mut self, m: &mut Making) {
        if self.stopping || self.state.facts.run.is_some() {
            return;
        }
        let Some(next) = self.state.facts.queue.front().cloned() else { return };
        self.note(
            m,
            Invoke { trigger: Trigger::UserSend, by: next.from.clone(), attempt: 1, continues: None },
        );
        self.note(m, Dequeued { id: next.id, why: DequeueReason::Run });
        let (op_id, queued) = (next.op_id, Some(next.id));
        self.note(m, UserInput { segments: next.segments, op_id, from: next.from, queued });
        self.begin(m);
    }

    fn begin(&mut self, m: &mut Making) {
        self.turn = 0;
        self.had_calls = false;
        self.request(m);
    }

    fn left(&self) -> Option<u64> {
        self.state.left().tokens
    }

    fn request(&mut self, m: &mut Making) {
        let left = self.left().unwrap_or(u64::MAX);
        let output = OUTPUT.min(left.saturating_sub(INPUT));
        let Some(route) = self.route.clone().filter(|_| output >= LEAST && self.turn < TURNS) else {
            return self.end_run(m, RunResult::LimitReached);
        };
        let call = self.state.facts.llm_calls;
        self.note(
            m,
            LlmCall {
                call,
                turn: self.turn,
                purpose: Purpose::Turn,
                route: route.clone(),
                request_hash: String::new(),
                builder: 0,
                reserved: Reserved { input: INPUT, output, usd: None },
                continues: None,
            },
        );
        self.turn += 1;
        self.asks = true;
        self.calls.clear();
        m.step.effects.push(Effect::AskModel { call, prompt: Arc::new(Prompt::new(route, Vec::new())) });
    }

    fn model(&mut self, m: &mut Making, event: ModelEvent) {
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
                    self.note(m, used(call, usage.input, usage.output));
                }
            }
            ModelEvent::Done { .. } => {
                if let Some(open) = &self.state.facts.open_llm {
                    let call = open.call;
                    self.note(m, ended(call));
                }
                self.asks = false;
                let calls = std::mem::take(&mut self.calls);
                self.had_calls = !calls.is_empty();
                for (tool, arguments) in calls {
                    self.call(m, &tool, &arguments);
                }
            }
            _ => {}
        }
    }

    fn call(&mut self, m: &mut Making, tool: &str, arguments: &str) {
        let Ok(prepared) = agent::prepare(tool, arguments) else { return };
        let call_id = CallId(format!("{}", m.ids.next_uuid()));
        if tool == agent::COMMAND {
            self.telling.insert(call_id.clone());
            let (tool, class, action) = (tool.to_owned(), prepared.class, prepared.action);
            m.step.effects.push(Effect::RunCall { call_id, tool, arguments: "".into(), class, action });
            return;
        }
        let Some(Own::Pods(pods)) = prepared.own else { return };
        let known = |name: &minke_record::PodName| {
            self.state.facts.children.iter().find(|child| child.name == *name).cloned()
        };
        match *pods {
            PodsCall::Spawn(spawn) => match known(&spawn.name) {
                Some(_) => {}
                None => self.spawn(m, call_id, spawn),
            },
            PodsCall::Send { name, message, mode } => {
                let Some(child) = known(&name) else { return };
                let send = Sending { message, mode, op_id: call_id.0.clone() };
                if child.ended.is_none() {
                    self.telling.insert(call_id.clone());
                    let order = TreeOrder::Send { call_id, child: child.session, name, send };
                    return m.step.effects.push(Effect::Tree(order));
                }
                self.restore(m, call_id, child, send);
            }
            PodsCall::Stop { name, after_run } => {
                let Some(child) = known(&name).filter(|child| child.ended.is_none()) else { return };
                self.telling.insert(call_id.clone());
                let order = TreeOrder::Stop { call_id, child: child.session, name, after_run };
                m.step.effects.push(Effect::Tree(order));
            }
            PodsCall::Read { name, .. } => {
                let Some(child) = known(&name) else { return };
                self.telling.insert(call_id.clone());
                let (child, since) = (child.session, 0);
                let order = TreeOrder::Read { call_id, child, name, since, max_bytes: 1, detail: false };
                m.step.effects.push(Effect::Tree(order));
            }
            PodsCall::List { tree } => {
                self.telling.insert(call_id.clone());
                let children = self.state.facts.children.clone();
                m.step.effects.push(Effect::Tree(TreeOrder::List { call_id, children, tree }));
            }
            PodsCall::Wait { .. } | PodsCall::Answer { .. } => {}
        }
    }

    /// A child's part: what was asked for or half of what is left, and no more than that.
    fn part(&self, wanted: Option<u64>) -> Option<Budget> {
        let tokens = match self.left() {
            Some(left) => Some(wanted.unwrap_or(left / 2).min(left)),
            None => wanted,
        };
        tokens.map(|tokens| Budget { tokens: Some(tokens), ..Budget::default() })
    }

    fn spawn(&mut self, m: &mut Making, call_id: CallId, spawn: minke_record::SpawnPod) {
        let Some(about) = self.state.facts.about.clone() else { return };
        let session = SessionId(m.ids.next_uuid());
        let scope = Scope { allow: spawn.scope, deny: about.scope.deny.clone() };
        let budget = self.part(spawn.budget.and_then(|budget| budget.tokens));
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
        self.note(m, child);
        self.starting.insert(session);
        let spawning = Spawning {
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
        m.step.effects.push(Effect::Tree(TreeOrder::Spawn(Box::new(spawning))));
    }

    fn restore(&mut self, m: &mut Making, call_id: CallId, child: OpenChild, send: Sending) {
        let OpenChild { session, name, scope, line, .. } = child;
        // Those that were adopted from it go back to it, with what they hold.
        let theirs = self.state.theirs(session).map(|open| self.state.open_to(open).tokens);
        let spent = self.state.spent_by(session).tokens + theirs.sum::<u64>();
        let tokens = self.part(None).and_then(|part| part.tokens).map(|part| part + spent);
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
        self.note(m, again);
        self.starting.insert(session);
        let (send, call_id) = (Some(send), Some(call_id));
        let kin = Box::new(self.state.kin_known(session));
        let order = TreeOrder::Restore { child: session, name, scope, budget, kin, send, call_id };
        m.step.effects.push(Effect::Tree(order));
    }

    fn news(&mut self, m: &mut Making, news: TreeNews) {
        let open = |state: &State, child: SessionId| {
            state.live_children().find(|open| open.session == child).cloned()
        };
        match news {
            TreeNews::Spawned { child, .. } => {
                self.starting.remove(&child);
            }
            TreeNews::NotSpawned { child, .. } => {
                self.starting.remove(&child);
                if let Some(open) = open(&self.state, child) {
                    let outcome = ChildOutcome::FailedToStart;
                    self.note(
                        m,
                        ChildEnd { session: child, name: open.name, outcome, exit: None, spent: None },
                    );
                }
            }
            TreeNews::Ended { child, outcome, exit, paid } => {
                self.starting.remove(&child);
                if let Some(open) = open(&self.state, child) {
                    if !paid.is_empty() {
                        self.note(m, ChildSpent { paid });
                    }
                    self.note(m, ChildEnd { session: child, name: open.name, outcome, exit, spent: None });
                }
            }
            TreeNews::Adopted { known, paid } if open(&self.state, known.session).is_none() => {
                self.note(m, ChildSpent { paid });
                let OpenChild { session, name, call_id, scope, budget, adopted_from, line, clone, .. } =
                    *known;
                self.note(m, Child { session, name, call_id, scope, budget, adopted_from, line, clone });
            }
            TreeNews::Spending { paid } => {
                self.note(m, ChildSpent { paid });
            }
            TreeNews::Told { call_id, ended: CallEnd::Done(_) | CallEnd::Failed { .. } }
            | TreeNews::Read { call_id, .. } => {
                self.telling.remove(&call_id);
            }
            TreeNews::Acked { seq } if self.state.facts.outbox.front().is_some_and(|r| r.seq == seq) => {
                self.note(m, OutboxAck { seq });
                self.report(m);
            }
            _ => {}
        }
    }

    fn go_on(&mut self, m: &mut Making) {
        let waits = self.asks || !self.starting.is_empty() || !self.telling.is_empty();
        if self.stopping || self.state.facts.run.is_none() || waits {
            return;
        }
        if std::mem::take(&mut self.had_calls) {
            self.request(m);
        } else {
            self.end_run(m, RunResult::Finished);
        }
    }

    pub(super) fn call_ended(&mut self, call_id: &CallId) {
        self.telling.remove(call_id);
    }

    fn end_run(&mut self, m: &mut Making, result: RunResult) {
        if self.state.facts.run.is_none() {
            return;
        }
        let told = result != RunResult::Interrupted;
        self.note(m, RunCompleted { result, reason: None });
        if told {
            let event = PodEvent::TurnEnded { pod_name: String::new(), result: None, wake: None };
            self.tell_parent(m, event);
        }
        self.take_up(m);
    }

    fn stop(&mut self, m: &mut Making, result: RunResult) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        if let Some(call) = self.state.facts.open_llm.as_ref().map(|open| open.call).filter(|_| self.asks) {
            m.step.effects.push(Effect::StopModel { call });
            self.note(m, LlmEnd { outcome: LlmOutcome::Cancelled, ..ended(call) });
        }
        self.asks = false;
        self.end_run(m, result);
        let outcome = Some(ChildOutcome::Stopped);
        self.tell_parent(
            m,
            PodEvent::ShutDown { pod_name: String::new(), outcome, result: None, wake: None },
        );
        m.step.effects.push(Effect::Exit);
    }
}

fn used(call: u64, input: u64, output: u64) -> LlmUsage {
    LlmUsage { call, input, output, cache_read: 0, cache_write: 0, cost_usd: None, cache_drop: None }
}

fn ended(call: u64) -> LlmEnd {
    LlmEnd { call, outcome: LlmOutcome::Done, attempts: 1, stream_blob: None, stream_bytes: None }
}
