//! The mind that hears it all again: a pod, and what it waits for from outside.
//!
//! Here: feeding it, and keeping account of its effects, none of which is carried out. Elsewhere: what it is fed
//! (`causes`).
//! It can be copied, so that an input that led to something else than the log says can be taken back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minke_model::{Failure, ModelEvent, Prompt};
use minke_pod::{Effect, HookPoint, HooksSaid, Input, Pod, State, Step, Timer, TreeNews, TreeOrder, What};
use minke_record::{Blob, BlobRef, CallId, Draft, Kind, Millis, SessionId, Text};

use crate::recorded::Heard;

/// Something that is given to the mind.
#[derive(Debug, Clone)]
pub(crate) enum Feed {
    What(Box<What>),
    /// The recorded reply to this request goes on until it leads to an entry.
    Stream(u64),
    /// A step could not be written, and the pod was made again from its log.
    Rebuild,
    /// What hooks say of this call when they are asked.
    Hear(CallId, Box<HooksSaid>),
    /// What hooks say of the next input.
    HearInput(Box<HooksSaid>),
    /// What hooks say at the point at which they were asked before.
    Heard(Box<HooksSaid>),
}

impl From<What> for Feed {
    fn from(what: What) -> Feed {
        Feed::What(Box::new(what))
    }
}

/// A call whose tool has not said yet what it would touch.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) call_id: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: Text,
}

/// A request that is open.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// `None`: its reply is taken from the log.
    tape: Option<Tape>,
    /// The wait before the next attempt is not over.
    pub(crate) retry: bool,
    /// Attempts that have failed.
    pub(crate) failed: u32,
}

/// A recorded reply, and how far it was heard.
#[derive(Debug, Clone)]
struct Tape {
    attempts: Arc<Vec<Heard>>,
    attempt: usize,
    event: usize,
    blob: Arc<Blob>,
    /// The pod has been told of the recording in this attempt.
    told: bool,
}

enum Next {
    Event(ModelEvent),
    Failed(Failure),
}

impl Asked {
    pub(crate) fn from_log() -> Asked {
        Asked { tape: None, retry: false, failed: 0 }
    }

    pub(crate) fn from_tape(attempts: Vec<Heard>, blob: Blob) -> Asked {
        let tape = Tape {
            attempts: Arc::new(attempts),
            attempt: 0,
            event: 0,
            // Only its name matters here; the content has been read.
            blob: Arc::new(Blob { name: blob.name, content: Vec::new() }),
            told: false,
        };
        Asked { tape: Some(tape), ..Asked::from_log() }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.tape.is_some()
    }

    fn next(&mut self) -> Option<Next> {
        let tape = self.tape.as_mut()?;
        let heard = tape.attempts.get(tape.attempt)?;
        let event = heard.events.get(tape.event);
        let ends = event.is_none_or(|event| matches!(event, ModelEvent::Done { .. }));
        if ends && !tape.told {
            tape.told = true;
            return Some(Next::Event(ModelEvent::Recorded { blob: tape.blob.clone() }));
        }
        if let Some(event) = event {
            tape.event += 1;
            return Some(Next::Event(event.clone()));
        }
        let failure = heard.failure.clone()?;
        (tape.attempt, tape.event, tape.told) = (tape.attempt + 1, 0, false);
        Some(Next::Failed(failure))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Mind {
    pub(crate) pod: Pod,
    pub(crate) requests: BTreeMap<u64, Asked>,
    /// In the order of the calls.
    pub(crate) preparing: Vec<Pending>,
    pub(crate) running: BTreeSet<CallId>,
    pub(crate) checking: BTreeSet<CallId>,
    /// Children of earlier lives that are being looked for.
    pub(crate) watching: BTreeSet<SessionId>,
    /// Requests that the last step made.
    pub(crate) asked: Vec<(u64, Arc<Prompt>)>,
    pub(crate) storage_failed: bool,
    /// What hooks say of calls; of others they say nothing.
    says: BTreeMap<CallId, HooksSaid>,
    /// What hooks say of the next input.
    says_of_input: Option<HooksSaid>,
    /// Points at which hooks were asked by a step that has entries: their answer came later.
    pub(crate) hooking: Vec<HookPoint>,
    inputs: u64,
}

impl Mind {
    pub(crate) fn new(state: State) -> Mind {
        Mind {
            pod: Pod::new(state),
            requests: BTreeMap::new(),
            preparing: Vec::new(),
            running: BTreeSet::new(),
            checking: BTreeSet::new(),
            watching: BTreeSet::new(),
            asked: Vec::new(),
            storage_failed: false,
            says: BTreeMap::new(),
            says_of_input: None,
            hooking: Vec::new(),
            inputs: 0,
        }
    }

    /// Feeds one thing after the other until one of them leads to entries, and gives these.
    pub(crate) fn feed(&mut self, plan: &[Feed], now: Millis) -> Vec<Draft> {
        for feed in plan {
            let made = match feed {
                Feed::What(what) => self.step(what.as_ref().clone(), now),
                Feed::Stream(call) => self.stream(*call, now),
                Feed::Rebuild => {
                    self.rebuild();
                    Vec::new()
                }
                Feed::Hear(call, said) => {
                    self.says.insert(call.clone(), said.as_ref().clone());
                    Vec::new()
                }
                Feed::HearInput(said) => {
                    self.says_of_input = Some(said.as_ref().clone());
                    Vec::new()
                }
                Feed::Heard(said) => match self.hooking.pop() {
                    Some(point) => self.step(What::HooksSaid { point, said: said.clone() }, now),
                    None => Vec::new(),
                },
            };
            if !made.is_empty() {
                return made;
            }
        }
        Vec::new()
    }

    fn stream(&mut self, call: u64, now: Millis) -> Vec<Draft> {
        loop {
            let Some(asked) = self.requests.get_mut(&call) else { return Vec::new() };
            let what = if asked.retry {
                What::Timer(Timer::Retry(call))
            } else {
                match asked.next() {
                    Some(Next::Event(event)) => What::Model { call, event },
                    Some(Next::Failed(failure)) => What::ModelFailed { call, failure },
                    None => return Vec::new(),
                }
            };
            let made = self.step(what, now);
            if !made.is_empty() {
                return made;
            }
        }
    }

    /// What was going on is gone; what was written stands.
    fn rebuild(&mut self) {
        let state = self.pod.state().clone();
        let old = std::mem::replace(&mut self.pod, Pod::new(State::default()));
        self.pod = Pod::rebuilt(state, old);
        self.requests.clear();
        self.preparing.clear();
        self.running.clear();
        self.checking.clear();
        self.hooking.clear();
        self.storage_failed = true;
    }

    /// One input. Gives the entries with their lists in place.
    fn step(&mut self, what: What, now: Millis) -> Vec<Draft> {
        if let What::Prepared { call_id, .. } = &what {
            self.preparing.retain(|pending| pending.call_id != *call_id);
        }
        match &what {
            What::ModelFailed { call, .. } => {
                if let Some(asked) = self.requests.get_mut(call) {
                    asked.failed += 1;
                }
            }
            What::Timer(Timer::Retry(call)) => {
                if let Some(asked) = self.requests.get_mut(call) {
                    asked.retry = false;
                }
            }
            What::CallEnded { call_id, .. } => drop(self.running.remove(call_id)),
            What::FileChecked { call_id, .. } => drop(self.checking.remove(call_id)),
            What::Tree(news) => match news.as_ref() {
                TreeNews::Spawned { child, .. }
                | TreeNews::NotSpawned { child, .. }
                | TreeNews::Ended { child, .. } => drop(self.watching.remove(child)),
                _ => {}
            },
            What::StorageBack => self.storage_failed = false,
            _ => {}
        }
        self.inputs += 1;
        let seed = self.inputs.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Step { blobs, mut entries, effects, .. } = self.pod.step(Input { now, seed, what });
        whole(&mut entries, &blobs);
        let mut points = Vec::new();
        for effect in effects {
            if let Effect::AskHooks { point, .. } = &effect {
                points.push(point.clone());
            }
            self.note(effect);
        }
        for draft in &entries {
            if let Kind::LlmEnd(end) = &draft.kind {
                self.requests.remove(&end.call);
            }
        }
        if !entries.is_empty() {
            self.hooking.extend(points);
            return entries;
        }
        // Nothing is written while hooks are asked: their answer follows at once.
        for point in points {
            let said = match &point {
                HookPoint::BeforeTool(call, _) => self.says.remove(call),
                HookPoint::UserPrompt(_) => self.says_of_input.take(),
                HookPoint::BeforeStop(_) => None,
            };
            let said = Box::new(said.unwrap_or_else(HooksSaid::nothing));
            entries.extend(self.step(What::HooksSaid { point, said }, now));
        }
        entries
    }

    fn note(&mut self, effect: Effect) {
        match effect {
            Effect::AskModel { call, prompt } => self.asked.push((call, prompt)),
            Effect::StopModel { call } => drop(self.requests.remove(&call)),
            Effect::Prepare { call_id, tool, arguments } => {
                self.preparing.retain(|pending| pending.call_id != call_id);
                self.preparing.push(Pending { call_id, tool, arguments });
            }
            Effect::RunCall { call_id, .. } => drop(self.running.insert(call_id)),
            Effect::StopCall { call_id } => drop(self.running.remove(&call_id)),
            Effect::CheckFile { call_id, .. } => drop(self.checking.insert(call_id)),
            Effect::SetTimer { timer: Timer::Retry(call), .. } => {
                if let Some(asked) = self.requests.get_mut(&call) {
                    asked.retry = true;
                }
            }
            Effect::Tree(order) => match order {
                TreeOrder::Send { call_id, .. }
                | TreeOrder::Read { call_id, .. }
                | TreeOrder::Stop { call_id, .. }
                | TreeOrder::List { call_id, .. }
                | TreeOrder::Answer { call_id, .. } => drop(self.running.insert(call_id)),
                TreeOrder::Spawn(spawning) => drop(self.running.insert(spawning.call_id)),
                TreeOrder::Restore { call_id, .. } => self.running.extend(call_id),
                TreeOrder::Watch { child, .. } => drop(self.watching.insert(child)),
                TreeOrder::ReadReports { .. }
                | TreeOrder::ReadSpending { .. }
                | TreeOrder::Report { .. }
                | TreeOrder::GiveScope
                | TreeOrder::TakeScope => {}
            },
            Effect::AskHooks { .. } | Effect::AddRule { .. } => {}
            Effect::Capture { .. } | Effect::SetTimer { .. } | Effect::ClearTimer { .. } | Effect::Exit => {}
        }
    }
}

/// Puts lists that were spilled back into their entries, as a reader of the log does.
pub(crate) fn whole(entries: &mut [Draft], blobs: &[Blob]) {
    for draft in entries {
        let found = |name: &BlobRef| {
            let blob = blobs.iter().find(|blob| blob.name == *name);
            blob.map(|blob| blob.content.clone()).ok_or(())
        };
        draft.kind.fetch_lists(&mut { found }).expect("a step brings the blobs that its lists lie in");
    }
}
