//! The replayed pod, and the inputs that it waits for.
//!
//! Here: feeding it, and tracking its effects, none of which is performed. Elsewhere: the inputs (`causes`).
//! It can be cloned, so that a wrong plan can be rolled back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use minke_model::{ModelError, ModelEvent, Prompt};
use minke_pod::{
    ChildCommand, ChildEvent, Effect, HookPoint, HookVerdict, InputKind, Pod, PodInput, PodTimer, State, Step,
};
use minke_record::{Blob, BlobRef, CallId, Draft, Kind, Millis, SessionId, Text};

use crate::recordings::AttemptEvents;

/// An input of the replayed pod.
#[derive(Debug, Clone)]
pub(crate) enum MachineInput {
    Input(Box<InputKind>),
    /// Feeds the recorded reply of this request until it produces an entry.
    ReplyStream(u64),
    /// A step could not be written, and the pod was rebuilt from its log.
    Rebuild,
    /// The hook verdict on this call.
    CallVerdict(CallId, Box<HookVerdict>),
    /// The hook verdict on the next input.
    InputVerdict(Box<HookVerdict>),
    /// The hook verdict at the point at which the pod asked hooks before.
    HookReply(Box<HookVerdict>),
}

impl From<InputKind> for MachineInput {
    fn from(what: InputKind) -> MachineInput {
        MachineInput::Input(Box::new(what))
    }
}

/// A call whose tool has not returned its action yet.
#[derive(Debug, Clone)]
pub(crate) struct UnpreparedCall {
    pub(crate) call_id: CallId,
    pub(crate) tool: String,
    pub(crate) arguments: Text,
}

/// An open request.
#[derive(Debug, Clone)]
pub(crate) struct OpenRequest {
    /// `None`: its reply is taken from the log.
    tape: Option<ReplayTape>,
    /// The delay before the next attempt has not passed.
    pub(crate) retry: bool,
    /// The number of failed attempts.
    pub(crate) failures: u32,
}

/// A recorded reply and the position in it.
#[derive(Debug, Clone)]
struct ReplayTape {
    attempts: Arc<Vec<AttemptEvents>>,
    attempt: usize,
    event: usize,
    blob: Arc<Blob>,
    /// The pod has received the recording in this attempt.
    is_recording_sent: bool,
}

enum TapeStep {
    Event(ModelEvent),
    Failed(ModelError),
}

impl OpenRequest {
    pub(crate) fn from_log() -> OpenRequest {
        OpenRequest { tape: None, retry: false, failures: 0 }
    }

    pub(crate) fn from_tape(attempts: Vec<AttemptEvents>, blob: Blob) -> OpenRequest {
        let tape = ReplayTape {
            attempts: Arc::new(attempts),
            attempt: 0,
            event: 0,
            // Only its name matters here; the content was read before.
            blob: Arc::new(Blob { name: blob.name, content: Vec::new() }),
            is_recording_sent: false,
        };
        OpenRequest { tape: Some(tape), ..OpenRequest::from_log() }
    }

    pub(crate) fn is_recorded(&self) -> bool {
        self.tape.is_some()
    }

    fn next_event(&mut self) -> Option<TapeStep> {
        let tape = self.tape.as_mut()?;
        let heard = tape.attempts.get(tape.attempt)?;
        let event = heard.events.get(tape.event);
        let ends = event.is_none_or(|event| matches!(event, ModelEvent::Done { .. }));
        if ends && !tape.is_recording_sent {
            tape.is_recording_sent = true;
            return Some(TapeStep::Event(ModelEvent::Recording { blob: tape.blob.clone() }));
        }
        if let Some(event) = event {
            tape.event += 1;
            return Some(TapeStep::Event(event.clone()));
        }
        let failure = heard.failure.clone()?;
        (tape.attempt, tape.event, tape.is_recording_sent) = (tape.attempt + 1, 0, false);
        Some(TapeStep::Failed(failure))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PodMachine {
    pub(crate) pod: Pod,
    pub(crate) requests: BTreeMap<u64, OpenRequest>,
    /// In the order of the calls.
    pub(crate) preparing: Vec<UnpreparedCall>,
    pub(crate) running: BTreeSet<CallId>,
    pub(crate) checking: BTreeSet<CallId>,
    /// Children of earlier processes that are being checked.
    pub(crate) watching: BTreeSet<SessionId>,
    /// Requests created by the last step.
    pub(crate) new_requests: Vec<(u64, Arc<Prompt>)>,
    pub(crate) storage_failed: bool,
    /// Hook verdicts on calls; other calls get no objection.
    call_verdicts: BTreeMap<CallId, HookVerdict>,
    /// The hook verdict on the next input.
    input_verdict: Option<HookVerdict>,
    /// Points at which a step with entries asked hooks: their answer comes later.
    pub(crate) open_hook_points: Vec<HookPoint>,
    inputs: u64,
}

impl PodMachine {
    pub(crate) fn new(state: State) -> PodMachine {
        PodMachine {
            pod: Pod::new(state),
            requests: BTreeMap::new(),
            preparing: Vec::new(),
            running: BTreeSet::new(),
            checking: BTreeSet::new(),
            watching: BTreeSet::new(),
            new_requests: Vec::new(),
            storage_failed: false,
            call_verdicts: BTreeMap::new(),
            input_verdict: None,
            open_hook_points: Vec::new(),
            inputs: 0,
        }
    }

    /// Feeds inputs until one of them produces entries, and returns these.
    pub(crate) fn feed_plan(&mut self, plan: &[MachineInput], now: Millis) -> Vec<Draft> {
        for feed in plan {
            let made = match feed {
                MachineInput::Input(what) => self.run_step(what.as_ref().clone(), now),
                MachineInput::ReplyStream(call) => self.feed_stream(*call, now),
                MachineInput::Rebuild => {
                    self.rebuild_pod();
                    Vec::new()
                }
                MachineInput::CallVerdict(call, verdict) => {
                    self.call_verdicts.insert(call.clone(), verdict.as_ref().clone());
                    Vec::new()
                }
                MachineInput::InputVerdict(said) => {
                    self.input_verdict = Some(said.as_ref().clone());
                    Vec::new()
                }
                MachineInput::HookReply(verdict) => match self.open_hook_points.pop() {
                    Some(point) => {
                        self.run_step(InputKind::HookReply { point, verdict: verdict.clone() }, now)
                    }
                    None => Vec::new(),
                },
            };
            if !made.is_empty() {
                return made;
            }
        }
        Vec::new()
    }

    fn feed_stream(&mut self, call: u64, now: Millis) -> Vec<Draft> {
        loop {
            let Some(asked) = self.requests.get_mut(&call) else { return Vec::new() };
            let what = if asked.retry {
                InputKind::Timer(PodTimer::Retry(call))
            } else {
                match asked.next_event() {
                    Some(TapeStep::Event(event)) => InputKind::Model { call, event },
                    Some(TapeStep::Failed(failure)) => InputKind::ModelFailed { call, failure },
                    None => return Vec::new(),
                }
            };
            let made = self.run_step(what, now);
            if !made.is_empty() {
                return made;
            }
        }
    }

    /// Open work is lost; written entries remain.
    fn rebuild_pod(&mut self) {
        let state = self.pod.state().clone();
        let old = std::mem::replace(&mut self.pod, Pod::new(State::default()));
        self.pod = Pod::rebuild_from(state, old);
        self.requests.clear();
        self.preparing.clear();
        self.running.clear();
        self.checking.clear();
        self.open_hook_points.clear();
        self.storage_failed = true;
    }

    /// Runs one step and returns its entries with all lists restored.
    fn run_step(&mut self, kind: InputKind, now: Millis) -> Vec<Draft> {
        if let InputKind::Prepared { call_id, .. } = &kind {
            self.preparing.retain(|pending| pending.call_id != *call_id);
        }
        match &kind {
            InputKind::ModelFailed { call, .. } => {
                if let Some(asked) = self.requests.get_mut(call) {
                    asked.failures += 1;
                }
            }
            InputKind::Timer(PodTimer::Retry(call)) => {
                if let Some(asked) = self.requests.get_mut(call) {
                    asked.retry = false;
                }
            }
            InputKind::CallEnded { call_id, .. } => drop(self.running.remove(call_id)),
            InputKind::FileChecked { call_id, .. } => drop(self.checking.remove(call_id)),
            InputKind::Child(news) => match news.as_ref() {
                ChildEvent::Spawned { child, .. }
                | ChildEvent::SpawnFailed { child, .. }
                | ChildEvent::Ended { child, .. } => drop(self.watching.remove(child)),
                _ => {}
            },
            InputKind::StorageRestored => self.storage_failed = false,
            _ => {}
        }
        self.inputs += 1;
        let seed = self.inputs.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let Step { blobs, mut entries, effects, .. } = self.pod.step(PodInput { now, seed, kind });
        restore_lists(&mut entries, &blobs);
        let mut points = Vec::new();
        for effect in effects {
            if let Effect::AskHooks { point, .. } = &effect {
                points.push(point.clone());
            }
            self.record_effect(effect);
        }
        for draft in &entries {
            if let Kind::LlmEnd(end) = &draft.kind {
                self.requests.remove(&end.call);
            }
        }
        if !entries.is_empty() {
            self.open_hook_points.extend(points);
            return entries;
        }
        // No entry is written when the pod asks hooks: their answer follows immediately.
        for point in points {
            let verdict = match &point {
                HookPoint::BeforeTool(call, _) => self.call_verdicts.remove(call),
                HookPoint::UserPrompt(_) => self.input_verdict.take(),
                HookPoint::BeforeStop(_) => None,
            };
            let said = Box::new(verdict.unwrap_or_else(HookVerdict::allow));
            entries.extend(self.run_step(InputKind::HookReply { point, verdict: said }, now));
        }
        entries
    }

    fn record_effect(&mut self, effect: Effect) {
        match effect {
            Effect::AskModel { call, prompt } => self.new_requests.push((call, prompt)),
            Effect::StopModel { call } => drop(self.requests.remove(&call)),
            Effect::Prepare { call_id, tool, arguments } => {
                self.preparing.retain(|pending| pending.call_id != call_id);
                self.preparing.push(UnpreparedCall { call_id, tool, arguments });
            }
            Effect::RunCall { call_id, .. } => drop(self.running.insert(call_id)),
            Effect::StopCall { call_id } => drop(self.running.remove(&call_id)),
            Effect::CheckFile { call_id, .. } => drop(self.checking.insert(call_id)),
            Effect::SetTimer { timer: PodTimer::Retry(call), .. } => {
                if let Some(asked) = self.requests.get_mut(&call) {
                    asked.retry = true;
                }
            }
            Effect::Child(order) => match order {
                ChildCommand::Send { call_id, .. }
                | ChildCommand::Read { call_id, .. }
                | ChildCommand::Stop { call_id, .. }
                | ChildCommand::List { call_id, .. }
                | ChildCommand::Answer { call_id, .. } => drop(self.running.insert(call_id)),
                ChildCommand::Spawn(spawning) => drop(self.running.insert(spawning.call_id)),
                ChildCommand::Restore { call_id, .. } => self.running.extend(call_id),
                ChildCommand::Watch { child, .. } => drop(self.watching.insert(child)),
                ChildCommand::ReadReports { .. }
                | ChildCommand::ReadSpending { .. }
                | ChildCommand::Report { .. }
                | ChildCommand::ReleaseScope
                | ChildCommand::AcquireScope => {}
            },
            Effect::AskHooks { .. } | Effect::AddRule { .. } => {}
            Effect::Capture { .. } | Effect::SetTimer { .. } | Effect::ClearTimer { .. } | Effect::Exit => {}
        }
    }
}

/// Restores spilled lists in the entries, as a log reader does.
pub(crate) fn restore_lists(entries: &mut [Draft], blobs: &[Blob]) {
    for draft in entries {
        let found = |name: &BlobRef| {
            let blob = blobs.iter().find(|blob| blob.name == *name);
            blob.map(|blob| blob.content.clone()).ok_or(())
        };
        draft.kind.fetch_lists(&mut { found }).expect("a step contains the blobs of its lists");
    }
}
