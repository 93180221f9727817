//! Children: calls about pods that this one has spawned, and the events that these pods cause.
//!
//! Elsewhere: their state (`child_state`), the messages to the driver (`child_messages`), spawning and
//! restarting (`spawn`), waiting (`child_wait`), budgets (`budget`), reports to this pod's own parent
//! (`outbox`).
//! Invariant: a name belongs to the child's session as long as this pod remembers it; only a failed first
//! start frees it (`a_failed_spawn_frees_its_name.story`, killed everywhere).

pub(crate) mod messages;
pub(crate) mod outbox;
pub(crate) mod scope_yield;
pub(crate) mod spawn;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod wait;

use minke_record::{
    Actor, AskId, CallId, CallStage, Child, ChildEnd, ChildOutcome, ChildSpent, CloneOrigin, Decision,
    ErrorCode, Inbox, Judgement, OpenCall, OpenChild, Outcome, PodEvent, PodName, PodSpend, PodToolCall,
    ReadTo, SessionId, Spend, Trigger,
};

use crate::calls::{CallProgress, CallResult};
use crate::children::messages::{ChildCommand, ChildEvent, OutgoingMessage};
use crate::children::table::ChildTable;
use crate::children::wait::PodWait;
use crate::engine::{InputHandler, PodEngine, RunningWork};
use crate::environment::Environment;
use crate::input::{CallEnd, CallOutput};
use crate::state::State;
use crate::step::{CommandRefusal, Effect, PodPhase, ReplyBody};
use crate::step_builder::StepBuilder;

/// Maximum number of ended children whose reports and spending are read at boot.
const MAX_ENDED_CHILDREN_READ: usize = 64;
/// Maximum number of readings in one entry.
const MAX_SPENDING_PER_ENTRY: usize = 256;

impl State {
    fn unknown_child_message(&self, name: &PodName) -> String {
        let known: Vec<&str> = self.facts.children.iter().map(|child| child.name.as_str()).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        format!("no spawned pod named {name}; known: {known}")
    }

    /// Returns an id that makes an input unique. An adopted child may have inputs with call ids of its former
    /// parent, so they include this pod's session.
    fn child_op_id(&self, child: &OpenChild, id: &CallId) -> String {
        match (child.adopted_from, &self.facts.about) {
            (Some(_), Some(about)) => format!("{}:{id}", about.session),
            _ => id.to_string(),
        }
    }

    fn child_of_call(&self, call: &OpenCall) -> Option<&OpenChild> {
        let CallStage::Dispatched(dispatched) = &call.stage else { return None };
        let by_call = self.facts.children.iter().find(|child| child.call_id == call.call_id);
        let name = dispatched.action.pod.as_ref();
        by_call.or_else(|| {
            self.facts
                .children
                .iter()
                .rev()
                .find(|child| Some(child.name.as_str()) == name.map(String::as_str))
        })
    }

    /// Returns the result of a call about a child whose effect is unknown.
    pub(crate) fn lost_call_result(&self, call: &OpenCall) -> CallResult {
        let known = match self.child_of_call(call) {
            None => "there is no such pod: it was not started, or its start was undone".to_owned(),
            Some(child) if child.ended.is_none() => {
                format!("pod `{}` is running; ReadPodOutput shows its output", child.name)
            }
            Some(child) => format!("pod `{}` {}", child.name, child_end_phrase(child)),
        };
        CallResult::error(Outcome::Lost, format!("interrupted; it was not repeated: {known}"))
    }
}

impl StepBuilder<'_> {
    /// Appends new spending of descendants.
    pub(crate) fn append_spending(&mut self, paid: &[PodSpend]) {
        let known = &self.state.facts.paid;
        let new = |paid: &&PodSpend| {
            known.get(&paid.session).is_none_or(|known| {
                known.read_to < paid.read_to && (known.spent, known.under) != (paid.spent, paid.under)
            })
        };
        let paid: Vec<PodSpend> = paid.iter().filter(new).copied().collect();
        for paid in paid.chunks(MAX_SPENDING_PER_ENTRY) {
            self.append_entry(ChildSpent { paid: paid.to_vec() });
        }
    }
}

impl Environment {
    /// Returns the result of a call about other pods that cannot be made.
    pub(crate) fn check_pods_call(&self, state: &State, pods: &PodToolCall) -> Option<CallResult> {
        let unknown = |name: &PodName| {
            state.child_by_name(name).is_none().then(|| invalid_call(state.unknown_child_message(name)))
        };
        match pods {
            PodToolCall::Spawn(spawn) => self.plan_child(state, spawn).err().map(invalid_call),
            PodToolCall::Send { name, .. }
            | PodToolCall::Read { name, .. }
            | PodToolCall::Stop { name, .. } => unknown(name),
            PodToolCall::Wait { names, .. } => names.iter().find_map(unknown),
            PodToolCall::List { .. } => None,
            PodToolCall::Answer { name, ask, decision } => {
                unknown(name).or_else(|| self.check_child_answer(state, name, *ask, decision))
            }
        }
    }

    /// A pod may answer an ask only if its user permits it, and only for actions that it could do without
    /// asking.
    pub(crate) fn check_child_answer(
        &self,
        state: &State,
        name: &PodName,
        ask: AskId,
        decision: &Decision,
    ) -> Option<CallResult> {
        if !state.manifest.permissions.may_answer {
            let message = "this pod may not answer questions (permissions.may_answer); a person does";
            return Some(CallResult::error(Outcome::Refused, message));
        }
        let child = state.child_by_name(name)?;
        let Some(open) = child.asks.iter().find(|open| open.id == ask) else {
            return Some(invalid_call(format!("pod `{name}` has not asked {ask}, or it has been answered")));
        };
        if !decision.is_approval() {
            return None;
        }
        let allowed = open.subject.action.as_ref().map(|action| self.judge_action(state, action));
        match allowed {
            Some(verdict) if verdict.outcome == Judgement::Allow => None,
            Some(verdict) => {
                let message =
                    format!("your own policy would not allow it without asking: {}", verdict.reason);
                Some(CallResult::error(Outcome::Refused, message))
            }
            None => Some(CallResult::error(Outcome::Refused, "only a person answers this question")),
        }
    }
}

impl PodEngine {
    /// Starts a dispatched call about other pods.
    pub(crate) fn start_pods_call(&mut self, step: &mut StepBuilder<'_>, call: &OpenCall, pods: PodToolCall) {
        let id = &call.call_id;
        if let Some(problem) = self.process.environment.check_pods_call(step.state, &pods) {
            return self.work.calls.settle_call_by(step, id, problem, call.by.clone());
        }
        let Some(CallStage::Dispatched(dispatched)) = step.state.open_call(id).map(|call| call.stage.clone())
        else {
            return;
        };
        let progress =
            CallProgress::Running { class: dispatched.class.clone(), action: dispatched.action.clone() };
        self.work.calls.call_progress.insert(id.clone(), progress);
        match pods {
            PodToolCall::Spawn(spawn) => self.spawn_child(step, id, spawn),
            PodToolCall::Send { name, message, mode } => {
                let Some(child) = step.state.child_by_name(&name).cloned() else { return };
                let send = OutgoingMessage { message, mode, op_id: step.state.child_op_id(&child, id) };
                if child.ended.is_some() {
                    return self.restart_child(step, &child, Some(send), Some(id.clone()));
                }
                let (call_id, child) = (id.clone(), child.session);
                step.add_effect(Effect::Child(ChildCommand::Send { call_id, child, name, message: send }));
            }
            PodToolCall::Read { name, since, max_bytes, detail } => {
                let Some(child) = step.state.child_by_name(&name).map(|child| child.session) else { return };
                let read = step.state.facts.read_to.get(&child).copied();
                let (call_id, since) = (id.clone(), since.or(read).unwrap_or(0));
                step.add_effect(Effect::Child(ChildCommand::Read {
                    call_id,
                    child,
                    name,
                    since,
                    max_bytes,
                    detail,
                }));
            }
            PodToolCall::Wait { names, until, timeout_s } => {
                let children = names.iter().filter_map(|name| step.state.child_by_name(name));
                let children = children.map(|child| child.session).collect();
                let deadline = dispatched.at.saturating_add(timeout_s.saturating_mul(1_000));
                self.start_pod_wait(step, PodWait::new(id.clone(), children, until, deadline));
            }
            PodToolCall::Stop { name, after_run } => self.work.stop_child(step, id, &name, after_run),
            PodToolCall::List { tree } => {
                let children = step.state.facts.children.clone();
                if children.is_empty() {
                    let result = completed_call("no pods have been spawned".to_owned(), None);
                    return self.work.calls.settle_call_by(step, id, result, call.by.clone());
                }
                step.add_effect(Effect::Child(ChildCommand::List { call_id: id.clone(), children, tree }));
            }
            PodToolCall::Answer { name, ask, decision } => {
                let Some(child) = step.state.child_by_name(&name).map(|child| child.session) else { return };
                let call_id = id.clone();
                step.add_effect(Effect::Child(ChildCommand::Answer { call_id, child, name, ask, decision }));
            }
        }
    }
}

impl InputHandler<'_, '_> {
    /// Handles an event about another pod, or the result of a command.
    pub(crate) fn apply_child_event(&mut self, event: ChildEvent) {
        match event {
            ChildEvent::CallFinished { call_id, ended } => self.finish_call(&call_id, ended),
            ChildEvent::Read { call_id, child, to_seq, ended } => {
                self.apply_child_read(&call_id, child, to_seq, ended)
            }
            ChildEvent::ReportAcked { seq } => self.acknowledge_report(seq),
            ChildEvent::Spawned { child, socket, clone, delivery } => {
                self.apply_child_started(child, socket, clone, delivery)
            }
            ChildEvent::SpawnFailed { child, code, message } => {
                self.apply_spawn_failure(child, &code, message)
            }
            ChildEvent::Ended { child, outcome: ChildOutcome::Returned, .. } => {
                self.apply_child_returned(child)
            }
            ChildEvent::Ended { child, outcome, exit, paid } => {
                self.apply_child_exit(child, outcome, exit, &paid)
            }
            ChildEvent::Adopted { known, paid } => {
                self.engine.work.children.adopt_child(self.step, *known, &paid)
            }
            ChildEvent::Spending { paid } => self.step.append_spending(&paid),
            ChildEvent::ParentAvailable => {}
            ChildEvent::Scope { released: body, problem } => self.apply_scope_change(body, problem),
        }
    }

    /// Appends the read position and the result of a read in one step.
    pub(crate) fn apply_child_read(&mut self, id: &CallId, child: SessionId, to: u64, ended: CallEnd) {
        if !matches!(self.engine.work.calls.call_progress.get(id), Some(CallProgress::Running { .. })) {
            return;
        }
        let read = self.step.state.facts.read_to.get(&child).copied().unwrap_or(0);
        if to > read && matches!(ended, CallEnd::Done(_)) {
            self.step.append_entry(ReadTo { session: child, seq: to });
        }
        if !self.end_pod_wait_with_text(id, &ended) {
            self.finish_call(id, ended);
        }
    }

    /// Handles a child that reported `ready`.
    pub(crate) fn apply_child_started(
        &mut self,
        session: SessionId,
        socket: String,
        clone: Option<CloneOrigin>,
        sent: Option<String>,
    ) {
        self.engine.work.children.watched_children.remove(&session);
        let Some(child) = self.step.state.child(session).filter(|child| child.ended.is_none()).cloned()
        else {
            return;
        };
        if clone.is_some() && clone != child.clone {
            self.step.append_entry(repeated_child_entry(&child, clone));
        }
        let started = self.engine.process.child_starts.starting_children.remove(&session);
        if started {
            self.step.report_loan(&child, &socket);
        }
        self.settle_lost_calls(session);
        for reply in self.engine.process.child_starts.take_restore_waiters(session) {
            let body = ReplyBody::Restored { name: child.name.clone(), session, socket: socket.clone() };
            self.step.accept_request(Some(reply), body);
        }
        let waits = matches!(
            self.engine.work.calls.call_progress.get(&child.call_id),
            Some(CallProgress::Running { .. })
        );
        if !(started && waits) {
            return;
        }
        if let Some(deadline) = self.engine.work.children.spawn_deadlines.remove(&child.call_id) {
            let wait = PodWait::new(child.call_id, vec![session], minke_record::WaitUntil::Any, deadline);
            return self.engine.start_pod_wait(self.step, wait.with_child_text());
        }
        let state = sent.clone().unwrap_or_else(|| "started".to_owned());
        let summary = match &sent {
            Some(sent) => format!("pod `{}` was started again; the message: {sent}", child.name),
            None => format!("pod `{}` is started", child.name),
        };
        let scope = child.scope.summary();
        let content = format!(
            "name: {}\nsession: {session}\nsocket: {socket}\nstate: {state}\nscope: {scope}",
            child.name
        );
        self.finish_call(&child.call_id, CallEnd::done(summary, Some(content)));
    }

    /// Handles a child that failed to start. The driver has undone its parts.
    pub(crate) fn apply_spawn_failure(&mut self, session: SessionId, code: &ErrorCode, message: String) {
        self.engine.work.children.watched_children.remove(&session);
        self.engine.process.child_starts.starting_children.remove(&session);
        let Some(child) = self.step.state.child(session).filter(|child| child.ended.is_none()).cloned()
        else {
            return;
        };
        let name = child.name.clone();
        let outcome = ChildOutcome::FailedToStart;
        self.step.append_entry(ChildEnd { session, name, outcome, exit: None, spent: None });
        self.settle_lost_calls(session);
        for reply in self.engine.process.child_starts.take_restore_waiters(session) {
            self.step.refuse_request(Some(reply), CommandRefusal::new(code.clone(), message.clone()));
        }
        self.engine.work.children.spawn_deadlines.remove(&child.call_id);
        let ended = match code {
            ErrorCode::InvalidRequest | ErrorCode::Conflict | ErrorCode::TooMany | ErrorCode::NotFound => {
                CallEnd::Invalid { message }
            }
            _ => CallEnd::Failed { message },
        };
        self.finish_call(&child.call_id, ended);
    }

    /// Handles the end of a child: its lease is free, its sandboxes are gone, its loan is back.
    pub(crate) fn apply_child_exit(
        &mut self,
        session: SessionId,
        outcome: ChildOutcome,
        exit: Option<i32>,
        paid: &[PodSpend],
    ) {
        self.engine.work.children.watched_children.remove(&session);
        self.engine.process.child_starts.starting_children.remove(&session);
        let Some(child) = self.step.state.child(session).filter(|child| child.ended.is_none()).cloned()
        else {
            return;
        };
        self.step.append_spending(paid);
        let spent = self.step.state.spent_by(session).spent_since(&child.before);
        let name = child.name.clone();
        let end = ChildEnd { session, name, outcome: outcome.clone(), exit, spent: Some(spent) };
        self.step.append_entry(end);
        let since = self.step.state.facts.heard.get(&session).copied().unwrap_or(0);
        self.step.add_effect(Effect::Child(ChildCommand::ReadReports { child: session, since }));
        let stopped = self.engine.work.children.stop_calls.remove(&session);
        if outcome == ChildOutcome::Crashed && stopped.is_none() {
            let status = exit.map(|exit| format!("exit status {exit}"));
            let event = PodEvent::ShutDown {
                pod_name: child.name.to_string(),
                outcome: Some(outcome),
                result: Some(status.unwrap_or_else(|| "crashed".to_owned())),
                wake: Some(true),
            };
            let from = Actor::from_pod(session);
            self.step.append_entry(Inbox {
                from,
                from_seq: None,
                event: Some(event),
                message: None,
                wake: true,
            });
        }
        self.settle_lost_calls(session);
        if let Some(id) = stopped {
            let ended = self.step.state.child(session).unwrap_or(&child).clone();
            let call_end = CallEnd::done(
                format!("pod `{}` {}", ended.name, child_end_phrase(&ended)),
                Some(child_end_report(&ended, &spent)),
            );
            self.finish_call(&id, call_end);
        }
        if self.step.state.has_pending_notes()
            && self.engine.process.exit.phase(self.step.state) == PodPhase::Idle
        {
            self.start_run_for_notes(Trigger::PodEvent, Actor::from_pod(session));
        }
    }

    /// Removes an adopted child that its own parent has back. Its budget was adjusted when the parent
    /// restarted.
    pub(crate) fn apply_child_returned(&mut self, session: SessionId) {
        self.engine.work.children.watched_children.remove(&session);
        let child = self.step.state.child(session).filter(|child| child.ended.is_none());
        let Some(name) = child.map(|child| child.name.clone()) else { return };
        self.step.append_entry(ChildEnd {
            session,
            name,
            outcome: ChildOutcome::Returned,
            exit: None,
            spent: None,
        });
        self.settle_lost_calls(session);
    }

    pub(crate) fn settle_lost_calls(&mut self, session: SessionId) {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.engine.work.children.lost_calls)
            .into_iter()
            .partition(|(_, child)| *child == session);
        self.engine.work.children.lost_calls = later;
        for (id, _) in now {
            let Some(call) = self.step.state.open_call(&id).cloned() else { continue };
            let result = self.step.state.lost_call_result(&call);
            self.engine.work.calls.settle_call(self.step, &id, result);
            self.continue_after_call();
        }
    }
}

impl RunningWork {
    pub(crate) fn stop_child(
        &mut self,
        step: &mut StepBuilder<'_>,
        id: &CallId,
        name: &PodName,
        after_run: bool,
    ) {
        let Some(child) = step.state.child_by_name(name).cloned() else { return };
        if child.ended.is_some() {
            let spent = step.state.spent_by(child.session);
            let result = completed_call(
                format!("pod `{name}` {}", child_end_phrase(&child)),
                Some(child_end_report(&child, &spent)),
            );
            return self.calls.settle_call(step, id, result);
        }
        let (call_id, session, name) = (id.clone(), child.session, name.clone());
        if !after_run {
            self.children.stop_calls.insert(session, id.clone());
        }
        step.add_effect(Effect::Child(ChildCommand::Stop { call_id, child: session, name, after_run }));
    }

    /// Settles an open call of an earlier process about a child. If the child's state is still unknown, the
    /// call waits for it.
    pub(crate) fn settle_lost_call(&mut self, step: &mut StepBuilder<'_>, call: &OpenCall) {
        let CallStage::Dispatched(dispatched) = &call.stage else { return };
        let child = step.state.child_of_call(call).map(|child| child.session);
        if let Some(session) = child.filter(|session| self.children.watched_children.contains(session)) {
            let progress =
                CallProgress::Running { class: dispatched.class.clone(), action: dispatched.action.clone() };
            self.calls.call_progress.insert(call.call_id.clone(), progress);
            self.children.lost_calls.push((call.call_id.clone(), session));
            return;
        }
        let result = step.state.lost_call_result(call);
        self.calls.settle_call(step, &call.call_id, result);
    }
}

impl ChildTable {
    /// Adopts a descendant whose parent has ended.
    pub(crate) fn adopt_child(&mut self, step: &mut StepBuilder<'_>, known: OpenChild, paid: &[PodSpend]) {
        let session = known.session;
        if step.state.child(session).is_some_and(|child| child.ended.is_none()) {
            return;
        }
        step.append_spending(paid);
        let name = known.name.clone();
        step.append_entry(repeated_child_entry(&known, known.clone.clone()));
        self.watch_child(step, session, name);
    }

    pub(crate) fn watch_child(&mut self, step: &mut StepBuilder<'_>, session: SessionId, name: PodName) {
        self.watched_children.insert(session);
        step.add_effect(Effect::Child(ChildCommand::Watch { child: session, name }));
        let since = step.state.facts.heard.get(&session).copied().unwrap_or(0);
        step.add_effect(Effect::Child(ChildCommand::ReadReports { child: session, since }));
    }

    /// At boot: watches the children of earlier processes and reads their reports.
    pub(crate) fn watch_all_children(&mut self, step: &mut StepBuilder<'_>) {
        let all = step.state.facts.children.clone();
        for child in all.iter().filter(|child| child.ended.is_none()) {
            self.watch_child(step, child.session, child.name.clone());
        }
        for child in all.iter().rev().filter(|child| child.ended.is_some()).take(MAX_ENDED_CHILDREN_READ) {
            let since = step.state.facts.heard.get(&child.session).copied().unwrap_or(0);
            step.add_effect(Effect::Child(ChildCommand::ReadReports { child: child.session, since }));
            step.add_effect(Effect::Child(ChildCommand::ReadSpending { child: child.session }));
        }
    }

    /// Watches children whose start may have been lost with a failed write.
    pub(crate) fn watch_starting_children(&mut self, step: &mut StepBuilder<'_>) {
        let unsure: Vec<(SessionId, PodName)> = step
            .state
            .live_children()
            .filter(|child| !child.ready)
            .map(|child| (child.session, child.name.clone()))
            .collect();
        for (session, name) in unsure {
            self.watch_child(step, session, name);
        }
    }
}

/// Returns an entry with the known facts of a child.
fn repeated_child_entry(child: &OpenChild, clone: Option<CloneOrigin>) -> Child {
    Child {
        session: child.session,
        name: child.name.clone(),
        call_id: child.call_id.clone(),
        scope: child.scope.clone(),
        budget: child.budget,
        adopted_from: child.adopted_from,
        line: child.line.clone(),
        clone,
    }
}

pub(crate) fn invalid_call(message: String) -> CallResult {
    CallResult::error(Outcome::Invalid, message)
}

pub(crate) fn completed_call(summary: String, content: Option<String>) -> CallResult {
    CallResult::with_output(Outcome::Done, CallOutput { summary, content, ..CallOutput::default() })
}

/// Returns the end of a sentence about how a child ended.
pub(crate) fn child_end_phrase(child: &OpenChild) -> String {
    let Some(ended) = &child.ended else { return "is running".to_owned() };
    let exit = ended.exit.map(|exit| format!(", exit status {exit}")).unwrap_or_default();
    match &ended.outcome {
        ChildOutcome::FailedToStart => "could not be started".to_owned(),
        ChildOutcome::Slept => format!("has stopped: idle{exit}"),
        ChildOutcome::Stopped => format!("has stopped{exit}"),
        ChildOutcome::Crashed => format!("has crashed{exit}"),
        ChildOutcome::Returned => "is back with its own parent".to_owned(),
        ChildOutcome::Other(word) => format!("has ended ({word}){exit}"),
    }
}

fn child_end_report(child: &OpenChild, spent: &Spend) -> String {
    let cost = if spent.unknown_cost > 0 { " and more of unknown price" } else { "" };
    format!(
        "reclaimed: {}\nspent: {} tokens, {:.4} USD{cost}, {} requests",
        child.scope.summary(),
        spent.tokens,
        spent.usd,
        spent.turns
    )
}
