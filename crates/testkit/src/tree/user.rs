//! The simulated user: starts and restarts pods, sends input, answers asks, stops pods.
//!
//! Elsewhere: the agents (`agent`), the faults (`faults`).

use minke_pod::{
    CommandRequest, InputKind, NewSession, PodCommand, RunMode, ShutdownMode, StepSeed, StoppedPod,
    new_session,
};
use minke_record::{
    Actor, AskId, AskKind, Budget, Decision, InputSegment, Permission, PodName, Scope, ScopeRule, SessionId,
};
use uuid::Uuid;

use super::pod_tasks::shared_budget;
use super::session_log::SessionLog;
use super::{Key, PodKind, TreeSimulation, agent};

/// Maximum number of roots.
const MAX_ROOTS: usize = 3;

impl TreeSimulation {
    /// Runs one random action of the user.
    pub(super) fn random_user_action(&mut self) -> Result<(), String> {
        self.steps += 1;
        match self.random.below(8) {
            0 => self.start_root(),
            1 => self.restart_random_session(),
            2..=4 => self.send_random_input(),
            5 | 6 => self.answer_random_ask(),
            _ => match self.random_process().filter(|_| self.random.one_in(4)) {
                Some(key) if self.processes[&key].is_ready() => {
                    self.count_branch("a person stopped a pod");
                    if self.random.one_in(2) {
                        return self.feed_input(key, InputKind::Signal);
                    }
                    self.send_command(key, PodCommand::Shutdown { mode: ShutdownMode::Now })
                }
                _ => Ok(()),
            },
        }
    }

    pub(super) fn send_command(&mut self, key: Key, command: PodCommand) -> Result<(), String> {
        self.feed_input(
            key,
            InputKind::Command(Box::new(CommandRequest {
                from: Actor::from_person("sim"),
                reply: None,
                command,
            })),
        )
    }

    pub(super) fn start_root(&mut self) -> Result<(), String> {
        let roots = self.sessions.keys().filter(|session| self.is_root_session(**session)).count();
        if roots >= MAX_ROOTS {
            return Ok(());
        }
        let id = SessionId(Uuid::from_u128(0x0197_0000_0000_7000_9000_0000_0000_0000 + roots as u128));
        let place = agent::WORK_DIRS[if self.random.one_in(3) { self.random.below(4) } else { roots % 2 }];
        let mut scope = Scope::writable(place);
        if place == "/p" {
            let permission = if self.random.one_in(2) { Permission::Write } else { Permission::Read };
            scope.deny.push(ScopeRule { target: "/p/secret".to_owned(), permission, recursive: true });
        }
        let name = PodName::from_text(&format!("root-{roots}"));
        let mut manifest = minke_manifest::Manifest::default();
        manifest.worker.max_tokens = Some(1_500);
        manifest.worker.max_turns = 12;
        manifest.pod.limits.depth = u64::from(self.machine.limits.max_depth);
        manifest.pod.limits.children = self.machine.limits.max_children as u64;
        manifest.budget = Budget { tokens: self.budget, ..Budget::default() };
        let new = NewSession {
            session: id,
            version: "0.0.0".to_owned(),
            name: name.clone(),
            created_by: Actor::from_person("sim"),
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
        let mut session = SessionLog::default();
        session.append_offline(new_session(
            StepSeed { now: self.machine.now, seed: self.random.next_u64() },
            new,
        ));
        for entry in session.entries() {
            self.checker.check_entry(id, entry)?;
        }
        self.sessions.insert(id, session);
        self.count_branch("a root was started");
        self.launch_process(id, name, None);
        Ok(())
    }

    /// Opens a session without a pod again: a root, or a child without an ancestor that could start it.
    pub(super) fn restart_random_session(&mut self) -> Result<(), String> {
        let asleep: Vec<SessionId> = self
            .sessions
            .iter()
            .filter(|(id, session)| session.holder.is_none() && self.find_process(**id).is_none())
            .map(|(id, _)| *id)
            .collect();
        let Some(id) = self.random.pick(&asleep).copied() else { return Ok(()) };
        let above = self.ancestors_of(id).into_iter().find_map(|above| self.find_process(above));
        if let Some(key) =
            above.filter(|key| self.pod_kind == PodKind::Product && self.processes[key].is_ready())
        {
            return self.restart_through_ancestor(key, id);
        }
        if !self.is_budget_held(id) {
            return Ok(());
        }
        self.count_branch("a session was restarted");
        let name = self.session_name(id);
        self.launch_process(id, name, None);
        Ok(())
    }

    /// Asks the nearest running ancestor to restart a child.
    pub(super) fn restart_through_ancestor(&mut self, key: Key, id: SessionId) -> Result<(), String> {
        let Some(log) = self.sessions.get_mut(&id) else { return Ok(()) };
        let state = log.read_state();
        let Some(about) = state.facts.about.clone() else { return Ok(()) };
        let Some(parent) = about.parent else { return Ok(()) };
        let (scope, budget) = (about.scope, shared_budget(state.granted_budget()));
        let above = self.processes[&key].session;
        let ancestors = self.ancestors_of(id).into_iter().take_while(|session| *session != above).collect();
        let paid = self.collect_spending(id);
        let stopped =
            StoppedPod { session: id, name: self.session_name(id), scope, parent, budget, ancestors, paid };
        self.count_branch("a child was restarted through its ancestor");
        self.send_command(key, PodCommand::RestorePod(Box::new(stopped)))
    }

    /// Returns whether the ancestors still hold the unspent budget of a session. An ended child has returned
    /// it, and a child that is being restarted may not know its new part yet: only a running ancestor may
    /// start those.
    pub(super) fn is_budget_held(&mut self, session: SessionId) -> bool {
        let Some(parent) = self.parent_session(session) else { return true };
        let granted =
            self.sessions.get_mut(&session).and_then(|log| log.read_state().granted_budget().tokens);
        let Some(log) = self.sessions.get_mut(&parent) else { return false };
        let known = log.read_state().live_children().find(|child| child.session == session);
        let held = known.map(|child| child.budget.and_then(|b| b.tokens));
        held == Some(granted) && self.is_budget_held(parent)
    }

    pub(super) fn send_random_input(&mut self) -> Result<(), String> {
        let roots: Vec<Key> = self
            .processes
            .iter()
            .filter(|(_, process)| process.is_ready() && self.is_root_session(process.session))
            .map(|(key, _)| *key)
            .collect();
        let child =
            self.random_process().filter(|key| self.processes[key].is_ready() && self.random.one_in(5));
        let Some(key) = child.or_else(|| self.random.pick(&roots).copied()) else { return Ok(()) };
        let input = vec![InputSegment::from_text("work")];
        self.send_command(
            key,
            PodCommand::Run { input, attached: Ok(Vec::new()), mode: RunMode::Queue, op_id: None },
        )
    }

    pub(super) fn answer_random_ask(&mut self) -> Result<(), String> {
        let Some(key) = self.random_process().filter(|key| self.processes[key].is_ready()) else {
            return Ok(());
        };
        let Some(life) = &self.processes[&key].live_pod else { return Ok(()) };
        let Some(ask) = life.pod.state().facts.asks.first() else { return Ok(()) };
        let (ask, question) = (ask.id, ask.ask == AskKind::Question);
        self.count_branch("a person answered");
        if self.random.one_in(4) {
            return self
                .send_command(key, PodCommand::Answer { ask, decision: Decision::Denied, note: None });
        }
        self.send_command(key, accepting_answer(ask, question))
    }
}

/// Returns an answer that continues the run.
pub(super) fn accepting_answer(ask: AskId, question: bool) -> PodCommand {
    let decision = if question { Decision::Answered } else { Decision::Approved };
    PodCommand::Answer { ask, decision, note: question.then(|| "that one".to_owned()) }
}
