//! The scripted world: the product's pod with a log in memory, a clock that moves when told, a model that says what the
//! story says, tools that count what they do. It carries steps as the driver must, and can die at every point between.
//!
//! Here: the carrying (write → news → sync → replies and effects, pure effects ahead), dying, booting. Elsewhere: the
//! story that is told (`tell`), the promises that are checked (`checker`), every point at once (`kill`).
//! Invariant: nothing here decides anything that a pod decides; breaking one of the driver's rules on purpose is
//! possible (`Break`) and makes the checker complain (`tests/harness.rs`).

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
    base: Vec<Entry>,
}

impl World {
    /// A session with its first step on disk. No pod lives yet.
    pub fn new(scene: Scene, sync_when: SyncWhen) -> World {
        let mut world = World {
            log: MemLog::default(),
            hands: Hands::default(),
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
            gone: false,
            transcript: Vec::new(),
            keeps_transcript: true,
            file_checks: 0,
            states: None,
            base: Vec::new(),
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

    fn flush(&mut self) -> Result<(), Stop> {
        while let Some(first) = self.held.front() {
            if first.need.is_some_and(|need| self.synced.is_none_or(|synced| synced < need)) {
                return Ok(());
            }
            let Some(held) = self.held.pop_front() else { return Ok(()) };
            self.deliver(held)?;
        }
        Ok(())
    }

    fn deliver(&mut self, held: Held) -> Result<(), Stop> {
        match held.out {
            Out::Entry { position, barrier } => {
                let safe = barrier && self.synced.is_some_and(|synced| synced >= position.seq);
                self.check.showed(position, safe).map_err(Stop::Wrong)
            }
            Out::Live(live) => {
                match live {
                    LiveWhat::TextDelta { text } => self.seen_text.push_str(&text),
                    LiveWhat::Alert { message, .. } => self.alerts.push(message),
                    _ => {}
                }
                Ok(())
            }
            Out::Reply(reply) => self.reply(reply, held.upto),
            Out::Effect(effect) => self.perform(effect, held.upto),
        }
    }

    fn reply(&mut self, reply: Reply, upto: Option<u64>) -> Result<(), Stop> {
        self.point("before a reply")?;
        let run = match &reply.result {
            Ok(Given::Run(run)) => Some(*run),
            _ => None,
        };
        self.check.acknowledged(upto, self.synced, run).map_err(Stop::Wrong)?;
        self.say(|| format!("    reply: {}", crate::show::reply(&reply.result)));
        if let Some(to) = reply.to
            && self.replies.insert(to, reply.result).is_some()
        {
            return Err(Stop::Wrong("an order was answered twice".to_owned()));
        }
        self.point("after a reply")
    }

    fn perform(&mut self, effect: Effect, upto: Option<u64>) -> Result<(), Stop> {
        self.point("before an effect")?;
        self.check.starts(&effect, upto, self.synced).map_err(Stop::Wrong)?;
        self.say(|| format!("    do: {}", crate::show::effect(&effect)));
        match effect {
            Effect::AskModel { call, prompt } => {
                self.requests.insert(call, prompt);
            }
            Effect::StopModel { call } => {
                self.forget(|waits| matches!(waits, Effect::AskModel { call: asked, .. } if *asked == call));
                self.requests.remove(&call);
            }
            Effect::Prepare { call_id, tool, arguments } => {
                let prepared = self.hands.prepare(&tool, &self.text(&arguments));
                self.inbox.push_back(What::Prepared { call_id, prepared });
            }
            Effect::RunCall { call_id, tool, arguments, .. } => {
                let arguments = self.text(&arguments);
                if let Some(ended) = self.hands.start(&call_id, &tool, &arguments) {
                    self.inbox.push_back(What::CallEnded { call_id, ended });
                }
            }
            Effect::StopCall { call_id } => {
                self.forget(|waits| matches!(waits, Effect::RunCall { call_id: id, .. } if *id == call_id));
                self.hands.stop(&call_id);
                self.inbox.retain(|what| !is_about(what, &call_id));
            }
            Effect::CheckFile { call_id, preview } => {
                self.file_checks += 1;
                let found = self.hands.check_file(&preview);
                self.inbox.push_back(What::FileChecked { call_id, found });
            }
            Effect::SetTimer { timer, at } => {
                self.timers.insert(timer, at);
            }
            Effect::ClearTimer { timer } => {
                self.timers.remove(&timer);
            }
            Effect::Exit => self.leave_in_good_order(),
        }
        self.point("after an effect")
    }

    /// What waits for a sync and is stopped before never happens.
    fn forget(&mut self, stopped: impl Fn(&Effect) -> bool) {
        self.held.retain(|held| !matches!(&held.out, Out::Effect(effect) if stopped(effect)));
    }

    fn text(&self, text: &Text) -> String {
        match text {
            Text::Here(text) => text.clone(),
            Text::Blob(name) => {
                String::from_utf8_lossy(self.log.blob(&name.blob).unwrap_or_default()).into_owned()
            }
        }
    }

    fn leave_in_good_order(&mut self) {
        self.log.sync();
        self.lose_process();
        self.gone = true;
    }

    fn lose_process(&mut self) {
        self.pod = None;
        self.inbox.clear();
        self.requests.clear();
        self.timers.clear();
        self.held.clear();
        self.hands.die();
    }

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
    fn storage_failed(&mut self, asker: Option<ReplyTo>) -> Result<(), Stop> {
        self.requests.clear();
        self.inbox.clear();
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
    fn started_once_calls(&self) -> Vec<(CallId, String)> {
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
        self.pod = Some(Pod::new(state));
        self.feed(What::Boot(Box::new(scene::boot(&self.scene))))?;
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

    /// What the log says, replayed.
    pub fn replayed(&self) -> State {
        State::replay(self.base.iter().chain(self.log.entries()))
    }

    /// The checker looks at everything that happened.
    pub fn judge(&self) -> Result<(), String> {
        self.check.ended(&self.base, self.log.entries(), &self.hands.started)?;
        if let Some(call) = self.hands.repeated.first() {
            return Err(format!("call {call} was made again although its file showed that it was done"));
        }
        if self.replayed() == *self.state() {
            return Ok(());
        }
        Err("at the end the pod is not what its log says".to_owned())
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
