//! What is told of a job: each thing that happens to it, when it happens.
//!
//! Elsewhere: what an entry means for a job (`thread::work`, the same for pods, index and frames).

use minke_record::{Entry, JobFacts, JobItem, SessionStart};
use minke_thread::{Mandate, Retry, line, work};
use serde_json::Value;

/// A job as far as its entries were seen.
#[derive(Debug, Clone)]
pub(crate) struct JobFold {
    facts: JobFacts,
    retry: Retry,
}

impl JobFold {
    /// The job of a session that begins so, if it is one.
    pub(crate) fn begin(start: &SessionStart, entry: &Entry) -> Option<JobFold> {
        let facts = work::of(start.mandate.as_ref(), entry.seq, entry.ts)?;
        let mandate = Mandate::read(start.mandate.as_ref()).ok().flatten();
        let retry = mandate.map_or(Retry { max: 0, ..Retry::default() }, |mandate| mandate.retry);
        Some(JobFold { facts, retry })
    }

    /// What one more entry tells.
    pub(crate) fn take(&mut self, entry: &Entry) -> Vec<Value> {
        let before = self.facts.history.back().cloned();
        work::apply(&mut self.facts, entry);
        let told: Vec<Value> = self.made_at(entry.seq);
        // When it is tried again is added to what is known already.
        let changed =
            self.facts.history.back().filter(|last| told.is_empty() && before.as_ref() != Some(*last));
        let changed = changed.map(|item| self.written(item));
        told.into_iter().chain(changed).collect()
    }

    /// What happened with this entry.
    pub(crate) fn made_at(&self, seq: u64) -> Vec<Value> {
        self.facts.history.iter().filter(|item| item.seq == seq).map(|item| self.written(item)).collect()
    }

    fn written(&self, item: &JobItem) -> Value {
        serde_json::to_value(line(item, &self.retry)).expect("plain data is written without fail")
    }
}
