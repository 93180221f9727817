//! When the faults have stopped: everything comes to rest, and is looked at.

use super::*;

impl Sim {
    /// The faults stop: within a bounded number of acts every run ends and every client has seen everything.
    pub(super) fn rest(&mut self) -> Result<(), String> {
        self.calm = true;
        self.disk.plan(None);
        for client in &mut self.clients {
            client.hangs_up();
            client.last_run = None;
        }
        if self.distrusted {
            self.restart_machine(None)?;
        }
        for _ in 0..LAST_ACTS {
            let node = self.chance.below(PODS);
            match &self.nodes[node].life {
                None => self.boot(node)?,
                Some(life) if life.disk.is_dead() => self.follow(node, Fate::Dead)?,
                Some(_) => {}
            }
            self.space(node)?;
            self.model_speaks(node)?;
            self.hand_reports(node)?;
            self.time_passes(node)?;
            self.sync(node)?;
            self.settle_questions(node)?;
            if (0..PODS).all(|node| self.is_at_rest(node)) {
                return self.judge();
            }
        }
        let restless: Vec<String> =
            (0..PODS).filter(|node| !self.is_at_rest(*node)).map(|node| self.restless(node)).collect();
        Err(format!(
            "when the faults have stopped, not everything rests after {LAST_ACTS} acts: {}",
            restless.join("; ")
        ))
    }

    pub(super) fn settle_questions(&mut self, node: usize) -> Result<(), String> {
        let Some(life) = &self.nodes[node].life else { return Ok(()) };
        let state = life.state();
        let order = if let Some(ask) = state.facts.asks.first() {
            Order::Answer { ask: ask.id, decision: minke_record::Decision::Approved, note: None }
        } else if state.resumable().is_some() {
            Order::Resume { detail: None }
        } else {
            return Ok(());
        };
        let request = PodRequest { from: Actor::person("sim"), reply: None, order };
        self.feed(node, What::Order(Box::new(request)))
    }

    pub(super) fn is_at_rest(&self, node: usize) -> bool {
        self.nodes[node].life.as_ref().is_some_and(|life| {
            let facts = &life.state().facts;
            facts.run.is_none()
                && facts.asks.is_empty()
                && life.state().resumable().is_none()
                && life.inbox.is_empty()
                && !life.wants_sync()
                && !life.full
        })
    }

    pub(super) fn restless(&self, node: usize) -> String {
        let Some(life) = &self.nodes[node].life else { return format!("pod {node} does not live") };
        let facts = &life.state().facts;
        format!(
            "pod {node} is {:?}, full {}, requests {:?}, timers {:?}, inbox {}, calls {:?}, asks {}, run {:?}",
            life.pod.status(),
            life.full,
            life.requests.keys(),
            life.timers,
            life.inbox.len(),
            facts.calls.iter().map(|call| (&call.call_id, &call.stage)).collect::<Vec<_>>(),
            facts.asks.len(),
            facts.run,
        )
    }

    pub(super) fn judge(&mut self) -> Result<(), String> {
        for at in 0..CLIENTS {
            self.listen_to_the_end(at)?;
        }
        for node in 0..PODS {
            let entries = self.entries(node)?;
            let ground = &self.nodes[node].ground;
            ground.check.ended(&[], &entries, &ground.hands.started)?;
            if let Some(call) = ground.hands.repeated.first() {
                return Err(format!("call {call} was made again although its file showed that it was done"));
            }
            for entry in &entries {
                self.trace.add(&entry.h.0);
            }
        }
        Ok(())
    }

    /// A client that reads until nothing more comes has seen the whole log.
    pub(super) fn listen_to_the_end(&mut self, at: usize) -> Result<(), String> {
        let node = self.clients[at].node;
        self.connect(node, at)?;
        let head = self.nodes[node].life.as_ref().and_then(|life| life.shown).map_or(0, |shown| shown + 1);
        for _ in 0..LAST_ACTS {
            self.pump(node, at);
            self.clients[at].hear(&mut self.chance)?;
            if self.clients[at].view.len() as u64 == head {
                break;
            }
        }
        let entries = self.entries(node)?;
        let log: Vec<Position> =
            entries.iter().map(|entry| Position { seq: entry.seq, h: entry.h }).collect();
        if self.clients[at].view == log {
            return Ok(());
        }
        Err(format!("a client saw {} entries of {}", self.clients[at].view.len(), log.len()))
    }
}
