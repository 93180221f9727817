//! After the faults: everything must settle within a limit of steps, and is checked.

use minke_pod::{InputKind, PodCommand};
use minke_record::{AskKind, Millis, SessionId};

use super::{Key, PodKind, TreeSimulation};

/// Maximum number of rounds until everything has settled.
const MAX_ROUNDS: usize = 400;

/// More than all backward clock jumps of a seed.
const CLOCK_ADVANCE_MS: Millis = 1_000 * 3_600_000;

impl TreeSimulation {
    pub(super) fn settle_and_check(&mut self) -> Result<(), String> {
        self.is_settling = true;
        // Reaches deadlines that a clock jump has delayed.
        self.machine.now += CLOCK_ADVANCE_MS;
        self.run_until_settled()?;
        self.check_live_pods()?;
        self.restart_open_sessions()?;
        let open = self.checker.sessions_with_open_runs();
        if let Some(session) = open.first() {
            return Err(format!("L2: a run of {} never ended", self.session_name(*session)));
        }
        for session in self.sessions.values() {
            self.trace.add_bytes(&session.len().to_le_bytes());
            if self.pod_kind == PodKind::StandIn {
                continue; // its logs are incomplete on purpose
            }
            let mut audit = minke_pod::Audit::new();
            for entry in session.entries() {
                audit.check_entry(entry);
            }
            let complaints = audit.into_problems();
            if !complaints.is_empty() {
                return Err(format!("audit: {}", complaints.join("; ")));
            }
        }
        Ok(())
    }

    /// Runs all possible work until nothing changes.
    fn run_until_settled(&mut self) -> Result<(), String> {
        for _ in 0..MAX_ROUNDS {
            let before = self.steps;
            let all: Vec<Key> = self.processes.keys().copied().collect();
            for key in all {
                self.step_all_of(key)?;
            }
            while !self.messages.is_empty() {
                self.deliver_message()?;
                self.check_invariants()?;
            }
            while !self.machine.commands.is_empty() {
                self.end_random_command()?;
            }
            self.machine.now += 5_000;
            self.machine.reclaim_dead_rows();
            self.scopes_changed = true;
            self.check_invariants()?;
            let unsettled = self.processes.keys().any(|key| self.is_unsettled(*key));
            if !unsettled && self.messages.is_empty() && before == self.steps {
                return Ok(());
            }
        }
        let restless: Vec<String> = self
            .processes
            .iter()
            .filter(|(key, _)| self.is_unsettled(**key))
            .map(|(_, process)| {
                let facts = process.live_pod.as_ref().map(|life| &life.pod.state().facts);
                let calls: Vec<_> = facts
                    .map(|f| f.calls.iter().map(|c| format!("{} {:?}", c.tool, c.stage)).collect())
                    .unwrap_or_default();
                format!(
                    "{} {:?} errands {:?} run {} asks {} outbox {} inbox {} calls {calls:?}",
                    process.name,
                    process.stage,
                    process.tasks,
                    facts.is_some_and(|facts| facts.run.is_some()),
                    facts.map_or(0, |facts| facts.asks.len()),
                    facts.map_or(0, |facts| facts.outbox.len()),
                    process.live_pod.as_ref().map_or(0, |life| life.inbox.len()),
                )
            })
            .collect();
        Err(format!("after the faults, not everything settles: {}", restless.join("; ")))
    }

    fn step_all_of(&mut self, key: Key) -> Result<(), String> {
        for _ in 0..12 {
            let Some(process) = self.processes.get(&key) else { return Ok(()) };
            if process.live_pod.is_none()
                || process.stage != super::ProcessStage::Running
                || process.exits_at.is_some()
            {
                self.step_process(key)?;
            } else {
                self.deliver_input(key)?;
                self.send_model_event(key)?;
            }
            self.sync_log(key)?;
            self.check_invariants()?;
        }
        let errands = self.processes.get(&key).map_or(0, |process| process.tasks.len());
        for at in (0..errands).rev() {
            let known = self.processes.get(&key).and_then(|process| process.tasks.get(at));
            if known.is_some_and(|task| !self.is_task_idle(task)) {
                self.step_task(key, at)?;
                self.check_invariants()?;
            }
        }
        self.fire_due_timer(key)?;
        self.answer_asks(key)
    }

    /// Returns whether a task waits for an event that does not occur.
    fn is_task_idle(&self, task: &super::pod_tasks::PodTask) -> bool {
        match task {
            super::pod_tasks::PodTask::Watch(watch) => {
                watch.is_known && self.find_process(watch.child).is_some()
            }
            super::pod_tasks::PodTask::Report(report) => !self.has_report_receiver(report.to),
            _ => false,
        }
    }

    fn has_report_receiver(&self, session: SessionId) -> bool {
        std::iter::once(session)
            .chain(self.ancestors_of(session))
            .any(|above| self.find_process(above).is_some_and(|key| self.processes[&key].is_ready()))
    }

    fn answer_asks(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.get(&key).filter(|process| process.is_ready()) else {
            return Ok(());
        };
        let Some(life) = &process.live_pod else { return Ok(()) };
        let state = life.pod.state();
        if let Some(ask) = state.facts.asks.first() {
            let order = super::user::accepting_answer(ask.id, ask.ask == AskKind::Question);
            return self.send_command(key, order);
        }
        if self.is_resumable(life) && state.facts.run.is_none() {
            return self.send_command(key, PodCommand::Resume { detail: None });
        }
        Ok(())
    }

    fn is_resumable(&self, life: &super::process::PodProcessState) -> bool {
        self.pod_kind == PodKind::Product
            && life.pod.state().resumable_run().is_some()
            && !life.budget_refused
    }

    fn is_unsettled(&self, key: Key) -> bool {
        let process = &self.processes[&key];
        let Some(life) = &process.live_pod else { return true };
        let facts = &life.pod.state().facts;
        facts.run.is_some()
            || !facts.asks.is_empty()
            || self.is_resumable(life)
            || !life.inbox.is_empty()
            || life.needs_sync()
            || process.exits_at.is_some()
            || process.tasks.iter().any(|task| !self.is_task_idle(task))
    }

    /// Checks the running pods.
    fn check_live_pods(&mut self) -> Result<(), String> {
        for row in &self.machine.table.pods {
            let holder = self.machine.lease_holder(&row.name).and_then(|key| self.processes.get(&key));
            if holder.is_none_or(|process| process.session != row.session) {
                return Err(format!("L1: the row of {} has no holder", row.name));
            }
        }
        for process in self.processes.values() {
            let Some(row) = self.machine.table.find_row(process.session) else {
                return Err(format!("L5: {} runs and has no row", process.name));
            };
            if process.files != row.effective_scope() {
                return Err(format!("L1: {} did not get its loans back", process.name));
            }
            let Some(parent) = row.parent else { continue };
            let above = self.find_process(parent).and_then(|key| self.processes.get(&key));
            let above = above.ok_or_else(|| format!("L5: no process is above {}", process.name))?;
            if !above.tasks.iter().any(|task| task.watches(process.session)) {
                return Err(format!("L5: {} runs and {} does not watch it", process.name, above.name));
            }
            let life = above.live_pod.as_ref();
            let knows = |session: SessionId| {
                life.is_some_and(|life| {
                    life.pod.state().live_children().any(|child| child.session == session)
                })
            };
            if !knows(process.session) {
                return Err(format!("L5: {} runs and {} does not know it", process.name, above.name));
            }
        }
        self.check_pod_states()
    }

    /// Checks that the pods' states are correct and that no report waits for a running receiver.
    fn check_pod_states(&mut self) -> Result<(), String> {
        for process in self.processes.values() {
            let Some(life) = &process.live_pod else { continue };
            for child in life.pod.state().live_children() {
                if self.find_process(child.session).is_none() {
                    return Err(format!("L1: {} has the stopped child {}", process.name, child.name));
                }
            }
        }
        let senders: Vec<SessionId> = self.sessions.keys().copied().collect();
        for sender in senders {
            let Some(parent) = self.parent_session(sender) else { continue };
            let above = self.find_process(parent).and_then(|key| self.processes[&key].live_pod.as_ref());
            let knows = |life: &super::process::PodProcessState| {
                life.pod.state().facts.children.iter().any(|child| child.session == sender)
            };
            if !above.is_some_and(knows) {
                continue;
            }
            if let Some(seq) = self.checker.unreceived_reports(sender).first() {
                let (child, parent) = (self.session_name(sender), self.session_name(parent));
                return Err(format!("report {seq} of {child} never reached the running pod {parent}"));
            }
        }
        Ok(())
    }

    /// Stops all pods, then opens each session with an open run alone, so that the run ends.
    fn restart_open_sessions(&mut self) -> Result<(), String> {
        for _ in 0..MAX_ROUNDS {
            let all: Vec<Key> = self.processes.keys().copied().collect();
            if all.is_empty() {
                break;
            }
            for key in all {
                if self.processes.get(&key).is_some_and(super::TreeProcess::is_ready) {
                    self.feed_input(key, InputKind::Signal)?;
                }
                self.step_all_of(key)?;
            }
            self.messages.clear();
            self.machine.commands.clear();
            self.machine.now += 1_000;
            self.machine.reclaim_dead_rows();
        }
        self.checker.budgets.is_closed = true;
        let open: Vec<SessionId> = self.checker.sessions_with_open_runs();
        for session in open {
            let name = self.session_name(session);
            let key = self.launch_process(session, name, None);
            for _ in 0..MAX_ROUNDS {
                self.step_all_of(key)?;
                while !self.machine.commands.is_empty() {
                    self.end_random_command()?;
                }
                self.machine.now += 1_000;
            }
            self.end_process(key)?;
            self.machine.reclaim_dead_rows();
        }
        Ok(())
    }
}
