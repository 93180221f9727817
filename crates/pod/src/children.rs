//! Children: pods that this one has spawned, and what is heard of them.
//!
//! Here: calls about children, and what news of them lead to. Elsewhere: how they are folded (`family`), what hands are
//! asked (`tree`), making and waking one (`spawning`), waiting for them (`waits`), what a child may spend
//! (`budget`), reports of this pod to its own parent (`outbox`).
//! Invariant: a name stands for the child's session as long as this pod remembers it, and only a first start that failed
//! frees it (`a_failed_spawn_frees_its_name.story`, killed everywhere).

use minke_record::{
    Actor, AskId, CallId, CallStage, Child, ChildEnd, ChildOutcome, ChildSpent, CloneOf, Decision, ErrorCode,
    Inbox, Judgement, OpenCall, OpenChild, Outcome, Paid, PodEvent, PodName, PodsCall, ReadTo, SessionId,
    Spent, Trigger,
};

use crate::calls::{Settled, Work};
use crate::input::{CallEnd, Said};
use crate::pod::{Making, Pod};
use crate::step::{Effect, Given, Phase, Refusal};
use crate::tree::{Sending, TreeNews, TreeOrder};
use crate::waits::Waits;

/// Of children that have ended, this many are looked at for reports and for what they spent when the pod boots.
const ENDED_LOOKED_AT: usize = 64;
/// So many readings stand in one entry.
const PAID_AT_ONCE: usize = 256;

impl Pod {
    /// Whether a call about other pods can be made at all; else how it ends.
    pub(crate) fn pods_problem(&self, pods: &PodsCall) -> Option<Settled> {
        let unknown =
            |name: &PodName| self.state.child_named(name).is_none().then(|| invalid(self.no_child(name)));
        match pods {
            PodsCall::Spawn(spawn) => self.child_plan(spawn).err().map(invalid),
            PodsCall::Send { name, .. } | PodsCall::Read { name, .. } | PodsCall::Stop { name, .. } => {
                unknown(name)
            }
            PodsCall::Wait { names, .. } => names.iter().find_map(unknown),
            PodsCall::List { .. } => None,
            PodsCall::Answer { name, ask, decision } => {
                unknown(name).or_else(|| self.may_not_answer(name, *ask, decision))
            }
        }
    }

    fn no_child(&self, name: &PodName) -> String {
        let known: Vec<&str> = self.state.facts.children.iter().map(|child| child.name.as_str()).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        format!("no spawned pod named {name}; known: {known}")
    }

    /// A pod answers for a person only if a person said so, and only what it could do itself without asking.
    fn may_not_answer(&self, name: &PodName, ask: AskId, decision: &Decision) -> Option<Settled> {
        if !self.state.manifest.permissions.may_answer {
            let message = "this pod may not answer questions (permissions.may_answer); a person does";
            return Some(Settled::error(Outcome::Refused, message));
        }
        let child = self.state.child_named(name)?;
        let Some(open) = child.asks.iter().find(|open| open.id == ask) else {
            return Some(invalid(format!("pod `{name}` has not asked {ask}, or it has been answered")));
        };
        if !decision.approves() {
            return None;
        }
        let allowed = open.subject.action.as_ref().map(|action| self.judge(action));
        match allowed {
            Some(verdict) if verdict.outcome == Judgement::Allow => None,
            Some(verdict) => {
                let message =
                    format!("your own policy would not allow it without asking: {}", verdict.reason);
                Some(Settled::error(Outcome::Refused, message))
            }
            None => Some(Settled::error(Outcome::Refused, "only a person answers this question")),
        }
    }

    /// A call about other pods, which has been dispatched.
    pub(crate) fn pods_call(&mut self, m: &mut Making, call: &OpenCall, pods: PodsCall) {
        let id = &call.call_id;
        if let Some(problem) = self.pods_problem(&pods) {
            return self.settle_call_by(m, id, problem, call.by.clone());
        }
        let Some(CallStage::Dispatched(dispatched)) = self.state.call(id).map(|call| call.stage.clone())
        else {
            return;
        };
        let work = Work::Running { class: dispatched.class.clone(), action: dispatched.action.clone() };
        self.life.work.insert(id.clone(), work);
        match pods {
            PodsCall::Spawn(spawn) => self.spawn(m, id, spawn),
            PodsCall::Send { name, message, mode } => {
                let Some(child) = self.state.child_named(&name).cloned() else { return };
                let send = Sending { message, mode, op_id: self.op_id(&child, id) };
                if child.ended.is_some() {
                    return self.wake_child(m, &child, Some(send), Some(id.clone()));
                }
                let (call_id, child) = (id.clone(), child.session);
                m.effect(Effect::Tree(TreeOrder::Send { call_id, child, name, send }));
            }
            PodsCall::Read { name, since, max_bytes, detail } => {
                let Some(child) = self.state.child_named(&name).map(|child| child.session) else { return };
                let read = self.state.facts.read_to.get(&child).copied();
                let (call_id, since) = (id.clone(), since.or(read).unwrap_or(0));
                m.effect(Effect::Tree(TreeOrder::Read { call_id, child, name, since, max_bytes, detail }));
            }
            PodsCall::Wait { names, until, timeout_s } => {
                let children = names.iter().filter_map(|name| self.state.child_named(name));
                let children = children.map(|child| child.session).collect();
                let deadline = dispatched.at.saturating_add(timeout_s.saturating_mul(1_000));
                self.wait_for_pods(m, Waits::new(id.clone(), children, until, deadline));
            }
            PodsCall::Stop { name, after_run } => self.stop_child(m, id, &name, after_run),
            PodsCall::List { tree } => {
                let children = self.state.facts.children.clone();
                if children.is_empty() {
                    let settled = done("there are no pods: none was spawned".to_owned(), None);
                    return self.settle_call_by(m, id, settled, call.by.clone());
                }
                m.effect(Effect::Tree(TreeOrder::List { call_id: id.clone(), children, tree }));
            }
            PodsCall::Answer { name, ask, decision } => {
                let Some(child) = self.state.child_named(&name).map(|child| child.session) else { return };
                let call_id = id.clone();
                m.effect(Effect::Tree(TreeOrder::Answer { call_id, child, name, ask, decision }));
            }
        }
    }

    /// Makes an input once. A call's id is this pod's own; for a child that had another parent it must not be one of
    /// that one's.
    fn op_id(&self, child: &OpenChild, id: &CallId) -> String {
        match (child.adopted_from, &self.state.facts.about) {
            (Some(_), Some(about)) => format!("{}:{id}", about.session),
            _ => id.to_string(),
        }
    }

    fn stop_child(&mut self, m: &mut Making, id: &CallId, name: &PodName, after_run: bool) {
        let Some(child) = self.state.child_named(name).cloned() else { return };
        if child.ended.is_some() {
            let spent = self.state.spent_by(child.session);
            let settled = done(format!("pod `{name}` {}", how(&child)), Some(end_of(&child, &spent)));
            return self.settle_call(m, id, settled);
        }
        let (call_id, session, name) = (id.clone(), child.session, name.clone());
        if !after_run {
            self.life.stops.insert(session, id.clone());
        }
        m.effect(Effect::Tree(TreeOrder::Stop { call_id, child: session, name, after_run }));
    }

    /// Something has come of an order to other pods, or has happened to one.
    pub(crate) fn tree_news(&mut self, m: &mut Making, news: TreeNews) {
        match news {
            TreeNews::Told { call_id, ended } => self.call_ended(m, &call_id, ended),
            TreeNews::Read { call_id, child, to_seq, ended } => {
                self.read_child(m, &call_id, (child, to_seq), ended)
            }
            TreeNews::Acked { seq } => self.acknowledged(m, seq),
            TreeNews::Spawned { child, socket, clone, sent } => {
                self.child_lives(m, child, socket, (clone, sent))
            }
            TreeNews::NotSpawned { child, code, message } => {
                self.child_does_not_live(m, child, &code, message)
            }
            TreeNews::Ended { child, outcome: ChildOutcome::Returned, .. } => {
                self.child_is_handed_back(m, child)
            }
            TreeNews::Ended { child, outcome, exit, paid } => {
                self.child_is_gone(m, child, (outcome, exit), &paid)
            }
            TreeNews::Adopted { known, paid } => self.adopt(m, *known, &paid),
            TreeNews::Spending { paid } => self.note_spending(m, &paid),
            TreeNews::ParentThere => {}
            TreeNews::Scope { given, problem } => self.scope_changed(m, given, problem),
        }
    }

    /// What a child said, and how far it has been read: one step.
    fn read_child(&mut self, m: &mut Making, id: &CallId, (child, to): (SessionId, u64), ended: CallEnd) {
        if !matches!(self.life.work.get(id), Some(Work::Running { .. })) {
            return;
        }
        let read = self.state.facts.read_to.get(&child).copied().unwrap_or(0);
        if to > read && matches!(ended, CallEnd::Done(_)) {
            self.note(m, ReadTo { session: child, seq: to });
        }
        if !self.end_wait_with_text(m, id, &ended) {
            self.call_ended(m, id, ended);
        }
    }

    /// A child has said `ready`.
    fn child_lives(
        &mut self,
        m: &mut Making,
        session: SessionId,
        socket: String,
        (clone, sent): (Option<CloneOf>, Option<String>),
    ) {
        self.life.watching.remove(&session);
        let Some(child) = self.state.child(session).filter(|child| child.ended.is_none()).cloned() else {
            return;
        };
        if clone.is_some() && clone != child.clone {
            self.note(m, again(&child, clone));
        }
        let started = self.life.starting.remove(&session);
        if started {
            self.tell_of_loan(m, &child, &socket);
        }
        self.settle_lost(m, session);
        for reply in self.take_restoring(session) {
            let given = Given::Restored { name: child.name.clone(), session, socket: socket.clone() };
            m.accept(Some(reply), given);
        }
        let waits = matches!(self.life.work.get(&child.call_id), Some(Work::Running { .. }));
        if !(started && waits) {
            return;
        }
        if let Some(deadline) = self.life.spawn_waits.remove(&child.call_id) {
            let wait = Waits::new(child.call_id, vec![session], minke_record::WaitUntil::Any, deadline);
            return self.wait_for_pods(m, wait.with_text());
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
        self.call_ended(m, &child.call_id, CallEnd::done(summary, Some(content)));
    }

    /// A child has not begun to live; everything that was done for it is undone.
    fn child_does_not_live(&mut self, m: &mut Making, session: SessionId, code: &ErrorCode, message: String) {
        self.life.watching.remove(&session);
        self.life.starting.remove(&session);
        let Some(child) = self.state.child(session).filter(|child| child.ended.is_none()).cloned() else {
            return;
        };
        let name = child.name.clone();
        let outcome = ChildOutcome::FailedToStart;
        self.note(m, ChildEnd { session, name, outcome, exit: None, spent: None });
        self.settle_lost(m, session);
        for reply in self.take_restoring(session) {
            m.refuse(Some(reply), Refusal::new(code.clone(), message.clone()));
        }
        self.life.spawn_waits.remove(&child.call_id);
        let ended = match code {
            ErrorCode::InvalidRequest | ErrorCode::Conflict | ErrorCode::TooMany | ErrorCode::NotFound => {
                CallEnd::Invalid { message }
            }
            _ => CallEnd::Failed { message },
        };
        self.call_ended(m, &child.call_id, ended);
    }

    /// A child is gone: lease free, fences gone, loan back.
    fn child_is_gone(
        &mut self,
        m: &mut Making,
        session: SessionId,
        (outcome, exit): (ChildOutcome, Option<i32>),
        paid: &[Paid],
    ) {
        self.life.watching.remove(&session);
        self.life.starting.remove(&session);
        let Some(child) = self.state.child(session).filter(|child| child.ended.is_none()).cloned() else {
            return;
        };
        self.note_spending(m, paid);
        let spent = self.state.spent_by(session).since(&child.before);
        let name = child.name.clone();
        let end = ChildEnd { session, name, outcome: outcome.clone(), exit, spent: Some(spent) };
        self.note(m, end);
        let since = self.state.facts.heard.get(&session).copied().unwrap_or(0);
        m.effect(Effect::Tree(TreeOrder::ReadReports { child: session, since }));
        let stopped = self.life.stops.remove(&session);
        if outcome == ChildOutcome::Crashed && stopped.is_none() {
            let status = exit.map(|exit| format!("exit status {exit}"));
            let event = PodEvent::ShutDown {
                pod_name: child.name.to_string(),
                outcome: Some(outcome),
                result: Some(status.unwrap_or_else(|| "crashed".to_owned())),
                wake: Some(true),
            };
            let from = Actor::pod(session);
            self.note(m, Inbox { from, from_seq: None, event: Some(event), message: None, wake: true });
        }
        self.settle_lost(m, session);
        if let Some(id) = stopped {
            let ended = self.state.child(session).unwrap_or(&child).clone();
            let said =
                CallEnd::done(format!("pod `{}` {}", ended.name, how(&ended)), Some(end_of(&ended, &spent)));
            self.call_ended(m, &id, said);
        }
        if self.notes_wait() && self.phase() == Phase::Idle {
            self.wake(m, Trigger::PodEvent, Actor::pod(session));
        }
    }

    /// A pod below is this pod's child now: whoever was between them is gone.
    fn adopt(&mut self, m: &mut Making, known: OpenChild, paid: &[Paid]) {
        let session = known.session;
        if self.state.child(session).is_some_and(|child| child.ended.is_none()) {
            return;
        }
        self.note_spending(m, paid);
        let name = known.name.clone();
        self.note(m, again(&known, known.clone.clone()));
        self.watch_child(m, session, name);
    }

    /// A pod that came back has its own children again. What they may spend is in its budget since it was woken.
    fn child_is_handed_back(&mut self, m: &mut Making, session: SessionId) {
        self.life.watching.remove(&session);
        let child = self.state.child(session).filter(|child| child.ended.is_none());
        let Some(name) = child.map(|child| child.name.clone()) else { return };
        self.note(m, ChildEnd { session, name, outcome: ChildOutcome::Returned, exit: None, spent: None });
        self.settle_lost(m, session);
    }

    /// What pods below have spent, as far as it is new.
    pub(crate) fn note_spending(&mut self, m: &mut Making, paid: &[Paid]) {
        let known = &self.state.facts.paid;
        let new = |paid: &&Paid| {
            known.get(&paid.session).is_none_or(|known| {
                known.read_to < paid.read_to && (known.spent, known.under) != (paid.spent, paid.under)
            })
        };
        let paid: Vec<Paid> = paid.iter().filter(new).copied().collect();
        for paid in paid.chunks(PAID_AT_ONCE) {
            self.note(m, ChildSpent { paid: paid.to_vec() });
        }
    }

    fn watch_child(&mut self, m: &mut Making, session: SessionId, name: PodName) {
        self.life.watching.insert(session);
        m.effect(Effect::Tree(TreeOrder::Watch { child: session, name }));
        let since = self.state.facts.heard.get(&session).copied().unwrap_or(0);
        m.effect(Effect::Tree(TreeOrder::ReadReports { child: session, since }));
    }

    /// A new process: children of earlier lives are looked after, and their reports read from their logs.
    pub(crate) fn look_after_children(&mut self, m: &mut Making) {
        let all = self.state.facts.children.clone();
        for child in all.iter().filter(|child| child.ended.is_none()) {
            self.watch_child(m, child.session, child.name.clone());
        }
        for child in all.iter().rev().filter(|child| child.ended.is_some()).take(ENDED_LOOKED_AT) {
            let since = self.state.facts.heard.get(&child.session).copied().unwrap_or(0);
            m.effect(Effect::Tree(TreeOrder::ReadReports { child: child.session, since }));
            m.effect(Effect::Tree(TreeOrder::ReadSpending { child: child.session }));
        }
    }

    /// The hands were lost with a write: whoever was being started is looked for.
    pub(crate) fn look_for_started(&mut self, m: &mut Making) {
        let unsure: Vec<(SessionId, PodName)> = self
            .state
            .live_children()
            .filter(|child| !child.ready)
            .map(|child| (child.session, child.name.clone()))
            .collect();
        for (session, name) in unsure {
            self.watch_child(m, session, name);
        }
    }

    /// An open call of an earlier life about a child: its end says what is known of the child. If that is still being
    /// looked up, it waits for it.
    pub(crate) fn settle_lost_call(&mut self, m: &mut Making, call: &OpenCall) {
        let CallStage::Dispatched(dispatched) = &call.stage else { return };
        let child = self.child_of(call).map(|child| child.session);
        if let Some(session) = child.filter(|session| self.life.watching.contains(session)) {
            let work = Work::Running { class: dispatched.class.clone(), action: dispatched.action.clone() };
            self.life.work.insert(call.call_id.clone(), work);
            self.life.lost.push((call.call_id.clone(), session));
            return;
        }
        let settled = self.lost_call(call);
        self.settle_call(m, &call.call_id, settled);
    }

    fn child_of(&self, call: &OpenCall) -> Option<&OpenChild> {
        let CallStage::Dispatched(dispatched) = &call.stage else { return None };
        let by_call = self.state.facts.children.iter().find(|child| child.call_id == call.call_id);
        let name = dispatched.action.pod.as_ref();
        by_call.or_else(|| {
            self.state
                .facts
                .children
                .iter()
                .rev()
                .find(|child| Some(child.name.as_str()) == name.map(String::as_str))
        })
    }

    /// How a call about a child ends of which nobody knows what became.
    pub(crate) fn lost_call(&self, call: &OpenCall) -> Settled {
        let known = match self.child_of(call) {
            None => "there is no such pod: it was not started, or its start was undone".to_owned(),
            Some(child) if child.ended.is_none() => {
                format!("pod `{}` is there; ReadPodOutput shows what it did", child.name)
            }
            Some(child) => format!("pod `{}` {}", child.name, how(child)),
        };
        Settled::error(Outcome::Lost, format!("interrupted; it was not done again: {known}"))
    }

    fn settle_lost(&mut self, m: &mut Making, session: SessionId) {
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.life.lost).into_iter().partition(|(_, child)| *child == session);
        self.life.lost = later;
        for (id, _) in now {
            let Some(call) = self.state.call(&id).cloned() else { continue };
            let settled = self.lost_call(&call);
            self.settle_call(m, &id, settled);
            self.after_settling(m);
        }
    }
}

/// The entry of a child once more, as it is known.
fn again(child: &OpenChild, clone: Option<CloneOf>) -> Child {
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

pub(crate) fn invalid(message: String) -> Settled {
    Settled::error(Outcome::Invalid, message)
}

pub(crate) fn done(summary: String, content: Option<String>) -> Settled {
    Settled::with(Outcome::Done, Said { summary, content, ..Said::default() })
}

/// How a child ended, as the end of a sentence.
pub(crate) fn how(child: &OpenChild) -> String {
    let Some(ended) = &child.ended else { return "lives".to_owned() };
    let exit = ended.exit.map(|exit| format!(", exit status {exit}")).unwrap_or_default();
    match &ended.outcome {
        ChildOutcome::FailedToStart => "could not be started".to_owned(),
        ChildOutcome::Slept => format!("has stopped: idle{exit}"),
        ChildOutcome::Stopped => format!("has stopped{exit}"),
        ChildOutcome::Crashed => format!("has crashed{exit}"),
        ChildOutcome::Returned => "is its own parent's again".to_owned(),
        ChildOutcome::Other(word) => format!("has ended ({word}){exit}"),
    }
}

fn end_of(child: &OpenChild, spent: &Spent) -> String {
    let cost = if spent.unknown_cost > 0 { " and more of unknown price" } else { "" };
    format!(
        "reclaimed: {}\nspent: {} tokens, {:.4} USD{cost}, {} requests",
        child.scope.summary(),
        spent.tokens,
        spent.usd,
        spent.turns
    )
}
