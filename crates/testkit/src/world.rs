//! The scripted world: the product's pod with a log in memory, a controlled clock, the story's model and
//! scripted tools. It handles steps like the driver, and can die at every point in between.
//!
//! Order: write, events, sync, replies and effects; pure effects run ahead. Elsewhere: the story
//! (`story::run`), the promises (`checker`), killing at every point (`kill_everywhere`).
//! Invariant: the world makes no decision of a pod. A driver rule can be broken on purpose (`RuleBreak`),
//! which the checker must report (`tests/harness.rs`).

mod effects;
mod lifecycle;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use minke_model::Prompt;
use minke_pod::{
    CommandRefusal, CommandReply, CommandRequest, Effect, InputKind, LiveEventKind, OfflineEdit, Pod,
    PodCommand, PodInput, PodTimer, ReplyBody, ReplyId, State, Step, StepDraft, StepEvent, StepSeed,
};
use minke_record::{Actor, CallId, Class, Entry, ErrorCode, ForkOrigin, Millis, Position, Text};

use crate::checker::LogChecker;
use crate::memory_log::{DeathKind, DiskFull, MemoryLog, TearPoint, has_barrier};
use crate::scene;
use crate::scripted::pods::ScriptedPods;
use crate::scripted::tools::ScriptedTools;
use crate::story::StoryScene;
use crate::story::log::{ReplyAttempt, StreamRecorder};

/// The start time of the story's clock.
pub(crate) const START_TIME: Millis = 1_800_000_000_000;
/// More inputs than any story needs; ends a pod that loops.
const MAX_INPUTS: u64 = 20_000;

/// Why a story run stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoryStop {
    /// The process died at the chosen point.
    Killed,
    /// A promise or an assertion failed.
    Failed(String),
}

/// When a step is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncTiming {
    /// Immediately.
    Immediate,
    /// When nothing else can happen; effects that may run ahead do so.
    Late,
}

/// A rule of the driver or the pod, broken on purpose to test the harness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleBreak {
    ActBeforeWrite,
    StateOutsideApply,
    TearAStep,
    RerunStartedCall,
}

/// A point where the process may die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KillPoint {
    pub name: &'static str,
    /// A power cut here would lose data.
    pub unsynced: bool,
}

/// An output of the pod that may have to wait for a sync.
#[expect(clippy::large_enum_variant, reason = "a few of them wait at once, in a simulation")]
#[derive(Debug)]
enum WorldOutput {
    Entry { position: Position, barrier: bool },
    Live(LiveEventKind),
    Reply(CommandReply),
    Effect(Effect),
}

#[derive(Debug)]
struct HeldOutput {
    /// Must be synced first; `None` waits only for earlier outputs.
    need: Option<u64>,
    /// The last entry of its step.
    upto: Option<u64>,
    out: WorldOutput,
}

/// One session, its pod and its environment.
#[derive(Debug)]
pub struct StoryWorld {
    pub log: MemoryLog,
    pub tools: ScriptedTools,
    /// The other pods.
    pub pods: ScriptedPods,
    pub checker: LogChecker,
    pub scene: StoryScene,
    pub pod: Option<Pod>,
    /// The fold of the written entries, which the pod's state must equal.
    log_state: State,
    pub now: Millis,
    inputs: u64,
    inbox: VecDeque<InputKind>,
    /// Open requests to the model.
    pub requests: BTreeMap<u64, Arc<Prompt>>,
    timers: BTreeMap<PodTimer, Millis>,
    held_outputs: VecDeque<HeldOutput>,
    synced: Option<u64>,
    sync_when: SyncTiming,
    die_at: Option<(usize, DeathKind)>,
    points: Vec<KillPoint>,
    pub broken_rule: Option<RuleBreak>,
    /// Received replies by id; they outlive the pod, like a client.
    pub replies: BTreeMap<ReplyId, Result<ReplyBody, CommandRefusal>>,
    command_count: u64,
    pub alerts: Vec<String>,
    pub seen_text: String,
    /// The hooks' replies by point; they survive every kill.
    pub hooks: BTreeMap<String, String>,
    /// Hook requests without a reply.
    pub(crate) hanging_hooks: Vec<(minke_pod::HookPoint, minke_pod::HookRequest)>,
    /// The user's rules.
    pub rules: minke_policy::RuleSet,
    /// Rules added to the user's policy.
    pub added_rules: Vec<String>,
    /// The pod has exited cleanly.
    pub has_exited: bool,
    /// The events, for the report of a failure.
    pub transcript: Vec<String>,
    /// Whether the transcript is recorded; a failed killed run is repeated with it.
    pub keeps_transcript: bool,
    /// Number of file checks.
    pub file_checks: u64,
    /// The state after each step, by the hash of its last entry; recorded on request.
    pub states: Option<BTreeMap<[u8; 16], State>>,
    /// For a fork: the entries shared with its parent.
    pub(crate) base: Vec<Entry>,
    /// Makes recordings of the model's events, if set.
    pub(crate) recorder: Option<StreamRecorder>,
    /// The model's events so far, by request.
    pub(crate) model_replies: BTreeMap<u64, Vec<ReplyAttempt>>,
}

impl StoryWorld {
    /// Creates a session with its first step on disk, without a pod.
    pub fn new(scene: StoryScene, sync_when: SyncTiming) -> StoryWorld {
        let mut world = StoryWorld {
            log: MemoryLog::default(),
            tools: ScriptedTools::default(),
            pods: ScriptedPods::default(),
            checker: LogChecker::default(),
            pod: None,
            log_state: State::default(),
            now: START_TIME,
            inputs: 0,
            inbox: VecDeque::new(),
            requests: BTreeMap::new(),
            timers: BTreeMap::new(),
            held_outputs: VecDeque::new(),
            synced: None,
            sync_when,
            die_at: None,
            points: Vec::new(),
            broken_rule: None,
            replies: BTreeMap::new(),
            command_count: 0,
            alerts: Vec::new(),
            seen_text: String::new(),
            hooks: BTreeMap::new(),
            hanging_hooks: Vec::new(),
            rules: minke_policy::RuleSet::default(),
            added_rules: Vec::new(),
            has_exited: false,
            transcript: Vec::new(),
            keeps_transcript: true,
            file_checks: 0,
            states: None,
            base: Vec::new(),
            recorder: None,
            model_replies: BTreeMap::new(),
            scene,
        };
        let first = scene::first_step(&world.scene, world.now);
        world.append_offline(&first);
        world
    }

    /// Appends and syncs a step of an offline edit.
    fn append_offline(&mut self, step: &StepDraft) {
        if step.entries.is_empty() {
            return;
        }
        let entries = self.log.append_step(&step.entries, &step.blobs).expect("no story visits a full disk");
        self.log.sync_bytes();
        self.apply_entries(&entries);
        self.record_state();
        self.synced = entries.last().map(|e| e.seq);
    }

    /// Records the states from here on.
    pub fn record_states(&mut self) {
        self.states = Some(BTreeMap::new());
        self.record_state();
    }

    fn record_state(&mut self) {
        if let (Some(states), Some(end)) = (&mut self.states, self.log.head_position()) {
            states.insert(end.h.0, self.log_state.clone());
        }
    }

    pub fn set_kill_point(&mut self, point: usize, death: DeathKind) {
        self.die_at = Some((point, death));
    }

    /// Returns the points passed so far.
    pub fn passed_points(&self) -> &[KillPoint] {
        &self.points
    }

    pub fn add_transcript(&mut self, line: impl FnOnce() -> String) {
        if self.keeps_transcript {
            self.transcript.push(line());
        }
    }

    pub fn current_state(&self) -> &State {
        self.pod.as_ref().map_or(&self.log_state, Pod::state)
    }

    /// Stops here if this is the kill point.
    fn pass_point(&mut self, name: &'static str) -> Result<(), StoryStop> {
        if self.is_kill_point(name) { Err(StoryStop::Killed) } else { Ok(()) }
    }

    fn is_kill_point(&mut self, name: &'static str) -> bool {
        self.points.push(KillPoint { name, unsynced: self.log.has_unsynced() });
        self.die_at.is_some_and(|(at, _)| at + 1 == self.points.len())
    }

    /// Sends a command and waits until everything has settled. Returns the id of its reply.
    pub fn send_command(&mut self, from: Actor, command: PodCommand) -> Result<ReplyId, StoryStop> {
        self.command_count += 1;
        let reply = ReplyId(self.command_count);
        self.feed_input(InputKind::Command(Box::new(CommandRequest { from, reply: Some(reply), command })))?;
        self.settle_inputs()?;
        Ok(reply)
    }

    /// Returns the id of the next command.
    pub fn next_reply(&self) -> ReplyId {
        ReplyId(self.command_count + 1)
    }

    /// Feeds an input and handles the result.
    pub fn feed_input(&mut self, kind: InputKind) -> Result<(), StoryStop> {
        if self.inputs >= MAX_INPUTS {
            return Err(StoryStop::Failed(format!("the inputs do not end after {MAX_INPUTS}")));
        }
        self.now += 1;
        self.inputs += 1;
        let asker = match &kind {
            InputKind::Command(request) => request.reply,
            _ => None,
        };
        self.add_transcript(|| format!("    in: {}", describe_input(&kind)));
        let input = PodInput { now: self.now, seed: self.inputs.wrapping_mul(0x9e37_79b9_7f4a_7c15), kind };
        let Some(pod) = &mut self.pod else {
            return Err(StoryStop::Failed("input for a pod that does not run".to_owned()));
        };
        let step = pod.step(input);
        self.commit_step(step, asker)
    }

    /// Feeds external inputs and lets each settle.
    pub fn feed_all(&mut self, all: Vec<InputKind>) -> Result<(), StoryStop> {
        for what in all {
            if self.pod.is_some() {
                self.feed_input(what)?;
                self.settle_inputs()?;
            }
        }
        Ok(())
    }

    /// Handles pending inputs and syncs until only the story can continue.
    pub fn settle_inputs(&mut self) -> Result<(), StoryStop> {
        loop {
            if self.pod.is_none() {
                self.inbox.clear();
                return Ok(());
            }
            if let Some(what) = self.inbox.pop_front() {
                self.feed_input(what)?;
            } else if self.held_outputs.iter().any(|held| held.need.is_some()) {
                self.sync_log()?;
            } else {
                return Ok(());
            }
        }
    }

    fn commit_step(&mut self, step: Step, asker: Option<ReplyId>) -> Result<(), StoryStop> {
        let mut effects = step.effects;
        if self.broken_rule == Some(RuleBreak::ActBeforeWrite) {
            let upto = step.entries.last().map(|draft| draft.seq);
            for effect in std::mem::take(&mut effects) {
                self.perform_effect(effect, upto)?;
            }
        }
        let mut upto = None;
        let mut written = Vec::new();
        if !step.entries.is_empty() {
            self.pass_point("before a write")?;
            self.tear_if_killed(&step.entries, &step.blobs)?;
            for recording in &step.recordings {
                self.log.keep_recording(recording);
            }
            match self.log.append_step(&step.entries, &step.blobs) {
                Ok(entries) => written = entries,
                Err(DiskFull) => return self.handle_storage_failure(asker),
            }
            upto = written.last().map(|entry| entry.seq);
            self.apply_entries(&written);
            self.record_state();
            self.compare_state()?;
            self.pass_point("after a write")?;
        }
        for effect in &effects {
            self.check_prompt(effect)?;
        }
        let rests = step.replies.iter().any(|reply| reply.result.is_ok())
            || effects.iter().any(|effect| !effect.may_run_before_sync());
        let must_sync = rests || has_barrier(&step.entries);
        for news in step.events {
            let (need, out) = match news {
                StepEvent::Entry(at) => {
                    let entry = &written[at];
                    let barrier = step.entries[at].durability == minke_record::Durability::Barrier;
                    let position = Position { seq: entry.seq, h: entry.h };
                    (barrier.then_some(entry.seq), WorldOutput::Entry { position, barrier })
                }
                StepEvent::Live(live) => (None, WorldOutput::Live(live.kind)),
            };
            self.held_outputs.push_back(HeldOutput { need, upto, out });
        }
        let mut ahead = Vec::new();
        for reply in step.replies {
            // An acknowledgement waits for the sync, even if an earlier step wrote the entries.
            let rests = if reply.result.is_ok() { self.log_state.next_seq.checked_sub(1) } else { upto };
            self.queue_or_deliver(rests, WorldOutput::Reply(reply))?;
        }
        for effect in effects {
            if effect.may_run_before_sync() {
                ahead.push(effect)
            } else {
                self.queue_or_deliver(upto, WorldOutput::Effect(effect))?
            }
        }
        self.flush_outputs()?;
        for effect in ahead {
            self.perform_effect(effect, upto)?;
        }
        if must_sync
            && self.sync_when == SyncTiming::Immediate
            && self.held_outputs.iter().any(|held| held.need.is_some())
        {
            self.sync_log()?;
        }
        Ok(())
    }

    /// Queues a reply or effect until the entries it depends on are synced, or delivers it immediately.
    fn queue_or_deliver(&mut self, upto: Option<u64>, out: WorldOutput) -> Result<(), StoryStop> {
        if upto.is_none_or(|upto| {
            self.held_outputs.is_empty() && self.synced.is_some_and(|synced| synced >= upto)
        }) {
            return self.deliver_output(HeldOutput { need: None, upto, out });
        }
        self.held_outputs.push_back(HeldOutput { need: upto, upto, out });
        Ok(())
    }

    /// Dies during the write in up to three ways.
    fn tear_if_killed(
        &mut self,
        step: &[minke_record::Draft],
        blobs: &[minke_record::Blob],
    ) -> Result<(), StoryStop> {
        let ways: &[(&'static str, TearPoint)] = if step.len() > 1 {
            &[
                ("after the first line of a step", TearPoint::AfterFirstLine),
                ("half way through a step", TearPoint::Half),
                ("before the last newline of a step", TearPoint::BeforeLastNewline),
            ]
        } else {
            &[("half way through a line", TearPoint::Half)]
        };
        for (name, tear) in ways {
            if self.is_kill_point(name) {
                if self.broken_rule == Some(RuleBreak::TearAStep) {
                    self.log.tear_unmarked(step, blobs);
                } else {
                    self.log.tear_step(step, blobs, *tear);
                }
                return Err(StoryStop::Killed);
            }
        }
        Ok(())
    }

    fn apply_entries(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.log_state.apply_entry(entry);
            self.checker.add_written(entry);
            if self.keeps_transcript {
                self.transcript.push(format!(
                    "    log {}: {}",
                    entry.seq,
                    crate::describe::describe_entry(entry)
                ));
            }
        }
    }

    /// Promise 2: replaying the log restores the pod.
    fn compare_state(&mut self) -> Result<(), StoryStop> {
        if self.broken_rule == Some(RuleBreak::StateOutsideApply)
            && let Some(pod) = self.pod.take()
        {
            let mut state = pod.state().clone();
            state.facts.usage.calls += 1;
            self.pod = Some(Pod::rebuild_from(state, pod));
        }
        let Some(pod) = &self.pod else { return Ok(()) };
        if *pod.state() == self.log_state {
            return Ok(());
        }
        Err(StoryStop::Failed(format!(
            "the pod's state differs from the state of its log after entry {}: {}",
            self.log_state.next_seq.saturating_sub(1),
            crate::describe::first_difference(
                &format!("{:#?}", pod.state()),
                &format!("{:#?}", self.log_state)
            ),
        )))
    }

    /// Promise 4: the prompt follows from the log alone, and every call in it has its result.
    fn check_prompt(&self, effect: &Effect) -> Result<(), StoryStop> {
        let Effect::AskModel { call, prompt } = effect else { return Ok(()) };
        if let Some(orphan) = self.log_state.context.orphan_call() {
            return Err(StoryStop::Failed(format!("request {call} shows call {orphan} without its result")));
        }
        if prompt.items == self.log_state.context.items() {
            return Ok(());
        }
        Err(StoryStop::Failed(format!("request {call} shows items that are not in the log")))
    }

    /// Syncs the log and releases pending outputs.
    pub fn sync_log(&mut self) -> Result<(), StoryStop> {
        self.pass_point("before a sync")?;
        self.log.sync_bytes();
        self.synced = self.log_state.next_seq.checked_sub(1);
        self.pass_point("after a sync")?;
        self.flush_outputs()
    }

    /// Returns the state of the replayed log.
    pub fn replay_log(&self) -> State {
        State::replay(self.base.iter().chain(self.log.entries()))
    }

    /// Returns whether inputs or outputs are pending.
    pub fn is_busy(&self) -> bool {
        !self.inbox.is_empty() || !self.held_outputs.is_empty()
    }
}

pub(crate) fn concerns_call(what: &InputKind, call: &CallId) -> bool {
    match what {
        InputKind::CallEnded { call_id, .. }
        | InputKind::Prepared { call_id, .. }
        | InputKind::FileChecked { call_id, .. } => call_id == call,
        _ => false,
    }
}

pub(crate) fn describe_input(what: &InputKind) -> String {
    let text = format!("{what:?}");
    match text.char_indices().nth(160) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}
