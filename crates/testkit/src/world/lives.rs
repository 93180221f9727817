//! The lives of the world's pod: dying, booting, a disk that is full, time that passes; and what is written while no
//! pod lives.

use super::*;

impl World {
    /// Time passes; lazy entries reach the disk, and timers that are due fire in their order.
    pub fn pass(&mut self, millis: u64) -> Result<(), Stop> {
        let end = self.now + millis;
        if self.log.unsynced() {
            self.sync()?;
        }
        while let Some((timer, at)) = self.timers.iter().min_by_key(|(_, at)| **at).map(|(t, at)| (*t, *at)) {
            if at > end {
                break;
            }
            self.timers.remove(&timer);
            self.now = self.now.max(at);
            self.feed(What::Timer(timer))?;
            self.settle()?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// The contract of the driver when a write fails: everything that runs is stopped, the pod is made again from the
    /// log, and the end of its run is written with the ballast.
    pub(super) fn storage_failed(&mut self, asker: Option<ReplyTo>) -> Result<(), Stop> {
        self.requests.clear();
        self.said.clear();
        self.inbox.clear();
        self.hanging.clear();
        self.hands.die();
        // What was written before this step stands: its news and replies still leave, its effects are stopped.
        self.held.retain(|held| !matches!(held.out, Out::Effect(_)));
        self.log.sync();
        self.synced = self.log.head().map(|end| end.seq);
        self.flush()?;
        let message = "no space left on the disk".to_owned();
        if let Some(to) = asker {
            let refusal = Refusal::new(ErrorCode::StorageFailed, message.clone());
            self.replies.insert(to, Err(refusal));
        }
        self.shadow = self.replayed();
        let Some(old) = self.pod.take() else { return Ok(()) };
        let mut pod = Pod::rebuilt(self.shadow.clone(), old);
        self.now += 1;
        self.inputs += 1;
        let step =
            pod.step(Input { now: self.now, seed: self.inputs, what: What::StorageFailed { message } });
        self.pod = Some(pod);
        self.say(|| "    in: storage failed".to_owned());
        if !step.entries.is_empty() {
            match self.log.append_with_ballast(&step.entries, &step.blobs) {
                Ok(written) => {
                    self.fold(&written);
                    self.keep_state();
                }
                // Not even the ballast helps: the pod keeps its socket and its reading, on what the log says.
                Err(NoSpace) => {
                    let old = self.pod.take().expect("it was put there above");
                    self.pod = Some(Pod::rebuilt(self.shadow.clone(), old));
                    return Ok(());
                }
            }
            self.log.sync();
            self.synced = self.shadow.next_seq.checked_sub(1);
        }
        self.check.joins();
        self.compare()
    }

    /// The process dies. What is left is the log as the death left it, and everything outside.
    pub fn die(&mut self, death: Death) -> Result<(), Stop> {
        self.say(|| format!("    *** dies: {death:?}"));
        let started: Vec<(CallId, String)> = self.started_once_calls();
        self.lose_process();
        self.log.die(death);
        let entries = self.log.open().map_err(Stop::Wrong)?;
        self.check.died(death, entries).map_err(Stop::Wrong)?;
        self.synced = entries.last().map(|entry| entry.seq);
        self.shadow = self.replayed();
        if self.broken == Some(Break::RerunStartedCall) {
            for (call, arguments) in started {
                self.hands.hold = false;
                self.hands.start(&call, "Note", &arguments);
            }
        }
        Ok(())
    }

    /// Once calls that were dispatched and have no result: what a broken driver would run again.
    pub(super) fn started_once_calls(&self) -> Vec<(CallId, String)> {
        let calls = &self.shadow.facts.calls;
        let once = calls.iter().filter(|call| {
            matches!(&call.stage, minke_record::CallStage::Dispatched(d) if d.class == Class::Once)
                && self.hands.started.contains_key(&call.call_id)
        });
        once.map(|call| (call.call_id.clone(), self.text(&call.arguments))).collect()
    }

    /// A new process on the same log.
    pub fn boot(&mut self) -> Result<(), Stop> {
        let state = self.replayed();
        if state != self.shadow {
            return Err(Stop::Wrong("two replays of one log differ".to_owned()));
        }
        self.gone = false;
        self.check.joins();
        let referred = scene::referred(&state);
        self.pod = Some(Pod::new(state));
        let boot = minke_pod::Boot { referred, ..scene::boot(&self.scene, self.rules.clone()) };
        self.feed(What::Boot(Box::new(boot)))?;
        self.settle()
    }

    /// A visit while no pod lives: lease, one step, sync.
    pub fn visit(&mut self, visit: Visit) -> Result<(), Stop> {
        self.now += 1;
        self.inputs += 1;
        let at = Moment { now: self.now, seed: self.inputs };
        let step = minke_pod::visit(&self.shadow, at, scene::visitor(), visit)
            .map_err(|refusal| Stop::Wrong(format!("the visit is refused: {}", refusal.message)))?;
        self.written(&step);
        self.check.joins();
        Ok(())
    }

    /// A fork at the head. The parent's process is left alone; from here on the world is the fork's.
    pub fn fork(&mut self) -> Result<(), Stop> {
        if self.log.unsynced() {
            self.sync()?;
        }
        let head = self.log.head().expect("a session has its first step");
        let from = ForkedFrom { session: scene::SESSION, seq: head.seq, h: head.h };
        let parent = self.replayed();
        self.now += 1;
        self.inputs += 1;
        let at = Moment { now: self.now, seed: self.inputs };
        let step = minke_pod::fork(&parent, at, scene::forking(from))
            .map_err(|refusal| Stop::Wrong(format!("the fork is refused: {}", refusal.message)))?;
        self.lose_process();
        self.base.extend_from_slice(self.log.entries());
        self.log = MemLog::default();
        self.check = Checker::default();
        self.hands.started.clear();
        self.written(&step);
        if self.replayed() != self.shadow {
            return Err(Stop::Wrong("the fork's log does not fold to the fork".to_owned()));
        }
        self.boot()
    }

    /// The checker looks at everything that happened.
    pub fn judge(&self) -> Result<(), String> {
        self.check.ended(&self.base, self.log.entries(), &self.hands.started)?;
        self.kin.judge(&self.replayed(), self.log.entries(), self.pod.is_some())?;
        if let Some(call) = self.hands.repeated.first() {
            return Err(format!("call {call} was made again although its file showed that it was done"));
        }
        if self.replayed() == *self.state() {
            return Ok(());
        }
        Err("at the end the pod is not what its log says".to_owned())
    }
}
