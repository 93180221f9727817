//! The job as API clients get it. Times are Unix seconds, waits milliseconds.

use minke_record::{JobFacts, JobItem, JobPhase, JobState};
use serde::Serialize;

use crate::mandate::Mandate;
use crate::object::written;
use crate::retry::{Retry, bound};
use crate::summary::Summary;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    pub id: String,
    pub name: String,
    pub status: JobState,
    pub progress: u8,
    pub detail: Option<String>,
    pub retry: JobRetry,
    /// Newest last.
    pub history: Vec<JobLine>,
    pub created_at: u64,
    pub updated_at: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRetry {
    /// Retries so far.
    pub attempt: u32,
    pub max_attempts: u32,
    pub backoff_base_ms: u64,
    /// The longest that the next wait can be.
    pub next_backoff_ms: u64,
    /// Rounded up.
    pub next_retry_at: Option<u64>,
}

/// One item of a job's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobLine {
    pub at: u64,
    pub phase: JobPhase,
    pub status: JobState,
    pub progress: u8,
    pub detail: Option<String>,
    pub retry: JobRetry,
}

impl Summary {
    /// The object, of a session that is a job. `held`: somebody has the session's lease.
    pub fn job_object(&self, held: bool) -> Option<Job> {
        let (facts, session) = (self.job.as_ref()?, self.session?);
        let retry = Mandate::read(self.mandate.as_ref()).ok().flatten().map(|mandate| mandate.retry);
        let retry = retry.unwrap_or(Retry { max: 0, ..Retry::default() });
        Some(Job {
            id: written(session),
            name: self.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
            status: self.job_state(held)?,
            progress: facts.percent,
            detail: facts.detail.clone(),
            retry: JobRetry::at(&retry, facts.retries, facts.until),
            history: lines(facts, &retry),
            created_at: self.created / 1_000,
            updated_at: self.updated / 1_000,
        })
    }
}

impl JobRetry {
    fn at(retry: &Retry, attempt: u32, until: Option<u64>) -> JobRetry {
        JobRetry {
            attempt,
            max_attempts: retry.max,
            backoff_base_ms: retry.base_ms,
            next_backoff_ms: if attempt < retry.max { bound(retry, attempt + 1) } else { 0 },
            next_retry_at: until.map(|until| until.div_ceil(1_000)),
        }
    }
}

fn lines(facts: &JobFacts, retry: &Retry) -> Vec<JobLine> {
    facts.history.iter().map(|item| line(item, retry)).collect()
}

/// What is said of one thing that happened to a job.
pub fn line(item: &JobItem, retry: &Retry) -> JobLine {
    JobLine {
        at: item.at / 1_000,
        phase: item.phase,
        status: item.state,
        progress: item.percent,
        detail: item.detail.clone(),
        retry: JobRetry::at(retry, item.retries, item.until),
    }
}
