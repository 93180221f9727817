//! Simulated execution of commands about other pods. Every command is a task that takes one step at a time,
//! so that its process can die between steps.
//!
//! Elsewhere: creating a child (`spawn_saga`), messages (`messages`), the table (`machine`).

use minke_pod::{
    CallEnd, ChildCommand, ChildEvent, CommandRefusal, CommandRequest, InputKind, PodCommand, ReplyBody,
    RunMode, ShutdownMode,
};
use minke_record::{
    Actor, Budget, CallId, ChildOutcome, EndResult, Entry, Holder, InputSegment, Kind, Millis, OpenChild,
    PodEvent, PodName, PodSpend, RunResult, SendMode, SessionId,
};
use minke_registry::ScopeLoan;

use super::messages::MessageExchange;
use super::session_log::SessionLog;
use super::spawn_saga::SpawnSaga;
use super::{Key, PodKind, TreeFlaw, TreeSimulation};

/// Timeout of each step of stopping a child.
const STOP_STEP_MS: Millis = 5_000;
/// Timeout of a command to a child that does not reply.
const SEND_TIMEOUT_MS: Millis = 30_000;

/// A task in progress.
#[derive(Debug)]
pub(super) enum PodTask {
    Start(Box<SpawnSaga>),
    Watch(WatchTask),
    Stop(StopTask),
    Send(SendTask),
    Report(ReportTask),
}

/// Watches a child.
#[derive(Debug)]
pub(super) struct WatchTask {
    pub(super) child: SessionId,
    pub(super) name: PodName,
    /// The pod already knows that the child ran, or does not wait for this.
    pub(super) is_known: bool,
}

#[derive(Debug)]
pub(super) struct StopTask {
    call_id: CallId,
    child: SessionId,
    after_run: bool,
    exchange: MessageExchange,
    /// 0 shutdown sent, 1 signalled, 2 killed.
    escalation: u8,
    since: Millis,
}

/// Sends an input or an answer to a child.
#[derive(Debug)]
pub(super) struct SendTask {
    call_id: CallId,
    child: SessionId,
    order: PodCommand,
    exchange: MessageExchange,
    since: Millis,
}

#[derive(Debug)]
pub(super) struct ReportTask {
    seq: u64,
    pub(super) to: SessionId,
    event: PodEvent,
    exchange: MessageExchange,
}

impl PodTask {
    pub(super) fn exchange(&mut self) -> Option<&mut MessageExchange> {
        match self {
            PodTask::Stop(stop) => Some(&mut stop.exchange),
            PodTask::Send(task) => Some(&mut task.exchange),
            PodTask::Report(report) => Some(&mut report.exchange),
            PodTask::Start(_) | PodTask::Watch(_) => None,
        }
    }

    /// Returns whether the task ends with the call.
    pub(super) fn belongs_to_call(&self, id: &CallId) -> bool {
        matches!(self, PodTask::Send(task) if task.call_id == *id)
    }

    pub(super) fn watches(&self, session: SessionId) -> bool {
        match self {
            PodTask::Watch(watch) => watch.child == session,
            PodTask::Start(start) => start.child == session,
            PodTask::Stop(_) | PodTask::Send(_) | PodTask::Report(_) => false,
        }
    }
}

pub(super) fn to_run_mode(mode: SendMode) -> RunMode {
    match mode {
        SendMode::Queue => RunMode::Queue,
        SendMode::Steer => RunMode::Steer,
        SendMode::Interrupt => RunMode::Interrupt,
        SendMode::Reject => RunMode::Reject,
    }
}

impl TreeSimulation {
    pub(super) fn start_command(&mut self, key: Key, order: ChildCommand) -> Result<(), String> {
        let now = self.machine.now;
        let me = self.processes[&key].session;
        let task = match order {
            ChildCommand::Spawn(spawning) => PodTask::Start(Box::new(SpawnSaga::from_spawn(*spawning))),
            ChildCommand::Restore { child, name, scope, budget, descendants, message, .. } => {
                self.count_branch("a child was started again");
                let mut start = SpawnSaga::from_restore(child, name, scope, budget, message);
                start.descendants = *descendants;
                PodTask::Start(Box::new(start))
            }
            ChildCommand::Send { call_id, child, message: send, .. } => {
                let input = vec![InputSegment::from_text(send.message.as_str())];
                let order = PodCommand::Run {
                    input,
                    attached: Ok(Vec::new()),
                    mode: to_run_mode(send.mode),
                    op_id: Some(send.op_id),
                };
                PodTask::Send(SendTask {
                    call_id,
                    child,
                    order,
                    exchange: MessageExchange::default(),
                    since: now,
                })
            }
            ChildCommand::Answer { call_id, child, ask, decision, .. } => {
                let order = PodCommand::Answer { ask, decision, note: None };
                PodTask::Send(SendTask {
                    call_id,
                    child,
                    order,
                    exchange: MessageExchange::default(),
                    since: now,
                })
            }
            ChildCommand::Stop { call_id, child, after_run, .. } => PodTask::Stop(StopTask {
                call_id,
                child,
                after_run,
                exchange: MessageExchange::default(),
                escalation: 0,
                since: now,
            }),
            ChildCommand::Watch { child, name } => {
                let errands = self.processes.get_mut(&key).map(|process| &mut process.tasks);
                let watched = errands.into_iter().flatten().find_map(|task| match task {
                    PodTask::Watch(watch) if watch.child == child => Some(watch),
                    _ => None,
                });
                if let Some(watch) = watched {
                    watch.is_known = false;
                    return Ok(());
                }
                PodTask::Watch(WatchTask { child, name, is_known: false })
            }
            ChildCommand::Report { seq, to, event } => {
                PodTask::Report(ReportTask { seq, to, event, exchange: MessageExchange::default() })
            }
            ChildCommand::Read { call_id, child, since, .. } => {
                self.count_branch("a child was read");
                let to_seq = self.sessions.get(&child).map_or(since, |log| log.len() as u64).max(since);
                let ended = CallEnd::done("read", None);
                self.send_child_event(key, ChildEvent::Read { call_id, child, to_seq, ended });
                return Ok(());
            }
            ChildCommand::List { call_id, children, .. } => {
                let ended = CallEnd::done(format!("{} pods", children.len()), None);
                self.send_child_event(key, ChildEvent::CallFinished { call_id, ended });
                return Ok(());
            }
            ChildCommand::ReadReports { child, since } => {
                return self.read_unheard_reports(key, child, since);
            }
            ChildCommand::ReadSpending { child } => {
                let paid = self.collect_spending(child);
                self.send_child_event(key, ChildEvent::Spending { paid });
                return Ok(());
            }
            ChildCommand::ReleaseScope => {
                let problem = self.machine.give_scope(me).err().map(|why| why.to_string());
                self.count_branch(if problem.is_none() {
                    "a scope was released"
                } else {
                    "a scope was kept"
                });
                self.refresh_scope(key);
                self.send_child_event(key, ChildEvent::Scope { released: problem.is_none(), problem });
                return Ok(());
            }
            ChildCommand::AcquireScope => {
                let problem = self.machine.take_scope(me).err().map(|why| why.to_string());
                let released = problem.is_some();
                self.refresh_scope(key);
                self.send_child_event(key, ChildEvent::Scope { released, problem });
                return Ok(());
            }
        };
        if let Some(process) = self.processes.get_mut(&key) {
            process.tasks.push(task);
        }
        Ok(())
    }

    /// Reads reports from a child's log that this pod has not received.
    pub(super) fn read_unheard_reports(
        &mut self,
        key: Key,
        child: SessionId,
        since: u64,
    ) -> Result<(), String> {
        let Some(log) = self.sessions.get_mut(&child) else { return Ok(()) };
        let me = self.processes[&key].session;
        // Unsynced entries of a stopped pod could be lost and their numbers reused.
        if log.holder.is_none() && self.flaw != Some(TreeFlaw::ReadsUnsynced) {
            log.sync_entries();
        }
        let reports: Vec<_> = log.read_state().facts.outbox.iter().cloned().collect();
        let synced =
            if self.flaw == Some(TreeFlaw::ReadsUnsynced) { log.len() } else { log.synced_length() } as u64;
        for report in reports.into_iter().filter(|r| r.to == me && r.seq > since && r.seq < synced) {
            self.count_branch("a report was read from a log");
            let command =
                PodCommand::PodEvent { event: report.event, from: Some(child), from_seq: Some(report.seq) };
            let request = CommandRequest { from: Actor::from_pod(child), reply: None, command };
            if let Some(life) = self.processes.get_mut(&key).and_then(|process| process.live_pod.as_mut()) {
                life.inbox.push_back(InputKind::Command(Box::new(request)));
            }
        }
        Ok(())
    }

    /// Takes one step of a task.
    pub(super) fn step_task(&mut self, key: Key, at: usize) -> Result<(), String> {
        self.steps += 1;
        let Some(process) = self.processes.get_mut(&key) else { return Ok(()) };
        if at >= process.tasks.len() {
            return Ok(());
        }
        let task = process.tasks.remove(at);
        let left = match task {
            PodTask::Start(start) => self.step_saga(key, start)?,
            PodTask::Watch(watch) => self.step_watch(key, watch)?,
            PodTask::Stop(stop) => self.step_stop(key, stop)?,
            PodTask::Send(task) => self.step_send(key, task),
            PodTask::Report(report) => self.step_report(key, report),
        };
        if let (Some(errand), Some(process)) = (left, self.processes.get_mut(&key)) {
            let at = at.min(process.tasks.len());
            process.tasks.insert(at, errand);
        }
        Ok(())
    }

    /// Updates the scope of a process from the table.
    pub(super) fn refresh_scope(&mut self, key: Key) {
        let Some(process) = self.processes.get_mut(&key) else { return };
        let effective = self.machine.effective_scope(process.session);
        // A scope that a task has removed before the table changes stays removed.
        let narrowed = process.tasks.iter().filter_map(|task| match task {
            PodTask::Start(start) => start.narrowed_scope(),
            _ => None,
        });
        process.files = narrowed.fold(effective, |scope, lent| minke_policy::subtract_loan(&scope, lent));
        self.scopes_changed = true;
    }

    fn step_watch(&mut self, key: Key, mut watch: WatchTask) -> Result<Option<PodTask>, String> {
        let me = self.processes[&key].session;
        if self.machine.table.find_row(watch.child).is_some_and(|row| row.parent != Some(me)) {
            self.count_branch("a child was handed back");
            let (child, outcome) = (watch.child, ChildOutcome::Returned);
            self.send_child_event(key, ChildEvent::Ended { child, outcome, exit: None, paid: Vec::new() });
            self.refresh_scope(key);
            return Ok(None);
        }
        if let Some(child) = self.find_process(watch.child) {
            if !watch.is_known && self.processes[&child].is_ready() {
                watch.is_known = true;
                self.count_branch("a child of an earlier process runs");
                let news = ChildEvent::Spawned {
                    child: watch.child,
                    socket: String::new(),
                    clone: None,
                    delivery: None,
                };
                self.send_child_event(key, news);
            }
            return Ok(Some(PodTask::Watch(watch)));
        }
        let held = self.sessions.get(&watch.child).is_some_and(|log| log.holder.is_some());
        if held || self.machine.is_name_held(&watch.name, watch.child) {
            return Ok(Some(PodTask::Watch(watch)));
        }
        if !self.has_started(key, watch.child) {
            self.count_branch("a child of an earlier process never started");
            self.machine.withdraw_loan(watch.child);
            self.refresh_scope(key);
            let message = "it never said that it was ready".to_owned();
            let code = minke_record::ErrorCode::Internal;
            self.send_child_event(key, ChildEvent::SpawnFailed { child: watch.child, code, message });
            return Ok(None);
        }
        self.machine.reclaim_dead_rows();
        // A start whose parent died has left a row that waits for its ticket.
        self.machine.withdraw_loan(watch.child);
        self.refresh_scope(key);
        // First its descendants: their budgets were part of its own.
        self.adopt_grandchildren(key)?;
        self.report_child_end(key, watch.child)?;
        Ok(None)
    }

    /// Returns whether a child has ever started. Its spending counts then. Clocks jump, so times of two logs
    /// cannot be compared.
    fn has_started(&mut self, key: Key, child: SessionId) -> bool {
        let mut since = 0;
        if self.flaw == Some(TreeFlaw::TrustsClocks) {
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

    fn report_child_end(&mut self, key: Key, child: SessionId) -> Result<(), String> {
        let paid = self.collect_spending(child);
        let Some(log) = self.sessions.get_mut(&child) else { return Ok(()) };
        let state = log.read_state();
        let outcome = if is_cleanly_stopped(state) { ChildOutcome::Stopped } else { ChildOutcome::Crashed };
        self.send_child_event(key, ChildEvent::Ended { child, outcome, exit: None, paid });
        // The product's pods request this themselves.
        if self.pod_kind == PodKind::StandIn { self.read_unheard_reports(key, child, 0) } else { Ok(()) }
    }

    /// Returns the spending of a session and its descendants, each from its own log.
    pub(super) fn collect_spending(&mut self, session: SessionId) -> Vec<PodSpend> {
        let mut paid = Vec::new();
        let mut left = vec![session];
        let mut ends_unnoted = false;
        while let Some(next) = left.pop() {
            let Some(log) = self.sessions.get_mut(&next) else { continue };
            if log.holder.is_none() && self.flaw != Some(TreeFlaw::ReadsUnsynced) {
                log.sync_entries();
            }
            let state = log.read_state();
            let gone = |child: &OpenChild| self.machine.table.find_row(child.session).is_none();
            if state.live_children().any(gone) {
                ends_unnoted = true;
            }
            if let Some(parent) = state.facts.about.as_ref().and_then(|about| about.parent.as_ref()) {
                let (under, read_to) = (parent.session, state.next_seq);
                paid.push(PodSpend { session: next, under, read_to, spent: state.own_spent() });
            }
            if self.flaw != Some(TreeFlaw::ForgetsBelow) {
                let own = state.facts.children.iter().filter(|child| child.adopted_from.is_none());
                left.extend(own.map(|child| child.session));
            }
        }
        if ends_unnoted {
            self.count_branch("a child's end was never logged");
        }
        paid
    }

    /// Adopts grandchildren that the table assigns to this pod and that it does not know.
    pub(super) fn adopt_grandchildren(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.get(&key) else { return Ok(()) };
        let Some(life) = &process.live_pod else { return Ok(()) };
        let loans = self.machine.loans_of(process.session);
        let unknown: Vec<_> = loans
            .into_iter()
            .filter(|loan| self.machine.lender_of(loan.session) != Some(process.session))
            .filter(|loan| !process.tasks.iter().any(|task| task.watches(loan.session)))
            .filter(|loan| !life.pod.state().live_children().any(|open| open.session == loan.session))
            .collect();
        for loan in unknown {
            self.count_branch("a grandchild was adopted");
            let known = Box::new(self.child_from_loan(key, &loan));
            let paid = self.collect_spending(loan.session);
            self.send_child_event(key, ChildEvent::Adopted { known, paid });
            if let Some(process) = self.processes.get_mut(&key) {
                let watch = WatchTask { child: loan.session, name: loan.name, is_known: true };
                process.tasks.push(PodTask::Watch(watch));
            }
        }
        Ok(())
    }

    /// Returns the facts about a pod that the table assigns to this one.
    fn child_from_loan(&mut self, key: Key, loan: &ScopeLoan) -> OpenChild {
        let me = self.processes[&key].session;
        let line: Vec<SessionId> =
            self.ancestors_of(loan.session).into_iter().take_while(|above| *above != me).collect();
        let state = self.sessions.get_mut(&loan.session).map(SessionLog::read_state);
        let budget = state.and_then(|state| shared_budget(state.granted_budget()));
        OpenChild {
            budget,
            adopted_from: line.first().copied(),
            line,
            ..OpenChild::new(loan.session, loan.name.clone(), CallId(String::new()), loan.scope.clone())
        }
    }

    fn step_send(&mut self, key: Key, mut task: SendTask) -> Option<PodTask> {
        let late = self.machine.now.saturating_sub(task.since) > SEND_TIMEOUT_MS;
        let target = self.find_process(task.child).filter(|child| self.processes[child].is_ready());
        let Some(child) = target.filter(|_| !late) else {
            self.count_branch("a command had no receiver");
            let ended = CallEnd::Failed { message: "it does not live".to_owned() };
            self.send_child_event(key, ChildEvent::CallFinished { call_id: task.call_id, ended });
            return None;
        };
        let by = Actor::from_pod(self.processes[&key].session);
        match self.exchange_command(key, child, &mut task.exchange, &task.order.clone(), &by) {
            None => Some(PodTask::Send(task)),
            Some(result) => {
                let ended = match result {
                    Ok(given) => CallEnd::done(reply_word(&given), None),
                    Err(CommandRefusal { message, .. }) => CallEnd::Failed { message },
                };
                self.send_child_event(key, ChildEvent::CallFinished { call_id: task.call_id, ended });
                None
            }
        }
    }

    fn step_stop(&mut self, key: Key, mut stop: StopTask) -> Result<Option<PodTask>, String> {
        let now = self.machine.now;
        let Some(child) = self.find_process(stop.child) else {
            let watched = self.processes[&key].tasks.iter().any(|task| task.watches(stop.child));
            if watched {
                return Ok(Some(PodTask::Stop(stop)));
            }
            self.count_branch("a child was stopped");
            let ended = CallEnd::done("stopped", None);
            self.send_child_event(key, ChildEvent::CallFinished { call_id: stop.call_id, ended });
            return Ok(None);
        };
        if stop.escalation == 0 {
            let by = Actor::from_pod(self.processes[&key].session);
            let mode = if stop.after_run { ShutdownMode::AfterRun } else { ShutdownMode::Now };
            let said =
                self.exchange_command(key, child, &mut stop.exchange, &PodCommand::Shutdown { mode }, &by);
            if stop.after_run && said.is_some() {
                let ended = CallEnd::done("stops after its run", None);
                self.send_child_event(key, ChildEvent::CallFinished { call_id: stop.call_id, ended });
                return Ok(None);
            }
        }
        if now.saturating_sub(stop.since) > STOP_STEP_MS {
            stop.escalation += 1;
            stop.since = now;
            if stop.escalation == 1 {
                self.count_branch("a child was signalled");
                if self.processes[&child].exits_at.is_none() {
                    self.feed_input(child, InputKind::Signal)?;
                }
            } else {
                self.count_branch("a child was killed by its parent");
                self.end_process(child)?;
            }
        }
        Ok(Some(PodTask::Stop(stop)))
    }

    fn step_report(&mut self, key: Key, mut report: ReportTask) -> Option<PodTask> {
        let me = self.processes[&key].session;
        let Some(above) = self.report_receiver(report.to) else {
            self.count_branch("a report had no receiver");
            self.steps -= 1; // no progress
            return Some(PodTask::Report(report));
        };
        if self.processes[&above].session != report.to {
            self.count_branch("a report went to an ancestor");
        }
        let event = report.event.clone();
        let order = PodCommand::PodEvent { event, from: Some(me), from_seq: Some(report.seq) };
        match self.exchange_command(key, above, &mut report.exchange, &order, &Actor::from_pod(me)) {
            Some(Ok(_)) => {
                self.count_branch("a report was acknowledged");
                self.send_child_event(key, ChildEvent::ReportAcked { seq: report.seq });
                None
            }
            Some(Err(_)) => {
                self.count_branch("a report was refused");
                Some(PodTask::Report(report))
            }
            None => Some(PodTask::Report(report)),
        }
    }

    /// Returns the process of a session, or of its nearest running ancestor.
    fn report_receiver(&mut self, session: SessionId) -> Option<Key> {
        let mut at = Some(session);
        while let Some(session) = at {
            if let Some(key) = self.find_process(session).filter(|key| self.processes[key].is_ready()) {
                return Some(key);
            }
            at = self.parent_session(session);
        }
        None
    }
}

/// Returns the part of a budget that a parent divides.
pub(super) fn shared_budget(granted: Budget) -> Option<Budget> {
    let part = Budget { usd: granted.usd, tokens: granted.tokens, ..Budget::default() };
    Some(part).filter(|part| !part.is_empty())
}

fn is_cleanly_stopped(state: &minke_pod::State) -> bool {
    state.facts.run.is_none()
        && !state
            .facts
            .last
            .as_ref()
            .is_some_and(|last| last.result == EndResult::Completed(RunResult::Interrupted))
}

fn reply_word(given: &ReplyBody) -> &'static str {
    match given {
        ReplyBody::Run(_) => "started",
        ReplyBody::Queued(_) => "queued",
        _ => "done",
    }
}
