//! After the faults: lets everything settle and checks it.

use super::*;

impl Simulation {
    /// Stops the faults: within a limit of actions every run ends and every client has received everything.
    pub(super) fn settle_and_check(&mut self) -> Result<(), String> {
        self.is_settling = true;
        self.disk.set_fault_plan(None);
        for client in &mut self.clients {
            client.disconnect();
            client.last_run = None;
        }
        if self.needs_restart {
            self.restart_machine(None)?;
        }
        for _ in 0..MAX_SETTLE_ACTIONS {
            let node = self.random.below(POD_COUNT);
            match &self.nodes[node].process {
                None => self.boot_pod(node)?,
                Some(life) if life.disk.is_dead() => self.handle_fate(node, ProcessFate::Dead)?,
                Some(_) => {}
            }
            self.free_space(node)?;
            self.send_model_event(node)?;
            self.deliver_tool_result(node)?;
            self.advance_time(node)?;
            self.sync_pod(node)?;
            self.answer_asks(node)?;
            if (0..POD_COUNT).all(|node| self.is_settled(node)) {
                return self.check_all();
            }
        }
        let unsettled: Vec<String> = (0..POD_COUNT)
            .filter(|node| !self.is_settled(*node))
            .map(|node| self.describe_unsettled(node))
            .collect();
        Err(format!(
            "after the faults, not everything settles in {MAX_SETTLE_ACTIONS} actions: {}",
            unsettled.join("; ")
        ))
    }

    pub(super) fn answer_asks(&mut self, node: usize) -> Result<(), String> {
        let Some(life) = &self.nodes[node].process else { return Ok(()) };
        let state = life.state();
        let command = if let Some(ask) = state.facts.asks.first() {
            PodCommand::Answer { ask: ask.id, decision: minke_record::Decision::Approved, note: None }
        } else if state.resumable_run().is_some() {
            PodCommand::Resume { detail: None }
        } else {
            return Ok(());
        };
        let request = PodRequest { from: Actor::from_person("sim"), reply: None, command };
        self.feed_input(node, InputKind::Command(Box::new(request)))
    }

    pub(super) fn is_settled(&self, node: usize) -> bool {
        self.nodes[node].process.as_ref().is_some_and(|life| {
            let facts = &life.state().facts;
            facts.run.is_none()
                && facts.asks.is_empty()
                && life.state().resumable_run().is_none()
                && life.inbox.is_empty()
                && !life.wants_sync()
                && !life.is_full
        })
    }

    pub(super) fn describe_unsettled(&self, node: usize) -> String {
        let Some(life) = &self.nodes[node].process else { return format!("pod {node} does not live") };
        let facts = &life.state().facts;
        format!(
            "pod {node} is {:?}, full {}, requests {:?}, timers {:?}, inbox {}, calls {:?}, asks {}, run {:?}",
            life.pod.status(),
            life.is_full,
            life.requests.keys(),
            life.timers,
            life.inbox.len(),
            facts.calls.iter().map(|call| (&call.call_id, &call.stage)).collect::<Vec<_>>(),
            facts.asks.len(),
            facts.run,
        )
    }

    pub(super) fn check_all(&mut self) -> Result<(), String> {
        for at in 0..CLIENT_COUNT {
            self.read_to_end(at)?;
        }
        for node in 0..POD_COUNT {
            let entries = self.read_entries(node)?;
            let ground = &self.nodes[node].record;
            ground.checker.check_at_end(&[], &entries, &ground.tools.start_counts)?;
            if let Some(call) = ground.tools.repeated_puts.first() {
                return Err(format!("call {call} was made again although its file showed that it was done"));
            }
            for entry in &entries {
                self.trace.add_bytes(&entry.h.0);
            }
        }
        Ok(())
    }

    /// Reads as a client until no more entries arrive; it must have the whole log.
    pub(super) fn read_to_end(&mut self, at: usize) -> Result<(), String> {
        let node = self.clients[at].node;
        self.connect_client(node, at)?;
        let head = self.nodes[node].process.as_ref().and_then(|life| life.shown).map_or(0, |shown| shown + 1);
        for _ in 0..MAX_SETTLE_ACTIONS {
            self.send_entries(node, at);
            self.clients[at].receive_bytes(&mut self.random)?;
            if self.clients[at].seen_entries.len() as u64 == head {
                break;
            }
        }
        let entries = self.read_entries(node)?;
        let log: Vec<Position> =
            entries.iter().map(|entry| Position { seq: entry.seq, h: entry.h }).collect();
        if self.clients[at].seen_entries == log {
            return Ok(());
        }
        Err(format!("a client saw {} entries of {}", self.clients[at].seen_entries.len(), log.len()))
    }
}
