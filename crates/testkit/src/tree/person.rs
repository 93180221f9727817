//! The person of the simulation: starts and wakes pods, gives them work, answers, stops them.
//!
//! Elsewhere: what agents do (`agent`), what goes wrong (`faults`).

use minke_pod::{Moment, NewSession, Order, Request, RunMode, ShutdownMode, Stopped, What, new_session};
use minke_record::{
    Actor, AskId, AskKind, Budget, Decision, InputSegment, Permission, PodName, Scope, ScopeRule, SessionId,
};
use uuid::Uuid;

use super::hand::divided;
use super::log::Session;
use super::{Key, Minds, Tree, agent};

/// How many roots a person starts at most.
const ROOTS: usize = 3;

impl Tree {
    /// Somebody at a terminal: starts and wakes pods, talks to them, answers, stops them.
    pub(super) fn person(&mut self) -> Result<(), String> {
        self.steps += 1;
        match self.chance.below(8) {
            0 => self.starts_a_root(),
            1 => self.wakes_somebody(),
            2..=4 => self.says_something(),
            5 | 6 => self.answers(),
            _ => match self.somebody().filter(|_| self.chance.one_in(4)) {
                Some(key) if self.processes[&key].is_ready() => {
                    self.met("a person stopped a pod");
                    if self.chance.one_in(2) {
                        return self.feed(key, What::Signal);
                    }
                    self.tells(key, Order::Shutdown { mode: ShutdownMode::Now })
                }
                _ => Ok(()),
            },
        }
    }

    pub(super) fn tells(&mut self, key: Key, order: Order) -> Result<(), String> {
        self.feed(key, What::Order(Box::new(Request { from: Actor::person("sim"), reply: None, order })))
    }

    pub(super) fn starts_a_root(&mut self) -> Result<(), String> {
        let roots = self.sessions.keys().filter(|session| self.is_root(**session)).count();
        if roots >= ROOTS {
            return Ok(());
        }
        let id = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_9000_0000_0000_0000 + roots as u128));
        let place = agent::PLACES[if self.chance.one_in(3) { self.chance.below(4) } else { roots % 2 }];
        let mut scope = Scope::write(place);
        if place == "/p" {
            let permission = if self.chance.one_in(2) { Permission::Write } else { Permission::Read };
            scope.deny.push(ScopeRule { target: "/p/secret".to_owned(), permission, recursive: true });
        }
        let name = PodName::from_any(&format!("root-{roots}"));
        let mut manifest = minke_manifest::Manifest::default();
        manifest.worker.max_tokens = Some(1_500);
        manifest.worker.max_turns = 12;
        manifest.pod.limits.depth = u64::from(self.machine.limits.depth);
        manifest.pod.limits.children = self.machine.limits.children as u64;
        manifest.budget = Budget { tokens: self.budget, ..Budget::default() };
        let new = NewSession {
            session: id,
            version: "0.0.0".to_owned(),
            name: name.clone(),
            created_by: Actor::person("sim"),
            cwd: place.to_owned(),
            workspace: place.to_owned(),
            git: None,
            manifest: manifest.to_value(),
            scope,
            mandate: None,
            metadata: None,
            parent: None,
            history: Vec::new(),
            task: None,
        };
        let mut session = Session::default();
        session.written(new_session(Moment { now: self.machine.now, seed: self.chance.next() }, new));
        for entry in session.entries() {
            self.watch.wrote(id, entry)?;
        }
        self.sessions.insert(id, session);
        self.met("a root was started");
        self.launch(id, name, None);
        Ok(())
    }

    /// A session without a pod is opened again: a root, or a child that nobody above can start.
    pub(super) fn wakes_somebody(&mut self) -> Result<(), String> {
        let asleep: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(id, session)| session.holder.is_none() && self.process_of(**id).is_none())
            .map(|(id, _)| *id)
            .collect();
        let Some(id) = self.chance.pick(&asleep).copied() else { return Ok(()) };
        let above = self.ancestors(id).into_iter().find_map(|above| self.process_of(above));
        if let Some(key) = above.filter(|key| self.minds == Minds::Product && self.processes[key].is_ready())
        {
            return self.wakes_through(key, id);
        }
        if !self.is_counted(id) {
            return Ok(());
        }
        self.met("a session was woken");
        let name = self.name_of(id);
        self.launch(id, name, None);
        Ok(())
    }

    /// The nearest living ancestor is asked to start a child again.
    pub(super) fn wakes_through(&mut self, key: Key, id: SessionId) -> Result<(), String> {
        let Some(log) = self.sessions.get_mut(&id) else { return Ok(()) };
        let state = log.state();
        let Some(about) = state.facts.about.clone() else { return Ok(()) };
        let Some(parent) = about.parent else { return Ok(()) };
        let (scope, budget) = (about.scope, divided(state.granted()));
        let above = self.processes[&key].session;
        let line = self.ancestors(id).into_iter().take_while(|session| *session != above).collect();
        let paid = self.account(id);
        let stopped = Stopped { session: id, name: self.name_of(id), scope, parent, budget, line, paid };
        self.met("a child was woken through its ancestor");
        self.tells(key, Order::RestorePod(Box::new(stopped)))
    }

    /// Whether what the session may still spend is held for it by those above it. A child whose end its parent has noted
    /// has given it back, and one that was about to be started again may not know its new part yet: nobody but a living
    /// ancestor may start those.
    pub(super) fn is_counted(&mut self, session: SessionId) -> bool {
        let Some(parent) = self.parent_of(session) else { return true };
        let granted = self.sessions.get_mut(&session).and_then(|log| log.state().granted().tokens);
        let Some(log) = self.sessions.get_mut(&parent) else { return false };
        let known = log.state().live_children().find(|child| child.session == session);
        let held = known.map(|child| child.budget.and_then(|b| b.tokens));
        held == Some(granted) && self.is_counted(parent)
    }

    pub(super) fn says_something(&mut self) -> Result<(), String> {
        let roots: Vec<Key> = self
            .processes
            .iter()
            .filter(|(_, process)| process.is_ready() && self.is_root(process.session))
            .map(|(key, _)| *key)
            .collect();
        let child = self.somebody().filter(|key| self.processes[key].is_ready() && self.chance.one_in(5));
        let Some(key) = child.or_else(|| self.chance.pick(&roots).copied()) else { return Ok(()) };
        let input = vec![InputSegment::text("work")];
        self.tells(key, Order::Run { input, attached: Ok(Vec::new()), mode: RunMode::Queue, op_id: None })
    }

    pub(super) fn answers(&mut self) -> Result<(), String> {
        let Some(key) = self.somebody().filter(|key| self.processes[key].is_ready()) else { return Ok(()) };
        let Some(life) = &self.processes[&key].life else { return Ok(()) };
        let Some(ask) = life.mind.state().facts.asks.first() else { return Ok(()) };
        let (ask, question) = (ask.id, ask.ask == AskKind::Question);
        self.met("a person answered");
        if self.chance.one_in(4) {
            return self.tells(key, Order::Answer { ask, decision: Decision::Denied, note: None });
        }
        self.tells(key, answer(ask, question))
    }
}

/// What a person says to a question so that the run goes on.
pub(super) fn answer(ask: AskId, question: bool) -> Order {
    let decision = if question { Decision::Answered } else { Decision::Approved };
    Order::Answer { ask, decision, note: question.then(|| "that one".to_owned()) }
}
