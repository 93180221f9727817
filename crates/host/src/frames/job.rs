//! Job events: reports each change of a job when it happens.
//!
//! Elsewhere: the effect of an entry on a job (`thread::work`, the same for pods, index and frames).

use minke_record::{Entry, JobFacts, JobItem, SessionStart};
use minke_thread::{Mandate, RetryPolicy, history_item, job_fold};
use serde_json::Value;

/// The fold of a job's entries so far.
#[derive(Debug, Clone)]
pub(crate) struct JobFold {
    facts: JobFacts,
    retry: RetryPolicy,
}

impl JobFold {
    /// Returns the fold of a session with this first entry, if it is a job.
    pub(crate) fn from_session_start(start: &SessionStart, entry: &Entry) -> Option<JobFold> {
        let facts = job_fold::job_from_mandate(start.mandate.as_ref(), entry.seq, entry.ts)?;
        let mandate = Mandate::from_value(start.mandate.as_ref()).ok().flatten();
        let retry = mandate.map_or(RetryPolicy { max: 0, ..RetryPolicy::default() }, |mandate| mandate.retry);
        Some(JobFold { facts, retry })
    }

    /// Folds one more entry and returns its job events.
    pub(crate) fn fold_entry(&mut self, entry: &Entry) -> Vec<Value> {
        let before = self.facts.history.back().cloned();
        job_fold::apply_entry(&mut self.facts, entry);
        let events: Vec<Value> = self.frames_at(entry.seq);
        // The time of the next retry is added to a known event.
        let changed =
            self.facts.history.back().filter(|last| events.is_empty() && before.as_ref() != Some(*last));
        let changed = changed.map(|item| self.item_to_value(item));
        events.into_iter().chain(changed).collect()
    }

    /// Returns the job events of the entry with this number.
    pub(crate) fn frames_at(&self, seq: u64) -> Vec<Value> {
        self.facts
            .history
            .iter()
            .filter(|item| item.seq == seq)
            .map(|item| self.item_to_value(item))
            .collect()
    }

    fn item_to_value(&self, item: &JobItem) -> Value {
        serde_json::to_value(history_item(item, &self.retry)).expect("a job event is always serializable")
    }
}
