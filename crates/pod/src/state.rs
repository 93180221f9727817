//! State: the durable state of a pod.
//!
//! Elsewhere: how entries change it (`apply`), who writes them (`run`, `calls` …).
//! Invariant: replaying the log restores the pod, because durable state changes only in `apply_entry`.

use minke_manifest::Manifest;
use minke_record::{
    AskId, CallId, EndResult, EndedRun, Entry, History, Large, OpOutcome, OpenAsk, OpenCall, QueueId, Queued,
    RunResult, SessionFacts,
};

use serde_json::Value;

use crate::calls::gate::ParentLimits;
use crate::run::context::{ContextSegment, ModelContext};
use crate::step::PodPhase;

/// The durable state of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub facts: SessionFacts,
    pub segment: Option<ContextSegment>,
    pub context: ModelContext,
    /// The sequence number of the next entry.
    pub next_seq: u64,
    /// Entries since the last carry with a full history, or since the session started.
    pub entries_since_carry: u64,
    /// The manifest of `session_start` with all later changes.
    pub manifest: Manifest,
    /// Why the session's manifest could not be read. Then the defaults apply and boot reports it.
    pub manifest_error: Option<String>,
    /// The budget limits of the mandate.
    pub(crate) budget_mandate: crate::budget::BudgetMandate,
    /// The permissions of the mandate.
    pub parent_limits: Option<ParentLimits>,
    /// Why they could not be read. Then side effects are denied and boot reports it.
    pub parent_limits_error: Option<String>,
}

impl State {
    /// Applies entries in order.
    pub fn replay<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> State {
        let mut state = State::default();
        for entry in entries {
            state.apply_entry(entry);
        }
        state
    }

    /// Returns the phase that the log implies; a running pod may also be compacting or stopping.
    pub fn phase(&self) -> PodPhase {
        if self.facts.run.is_some() {
            return PodPhase::Running;
        }
        if self.resumable_run().is_some() { PodPhase::Paused } else { PodPhase::Idle }
    }

    /// Returns the run that a `resume` would continue.
    pub fn resumable_run(&self) -> Option<&EndedRun> {
        self.facts.last.as_ref().filter(|last| {
            let stopped = matches!(
                last.result,
                EndResult::Completed(RunResult::Paused) | EndResult::Completed(RunResult::Interrupted)
            );
            stopped && !last.abandoned
        })
    }

    /// Returns the reply of an accepted operation.
    pub fn op_result(&self, op_id: &str) -> Option<&OpOutcome> {
        self.facts.op_ids.iter().rev().find(|done| done.op_id == op_id).map(|done| &done.gave)
    }

    pub fn open_call(&self, id: &CallId) -> Option<&OpenCall> {
        self.facts.calls.iter().find(|call| call.call_id == *id)
    }

    pub fn open_ask(&self, id: AskId) -> Option<&OpenAsk> {
        self.facts.asks.iter().find(|ask| ask.id == id)
    }

    pub fn queued_input(&self, id: QueueId) -> Option<&Queued> {
        self.facts.queue.iter().find(|queued| queued.id == id)
    }

    /// Returns the changes for another model: the settings of the old one are cleared.
    pub fn model_changes(&self, reference: &str) -> Vec<(String, Value)> {
        let model = &self.manifest.model;
        let explicit = [
            ("scheme", model.scheme.is_some()),
            ("base_url", model.base_url.is_some()),
            ("model_id", model.model_id.is_some()),
            ("auth", model.auth.is_some()),
            ("capability", model.capability.is_some()),
            ("context_window", model.context_window.is_some()),
            ("max_output", model.max_output.is_some()),
        ];
        let cleared =
            explicit.iter().filter(|(_, said)| *said).map(|(key, _)| (format!("model.{key}"), Value::Null));
        std::iter::once(("model.ref".to_owned(), Value::from(reference))).chain(cleared).collect()
    }

    /// Returns facts and history for a carry.
    pub(crate) fn carry_contents(&self) -> (History, Large<Box<SessionFacts>>) {
        (History::Here(self.context.to_items()), Large::Here(Box::new(self.facts.clone())))
    }
}
