//! The process of the world's pod: crashes, boots, a full disk, time, and offline edits.

use super::*;

impl StoryWorld {
    /// Advances the clock; lazy entries are synced, and due timers fire in order.
    pub fn advance_clock(&mut self, millis: u64) -> Result<(), StoryStop> {
        let end = self.now + millis;
        if self.log.has_unsynced() {
            self.sync_log()?;
        }
        while let Some((timer, at)) = self.timers.iter().min_by_key(|(_, at)| **at).map(|(t, at)| (*t, *at)) {
            if at > end {
                break;
            }
            self.timers.remove(&timer);
            self.now = self.now.max(at);
            self.feed_input(InputKind::Timer(timer))?;
            self.settle_inputs()?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Handles a failed write like the driver: stops all work, rebuilds the pod from the log, and writes the end of its run
    /// with the ballast.
    pub(super) fn handle_storage_failure(&mut self, asker: Option<ReplyId>) -> Result<(), StoryStop> {
        self.requests.clear();
        self.model_replies.clear();
        self.inbox.clear();
        self.hanging_hooks.clear();
        self.tools.drop_calls();
        // Earlier entries are valid: their events and replies still leave, their effects are stopped.
        self.held_outputs.retain(|held| !matches!(held.out, WorldOutput::Effect(_)));
        self.log.sync_bytes();
        self.synced = self.log.head_position().map(|end| end.seq);
        self.flush_outputs()?;
        let message = "no space left on the disk".to_owned();
        if let Some(to) = asker {
            let refusal = CommandRefusal::new(ErrorCode::StorageFailed, message.clone());
            self.replies.insert(to, Err(refusal));
        }
        self.log_state = self.replay_log();
        let Some(old) = self.pod.take() else { return Ok(()) };
        let mut pod = Pod::rebuild_from(self.log_state.clone(), old);
        self.now += 1;
        self.inputs += 1;
        let step = pod.step(PodInput {
            now: self.now,
            seed: self.inputs,
            kind: InputKind::StorageFailed { message },
        });
        self.pod = Some(pod);
        self.add_transcript(|| "    in: storage failed".to_owned());
        if !step.entries.is_empty() {
            match self.log.append_with_ballast(&step.entries, &step.blobs) {
                Ok(written) => {
                    self.apply_entries(&written);
                    self.record_state();
                }
                // The ballast does not suffice: the pod continues to serve reads from the log.
                Err(DiskFull) => {
                    let old = self.pod.take().expect("it was put there above");
                    self.pod = Some(Pod::rebuild_from(self.log_state.clone(), old));
                    return Ok(());
                }
            }
            self.log.sync_bytes();
            self.synced = self.log_state.next_seq.checked_sub(1);
        }
        self.checker.join_at_head();
        self.compare_state()
    }

    /// Kills the process. The log stays as the crash leaves it, and the external state stays.
    pub fn kill_process(&mut self, death: DeathKind) -> Result<(), StoryStop> {
        self.add_transcript(|| format!("    *** dies: {death:?}"));
        let started: Vec<(CallId, String)> = self.started_once_calls();
        self.drop_process();
        self.log.apply_death(death);
        let entries = self.log.open_log().map_err(StoryStop::Failed)?;
        self.checker.check_after_death(death, entries).map_err(StoryStop::Failed)?;
        self.synced = entries.last().map(|entry| entry.seq);
        self.log_state = self.replay_log();
        if self.broken_rule == Some(RuleBreak::RerunStartedCall) {
            for (call, arguments) in started {
                self.tools.hold_calls = false;
                self.tools.start_call(&call, "Note", &arguments);
            }
        }
        Ok(())
    }

    /// Returns dispatched once calls without a result, which a broken driver would run again.
    pub(super) fn started_once_calls(&self) -> Vec<(CallId, String)> {
        let calls = &self.log_state.facts.calls;
        let once = calls.iter().filter(|call| {
            matches!(&call.stage, minke_record::CallStage::Dispatched(d) if d.class == Class::Once)
                && self.tools.start_counts.contains_key(&call.call_id)
        });
        once.map(|call| (call.call_id.clone(), self.resolve_text(&call.arguments))).collect()
    }

    /// Boots a new process on the same log.
    pub fn boot_pod(&mut self) -> Result<(), StoryStop> {
        let state = self.replay_log();
        if state != self.log_state {
            return Err(StoryStop::Failed("two replays of one log differ".to_owned()));
        }
        self.has_exited = false;
        self.checker.join_at_head();
        let references = scene::queued_references(&state);
        self.pod = Some(Pod::new(state));
        let boot = minke_pod::BootInfo { references, ..scene::boot_info(&self.scene, self.rules.clone()) };
        self.feed_input(InputKind::Boot(Box::new(boot)))?;
        self.settle_inputs()
    }

    /// Applies an offline edit: lease, one step, sync.
    pub fn apply_offline_edit(&mut self, visit: OfflineEdit) -> Result<(), StoryStop> {
        self.now += 1;
        self.inputs += 1;
        let at = StepSeed { now: self.now, seed: self.inputs };
        let step = minke_pod::apply_offline_edit(&self.log_state, at, scene::offline_writer(), visit)
            .map_err(|refusal| StoryStop::Failed(format!("the visit is refused: {}", refusal.message)))?;
        self.append_offline(&step);
        self.checker.join_at_head();
        Ok(())
    }

    /// Forks at the head. From here on the world belongs to the fork.
    pub fn fork_session(&mut self) -> Result<(), StoryStop> {
        if self.log.has_unsynced() {
            self.sync_log()?;
        }
        let head = self.log.head_position().expect("a session has its first step");
        let from = ForkOrigin { session: scene::SESSION, seq: head.seq, h: head.h };
        let parent = self.replay_log();
        self.now += 1;
        self.inputs += 1;
        let at = StepSeed { now: self.now, seed: self.inputs };
        let step = minke_pod::fork_session(&parent, at, scene::fork_request(from))
            .map_err(|refusal| StoryStop::Failed(format!("the fork is refused: {}", refusal.message)))?;
        self.drop_process();
        self.base.extend_from_slice(self.log.entries());
        self.log = MemoryLog::default();
        self.checker = LogChecker::default();
        self.tools.start_counts.clear();
        self.append_offline(&step);
        if self.replay_log() != self.log_state {
            return Err(StoryStop::Failed("the fork's log does not fold to the fork".to_owned()));
        }
        self.boot_pod()
    }

    /// Checks everything that happened.
    pub fn check_all(&self) -> Result<(), String> {
        self.checker.check_at_end(&self.base, self.log.entries(), &self.tools.start_counts)?;
        self.pods.check_pods(&self.replay_log(), self.log.entries(), self.pod.is_some())?;
        if let Some(call) = self.tools.repeated_puts.first() {
            return Err(format!("call {call} was made again although its file showed that it was done"));
        }
        if self.replay_log() == *self.current_state() {
            return Ok(());
        }
        Err("at the end the pod's state differs from the state of its log".to_owned())
    }
}
