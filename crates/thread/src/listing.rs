//! The job as API clients get it. Times are Unix seconds, waits milliseconds.

use minke_record::{JobFacts, JobItem, JobPhase, JobState};
use serde::Serialize;

use crate::mandate::Mandate;
use crate::object::written;
use crate::retry::{Retry, bound};
use crate::schedule::Schedule;
use crate::summary::Summary;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Job {
    pub id: String,
    pub name: String,
    pub status: JobState,
    pub progress: u8,
    pub detail: Option<String>,
    pub retry: JobRetry,
    /// Only of a job with one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<JobSchedule>,
    /// The job that this one was made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
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
    /// The longest that the wait before the next retry can be; 0 while none is planned.
    pub next_backoff_ms: u64,
    /// Rounded up.
    pub next_retry_at: Option<u64>,
}

/// How a job with a schedule stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobSchedule {
    #[serde(flatten)]
    pub schedule: Schedule,
    /// Absent while it is paused, and when it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<u64>,
    /// Jobs that were made so far.
    pub fired: u64,
    /// The newest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

impl JobSchedule {
    fn of(facts: &JobFacts, schedule: &Schedule) -> JobSchedule {
        let makes = facts.makes.as_ref();
        JobSchedule {
            schedule: schedule.clone(),
            next_at: facts.until.filter(|_| facts.state == JobState::Waiting).map(|at| at.div_ceil(1_000)),
            fired: makes.map_or(0, |makes| makes.count),
            last: makes.and_then(|makes| makes.last.as_ref()?.session).map(written),
        }
    }
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
        let mandate = Mandate::read(self.mandate.as_ref()).ok().flatten();
        let retry = mandate.as_ref().map_or(Retry { max: 0, ..Retry::default() }, |mandate| mandate.retry);
        let schedule = mandate.as_ref().and_then(|mandate| mandate.schedule.as_ref());
        let until = facts.until.filter(|_| schedule.is_none());
        Some(Job {
            id: written(session),
            name: self.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
            status: self.job_state(held)?,
            progress: facts.percent,
            detail: self.damage(facts).or_else(|| facts.detail.clone()),
            retry: JobRetry::at(&retry, facts.retries, until),
            schedule: schedule.map(|schedule| JobSchedule::of(facts, schedule)),
            of: mandate.as_ref().and_then(|mandate| mandate.of.clone()),
            history: lines(facts, &retry),
            created_at: self.created / 1_000,
            updated_at: self.updated / 1_000,
        })
    }
}

impl Summary {
    /// Of a job whose log cannot be read to its end, unless it was over by then.
    fn damage(&self, facts: &JobFacts) -> Option<String> {
        let why = self.damaged.as_ref().filter(|_| !facts.state.is_final())?;
        let look = self.session.map(written).unwrap_or_default();
        Some(format!("needs attention: its log is damaged ({why}); `minke log verify {look}` says more"))
    }
}

impl JobRetry {
    fn at(retry: &Retry, attempt: u32, until: Option<u64>) -> JobRetry {
        JobRetry {
            attempt,
            max_attempts: retry.max,
            backoff_base_ms: retry.base_ms,
            next_backoff_ms: until.filter(|_| attempt < retry.max).map_or(0, |_| bound(retry, attempt + 1)),
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
