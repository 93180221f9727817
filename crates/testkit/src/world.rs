//! The scripted world: the product's pod with a log in memory, a clock that moves when told, a model that says what the
//! story says, tools that count what they do. It carries steps as the driver must, and can die at every point between.
//!
//! Here: the carrying (write → news → sync → replies and effects, pure effects ahead), dying, booting. Elsewhere: the
//! story that is told (`tell`), the promises that are checked (`checker`), every point at once (`kill`).
//! Invariant: nothing here decides anything that a pod decides; breaking one of the driver's rules on purpose is
//! possible (`Break`) and makes the checker complain (`tests/harness.rs`).

mod doing;
mod lives;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use minke_model::Prompt;
use minke_pod::{
    Effect, Given, Input, LiveWhat, Moment, News, Order, Pod, Refusal, Reply, ReplyTo, Request, State, Step,
    Timer, Visit, What, Written,
};
use minke_record::{Actor, CallId, Class, Entry, ErrorCode, ForkedFrom, Millis, Position, Text};

use crate::checker::Checker;
use crate::hands::Hands;
use crate::kin::Kin;
use crate::left::{Recorder, Said};
use crate::memlog::{Death, MemLog, NoSpace, Tear, has_barrier};
use crate::scene;
use crate::story::Scene;

/// When the story's clock begins.
pub(crate) const BEGINNING: Millis = 1_800_000_000_000;
/// More inputs than any story needs: a pod that feeds itself for ever ends here.
const MOST_INPUTS: u64 = 20_000;

/// Why a telling cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The process died where it was to die.
    Killed,
    /// A promise is broken, or the story says something else.
    Wrong(String),
}

/// When a step that must be synced is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncWhen {
    /// Before anything else happens.
    AtOnce,
    /// When nothing else can happen: what may run ahead of it does.
    Late,
}

/// A rule of the driver or of the pod, broken on purpose to test the harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    ActBeforeWrite,
    StateOutsideApply,
    TearAStep,
    RerunStartedCall,
}

/// A place where the process may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub name: &'static str,
    /// A power cut here would lose something.
    pub unsynced: bool,
}

/// What leaves the pod and may have to wait for a sync.
#[expect(clippy::large_enum_variant, reason = "a few of them wait at once, in a simulation")]
#[derive(Debug)]
enum Out {
    Entry { position: Position, barrier: bool },
    Live(LiveWhat),
    Reply(Reply),
    Effect(Effect),
}

#[derive(Debug)]
struct Held {
    /// Must be synced first; `None` waits only for what stands before it.
    need: Option<u64>,
    /// The last entry of its step.
    upto: Option<u64>,
    out: Out,
}

/// One session, its pod, and everything around it.
#[derive(Debug)]
pub struct World {
    pub log: MemLog,
    pub hands: Hands,
    /// The other pods.
    pub kin: Kin,
    pub check: Checker,
    pub scene: Scene,
    pub pod: Option<Pod>,
    /// The fold of what was written, entry by entry: what the pod's memory must equal.
    shadow: State,
    pub now: Millis,
    inputs: u64,
    inbox: VecDeque<What>,
    /// Requests to the model that are open.
    pub requests: BTreeMap<u64, Arc<Prompt>>,
    timers: BTreeMap<Timer, Millis>,
    held: VecDeque<Held>,
    synced: Option<u64>,
    sync_when: SyncWhen,
    die_at: Option<(usize, Death)>,
    points: Vec<Point>,
    pub broken: Option<Break>,
    /// Replies that arrived, by number; they outlive the pod, as an asker does.
    pub replies: BTreeMap<ReplyTo, Result<Given, Refusal>>,
    asked: u64,
    pub alerts: Vec<String>,
    pub seen_text: String,
    /// What hooks say, by whom they are asked about; it outlives every kill, as hooks do.
    pub hooks: BTreeMap<String, String>,
    /// Questions to hooks that hang.
    pub(crate) hanging: Vec<(minke_pod::HookPoint, minke_pod::HookQuestion)>,
    /// The rules that people wrote.
    pub rules: minke_policy::RuleSet,
    /// Rules that the person's policy was to get.
    pub added: Vec<String>,
    /// The pod has let go in good order.
    pub gone: bool,
    /// What happened, line by line, for a failure's report.
    pub transcript: Vec<String>,
    /// Whether the transcript is kept: a killed telling that fails is told once more for it.
    pub keeps_transcript: bool,
    /// Files that were looked at to settle a call.
    pub file_checks: u64,
    /// The state after each step, by the link of its last entry; kept only when asked for.
    pub states: Option<BTreeMap<[u8; 16], State>>,
    /// In a fork: the entries that it shares with its parent.
    pub(crate) base: Vec<Entry>,
    /// Makes recordings of what the model says, if anybody wants them.
    pub(crate) recorder: Option<Recorder>,
    /// What the model has said so far, by request.
    pub(crate) said: BTreeMap<u64, Vec<Said>>,
}

impl World {
    /// A session with its first step on disk. No pod lives yet.
    pub fn new(scene: Scene, sync_when: SyncWhen) -> World {
        let mut world = World {
            log: MemLog::default(),
            hands: Hands::default(),
            kin: Kin::default(),
            check: Checker::default(),
            pod: None,
            shadow: State::default(),
            now: BEGINNING,
            inputs: 0,
            inbox: VecDeque::new(),
            requests: BTreeMap::new(),
            timers: BTreeMap::new(),
            held: VecDeque::new(),
            synced: None,
            sync_when,
            die_at: None,
            points: Vec::new(),
            broken: None,
            replies: BTreeMap::new(),
            asked: 0,
            alerts: Vec::new(),
            seen_text: String::new(),
            hooks: BTreeMap::new(),
            hanging: Vec::new(),
            rules: minke_policy::RuleSet::default(),
            added: Vec::new(),
            gone: false,
            transcript: Vec::new(),
            keeps_transcript: true,
            file_checks: 0,
            states: None,
            base: Vec::new(),
            recorder: None,
            said: BTreeMap::new(),
            scene,
        };
        let first = scene::first_step(&world.scene, world.now);
        world.written(&first);
        world
    }

    /// A step that somebody wrote while no pod lives: whole, synced.
    fn written(&mut self, step: &Written) {
        if step.entries.is_empty() {
            return;
        }
        let entries = self.log.append(&step.entries, &step.blobs).expect("no story visits a full disk");
        self.log.sync();
        self.fold(&entries);
        self.keep_state();
        self.synced = entries.last().map(|e| e.seq);
    }

    /// Keeps the states from here on, for a comparison.
    pub fn keep_states(&mut self) {
        self.states = Some(BTreeMap::new());
        self.keep_state();
    }

    fn keep_state(&mut self) {
        if let (Some(states), Some(end)) = (&mut self.states, self.log.head()) {
            states.insert(end.h.0, self.shadow.clone());
        }
    }

    pub fn die_at(&mut self, point: usize, death: Death) {
        self.die_at = Some((point, death));
    }

    /// The points passed so far.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.keeps_transcript {
            self.transcript.push(line());
        }
    }

    pub fn state(&self) -> &State {
        self.pod.as_ref().map_or(&self.shadow, Pod::state)
    }

    /// The process may die here.
    fn point(&mut self, name: &'static str) -> Result<(), Stop> {
        if self.passes(name) { Err(Stop::Killed) } else { Ok(()) }
    }

    fn passes(&mut self, name: &'static str) -> bool {
        self.points.push(Point { name, unsynced: self.log.unsynced() });
        self.die_at.is_some_and(|(at, _)| at + 1 == self.points.len())
    }

    /// Sends an order and waits until nothing more happens by itself. Gives the number under which its reply comes.
    pub fn order(&mut self, from: Actor, order: Order) -> Result<ReplyTo, Stop> {
        self.asked += 1;
        let reply = ReplyTo(self.asked);
        self.feed(What::Order(Box::new(Request { from, reply: Some(reply), order })))?;
        self.settle()?;
        Ok(reply)
    }

    /// The number that the next order will get.
    pub fn next_reply(&self) -> ReplyTo {
        ReplyTo(self.asked + 1)
    }

    /// One input, and what it leads to.
    pub fn feed(&mut self, what: What) -> Result<(), Stop> {
        if self.inputs >= MOST_INPUTS {
            return Err(Stop::Wrong(format!("nothing ends after {MOST_INPUTS} inputs")));
        }
        self.now += 1;
        self.inputs += 1;
        let asker = match &what {
            What::Order(request) => request.reply,
            _ => None,
        };
        self.say(|| format!("    in: {}", brief(&what)));
        let input = Input { now: self.now, seed: self.inputs.wrapping_mul(0x9e37_79b9_7f4a_7c15), what };
        let Some(pod) = &mut self.pod else {
            return Err(Stop::Wrong("something was said to a pod that does not live".to_owned()));
        };
        let step = pod.step(input);
        self.carry(step, asker)
    }

    /// Something that comes from outside, and everything that follows by itself.
    pub fn hears(&mut self, all: Vec<What>) -> Result<(), Stop> {
        for what in all {
            if self.pod.is_some() {
                self.feed(what)?;
                self.settle()?;
            }
        }
        Ok(())
    }

    /// Everything that happens by itself, until only the story can go on.
    pub fn settle(&mut self) -> Result<(), Stop> {
        loop {
            if self.pod.is_none() {
                self.inbox.clear();
                return Ok(());
            }
            if let Some(what) = self.inbox.pop_front() {
                self.feed(what)?;
            } else if self.held.iter().any(|held| held.need.is_some()) {
                self.sync()?;
            } else {
                return Ok(());
            }
        }
    }

    fn carry(&mut self, step: Step, asker: Option<ReplyTo>) -> Result<(), Stop> {
        let mut effects = step.effects;
        if self.broken == Some(Break::ActBeforeWrite) {
            let upto = step.entries.last().map(|draft| draft.seq);
            for effect in std::mem::take(&mut effects) {
                self.perform(effect, upto)?;
            }
        }
        let mut upto = None;
        let mut written = Vec::new();
        if !step.entries.is_empty() {
            self.point("before a write")?;
            self.tears(&step.entries, &step.blobs)?;
            for recording in &step.recordings {
                self.log.keep_recording(recording);
            }
            match self.log.append(&step.entries, &step.blobs) {
                Ok(entries) => written = entries,
                Err(NoSpace) => return self.storage_failed(asker),
            }
            upto = written.last().map(|entry| entry.seq);
            self.fold(&written);
            self.keep_state();
            self.compare()?;
            self.point("after a write")?;
        }
        for effect in &effects {
            self.made_from_the_log(effect)?;
        }
        let rests = step.replies.iter().any(|reply| reply.result.is_ok())
            || effects.iter().any(|effect| !effect.may_run_ahead());
        let must_sync = rests || has_barrier(&step.entries);
        for news in step.news {
            let (need, out) = match news {
                News::Entry(at) => {
                    let entry = &written[at];
                    let barrier = step.entries[at].durability == minke_record::Durability::Barrier;
                    let position = Position { seq: entry.seq, h: entry.h };
                    (barrier.then_some(entry.seq), Out::Entry { position, barrier })
                }
                News::Live(live) => (None, Out::Live(live.what)),
            };
            self.held.push_back(Held { need, upto, out });
        }
        let mut ahead = Vec::new();
        for reply in step.replies {
            // What is acknowledged is synced first, also if an earlier step wrote it.
            let rests = if reply.result.is_ok() { self.shadow.next_seq.checked_sub(1) } else { upto };
            self.leave(rests, Out::Reply(reply))?;
        }
        for effect in effects {
            if effect.may_run_ahead() { ahead.push(effect) } else { self.leave(upto, Out::Effect(effect))? }
        }
        self.flush()?;
        for effect in ahead {
            self.perform(effect, upto)?;
        }
        if must_sync && self.sync_when == SyncWhen::AtOnce && self.held.iter().any(|held| held.need.is_some())
        {
            self.sync()?;
        }
        Ok(())
    }

    /// A reply or an effect waits for the sync of what it rests on, and for nothing if it rests on nothing.
    fn leave(&mut self, upto: Option<u64>, out: Out) -> Result<(), Stop> {
        if upto.is_none_or(|upto| self.held.is_empty() && self.synced.is_some_and(|synced| synced >= upto)) {
            return self.deliver(Held { need: None, upto, out });
        }
        self.held.push_back(Held { need: upto, upto, out });
        Ok(())
    }

    /// Dying inside the write, in three ways.
    fn tears(&mut self, step: &[minke_record::Draft], blobs: &[minke_record::Blob]) -> Result<(), Stop> {
        let ways: &[(&'static str, Tear)] = if step.len() > 1 {
            &[
                ("after the first line of a step", Tear::AfterFirstLine),
                ("half way through a step", Tear::Half),
                ("before the last newline of a step", Tear::BeforeLastNewline),
            ]
        } else {
            &[("half way through a line", Tear::Half)]
        };
        for (name, tear) in ways {
            if self.passes(name) {
                if self.broken == Some(Break::TearAStep) {
                    self.log.tear_unmarked(step, blobs);
                } else {
                    self.log.tear(step, blobs, *tear);
                }
                return Err(Stop::Killed);
            }
        }
        Ok(())
    }

    fn fold(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.shadow.apply(entry);
            self.check.wrote(entry);
            if self.keeps_transcript {
                self.transcript.push(format!("    log {}: {}", entry.seq, crate::show::entry(entry)));
            }
        }
    }

    /// Promise 2: replaying the log gives the pod.
    fn compare(&mut self) -> Result<(), Stop> {
        if self.broken == Some(Break::StateOutsideApply)
            && let Some(pod) = self.pod.take()
        {
            let mut state = pod.state().clone();
            state.facts.usage.calls += 1;
            self.pod = Some(Pod::rebuilt(state, pod));
        }
        let Some(pod) = &self.pod else { return Ok(()) };
        if *pod.state() == self.shadow {
            return Ok(());
        }
        Err(Stop::Wrong(format!(
            "the pod's memory is not what its log says after entry {}: {}",
            self.shadow.next_seq.saturating_sub(1),
            crate::show::first_difference(&format!("{:#?}", pod.state()), &format!("{:#?}", self.shadow)),
        )))
    }

    /// Promise 4: what the model is shown is made from the log alone, and no call stands in it without its result.
    fn made_from_the_log(&self, effect: &Effect) -> Result<(), Stop> {
        let Effect::AskModel { call, prompt } = effect else { return Ok(()) };
        if let Some(orphan) = self.shadow.context.orphan() {
            return Err(Stop::Wrong(format!("request {call} shows call {orphan} without its result")));
        }
        if prompt.items == self.shadow.context.items() {
            return Ok(());
        }
        Err(Stop::Wrong(format!("request {call} shows the model what is not in the log")))
    }

    /// Syncs, and lets out what waited for it.
    pub fn sync(&mut self) -> Result<(), Stop> {
        self.point("before a sync")?;
        self.log.sync();
        self.synced = self.shadow.next_seq.checked_sub(1);
        self.point("after a sync")?;
        self.flush()
    }

    /// What the log says, replayed.
    pub fn replayed(&self) -> State {
        State::replay(self.base.iter().chain(self.log.entries()))
    }

    /// The run, if any, has nothing to do but wait for the story.
    pub fn busy(&self) -> bool {
        !self.inbox.is_empty() || !self.held.is_empty()
    }
}

pub(crate) fn is_about(what: &What, call: &CallId) -> bool {
    match what {
        What::CallEnded { call_id, .. }
        | What::Prepared { call_id, .. }
        | What::FileChecked { call_id, .. } => call_id == call,
        _ => false,
    }
}

pub(crate) fn brief(what: &What) -> String {
    let text = format!("{what:?}");
    match text.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
