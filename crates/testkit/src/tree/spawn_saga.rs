//! The spawn saga, step by step with an undo for each: narrow, lend, create, launch, ready.
//!
//! It covers the parent, and the child's process until it is ready. Elsewhere: the following tasks
//! (`pod_tasks`).

use minke_pod::{
    ChildEvent, DescendantState, InputKind, OfflineEdit, OfflineWriter, OutgoingMessage, SpawnRequest,
    StepSeed, apply_offline_edit, new_session,
};
use minke_record::{Actor, Budget, ErrorCode, InputSegment, Millis, PodName, Scope, SessionId};

use super::machine::RowClaim;
use super::pod_tasks::{PodTask, WatchTask};
use super::process::{PodProcessState, ProcessStage, TreeProcess};
use super::session_log::SessionLog;
use super::tree_pod::TreePod;
use super::{Key, TreeFlaw, TreeSimulation};

/// Timeout for `ready`.
const READY_TIMEOUT_MS: Millis = 10_000;

/// A child being started.
#[derive(Debug)]
pub(super) struct SpawnSaga {
    pub(super) child: SessionId,
    name: PodName,
    scope: Scope,
    /// The request for a new child; absent for a restart.
    spawn_request: Option<SpawnRequest>,
    budget: Option<Budget>,
    /// The facts about its descendants for a restarted child.
    pub(super) descendants: DescendantState,
    message: Option<OutgoingMessage>,
    step: SagaStep,
    ticket: String,
    process: Option<Key>,
    deadline: Millis,
    error: (ErrorCode, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SagaStep {
    Narrow,
    Lend,
    Create,
    Launch,
    Ready,
    /// From here on everything is undone.
    AwaitExit,
    Withdraw,
    Widen,
}

impl SpawnSaga {
    pub(super) fn from_spawn(request: SpawnRequest) -> SpawnSaga {
        let (child, name, scope) = (request.session, request.name.clone(), request.scope.clone());
        let budget = request.budget;
        SpawnSaga {
            spawn_request: Some(request),
            ..SpawnSaga::from_restore(child, name, scope, budget, None)
        }
    }

    pub(super) fn from_restore(
        child: SessionId,
        name: PodName,
        scope: Scope,
        budget: Option<Budget>,
        message: Option<OutgoingMessage>,
    ) -> SpawnSaga {
        SpawnSaga {
            child,
            name,
            scope,
            spawn_request: None,
            budget,
            descendants: DescendantState::default(),
            message,
            step: SagaStep::Narrow,
            ticket: String::new(),
            process: None,
            deadline: 0,
            error: (ErrorCode::Internal, String::new()),
        }
    }

    /// Returns the scope that the parent's file tools have given up before the table changes.
    pub(super) fn narrowed_scope(&self) -> Option<&Scope> {
        (self.step != SagaStep::Narrow && self.step != SagaStep::Widen).then_some(&self.scope)
    }

    fn undo_from(
        mut self: Box<Self>,
        from: SagaStep,
        code: ErrorCode,
        why: impl Into<String>,
    ) -> Option<PodTask> {
        self.step = from;
        self.error = (code, why.into());
        Some(PodTask::Start(self))
    }
}

impl TreeSimulation {
    /// Takes one step of the saga and returns the rest.
    pub(super) fn step_saga(
        &mut self,
        key: Key,
        mut start: Box<SpawnSaga>,
    ) -> Result<Option<PodTask>, String> {
        let me = self.processes[&key].session;
        match start.step {
            SagaStep::Narrow => {
                if self.machine.has_command_writing(key, &start.scope) {
                    self.count_branch("a loan waited for a command");
                    return Ok(start.undo_from(
                        SagaStep::Widen,
                        ErrorCode::Conflict,
                        "a command still writes there",
                    ));
                }
                if self.flaw != Some(TreeFlaw::NarrowsLate)
                    && let Some(process) = self.processes.get_mut(&key)
                {
                    process.files = minke_policy::subtract_loan(&process.files, &start.scope);
                    self.scopes_changed = true;
                }
                start.step = SagaStep::Lend;
            }
            SagaStep::Lend => {
                // The table knows the ancestors of a new child; a restarted child gets them from its log.
                let new = start.spawn_request.is_some();
                let line = if new { Vec::new() } else { self.ancestors_of(start.child) };
                match self.machine.lend_scope(me, start.child, &start.name, &start.scope, line) {
                    Ok(ticket) => {
                        self.scopes_changed = true;
                        start.ticket = ticket;
                        start.step = SagaStep::Create;
                    }
                    Err(error) => {
                        self.count_refusal(&error);
                        return Ok(start.undo_from(SagaStep::Widen, ErrorCode::Conflict, error.to_string()));
                    }
                }
            }
            SagaStep::Create => return self.create_session(key, start),
            SagaStep::Launch => {
                self.count_branch("a child's process was started");
                let ticket = Some(start.ticket.clone());
                let child = self.launch_process(start.child, start.name.clone(), ticket);
                start.process = Some(child);
                start.deadline = self.machine.now + READY_TIMEOUT_MS;
                start.step = SagaStep::Ready;
            }
            SagaStep::Ready => return self.check_ready(key, start),
            SagaStep::AwaitExit => {
                let alive = start.process.is_some_and(|child| self.processes.contains_key(&child));
                if !alive && !self.machine.is_name_held(&start.name, start.child) {
                    start.step = SagaStep::Withdraw;
                }
            }
            SagaStep::Withdraw => {
                self.machine.withdraw_loan(start.child);
                self.scopes_changed = true;
                start.step = SagaStep::Widen;
            }
            SagaStep::Widen => {
                self.count_branch("a start was undone");
                self.refresh_scope(key);
                let (code, message) = start.error;
                self.send_child_event(key, ChildEvent::SpawnFailed { child: start.child, code, message });
                self.adopt_grandchildren(key)?;
                return Ok(None);
            }
        }
        Ok(Some(PodTask::Start(start)))
    }

    /// Creates or updates the child's session.
    fn create_session(&mut self, key: Key, mut start: Box<SpawnSaga>) -> Result<Option<PodTask>, String> {
        let at = StepSeed { now: self.machine.now, seed: self.random.next_u64() };
        if let Some(request) = &start.spawn_request {
            let mut session = SessionLog::default();
            session.append_offline(new_session(at, request.new_child_session("0.0.0")));
            session.holder = Some(key);
            for entry in session.entries() {
                self.checker.check_entry(start.child, entry)?;
            }
            self.sessions.insert(start.child, session);
            start.step = SagaStep::Launch;
            return Ok(Some(PodTask::Start(start)));
        }
        let Some(session) = self.sessions.get_mut(&start.child) else {
            return Ok(start.undo_from(SagaStep::Withdraw, ErrorCode::NotFound, "there is no such session"));
        };
        if session.holder.is_some_and(|holder| holder != key) {
            return Ok(start.undo_from(SagaStep::Withdraw, ErrorCode::Conflict, "the session is held"));
        }
        session.holder = Some(key);
        let by = Actor::from_pod(self.processes[&key].session);
        let mut changes = vec![OfflineEdit::Descendants(std::mem::take(&mut start.descendants))];
        if let Some(budget) = &start.budget {
            let value = serde_json::to_value(budget).expect("a budget is plain data");
            changes.push(OfflineEdit::Config { key: "budget".to_owned(), value });
        }
        if let Some(send) = start.message.take() {
            let segments = vec![InputSegment::from_text(send.message.as_str())];
            changes.push(OfflineEdit::Queue { segments, op_id: Some(send.op_id) });
        }
        for change in changes {
            match apply_offline_edit(session.read_state(), at, offline_writer(by.clone()), change) {
                Ok(step) => {
                    let from = session.append_offline(step);
                    for entry in session.entries().get(from..).unwrap_or_default() {
                        self.checker.check_entry(start.child, entry)?;
                    }
                }
                Err(refusal) => {
                    session.holder = None;
                    return Ok(start.undo_from(SagaStep::Withdraw, refusal.code, refusal.message));
                }
            }
        }
        start.step = SagaStep::Launch;
        Ok(Some(PodTask::Start(start)))
    }

    fn check_ready(&mut self, key: Key, mut start: Box<SpawnSaga>) -> Result<Option<PodTask>, String> {
        let Some(child) = start.process else { return Ok(None) };
        if self.ready.contains(&child) {
            self.count_branch("a child runs");
            let SpawnSaga { child, name, .. } = *start;
            let news = ChildEvent::Spawned {
                child,
                socket: name.to_string(),
                clone: None,
                delivery: Some("started".to_owned()),
            };
            self.send_child_event(key, news);
            if let Some(process) = self.processes.get_mut(&key) {
                process.tasks.push(PodTask::Watch(WatchTask { child, name, is_known: true }));
            }
            self.refresh_scope(key);
            return Ok(None);
        }
        if !self.processes.contains_key(&child) {
            self.count_branch("a child died before it was ready");
            return Ok(start.undo_from(
                SagaStep::AwaitExit,
                ErrorCode::Internal,
                "it died before it was ready",
            ));
        }
        if self.machine.now >= start.deadline {
            self.count_branch("a child was not ready in time");
            self.end_process(child)?;
            start.step = SagaStep::AwaitExit;
        }
        Ok(Some(PodTask::Start(start)))
    }

    /// Starts a process for a session. It holds the session lease from the start.
    pub(super) fn launch_process(
        &mut self,
        session: SessionId,
        name: PodName,
        ticket: Option<String>,
    ) -> Key {
        self.last_key += 1;
        let key = self.last_key;
        let (pid, again) = self.machine.allocate_pid(key);
        if again {
            self.count_branch("a process number was reused");
        }
        if let Some(log) = self.sessions.get_mut(&session) {
            log.holder = Some(key);
        }
        let process = TreeProcess {
            pid,
            session,
            name,
            stage: ProcessStage::ClaimsRow,
            ticket,
            files: Scope::default(),
            live_pod: None,
            tasks: Vec::new(),
            exits_at: None,
        };
        self.processes.insert(key, process);
        key
    }

    /// Takes the next step of a process that is not ready, or fails it.
    pub(super) fn step_start(&mut self, key: Key) -> Result<(), String> {
        self.steps += 1;
        if !self.is_settling && self.random.one_in(60) {
            self.count_branch("a start failed");
            return self.end_process(key);
        }
        let process = &self.processes[&key];
        let (session, name, pid) = (process.session, process.name.clone(), process.pid);
        match process.stage {
            ProcessStage::ClaimsRow => {
                let claimed = match process.ticket.clone() {
                    Some(ticket) => self
                        .machine
                        .adopt_row(RowClaim { key, pid, name: &name, session }, &ticket)
                        .map(|()| name),
                    None => {
                        let ancestors = self.ancestors_of(session);
                        let scope = self.session_scope(session);
                        self.machine.register_row(
                            RowClaim { key, pid, name: &name, session },
                            &scope,
                            ancestors,
                        )
                    }
                };
                self.scopes_changed = true;
                match claimed {
                    Ok(name) => {
                        if let Some(process) = self.processes.get_mut(&key) {
                            (process.name, process.stage) = (name, ProcessStage::ReportsReady);
                        }
                    }
                    Err(error) => {
                        self.count_refusal(&error);
                        return self.end_process(key);
                    }
                }
            }
            ProcessStage::ReportsReady => {
                self.ready.insert(key);
                if let Some(process) = self.processes.get_mut(&key) {
                    process.stage = ProcessStage::Boots;
                }
            }
            ProcessStage::Boots => {
                let state = self.sessions.get(&session).ok_or("a process has no session")?.replay_entries();
                if let Some(process) = self.processes.get_mut(&key) {
                    process.live_pod = Some(PodProcessState::new(TreePod::new(self.pod_kind, state)));
                    process.stage = ProcessStage::Running;
                }
                self.refresh_scope(key);
                self.feed_input(key, InputKind::Boot(Box::new(super::agent::boot_info(pid))))?;
                self.adopt_grandchildren(key)?;
            }
            ProcessStage::Running => {}
        }
        Ok(())
    }
}

pub(super) fn offline_writer(by: Actor) -> OfflineWriter {
    OfflineWriter {
        pid: 1,
        boot_id: "boot".to_owned(),
        host: "here".to_owned(),
        version: "0.0.0".to_owned(),
        by,
    }
}
