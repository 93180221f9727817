//! The job of a session, followed for those who are told of it: every thing that happens to it, its ends and its pauses.
//!
//! Elsewhere: what a log says of a job (`thread::work`), the other events of an entry (`map`), who hears of it
//! (`observer`).

use minke_record::{Entry, JobFacts, JobItem, JobState, Kind};
use minke_thread::{Mandate, work};
use serde_json::{Value, json};

use crate::payload::told;

/// A job as far as its log was read.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    facts: JobFacts,
    objective: Value,
    id: String,
}

/// One thing that happened to it.
pub(crate) struct News {
    item: JobItem,
    objective: Value,
    id: String,
}

impl Work {
    /// The job of a session that begins with this entry, if it is one.
    pub(crate) fn begun(entry: &Entry) -> Option<(Work, News)> {
        let Kind::SessionStart(start) = &entry.kind else { return None };
        let facts = work::of(start.mandate.as_ref(), entry.seq, entry.ts)?;
        let objective = start.mandate.as_ref().and_then(|mandate| mandate.get("objective")?.as_str());
        let item = facts.history.back()?.clone();
        let (objective, id) = (told(objective.unwrap_or_default()), format!("s_{}", start.session));
        Some((Work { facts, objective: objective.clone(), id: id.clone() }, News { item, objective, id }))
    }

    /// What one more entry tells of it.
    pub(crate) fn take(&mut self, entry: &Entry) -> Option<News> {
        work::apply(&mut self.facts, entry);
        let item = self.facts.history.back().filter(|item| item.seq == entry.seq)?.clone();
        Some(News { item, objective: self.objective.clone(), id: self.id.clone() })
    }
}

impl News {
    /// It is over, or stands still until somebody does something.
    pub(crate) fn ends(&self) -> bool {
        self.item.state.is_final() || self.item.state == JobState::Paused
    }

    pub(crate) fn fields(&self) -> Value {
        json!({ "state": self.item.state, "phase": self.item.phase, "reason": self.item.detail,
                "percent": self.item.percent, "retries": self.item.retries, "until": self.item.until,
                "objective": self.objective })
    }

    /// The same, as API clients know it.
    pub(crate) fn lifecycle(&self) -> Value {
        json!({ "type": "job_lifecycle", "job_id": self.id, "phase": self.item.phase,
                "progress": self.item.percent, "detail": self.item.detail })
    }
}

/// The hooks that a mandate names: they hear of every end and pause of the job, whatever their own event is.
pub fn notified(mandate: Option<&Value>) -> Vec<String> {
    match Mandate::read(mandate) {
        Ok(Some(mandate)) => mandate.notify,
        // Such a job says itself that somebody must look at it.
        Ok(None) | Err(_) => Vec::new(),
    }
}
