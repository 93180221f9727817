//! Tracks the job of a session for observers: all its changes, its ends and its pauses.
//!
//! Elsewhere: reading a job from a log (`thread::work`), the other events of an entry (`mapper`), the
//! receivers (`observer`).

use minke_record::{Entry, JobFacts, JobItem, JobState, Kind};
use minke_thread::{Mandate, job_fold};
use serde_json::{Value, json};

use crate::payload::observed_text;

/// The job state from the entries read so far.
#[derive(Debug, Clone)]
pub(crate) struct JobTracker {
    facts: JobFacts,
    objective: Value,
    id: String,
}

/// One change of the job.
pub(crate) struct JobChange {
    item: JobItem,
    objective: Value,
    id: String,
}

impl JobTracker {
    /// The job of a session that starts with this entry, if it is one.
    pub(crate) fn from_entry(entry: &Entry) -> Option<(JobTracker, JobChange)> {
        let Kind::SessionStart(start) = &entry.kind else { return None };
        let facts = job_fold::job_from_mandate(start.mandate.as_ref(), entry.seq, entry.ts)?;
        let objective = start.mandate.as_ref().and_then(|mandate| mandate.get("objective")?.as_str());
        let item = facts.history.back()?.clone();
        let (objective, id) = (observed_text(objective.unwrap_or_default()), format!("s_{}", start.session));
        Some((
            JobTracker { facts, objective: objective.clone(), id: id.clone() },
            JobChange { item, objective, id },
        ))
    }

    /// Applies an entry; returns the change, if any.
    pub(crate) fn apply_entry(&mut self, entry: &Entry) -> Option<JobChange> {
        job_fold::apply_entry(&mut self.facts, entry);
        let item = self.facts.history.back().filter(|item| item.seq == entry.seq)?.clone();
        Some(JobChange { item, objective: self.objective.clone(), id: self.id.clone() })
    }
}

impl JobChange {
    /// The job has ended, or is paused until the user acts.
    pub(crate) fn is_end(&self) -> bool {
        self.item.state.is_final() || self.item.state == JobState::Paused
    }

    pub(crate) fn to_fields(&self) -> Value {
        json!({ "state": self.item.state, "phase": self.item.phase, "reason": self.item.detail,
                "percent": self.item.percent, "retries": self.item.retries, "until": self.item.until,
                "objective": self.objective })
    }

    /// The fields of the API's lifecycle event.
    pub(crate) fn lifecycle_fields(&self) -> Value {
        json!({ "type": "job_lifecycle", "job_id": self.id, "phase": self.item.phase,
                "progress": self.item.percent, "detail": self.item.detail })
    }
}

/// The hooks that a mandate names: they get every end and pause of the job, whatever their own event.
pub fn notified_hooks(mandate: Option<&Value>) -> Vec<String> {
    match Mandate::from_value(mandate) {
        Ok(Some(mandate)) => mandate.notify,
        // Such a job reports itself that the user must act.
        Ok(None) | Err(_) => Vec::new(),
    }
}
