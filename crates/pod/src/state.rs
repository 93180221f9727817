//! State: everything durable that a pod knows.
//!
//! Here: what can be asked of it. Elsewhere: how entries change it (`fold`), who writes them (`run`, `calls` …).
//! Invariant: replaying the log gives the pod, because durable state changes only in `apply`.

use minke_context::{Context, Segment};
use minke_manifest::Manifest;
use minke_record::{
    AskId, CallId, EndResult, EndedRun, Entry, Facts, History, Large, OpGave, OpenAsk, OpenCall, QueueId,
    Queued, RunResult,
};

use serde_json::Value;

use crate::gate::Limits;
use crate::step::Phase;

/// Everything durable that a pod knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub facts: Facts,
    pub segment: Option<Segment>,
    pub context: Context,
    /// The number of the next entry.
    pub next_seq: u64,
    /// Entries since the last carry with a whole history, or since the session began.
    pub since_carry: u64,
    /// The manifest of `session_start` with the changes since, read once.
    pub manifest: Manifest,
    /// Why the manifest of the session could not be read; then the defaults hold, and boot says so.
    pub manifest_problem: Option<String>,
    /// What the parent lets this pod spend, as the mandate says.
    pub(crate) mandate: crate::budget::Mandate,
    /// What the parent allows, as the mandate says.
    pub limits: Option<Limits>,
    /// Why that could not be read; then nothing with side effects is allowed, and boot says so.
    pub limits_problem: Option<String>,
}

impl State {
    /// Folds entries in order.
    pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> State {
        let mut state = State::default();
        for entry in entries {
            state.apply(entry);
        }
        state
    }

    /// The state that the log alone implies; a live pod may be compacting or stopping besides.
    pub fn phase(&self) -> Phase {
        if self.facts.run.is_some() {
            return Phase::Running;
        }
        if self.resumable().is_some() { Phase::Paused } else { Phase::Idle }
    }

    /// The run that a `resume` would continue.
    pub fn resumable(&self) -> Option<&EndedRun> {
        self.facts.last.as_ref().filter(|last| {
            let stopped = matches!(
                last.result,
                EndResult::Completed(RunResult::Paused) | EndResult::Completed(RunResult::Interrupted)
            );
            stopped && !last.abandoned
        })
    }

    /// What an operation gave when it was accepted.
    pub fn op(&self, op_id: &str) -> Option<&OpGave> {
        self.facts.op_ids.iter().rev().find(|done| done.op_id == op_id).map(|done| &done.gave)
    }

    pub fn call(&self, id: &CallId) -> Option<&OpenCall> {
        self.facts.calls.iter().find(|call| call.call_id == *id)
    }

    pub fn ask(&self, id: AskId) -> Option<&OpenAsk> {
        self.facts.asks.iter().find(|ask| ask.id == id)
    }

    pub fn queued(&self, id: QueueId) -> Option<&Queued> {
        self.facts.queue.iter().find(|queued| queued.id == id)
    }

    /// What a change to another model changes: what was said about the old one does not hold for the new one.
    pub fn model_changes(&self, reference: &str) -> Vec<(String, Value)> {
        let model = &self.manifest.model;
        let said = [
            ("scheme", model.scheme.is_some()),
            ("base_url", model.base_url.is_some()),
            ("model_id", model.model_id.is_some()),
            ("auth", model.auth.is_some()),
            ("capability", model.capability.is_some()),
            ("context_window", model.context_window.is_some()),
            ("max_output", model.max_output.is_some()),
        ];
        let gone =
            said.iter().filter(|(_, said)| *said).map(|(key, _)| (format!("model.{key}"), Value::Null));
        std::iter::once(("model.ref".to_owned(), Value::from(reference))).chain(gone).collect()
    }

    /// The facts and the history as a carry writes them.
    pub(crate) fn carry(&self) -> (History, Large<Box<Facts>>) {
        (History::Here(self.context.to_items()), Large::Here(Box::new(self.facts.clone())))
    }
}
