//! The hand that reaches other pods, simulated: every order is a small machine that takes one step at a time, so that its
//! process can die between any two of them.
//!
//! Here: the orders that are done at once, and which errand each of the others becomes. Elsewhere: making a child
//! (`saga`), letters (`wire`), the table (`machine`).

use minke_pod::{CallEnd, Given, Order, Refusal, Request, RunMode, ShutdownMode, TreeNews, TreeOrder, What};
use minke_record::{
    Actor, Budget, CallId, ChildOutcome, EndResult, Entry, Holder, InputSegment, Kind, Millis, OpenChild,
    Paid, PodEvent, PodName, RunResult, SendMode, SessionId,
};
use minke_registry::Loan;

use super::log::Session;
use super::saga::Start;
use super::wire::Exchange;
use super::{Flaw, Key, Minds, Tree};

/// How long a child may take for each step of being stopped.
const STOP_MS: Millis = 5_000;
/// An order to a child that does not answer is given up after this time.
const GIVES_UP_MS: Millis = 30_000;

/// Something that a process is in the middle of.
#[derive(Debug)]
pub(super) enum Errand {
    Start(Box<Start>),
    Watch(Watching),
    Stop(Stopping),
    Say(Saying),
    Report(Reporting),
}

/// A child that is looked after.
#[derive(Debug)]
pub(super) struct Watching {
    pub(super) child: SessionId,
    pub(super) name: PodName,
    /// It is known that it lived, or its mind does not wait to hear so.
    pub(super) known: bool,
}

#[derive(Debug)]
pub(super) struct Stopping {
    call_id: CallId,
    child: SessionId,
    after_run: bool,
    exchange: Exchange,
    /// 0 asked, 1 signalled, 2 killed.
    harder: u8,
    since: Millis,
}

/// An input or an answer for a child.
#[derive(Debug)]
pub(super) struct Saying {
    call_id: CallId,
    child: SessionId,
    order: Order,
    exchange: Exchange,
    since: Millis,
}

#[derive(Debug)]
pub(super) struct Reporting {
    seq: u64,
    pub(super) to: SessionId,
    event: PodEvent,
    exchange: Exchange,
}

impl Errand {
    pub(super) fn exchange(&mut self) -> Option<&mut Exchange> {
        match self {
            Errand::Stop(stop) => Some(&mut stop.exchange),
            Errand::Say(say) => Some(&mut say.exchange),
            Errand::Report(report) => Some(&mut report.exchange),
            Errand::Start(_) | Errand::Watch(_) => None,
        }
    }

    /// Whether nothing is left of it when the call is.
    pub(super) fn is_only_for(&self, id: &CallId) -> bool {
        matches!(self, Errand::Say(say) if say.call_id == *id)
    }

    pub(super) fn watches(&self, session: SessionId) -> bool {
        match self {
            Errand::Watch(watch) => watch.child == session,
            Errand::Start(start) => start.child == session,
            Errand::Stop(_) | Errand::Say(_) | Errand::Report(_) => false,
        }
    }
}

pub(super) fn run_mode(mode: SendMode) -> RunMode {
    match mode {
        SendMode::Queue => RunMode::Queue,
        SendMode::Steer => RunMode::Steer,
        SendMode::Interrupt => RunMode::Interrupt,
        SendMode::Reject => RunMode::Reject,
    }
}

impl Tree {
    pub(super) fn order(&mut self, key: Key, order: TreeOrder) -> Result<(), String> {
        let now = self.machine.now;
        let me = self.processes[&key].session;
        let errand = match order {
            TreeOrder::Spawn(spawning) => Errand::Start(Box::new(Start::spawn(*spawning))),
            TreeOrder::Restore { child, name, scope, budget, kin, send, .. } => {
                self.met("a child was started again");
                let mut start = Start::restore(child, name, scope, budget, send);
                start.kin = *kin;
                Errand::Start(Box::new(start))
            }
            TreeOrder::Send { call_id, child, send, .. } => {
                let input = vec![InputSegment::text(send.message.as_str())];
                let order = Order::Run {
                    input,
                    attached: Ok(Vec::new()),
                    mode: run_mode(send.mode),
                    op_id: Some(send.op_id),
                };
                Errand::Say(Saying { call_id, child, order, exchange: Exchange::default(), since: now })
            }
            TreeOrder::Answer { call_id, child, ask, decision, .. } => {
                let order = Order::Answer { ask, decision, note: None };
                Errand::Say(Saying { call_id, child, order, exchange: Exchange::default(), since: now })
            }
            TreeOrder::Stop { call_id, child, after_run, .. } => Errand::Stop(Stopping {
                call_id,
                child,
                after_run,
                exchange: Exchange::default(),
                harder: 0,
                since: now,
            }),
            TreeOrder::Watch { child, name } => {
                let errands = self.processes.get_mut(&key).map(|process| &mut process.errands);
                let watched = errands.into_iter().flatten().find_map(|errand| match errand {
                    Errand::Watch(watch) if watch.child == child => Some(watch),
                    _ => None,
                });
                if let Some(watch) = watched {
                    watch.known = false;
                    return Ok(());
                }
                Errand::Watch(Watching { child, name, known: false })
            }
            TreeOrder::Report { seq, to, event } => {
                Errand::Report(Reporting { seq, to, event, exchange: Exchange::default() })
            }
            TreeOrder::Read { call_id, child, since, .. } => {
                self.met("a child was read");
                let to_seq = self.sessions.get(&child).map_or(since, |log| log.len() as u64).max(since);
                let ended = CallEnd::done("read", None);
                self.tell(key, TreeNews::Read { call_id, child, to_seq, ended });
                return Ok(());
            }
            TreeOrder::List { call_id, children, .. } => {
                let ended = CallEnd::done(format!("{} pods", children.len()), None);
                self.tell(key, TreeNews::Told { call_id, ended });
                return Ok(());
            }
            TreeOrder::ReadReports { child, since } => return self.read_reports(key, child, since),
            TreeOrder::ReadSpending { child } => {
                let paid = self.account(child);
                self.tell(key, TreeNews::Spending { paid });
                return Ok(());
            }
            TreeOrder::GiveScope => {
                let problem = self.machine.give(me).err().map(|why| why.to_string());
                self.met(if problem.is_none() { "a scope was given up" } else { "a scope was kept" });
                self.refresh(key);
                self.tell(key, TreeNews::Scope { given: problem.is_none(), problem });
                return Ok(());
            }
            TreeOrder::TakeScope => {
                let problem = self.machine.take(me).err().map(|why| why.to_string());
                let given = problem.is_some();
                self.refresh(key);
                self.tell(key, TreeNews::Scope { given, problem });
                return Ok(());
            }
        };
        if let Some(process) = self.processes.get_mut(&key) {
            process.errands.push(errand);
        }
        Ok(())
    }

    /// The reports in a child's log that this pod has not heard.
    pub(super) fn read_reports(&mut self, key: Key, child: SessionId, since: u64) -> Result<(), String> {
        let Some(log) = self.sessions.get_mut(&child) else { return Ok(()) };
        let me = self.processes[&key].session;
        // What a dead pod wrote and did not sync could still be lost, and its number be given to another report.
        if log.holder.is_none() && self.flaw != Some(Flaw::ReadsUnsynced) {
            log.sync();
        }
        let reports: Vec<_> = log.state().facts.outbox.iter().cloned().collect();
        let synced = if self.flaw == Some(Flaw::ReadsUnsynced) { log.len() } else { log.synced() } as u64;
        for report in reports.into_iter().filter(|r| r.to == me && r.seq > since && r.seq < synced) {
            self.met("a report was read from a log");
            let order =
                Order::PodEvent { event: report.event, from: Some(child), from_seq: Some(report.seq) };
            let request = Request { from: Actor::pod(child), reply: None, order };
            if let Some(life) = self.processes.get_mut(&key).and_then(|process| process.life.as_mut()) {
                life.inbox.push_back(What::Order(Box::new(request)));
            }
        }
        Ok(())
    }

    /// One step of one errand of a process.
    pub(super) fn go_on(&mut self, key: Key, at: usize) -> Result<(), String> {
        self.steps += 1;
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        if at >= process.errands.len() {
            return Ok(());
        }
        let errand = process.errands.remove(at);
        let left = match errand {
            Errand::Start(start) => self.start(key, start)?,
            Errand::Watch(watch) => self.watch_child(key, watch)?,
            Errand::Stop(stop) => self.stop(key, stop)?,
            Errand::Say(say) => self.say(key, say),
            Errand::Report(report) => self.report_upward(key, report),
        };
        if let (Some(errand), Some(process)) = (left, self.processes.get_mut(&key)) {
            let at = at.min(process.errands.len());
            process.errands.insert(at, errand);
        }
        Ok(())
    }

    /// The scope of a process as the table has it now.
    pub(super) fn refresh(&mut self, key: Key) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        let effective = self.machine.effective(process.session);
        // What an errand has taken away before the table knows stays away.
        let narrowed = process.errands.iter().filter_map(|errand| match errand {
            Errand::Start(start) => start.narrows(),
            _ => None,
        });
        process.files = narrowed.fold(effective, |scope, lent| minke_policy::subtract(&scope, lent));
        self.scopes_changed = true;
    }

    fn watch_child(&mut self, key: Key, mut watch: Watching) -> Result<Option<Errand>, String> {
        let me = self.processes[&key].session;
        if self.machine.table.row(watch.child).is_some_and(|row| row.parent != Some(me)) {
            self.met("a child was handed back");
            let (child, outcome) = (watch.child, ChildOutcome::Returned);
            self.tell(key, TreeNews::Ended { child, outcome, exit: None, paid: Vec::new() });
            self.refresh(key);
            return Ok(None);
        }
        if let Some(child) = self.process_of(watch.child) {
            if !watch.known && self.processes[&child].is_ready() {
                watch.known = true;
                self.met("a child of an earlier life lives");
                let news =
                    TreeNews::Spawned { child: watch.child, socket: String::new(), clone: None, sent: None };
                self.tell(key, news);
            }
            return Ok(Some(Errand::Watch(watch)));
        }
        let held = self.sessions.get(&watch.child).is_some_and(|log| log.holder.is_some());
        if held || self.machine.is_held(&watch.name, watch.child) {
            return Ok(Some(Errand::Watch(watch)));
        }
        if !self.began(key, watch.child) {
            self.met("a child of an earlier life never began");
            self.machine.withdraw(watch.child);
            self.refresh(key);
            let message = "it never said that it was ready".to_owned();
            let code = minke_record::ErrorCode::Internal;
            self.tell(key, TreeNews::NotSpawned { child: watch.child, code, message });
            return Ok(None);
        }
        self.machine.reclaim();
        // A start that its parent did not live to see has left a row that still waits for its ticket.
        self.machine.withdraw(watch.child);
        self.refresh(key);
        // First those that it left behind: what they may spend was part of its own.
        self.adopt_others(key)?;
        self.child_ended(key, watch.child)?;
        Ok(None)
    }

    /// Whether a child has ever begun to live. What it has spent counts then, whichever life that was in: clocks jump, so
    /// the times of two logs say nothing about each other.
    fn began(&mut self, key: Key, child: SessionId) -> bool {
        let mut since = 0;
        if self.flaw == Some(Flaw::TrustsClocks) {
            let me = self.processes[&key].session;
            let noted = |entry: &&Entry| matches!(&entry.kind, Kind::Child(e) if e.session == child);
            let own = self.sessions.get(&me).and_then(|log| log.entries().iter().rev().find(noted));
            since = own.map_or(0, |entry| entry.ts);
        }
        let opened = |entry: &Entry| {
            matches!(&entry.kind, Kind::Opened(e) if e.holder == Holder::Pod) && entry.ts >= since
        };
        self.sessions.get(&child).is_some_and(|log| log.entries().iter().rev().any(opened))
    }

    fn child_ended(&mut self, key: Key, child: SessionId) -> Result<(), String> {
        let paid = self.account(child);
        let Some(log) = self.sessions.get_mut(&child) else { return Ok(()) };
        let state = log.state();
        let outcome = if log_says_stopped(state) { ChildOutcome::Stopped } else { ChildOutcome::Crashed };
        self.tell(key, TreeNews::Ended { child, outcome, exit: None, paid });
        // The product's minds order it themselves.
        if self.minds == Minds::StandIn { self.read_reports(key, child, 0) } else { Ok(()) }
    }

    /// What a session and everybody who was spawned below it has spent, each by its own log.
    pub(super) fn account(&mut self, session: SessionId) -> Vec<Paid> {
        let mut paid = Vec::new();
        let mut left = vec![session];
        let mut ends_unnoted = false;
        while let Some(next) = left.pop() {
            let Some(log) = self.sessions.get_mut(&next) else { continue };
            if log.holder.is_none() && self.flaw != Some(Flaw::ReadsUnsynced) {
                log.sync();
            }
            let state = log.state();
            let gone = |child: &OpenChild| self.machine.table.row(child.session).is_none();
            if state.live_children().any(gone) {
                ends_unnoted = true;
            }
            if let Some(parent) = state.facts.about.as_ref().and_then(|about| about.parent.as_ref()) {
                let (under, read_to) = (parent.session, state.next_seq);
                paid.push(Paid { session: next, under, read_to, spent: state.own_spent() });
            }
            if self.flaw != Some(Flaw::ForgetsBelow) {
                let own = state.facts.children.iter().filter(|child| child.adopted_from.is_none());
                left.extend(own.map(|child| child.session));
            }
        }
        if ends_unnoted {
            self.met("a child's end was never noted");
        }
        paid
    }

    /// Grandchildren that the table gives to this pod and that its mind does not know.
    pub(super) fn adopt_others(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.get(&key) else { return Ok(()) };
        let Some(life) = &process.life else { return Ok(()) };
        let loans = self.machine.loans(process.session);
        let unknown: Vec<_> = loans
            .into_iter()
            .filter(|loan| self.machine.lender(loan.session) != Some(process.session))
            .filter(|loan| !process.errands.iter().any(|errand| errand.watches(loan.session)))
            .filter(|loan| !life.mind.state().live_children().any(|open| open.session == loan.session))
            .collect();
        for loan in unknown {
            self.met("a grandchild was adopted");
            let known = Box::new(self.child_of_loan(key, &loan));
            let paid = self.account(loan.session);
            self.tell(key, TreeNews::Adopted { known, paid });
            if let Some(process) = self.processes.get_mut(&key) {
                let watch = Watching { child: loan.session, name: loan.name, known: true };
                process.errands.push(Errand::Watch(watch));
            }
        }
        Ok(())
    }

    /// A pod that the table gives to this one, as the logs have it.
    fn child_of_loan(&mut self, key: Key, loan: &Loan) -> OpenChild {
        let me = self.processes[&key].session;
        let line: Vec<SessionId> =
            self.ancestors(loan.session).into_iter().take_while(|above| *above != me).collect();
        let state = self.sessions.get_mut(&loan.session).map(Session::state);
        let budget = state.and_then(|state| divided(state.granted()));
        OpenChild {
            budget,
            adopted_from: line.first().copied(),
            line,
            ..OpenChild::new(loan.session, loan.name.clone(), CallId(String::new()), loan.scope.clone())
        }
    }

    fn say(&mut self, key: Key, mut say: Saying) -> Option<Errand> {
        let late = self.machine.now.saturating_sub(say.since) > GIVES_UP_MS;
        let target = self.process_of(say.child).filter(|child| self.processes[child].is_ready());
        let Some(child) = target.filter(|_| !late) else {
            self.met("an order found nobody");
            let ended = CallEnd::Failed { message: "it does not live".to_owned() };
            self.tell(key, TreeNews::Told { call_id: say.call_id, ended });
            return None;
        };
        let by = Actor::pod(self.processes[&key].session);
        match self.says((key, child), &mut say.exchange, &say.order.clone(), &by) {
            None => Some(Errand::Say(say)),
            Some(result) => {
                let ended = match result {
                    Ok(given) => CallEnd::done(words(&given), None),
                    Err(Refusal { message, .. }) => CallEnd::Failed { message },
                };
                self.tell(key, TreeNews::Told { call_id: say.call_id, ended });
                None
            }
        }
    }

    fn stop(&mut self, key: Key, mut stop: Stopping) -> Result<Option<Errand>, String> {
        let now = self.machine.now;
        let Some(child) = self.process_of(stop.child) else {
            let watched = self.processes[&key].errands.iter().any(|errand| errand.watches(stop.child));
            if watched {
                return Ok(Some(Errand::Stop(stop)));
            }
            self.met("a child was stopped");
            let ended = CallEnd::done("stopped", None);
            self.tell(key, TreeNews::Told { call_id: stop.call_id, ended });
            return Ok(None);
        };
        if stop.harder == 0 {
            let by = Actor::pod(self.processes[&key].session);
            let mode = if stop.after_run { ShutdownMode::AfterRun } else { ShutdownMode::Now };
            let said = self.says((key, child), &mut stop.exchange, &Order::Shutdown { mode }, &by);
            if stop.after_run && said.is_some() {
                let ended = CallEnd::done("stops after its run", None);
                self.tell(key, TreeNews::Told { call_id: stop.call_id, ended });
                return Ok(None);
            }
        }
        if now.saturating_sub(stop.since) > STOP_MS {
            stop.harder += 1;
            stop.since = now;
            if stop.harder == 1 {
                self.met("a child was signalled");
                if self.processes[&child].leaves.is_none() {
                    self.feed(child, What::Signal)?;
                }
            } else {
                self.met("a child was killed by its parent");
                self.die(child)?;
            }
        }
        Ok(Some(Errand::Stop(stop)))
    }

    fn report_upward(&mut self, key: Key, mut report: Reporting) -> Option<Errand> {
        let me = self.processes[&key].session;
        let Some(above) = self.receiver(report.to) else {
            self.met("a report found nobody");
            self.steps -= 1; // nothing happened
            return Some(Errand::Report(report));
        };
        if self.processes[&above].session != report.to {
            self.met("a report went to an ancestor");
        }
        let event = report.event.clone();
        let order = Order::PodEvent { event, from: Some(me), from_seq: Some(report.seq) };
        match self.says((key, above), &mut report.exchange, &order, &Actor::pod(me)) {
            Some(Ok(_)) => {
                self.met("a report was acknowledged");
                self.tell(key, TreeNews::Acked { seq: report.seq });
                None
            }
            Some(Err(_)) => {
                self.met("a report was refused");
                Some(Errand::Report(report))
            }
            None => Some(Errand::Report(report)),
        }
    }

    /// The process of a session, or else of its nearest living ancestor.
    fn receiver(&mut self, session: SessionId) -> Option<Key> {
        let mut at = Some(session);
        while let Some(session) = at {
            if let Some(key) = self.process_of(session).filter(|key| self.processes[key].is_ready()) {
                return Some(key);
            }
            at = self.parent_of(session);
        }
        None
    }
}

/// The part of a budget that a parent divides.
pub(super) fn divided(granted: Budget) -> Option<Budget> {
    let part = Budget { usd: granted.usd, tokens: granted.tokens, ..Budget::default() };
    Some(part).filter(|part| !part.is_empty())
}

fn log_says_stopped(state: &minke_pod::State) -> bool {
    state.facts.run.is_none()
        && !state
            .facts
            .last
            .as_ref()
            .is_some_and(|last| last.result == EndResult::Completed(RunResult::Interrupted))
}

fn words(given: &Given) -> &'static str {
    match given {
        Given::Run(_) => "started",
        Given::Queued(_) => "queued",
        _ => "done",
    }
}
