//! When the faults have stopped: everything comes to rest within bounded steps, and is looked at.

use minke_pod::{Order, What};
use minke_record::{AskKind, Millis, SessionId};

use super::{Key, Minds, Tree};

/// Everything must have come to rest after so many rounds.
const ROUNDS: usize = 400;

/// More than all the jumps back of a seed.
const PUT_OFF_MS: Millis = 1_000 * 3_600_000;

impl Tree {
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.calm = true;
        // Deadlines that a jump of the clock has put off.
        self.machine.now += PUT_OFF_MS;
        self.come_to_rest()?;
        self.judge_living()?;
        self.wake_the_rest()?;
        let open = self.watch.open_runs();
        if let Some(session) = open.first() {
            return Err(format!("L2: a run of {} never ended", self.name_of(*session)));
        }
        for session in self.sessions.values() {
            self.trace.add(&session.len().to_le_bytes());
            if self.minds == Minds::StandIn {
                continue; // it writes only what the tree is about
            }
            let mut audit = minke_pod::Audit::new();
            for entry in session.entries() {
                audit.see(entry);
            }
            let complaints = audit.finish();
            if !complaints.is_empty() {
                return Err(format!("audit: {}", complaints.join("; ")));
            }
        }
        Ok(())
    }

    /// Everybody does what they can do, until nobody can do anything.
    fn come_to_rest(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            let before = self.steps;
            let all: Vec<Key> = self.processes.keys().copied().collect();
            for key in all {
                self.round(key)?;
            }
            while !self.letters.is_empty() {
                self.post()?;
                self.check()?;
            }
            while !self.machine.fences.is_empty() {
                self.a_command_ends()?;
            }
            self.machine.now += 5_000;
            self.machine.reclaim();
            self.scopes_changed = true;
            self.check()?;
            let restless = self.processes.keys().any(|key| self.is_restless(*key));
            if !restless && self.letters.is_empty() && before == self.steps {
                return Ok(());
            }
        }
        let restless: Vec<String> = self
            .processes
            .iter()
            .filter(|(key, _)| self.is_restless(**key))
            .map(|(_, process)| {
                let facts = process.life.as_ref().map(|life| &life.mind.state().facts);
                let calls: Vec<_> = facts
                    .map(|f| f.calls.iter().map(|c| format!("{} {:?}", c.tool, c.stage)).collect())
                    .unwrap_or_default();
                format!(
                    "{} {:?} errands {:?} run {} asks {} outbox {} inbox {} calls {calls:?}",
                    process.name,
                    process.stage,
                    process.errands,
                    facts.is_some_and(|facts| facts.run.is_some()),
                    facts.map_or(0, |facts| facts.asks.len()),
                    facts.map_or(0, |facts| facts.outbox.len()),
                    process.life.as_ref().map_or(0, |life| life.inbox.len()),
                )
            })
            .collect();
        Err(format!("when the faults have stopped, not everything rests: {}", restless.join("; ")))
    }

    fn round(&mut self, key: Key) -> Result<(), String> {
        for _ in 0..12 {
            let Some(process) = self.processes.get(&key) else { return Ok(()) };
            if process.life.is_none() || process.stage != super::Stage::Lives || process.leaves.is_some() {
                self.acts(key)?;
            } else {
                self.hears(key)?;
                self.model_speaks(key)?;
            }
            self.sync(key)?;
            self.check()?;
        }
        let errands = self.processes.get(&key).map_or(0, |process| process.errands.len());
        for at in (0..errands).rev() {
            let known = self.processes.get(&key).and_then(|process| process.errands.get(at));
            if known.is_some_and(|errand| !self.is_idle(errand)) {
                self.go_on(key, at)?;
                self.check()?;
            }
        }
        self.clock(key)?;
        self.settle_questions(key)
    }

    /// An errand that waits for somebody who does not come.
    fn is_idle(&self, errand: &super::hand::Errand) -> bool {
        match errand {
            super::hand::Errand::Watch(watch) => watch.known && self.process_of(watch.child).is_some(),
            super::hand::Errand::Report(report) => !self.can_be_heard(report.to),
            _ => false,
        }
    }

    fn can_be_heard(&self, session: SessionId) -> bool {
        std::iter::once(session)
            .chain(self.ancestors(session))
            .any(|above| self.process_of(above).is_some_and(|key| self.processes[&key].is_ready()))
    }

    fn settle_questions(&mut self, key: Key) -> Result<(), String> {
        let Some(process) = self.processes.get(&key).filter(|process| process.is_ready()) else {
            return Ok(());
        };
        let Some(life) = &process.life else { return Ok(()) };
        let state = life.mind.state();
        if let Some(ask) = state.facts.asks.first() {
            let order = super::person::answer(ask.id, ask.ask == AskKind::Question);
            return self.tells(key, order);
        }
        if self.can_be_resumed(life) && state.facts.run.is_none() {
            return self.tells(key, Order::Resume { detail: None });
        }
        Ok(())
    }

    fn can_be_resumed(&self, life: &super::life::Life) -> bool {
        self.minds == Minds::Product && life.mind.state().resumable().is_some() && !life.broke
    }

    fn is_restless(&self, key: Key) -> bool {
        let process = &self.processes[&key];
        let Some(life) = &process.life else { return true };
        let facts = &life.mind.state().facts;
        facts.run.is_some()
            || !facts.asks.is_empty()
            || self.can_be_resumed(life)
            || !life.inbox.is_empty()
            || life.waits_for_sync()
            || process.leaves.is_some()
            || process.errands.iter().any(|errand| !self.is_idle(errand))
    }

    /// What must hold among those that live.
    fn judge_living(&mut self) -> Result<(), String> {
        for row in &self.machine.table.pods {
            let holder = self.machine.holder(&row.name).and_then(|key| self.processes.get(&key));
            if holder.is_none_or(|process| process.session != row.session) {
                return Err(format!("L1: the row of {} is there, and nobody who holds it", row.name));
            }
        }
        for process in self.processes.values() {
            let Some(row) = self.machine.table.row(process.session) else {
                return Err(format!("L5: {} lives and has no row", process.name));
            };
            if process.files != row.effective() {
                return Err(format!("L1: {} has not got back what it had lent", process.name));
            }
            let Some(parent) = row.parent else { continue };
            let above = self.process_of(parent).and_then(|key| self.processes.get(&key));
            let above = above.ok_or_else(|| format!("L5: nobody stands above {}", process.name))?;
            if !above.errands.iter().any(|errand| errand.watches(process.session)) {
                return Err(format!("L5: {} lives and {} does not watch it", process.name, above.name));
            }
            let life = above.life.as_ref();
            let knows = |session: SessionId| {
                life.is_some_and(|life| {
                    life.mind.state().live_children().any(|child| child.session == session)
                })
            };
            if !knows(process.session) {
                return Err(format!("L5: {} lives and {} does not know it", process.name, above.name));
            }
        }
        self.judge_minds()
    }

    /// What minds believe is what is so, and no report waits for somebody who is there.
    fn judge_minds(&mut self) -> Result<(), String> {
        for process in self.processes.values() {
            let Some(life) = &process.life else { continue };
            for child in life.mind.state().live_children() {
                if self.process_of(child.session).is_none() {
                    return Err(format!("L1: {} believes that {} lives", process.name, child.name));
                }
            }
        }
        let senders: Vec<SessionId> = self.sessions.keys().copied().collect();
        for sender in senders {
            let Some(parent) = self.parent_of(sender) else { continue };
            let above = self.process_of(parent).and_then(|key| self.processes[&key].life.as_ref());
            let knows = |life: &super::life::Life| {
                life.mind.state().facts.children.iter().any(|child| child.session == sender)
            };
            if !above.is_some_and(knows) {
                continue;
            }
            if let Some(seq) = self.watch.unreceived(sender).first() {
                let (child, parent) = (self.name_of(sender), self.name_of(parent));
                return Err(format!("report {seq} of {child} never reached {parent}, which lives"));
            }
        }
        Ok(())
    }

    /// Everybody is stopped, then every session is opened once more, alone: what was left open ends.
    fn wake_the_rest(&mut self) -> Result<(), String> {
        for _ in 0..ROUNDS {
            let all: Vec<Key> = self.processes.keys().copied().collect();
            if all.is_empty() {
                break;
            }
            for key in all {
                if self.processes.get(&key).is_some_and(super::Process::is_ready) {
                    self.feed(key, What::Signal)?;
                }
                self.round(key)?;
            }
            self.letters.clear();
            self.machine.fences.clear();
            self.machine.now += 1_000;
            self.machine.reclaim();
        }
        self.watch.budgets.closed = true;
        let open: Vec<SessionId> = self.watch.open_runs();
        for session in open {
            let name = self.name_of(session);
            let key = self.launch(session, name, None);
            for _ in 0..ROUNDS {
                self.round(key)?;
                while !self.machine.fences.is_empty() {
                    self.a_command_ends()?;
                }
                self.machine.now += 1_000;
            }
            self.die(key)?;
            self.machine.reclaim();
        }
        Ok(())
    }
}
