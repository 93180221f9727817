//! Carrying out one step: written, then shown; synced, then acknowledged and done.
//!
//! Here: the order of things after `step`, and what happens when a write fails. Elsewhere: what waits for a sync
//! (`outlet`), what a step holds (`pod`).
//! Invariant: nothing of a step that could not be written happens (`a_full_disk_ends_the_run_and_the_next_one_works`).

use minke_pod::{
    Boot, Effect, Input, Live, LiveWhat, Moment, News, Order, Pod, Reply, RunMode, State, Status, Step, What,
};
use minke_protocol::{Event, Refusal};
use minke_record::{Blob, Draft, Durability, ErrorCode, RunId};
use minke_registry::{PodStatus, StatusWaiting, Tally};
use minke_session::{AppendError, Damage, Sealed, StoreError};

use crate::Ending;
use crate::driver::{Driver, Storage};
use crate::log::Log;
use crate::outlet::{After, Item};
use crate::stderr::report;
use crate::wire;

/// Whether a reply that is on its way may be cut off by this.
fn cuts_off(what: &What) -> bool {
    match what {
        What::Signal => true,
        What::Order(request) => matches!(
            request.order,
            Order::Pause { .. }
                | Order::Cancel { .. }
                | Order::Shutdown { .. }
                | Order::Run { mode: RunMode::Interrupt, .. }
        ),
        _ => false,
    }
}

type Append = fn(&mut Log, Vec<Draft>, Vec<Blob>) -> Result<Vec<Sealed>, AppendError>;

impl Driver {
    /// One input, one step, carried out.
    pub(crate) fn take(&mut self, what: What) {
        if self.ending.is_some() {
            return;
        }
        if cuts_off(&what)
            && let Some((call, event)) = self.models.so_far()
        {
            self.take(What::Model { call, event });
        }
        let step = self.step(what);
        if let Err(failed) = self.carry_out(step, Log::append) {
            self.write_failed(*failed);
        }
    }

    /// The first input. A pod whose first entries cannot be written does not begin.
    pub(crate) fn begin(&mut self, boot: Boot) -> Result<(), AppendError> {
        let step = self.step(What::Boot(Box::new(boot)));
        self.carry_out(step, Log::append).map_err(|failed| failed.error)
    }

    fn step(&mut self, what: What) -> Step {
        let input = Input { now: self.clock.now(), seed: self.clock.seed(), what };
        self.pod.step(input)
    }

    /// Writes a step and hands out what came of it. An error gives back what would have been answered and done.
    fn carry_out(&mut self, step: Step, append: Append) -> Result<(), Box<Failed>> {
        let Step { blobs, recordings, entries, news, replies, effects } = step;
        let before = self.log.head().seq;
        let barriers: Vec<bool> =
            entries.iter().map(|draft| draft.durability == Durability::Barrier).collect();
        let sealed = if entries.is_empty() {
            Vec::new()
        } else {
            match append(&mut self.log, entries, blobs) {
                Ok(sealed) => sealed,
                Err(error) => return Err(Box::new(Failed { error, replies, effects })),
            }
        };
        for recording in recordings {
            self.models.keep(recording);
        }
        let last = sealed.last().map(|sealed| sealed.entry.seq);
        if barriers.contains(&true)
            && let Some(seq) = last
        {
            self.log.want(seq);
        }
        self.show(news, sealed, &barriers, before);
        for reply in replies {
            self.answer(reply, last);
        }
        for effect in effects {
            if effect.may_run_ahead() {
                self.perform(effect);
                continue;
            }
            let gate = last.unwrap_or(self.log.head().seq);
            self.log.want(gate);
            self.outlet.push_after(gate, After::Effect(effect));
        }
        Ok(())
    }

    /// Puts the news of a step into their places.
    fn show(&mut self, news: Vec<News>, sealed: Vec<Sealed>, barriers: &[bool], before: u64) {
        let mut after_seq = before;
        let mut sealed: Vec<Option<Sealed>> = sealed.into_iter().map(Some).collect();
        for item in news {
            match item {
                News::Entry(at) => {
                    let Some(sealed) = sealed.get_mut(at).and_then(Option::take) else { continue };
                    after_seq = sealed.entry.seq;
                    let gate = barriers.get(at).is_some_and(|barrier| *barrier).then_some(after_seq);
                    self.outlet.push(gate, Item::Entry(Box::new(sealed)));
                }
                News::Live(live) => self.show_live(&live, after_seq),
            }
        }
    }

    fn show_live(&mut self, live: &Live, after_seq: u64) {
        let Some(event) = wire::live_event(live, self.clock.now()) else { return };
        let run = live.run;
        let item = match &live.what {
            LiveWhat::Status(status) => {
                let file = Box::new(self.pod_status(status.clone(), run, after_seq));
                Item::Status { event, after_seq, run, file }
            }
            _ => Item::Live { event, after_seq, run },
        };
        self.outlet.push(None, item);
    }

    /// The content of `status.json`.
    pub(crate) fn pod_status(&self, status: Status, run: Option<RunId>, head_seq: u64) -> PodStatus {
        PodStatus {
            pod_name: self.scope.row().name.clone(),
            session: self.library.session(),
            state: status.phase.name().to_owned(),
            activity: status.activity.map(|activity| activity.name().to_owned()),
            waiting: status.waiting.map(|waiting| StatusWaiting { on: waiting.on, until: waiting.until }),
            run,
            head_seq,
            updated_ms: self.clock.now(),
            tally: None,
        }
    }

    /// The same as of now and, while no run is open, with what the log comes to.
    pub(crate) fn status_now(&self) -> PodStatus {
        let run = self.pod.state().facts.run.as_ref().map(|run| run.id);
        let status = self.pod_status(self.pod.status(), run, self.log.head().seq);
        PodStatus { tally: run.is_none().then(|| self.log_comes_to()).flatten(), ..status }
    }

    /// Children that are known are not in it, so whoever has any is read.
    fn log_comes_to(&self) -> Option<Tally> {
        let state = self.pod.state();
        let facts = &state.facts;
        let about = facts.about.as_ref().filter(|_| facts.children.is_empty())?;
        // Whoever cannot be told reads the log, and sees there what is wrong with it.
        let stamp = self.library.store().stamp(self.library.session()).ok()?;
        Some(Tally {
            file: stamp.file,
            bytes: stamp.bytes,
            created: about.created,
            usage: facts.usage.clone(),
            asks: facts.asks.len(),
            granted: state.granted(),
            spent: state.spent(),
            left: state.left(),
            archived: facts.archived,
        })
    }

    /// Says in `status.json` what the log comes to, once after each change of an idle pod.
    pub(crate) fn tally(&mut self) {
        let idle = self.pod.state().facts.run.is_none();
        if !idle || self.tallied == Some(self.log.head().seq) {
            return;
        }
        let status = self.status_now();
        // If it cannot be written, the log is read instead; that the state shown may be old is told where that is written.
        self.tallied = Some(status.head_seq);
        drop(self.scope.write_status(&status));
    }

    /// Answers an order. What is acknowledged is synced first, also if it was written by an earlier step (the same
    /// operation again, a `wait` for what is already there).
    fn answer(&mut self, reply: Reply, last: Option<u64>) {
        let Some(pending) = reply.to.and_then(|to| self.pending.remove(&to)) else { return };
        let run_open = self.pod.state().facts.run.is_some();
        let status = wire::status_word(self.pod.status().phase, run_open);
        let result = wire::reply(reply, pending.method, status, self.log.head());
        let gate = match (&result, last) {
            (_, Some(seq)) => seq,
            (Ok(_), None) => self.log.head().seq,
            (Err(_), None) => return self.outlet.answer(pending.asker, result),
        };
        self.log.want(gate);
        self.outlet.push_after(gate, After::Reply { asker: pending.asker, result });
    }

    /// Lets everything leave that waits no longer, and does what may now be done.
    pub(crate) fn release(&mut self) {
        let (scope, mut written) = (&self.scope, None);
        let mut write_status = |status: &PodStatus| written = Some(scope.write_status(status));
        let effects = self.outlet.release(&self.log, &mut write_status);
        for effect in effects {
            self.perform(effect);
        }
        if written.is_some() {
            // It was made before its entries were on the disk, and says nothing of the log.
            self.tallied = None;
        }
        match written {
            Some(Ok(())) => self.troubles.status = false,
            Some(Err(e)) if !self.troubles.status => {
                self.troubles.status = true;
                self.complain(format!("`minke ps` shows an older state of this pod: {e}"));
                self.release();
            }
            Some(Err(_)) | None => {}
        }
    }

    /// Does one thing for the pod. What comes of it comes back by mail.
    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::AskModel { call, prompt } => self.models.ask(call, prompt),
            Effect::StopModel { call } => {
                self.outlet
                    .forget(|waits| matches!(waits, Effect::AskModel { call: asked, .. } if *asked == call));
                self.models.stop(call);
            }
            Effect::Prepare { call_id, tool, arguments } => self.calls.prepare(call_id, tool, arguments),
            Effect::RunCall { call_id, tool, arguments, action, .. } => {
                self.calls.run(call_id, tool, arguments, action);
            }
            Effect::StopCall { call_id } => {
                self.outlet
                    .forget(|waits| matches!(waits, Effect::RunCall { call_id: id, .. } if *id == call_id));
                self.calls.stop(&call_id);
            }
            Effect::CheckFile { call_id, preview } => self.calls.check_file(call_id, preview),
            Effect::Capture { run, when } => self.captures.take(run, when),
            Effect::AskHooks { point, question } => self.hooked.ask(point, *question),
            Effect::Tree(order) => {
                let at = Moment { now: self.clock.now(), seed: self.clock.seed() };
                self.children.order(order, self.pod.state(), at);
            }
            Effect::AddRule { rule } => self.errands.add_rule(self.rules.files().clone(), rule),
            Effect::SetTimer { timer, at } => self.timers.set(timer, at, self.clock.now()),
            Effect::ClearTimer { timer } => self.timers.clear(timer),
            Effect::Exit => self.ending = Some(Ending::Stopped),
        }
    }

    /// A step could not be written: nothing of it happens, the pod is made again from the log, and its run ends.
    fn write_failed(&mut self, failed: Failed) {
        let message = format!("{}; {}", chain(&failed.error), failed.error.hint());
        report!("error: a step could not be written: {message}");
        if failed.effects.contains(&Effect::Exit) {
            // It was about to end anyway, and nothing on disk depends on the orderly path.
            self.ending = Some(Ending::Stopped);
        }
        self.outlet.forget(|waits| *waits != Effect::Exit);
        self.models.stop_all();
        self.calls.stop_all();
        let refusal = Refusal::new(ErrorCode::StorageFailed, message.clone());
        for reply in failed.replies {
            if let Some(pending) = reply.to.and_then(|to| self.pending.remove(&to)) {
                self.outlet.answer(pending.asker, Err(refusal.clone()));
            }
        }
        // Whoever waits for a condition goes on waiting; every other order died with the pod that had taken it.
        let lost = self.pending.extract_if(|_, pending| pending.method != "wait");
        for (_, pending) in lost.collect::<Vec<_>>() {
            self.outlet.answer(pending.asker, Err(refusal.clone()));
        }
        self.storage = Storage::Failed;
        if self.rebuild() {
            self.end_the_run(message);
        }
    }

    /// Makes the pod again from the log.
    fn rebuild(&mut self) -> bool {
        let replay = match self.library.reader().and_then(|reader| reader.replay()) {
            Ok(replay) => replay,
            Err(error) => {
                report!("error: the log cannot be read back: {error}\n  try: {}", error.hint());
                self.ending = Some(Ending::StorageLost);
                return false;
            }
        };
        let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
        let old = std::mem::replace(&mut self.pod, Pod::new(State::default()));
        self.pod = Pod::rebuilt(state, old);
        true
    }

    /// Writes the end of the run that was open, for which the ballast is given up.
    fn end_the_run(&mut self, message: String) {
        let step = self.step(What::StorageFailed { message: message.clone() });
        if let Err(failed) = self.carry_out(step, Log::append_with_ballast) {
            report!("error: the end of the run could not be written: {}", chain(&failed.error));
            self.storage = Storage::Broken(message.clone());
            if self.rebuild() {
                self.tell_the_end(message);
            }
        }
    }

    /// The run has ended, and no entry can say so: whoever watches or waits is told live, since nothing else will come.
    fn tell_the_end(&mut self, message: String) {
        let refusal = Refusal::new(ErrorCode::StorageFailed, message);
        let run = self.pod.state().facts.run.as_ref().map(|run| run.id);
        let after_seq = self.log.head().seq;
        self.outlet.push(None, Item::Live { event: Event::Error(refusal.clone()), after_seq, run });
        for (_, pending) in self.pending.drain().collect::<Vec<_>>() {
            self.outlet.answer(pending.asker, Err(refusal.clone()));
        }
    }

    /// The whole log was checked. Nothing is written behind damage, so the pod of a damaged one ends.
    pub(crate) fn log_checked(&mut self, checked: Result<Option<Damage>, StoreError>) {
        let damage = match checked {
            Ok(None) => return,
            Ok(Some(damage)) => damage,
            Err(error) => {
                return self.complain(format!("the older part of the log could not be checked: {error}"));
            }
        };
        let id = self.library.session();
        let hint = damage.hint(id);
        let message = format!("session s_{id}: {damage}; this pod ends; {hint}");
        report!("error: {message}");
        if let Err(error) = self.log.refuse_after(damage) {
            report!("warning: the next opening will not know that the log is damaged: {error}");
        }
        self.outlet.forget(|_| true);
        self.models.stop_all();
        self.calls.stop_all();
        self.tell_the_end(message);
        self.ending = Some(Ending::StorageLost);
    }

    /// Before an order, if a write had failed: is there space again?
    pub(crate) fn make_room_for(&mut self, order: &Order) -> Result<(), Refusal> {
        let broken = match &self.storage {
            Storage::Good => return Ok(()),
            Storage::Failed => None,
            Storage::Broken(message) => Some(message.clone()),
        };
        if broken.is_some() && matches!(order, Order::Shutdown { .. }) {
            // The run's end cannot be written; the next life ends it as interrupted.
            self.ending = Some(Ending::Stopped);
            return Ok(());
        }
        let room = self.log.restore_ballast();
        match (broken, room) {
            // The pod knows that it cannot write and says so to whoever wants a run.
            (None, Err(_)) => return Ok(()),
            (None, Ok(())) => {}
            (Some(_), Err(e)) => {
                let message =
                    format!("the log still cannot be written: {e}; make room on the disk and try again");
                return Err(Refusal::new(ErrorCode::StorageFailed, message));
            }
            (Some(message), Ok(())) => {
                self.storage = Storage::Failed;
                self.end_the_run(message.clone());
                if let Storage::Broken(_) = self.storage {
                    return Err(Refusal::new(ErrorCode::StorageFailed, message));
                }
            }
        }
        self.storage = Storage::Good;
        self.take(What::StorageBack);
        Ok(())
    }
}

/// A step that could not be written.
struct Failed {
    error: AppendError,
    replies: Vec<Reply>,
    effects: Vec<Effect>,
}

/// An error and what caused it, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
