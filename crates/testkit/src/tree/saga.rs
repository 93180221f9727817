//! Making a child, step by step, each with its undo: narrow, lend, create, launch, ready.
//!
//! Here: the side of the parent, and the child's process until it says that it is ready. Elsewhere: what follows (`hand`).

use minke_pod::{KinKnown, Moment, Sending, Spawning, TreeNews, Visit, Visitor, What, new_session, visit};
use minke_record::{Actor, Budget, ErrorCode, InputSegment, Millis, PodName, Scope, SessionId};

use super::hand::{Errand, Watching};
use super::life::{Life, Process, Stage};
use super::log::Session;
use super::mind::Mind;
use super::{Flaw, Key, Tree};

/// How long a parent waits for `ready`.
const READY_MS: Millis = 10_000;

/// A child that is being started.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) child: SessionId,
    name: PodName,
    scope: Scope,
    /// Everything of a new one; absent if it has lived before.
    spawning: Option<Spawning>,
    budget: Option<Budget>,
    /// What it is told of those below it.
    pub(super) kin: KinKnown,
    send: Option<Sending>,
    at: At,
    ticket: String,
    process: Option<Key>,
    deadline: Millis,
    why: (ErrorCode, String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Narrow,
    Lend,
    Create,
    Launch,
    Ready,
    /// From here on everything is undone.
    Gone,
    Withdraw,
    Widen,
}

impl Start {
    pub(super) fn spawn(spawning: Spawning) -> Start {
        let (child, name, scope) = (spawning.session, spawning.name.clone(), spawning.scope.clone());
        let budget = spawning.budget;
        Start { spawning: Some(spawning), ..Start::restore(child, name, scope, budget, None) }
    }

    pub(super) fn restore(
        child: SessionId,
        name: PodName,
        scope: Scope,
        budget: Option<Budget>,
        send: Option<Sending>,
    ) -> Start {
        Start {
            child,
            name,
            scope,
            spawning: None,
            budget,
            kin: KinKnown::default(),
            send,
            at: At::Narrow,
            ticket: String::new(),
            process: None,
            deadline: 0,
            why: (ErrorCode::Internal, String::new()),
        }
    }

    /// What the parent's file tools have given up although the table may not say so.
    pub(super) fn narrows(&self) -> Option<&Scope> {
        (self.at != At::Narrow && self.at != At::Widen).then_some(&self.scope)
    }

    fn undo(mut self: Box<Self>, from: At, code: ErrorCode, why: impl Into<String>) -> Option<Errand> {
        self.at = from;
        self.why = (code, why.into());
        Some(Errand::Start(self))
    }
}

impl Tree {
    /// One step of the saga; gives what is left of it.
    pub(super) fn start(&mut self, key: Key, mut start: Box<Start>) -> Result<Option<Errand>, String> {
        let me = self.processes[&key].session;
        match start.at {
            At::Narrow => {
                if self.machine.writes_into(key, &start.scope) {
                    self.met("a loan waited for a command");
                    return Ok(start.undo(At::Widen, ErrorCode::Conflict, "a command still writes there"));
                }
                if self.flaw != Some(Flaw::NarrowsLate)
                    && let Some(process) = self.processes.get_mut(&key)
                {
                    process.files = minke_policy::subtract(&process.files, &start.scope);
                    self.scopes_changed = true;
                }
                start.at = At::Lend;
            }
            At::Lend => {
                // Of a new one the table knows who is above it; one that is woken says so itself, as its log has it.
                let new = start.spawning.is_some();
                let line = if new { Vec::new() } else { self.ancestors(start.child) };
                match self.machine.lend(me, (start.child, &start.name), &start.scope, line) {
                    Ok(ticket) => {
                        self.scopes_changed = true;
                        start.ticket = ticket;
                        start.at = At::Create;
                    }
                    Err(refused) => {
                        self.refused(&refused);
                        return Ok(start.undo(At::Widen, ErrorCode::Conflict, refused.to_string()));
                    }
                }
            }
            At::Create => return self.create(key, start),
            At::Launch => {
                self.met("a child's process was started");
                let ticket = Some(start.ticket.clone());
                let child = self.launch(start.child, start.name.clone(), ticket);
                start.process = Some(child);
                start.deadline = self.machine.now + READY_MS;
                start.at = At::Ready;
            }
            At::Ready => return self.is_it_ready(key, start),
            At::Gone => {
                let alive = start.process.is_some_and(|child| self.processes.contains_key(&child));
                if !alive && !self.machine.is_held(&start.name, start.child) {
                    start.at = At::Withdraw;
                }
            }
            At::Withdraw => {
                self.machine.withdraw(start.child);
                self.scopes_changed = true;
                start.at = At::Widen;
            }
            At::Widen => {
                self.met("a start was undone");
                self.refresh(key);
                let (code, message) = start.why;
                self.tell(key, TreeNews::NotSpawned { child: start.child, code, message });
                self.adopt_others(key)?;
                return Ok(None);
            }
        }
        Ok(Some(Errand::Start(start)))
    }

    /// The child's session, with everything that it is started for in it.
    fn create(&mut self, key: Key, mut start: Box<Start>) -> Result<Option<Errand>, String> {
        let at = Moment { now: self.machine.now, seed: self.chance.next() };
        if let Some(spawning) = &start.spawning {
            let mut session = Session::default();
            session.written(new_session(at, spawning.new_session("0.0.0")));
            session.holder = Some(key);
            for entry in session.entries() {
                self.watch.wrote(start.child, entry)?;
            }
            self.sessions.insert(start.child, session);
            start.at = At::Launch;
            return Ok(Some(Errand::Start(start)));
        }
        let Some(session) = self.sessions.get_mut(&start.child) else {
            return Ok(start.undo(At::Withdraw, ErrorCode::NotFound, "there is no such session"));
        };
        if session.holder.is_some_and(|holder| holder != key) {
            return Ok(start.undo(At::Withdraw, ErrorCode::Conflict, "somebody holds the session"));
        }
        session.holder = Some(key);
        let by = Actor::pod(self.processes[&key].session);
        let mut changes = vec![Visit::Kin(std::mem::take(&mut start.kin))];
        if let Some(budget) = &start.budget {
            let value = serde_json::to_value(budget).expect("a budget is plain data");
            changes.push(Visit::Config { key: "budget".to_owned(), value });
        }
        if let Some(send) = start.send.take() {
            let segments = vec![InputSegment::text(send.message.as_str())];
            changes.push(Visit::Queue { segments, op_id: Some(send.op_id) });
        }
        for change in changes {
            match visit(session.state(), at, visitor(by.clone()), change) {
                Ok(step) => {
                    let from = session.written(step);
                    for entry in session.entries().get(from..).unwrap_or_default() {
                        self.watch.wrote(start.child, entry)?;
                    }
                }
                Err(refusal) => {
                    session.holder = None;
                    return Ok(start.undo(At::Withdraw, refusal.code, refusal.message));
                }
            }
        }
        start.at = At::Launch;
        Ok(Some(Errand::Start(start)))
    }

    fn is_it_ready(&mut self, key: Key, mut start: Box<Start>) -> Result<Option<Errand>, String> {
        let Some(child) = start.process else { return Ok(None) };
        if self.ready.contains(&child) {
            self.met("a child lives");
            let Start { child, name, .. } = *start;
            let news = TreeNews::Spawned {
                child,
                socket: name.to_string(),
                clone: None,
                sent: Some("started".to_owned()),
            };
            self.tell(key, news);
            if let Some(process) = self.processes.get_mut(&key) {
                process.errands.push(Errand::Watch(Watching { child, name, known: true }));
            }
            self.refresh(key);
            return Ok(None);
        }
        if !self.processes.contains_key(&child) {
            self.met("a child died before it was ready");
            return Ok(start.undo(At::Gone, ErrorCode::Internal, "it died before it was ready"));
        }
        if self.machine.now >= start.deadline {
            self.met("a child was not ready in time");
            self.die(child)?;
            start.at = At::Gone;
        }
        Ok(Some(Errand::Start(start)))
    }

    /// A new process for a session, which holds the session's lease from its first moment.
    pub(super) fn launch(&mut self, session: SessionId, name: PodName, ticket: Option<String>) -> Key {
        self.keys += 1;
        let key = self.keys;
        let (pid, again) = self.machine.pid(key);
        if again {
            self.met("a process number was used again");
        }
        if let Some(log) = self.sessions.get_mut(&session) {
            log.holder = Some(key);
        }
        let process = Process {
            pid,
            session,
            name,
            stage: Stage::Claims,
            ticket,
            files: Scope::default(),
            life: None,
            errands: Vec::new(),
            leaves: None,
        };
        self.processes.insert(key, process);
        key
    }

    /// A process that is not ready yet takes its next step, or fails.
    pub(super) fn begins(&mut self, key: Key) -> Result<(), String> {
        self.steps += 1;
        if !self.calm && self.chance.one_in(60) {
            self.met("a start failed");
            return self.die(key);
        }
        let process = &self.processes[&key];
        let (session, name, pid) = (process.session, process.name.clone(), process.pid);
        match process.stage {
            Stage::Claims => {
                let claimed = match process.ticket.clone() {
                    Some(ticket) => self.machine.adopt((key, pid), (&name, session), &ticket).map(|()| name),
                    None => {
                        let ancestors = self.ancestors(session);
                        let scope = self.scope_of(session);
                        self.machine.register((key, pid), (&name, session), &scope, ancestors)
                    }
                };
                self.scopes_changed = true;
                match claimed {
                    Ok(name) => {
                        if let Some(process) = self.processes.get_mut(&key) {
                            (process.name, process.stage) = (name, Stage::Says);
                        }
                    }
                    Err(refused) => {
                        self.refused(&refused);
                        return self.die(key);
                    }
                }
            }
            Stage::Says => {
                self.ready.insert(key);
                if let Some(process) = self.processes.get_mut(&key) {
                    process.stage = Stage::Boots;
                }
            }
            Stage::Boots => {
                let state = self.sessions.get(&session).ok_or("a process has no session")?.replayed();
                if let Some(process) = self.processes.get_mut(&key) {
                    process.life = Some(Life::new(Mind::new(self.minds, state)));
                    process.stage = Stage::Lives;
                }
                self.refresh(key);
                self.feed(key, What::Boot(Box::new(super::agent::boot(pid))))?;
                self.adopt_others(key)?;
            }
            Stage::Lives => {}
        }
        Ok(())
    }
}

pub(super) fn visitor(by: Actor) -> Visitor {
    Visitor { pid: 1, boot_id: "boot".to_owned(), host: "here".to_owned(), version: "0.0.0".to_owned(), by }
}
