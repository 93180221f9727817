//! One process of the simulation: the product's pod over the product's log on a virtual disk, carried as the driver
//! must carry it, one act at a time.
//!
//! Here: writing, syncing, letting out what waited, dying. Elsewhere: who acts next (`sim`), who listens (`client`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use minke_model::Prompt;
use minke_pod::{
    Effect, Given, Input, LiveWhat, News, Pod, Refusal, Reply, ReplyTo, State, Step, Timer, What,
};
use minke_record::{Durability, Entry, ErrorCode, Millis, Position, SessionId, Text};
use minke_session::{AppendError, FileStore, OpenLog, Store, StoreError, Syncer, Writer};

use crate::checker::Checker;
use crate::disk::SimDisk;
use crate::hands::Hands;

/// The name under which a sync that failed for good is counted.
pub(crate) const SYNC_FAILED: &str = "sync failed for good";

/// What outlives a process and is looked at while one lives.
#[derive(Debug, Default)]
pub(crate) struct Ground {
    pub(crate) check: Checker,
    pub(crate) hands: Hands,
    /// What was met so far, by name.
    pub(crate) met: BTreeMap<&'static str, u64>,
}

impl Ground {
    pub(crate) fn meet(&mut self, what: &'static str) {
        *self.met.entry(what).or_default() += 1;
    }
}

/// Whether the process is still there after an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Alive,
    /// Killed, or ended itself because it no longer knew what the disk holds.
    Dead,
    /// Let go in good order.
    Gone,
}

/// What leaves for clients.
#[derive(Debug, Clone)]
pub(crate) enum Out {
    Text(String),
    Reply(ReplyTo, Result<Given, Refusal>),
}

#[expect(clippy::large_enum_variant, reason = "a few of them wait at once, in a simulation")]
#[derive(Debug)]
enum Waits {
    Entry(Position, bool),
    Live(LiveWhat),
    Reply(Reply),
    Effect(Effect),
}

#[derive(Debug)]
struct Held {
    need: Option<u64>,
    upto: Option<u64>,
    what: Waits,
}

/// A living pod.
pub(crate) struct Life {
    pub(crate) disk: SimDisk,
    pub(crate) store: FileStore,
    id: SessionId,
    writer: Box<dyn Writer>,
    syncer: Arc<dyn Syncer>,
    pub(crate) pod: Pod,
    shadow: State,
    held: VecDeque<Held>,
    /// Requests that wait for the model.
    pub(crate) requests: BTreeMap<u64, Arc<Prompt>>,
    /// What hands have found out and the pod has not heard yet.
    pub(crate) inbox: Vec<What>,
    pub(crate) timers: BTreeMap<Timer, Millis>,
    synced: Option<u64>,
    /// The last entry that clients may see.
    pub(crate) shown: Option<u64>,
    pub(crate) outs: Vec<Out>,
    /// The log could not be written.
    pub(crate) full: bool,
}

impl Life {
    /// A process that has opened its log. Its pod has not booted yet.
    pub(crate) fn new(disk: SimDisk, store: FileStore, id: SessionId, open: OpenLog) -> Life {
        let state = State::replay(open.replay.iter().map(|sealed| &sealed.entry));
        let head = open.writer.head().map(|head| head.seq);
        let syncer = open.writer.syncer();
        Life {
            disk,
            store,
            id,
            syncer,
            writer: open.writer,
            shadow: state.clone(),
            pod: Pod::new(state),
            held: VecDeque::new(),
            requests: BTreeMap::new(),
            inbox: Vec::new(),
            timers: BTreeMap::new(),
            synced: head,
            shown: head,
            outs: Vec::new(),
            full: false,
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.shadow
    }

    /// Every entry of the log, read beside the writer.
    pub(crate) fn all(store: &FileStore, id: SessionId) -> Result<Vec<Entry>, StoreError> {
        let reader = store.reader(id)?;
        let mut entries = Vec::new();
        reader.scan(0, &mut |sealed| {
            entries.push(sealed.entry);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    pub(crate) fn feed(&mut self, ground: &mut Ground, input: Input) -> Result<Fate, String> {
        let asker = match &input.what {
            What::Order(request) => request.reply,
            _ => None,
        };
        let now = input.now;
        let seed = input.seed;
        let step = self.pod.step(input);
        self.carry(ground, step, (asker, now, seed))
    }

    fn carry(
        &mut self,
        ground: &mut Ground,
        step: Step,
        (asker, now, seed): (Option<ReplyTo>, Millis, u64),
    ) -> Result<Fate, String> {
        let barriers: Vec<bool> = step.entries.iter().map(|d| d.durability == Durability::Barrier).collect();
        let mut upto = None;
        let mut written = Vec::new();
        if !step.entries.is_empty() {
            match self.writer.append(step.entries, step.blobs) {
                Ok(sealed) => written = sealed,
                Err(error) => return self.append_failed(ground, &error, (asker, now, seed)),
            }
            upto = written.last().map(|sealed| sealed.entry.seq);
            for sealed in &written {
                self.shadow.apply(&sealed.entry);
                ground.check.wrote(&sealed.entry);
            }
            self.compare()?;
            if self.disk.is_dead() {
                return Ok(Fate::Dead);
            }
        }
        for news in step.news {
            let (need, what) = match news {
                News::Entry(at) => {
                    let entry = &written[at].entry;
                    let position = Position { seq: entry.seq, h: entry.h };
                    (barriers[at].then_some(entry.seq), Waits::Entry(position, barriers[at]))
                }
                News::Live(live) => (None, Waits::Live(live.what)),
            };
            self.held.push_back(Held { need, upto, what });
        }
        let mut at_once: Vec<Waits> = Vec::new();
        for reply in step.replies {
            // What is acknowledged is synced first, also if an earlier step wrote it.
            let rests = if reply.result.is_ok() { self.shadow.next_seq.checked_sub(1) } else { upto };
            self.wait_or_go(rests, Waits::Reply(reply), &mut at_once);
        }
        for effect in step.effects {
            if effect.may_run_ahead() {
                at_once.push(Waits::Effect(effect));
            } else {
                self.wait_or_go(upto, Waits::Effect(effect), &mut at_once);
            }
        }
        let mut fate = self.release(ground)?;
        for what in at_once {
            if fate == Fate::Alive {
                fate = self.deliver(ground, Held { need: None, upto, what })?;
            }
        }
        Ok(fate)
    }

    fn wait_or_go(&mut self, upto: Option<u64>, what: Waits, at_once: &mut Vec<Waits>) {
        match upto {
            None => at_once.push(what),
            Some(_) => self.held.push_back(Held { need: upto, upto, what }),
        }
    }

    fn compare(&self) -> Result<(), String> {
        if *self.pod.state() == self.shadow {
            return Ok(());
        }
        let (a, b) = (format!("{:#?}", self.pod.state()), format!("{:#?}", self.shadow));
        Err(format!("the pod's memory is not what its log says: {}", crate::show::first_difference(&a, &b)))
    }

    /// Whether something waits for a sync.
    pub(crate) fn wants_sync(&self) -> bool {
        self.held.iter().any(|held| held.need.is_some())
    }

    pub(crate) fn sync(&mut self, ground: &mut Ground) -> Result<Fate, String> {
        match self.syncer.sync() {
            Ok(upto) => self.synced = Some(upto),
            // The real process ends here (exit 74): it no longer knows what the disk holds.
            Err(_) => {
                ground.meet(SYNC_FAILED);
                return Ok(Fate::Dead);
            }
        }
        if self.disk.is_dead() {
            return Ok(Fate::Dead);
        }
        self.release(ground)
    }

    fn release(&mut self, ground: &mut Ground) -> Result<Fate, String> {
        while let Some(first) = self.held.front() {
            if first.need.is_some_and(|need| self.synced.is_none_or(|synced| synced < need)) {
                ground.meet("something waits for a sync");
                return Ok(Fate::Alive);
            }
            let Some(held) = self.held.pop_front() else { break };
            let fate = self.deliver(ground, held)?;
            if fate != Fate::Alive {
                return Ok(fate);
            }
        }
        Ok(Fate::Alive)
    }

    fn deliver(&mut self, ground: &mut Ground, held: Held) -> Result<Fate, String> {
        match held.what {
            Waits::Entry(position, barrier) => {
                self.shown = Some(position.seq);
                let safe = barrier && self.synced.is_some_and(|synced| synced >= position.seq);
                ground.check.showed(position, safe)?;
            }
            Waits::Live(LiveWhat::TextDelta { text }) => self.outs.push(Out::Text(text)),
            Waits::Live(_) => {}
            Waits::Reply(reply) => {
                let run = match &reply.result {
                    Ok(Given::Run(run)) => Some(*run),
                    _ => None,
                };
                ground.check.acknowledged(held.upto, self.synced, run)?;
                if let Some(to) = reply.to {
                    self.outs.push(Out::Reply(to, reply.result));
                }
            }
            Waits::Effect(effect) => return self.perform(ground, effect, held.upto),
        }
        Ok(Fate::Alive)
    }

    fn perform(&mut self, ground: &mut Ground, effect: Effect, upto: Option<u64>) -> Result<Fate, String> {
        ground.check.starts(&effect, upto, self.synced)?;
        match effect {
            Effect::AskModel { call, prompt } => {
                if let Some(orphan) = self.shadow.context.orphan() {
                    return Err(format!("request {call} shows call {orphan} without its result"));
                }
                self.requests.insert(call, prompt);
            }
            Effect::StopModel { call } => {
                self.forget(|waits| matches!(waits, Effect::AskModel { call: asked, .. } if *asked == call));
                self.requests.remove(&call);
            }
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = ground.hands.prepare(&tool, &self.text(&arguments));
                self.inbox.push(What::Prepared { call_id, prepared: Box::new(prepared) });
            }
            Effect::RunCall { call_id, tool, arguments, .. } => {
                let arguments = self.text(&arguments);
                if let Some(ended) = ground.hands.start(&call_id, &tool, &arguments) {
                    self.inbox.push(What::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => {
                let before = self.held.len();
                self.forget(|waits| matches!(waits, Effect::RunCall { call_id: id, .. } if *id == call_id));
                if self.held.len() < before {
                    ground.meet("a call was stopped before it could start");
                }
                ground.hands.stop(&call_id);
                self.inbox.retain(|what| !crate::world::is_about(what, &call_id));
            }
            Effect::CheckFile { call_id, preview } => {
                ground.meet("a file was looked at after a death");
                let found = ground.hands.check_file(&preview);
                self.inbox.push(What::FileChecked { call_id, found });
            }
            Effect::Capture { run, when } => {
                self.inbox.push(What::Captured { run, when, captured: Ok(Vec::new()) });
            }
            Effect::AskHooks { point, .. } => {
                let said = Box::new(minke_pod::HooksSaid::nothing());
                self.inbox.push(What::HooksSaid { point, said });
            }
            Effect::AddRule { .. } | Effect::Tree(_) => {}
            Effect::SetTimer { timer, at } => {
                self.timers.insert(timer, at);
            }
            Effect::ClearTimer { timer } => {
                self.timers.remove(&timer);
            }
            Effect::Exit => return Ok(Fate::Gone),
        }
        Ok(Fate::Alive)
    }

    /// What waits for a sync and is stopped before never happens.
    fn forget(&mut self, stopped: impl Fn(&Effect) -> bool) {
        self.held.retain(|held| !matches!(&held.what, Waits::Effect(effect) if stopped(effect)));
    }

    fn text(&self, text: &Text) -> String {
        match text {
            Text::Here(text) => text.clone(),
            Text::Blob(name) => {
                let content = self.writer.blob(&name.blob).unwrap_or_default();
                String::from_utf8_lossy(&content).into_owned()
            }
        }
    }

    /// A write failed: the driver's contract. Everything that runs is stopped, the pod is made again from the log.
    fn append_failed(
        &mut self,
        ground: &mut Ground,
        error: &AppendError,
        (asker, now, seed): (Option<ReplyTo>, Millis, u64),
    ) -> Result<Fate, String> {
        if self.disk.is_dead() {
            return Ok(Fate::Dead);
        }
        match error {
            AppendError::Storage { .. } => ground.meet("a write failed"),
            AppendError::Sync(_) => {
                ground.meet(SYNC_FAILED);
                return Ok(Fate::Dead);
            }
            other => return Err(format!("the log refused a step: {other}")),
        }
        let message = error.to_string();
        self.requests.clear();
        self.inbox.clear();
        self.timers.clear();
        ground.hands.die();
        self.held.retain(|held| !matches!(held.what, Waits::Effect(_)));
        if let Some(to) = asker {
            let refusal = Refusal::new(ErrorCode::StorageFailed, message.clone());
            self.outs.push(Out::Reply(to, Err(refusal)));
        }
        if self.rebuild().is_err() {
            return Ok(Fate::Dead); // it cannot even be read: the process ends
        }
        self.full = true;
        let step = self.pod.step(Input { now, seed: seed ^ 1, what: What::StorageFailed { message } });
        if step.entries.is_empty() {
            return Ok(Fate::Alive);
        }
        match self.writer.append_with_ballast(step.entries, step.blobs) {
            Ok(written) => {
                ground.meet("the ballast helped");
                for sealed in &written {
                    self.shadow.apply(&sealed.entry);
                    ground.check.wrote(&sealed.entry);
                    let position = Position { seq: sealed.entry.seq, h: sealed.entry.h };
                    let what = Waits::Entry(position, true);
                    self.held.push_back(Held { need: Some(position.seq), upto: None, what });
                }
                self.compare()?;
            }
            Err(AppendError::Storage { .. }) if !self.disk.is_dead() => {
                ground.meet("not even the ballast helped");
                if self.rebuild().is_err() {
                    return Ok(Fate::Dead);
                }
            }
            Err(_) => return Ok(Fate::Dead),
        }
        Ok(if self.disk.is_dead() { Fate::Dead } else { Fate::Alive })
    }

    fn rebuild(&mut self) -> Result<(), StoreError> {
        let sealed = self.store.reader(self.id)?.replay()?;
        let state = State::replay(sealed.iter().map(|sealed| &sealed.entry));
        self.shadow = state.clone();
        let old = std::mem::replace(&mut self.pod, Pod::new(State::default()));
        self.pod = Pod::rebuilt(state, old);
        Ok(())
    }

    /// Tries to make the ballast again; if it can, the pod hears that there is space.
    pub(crate) fn space_is_back(&mut self) -> bool {
        self.full && self.writer.restore_ballast().is_ok()
    }
}
