//! The job object of the API. Times are Unix seconds, waits are milliseconds.

use minke_record::{JobFacts, JobItem, JobPhase, JobState};
use serde::Serialize;

use crate::mandate::Mandate;
use crate::retry::{RetryPolicy, max_retry_wait};
use crate::schedule::Schedule;
use crate::summary::SessionSummary;
use crate::thread_object::format_session_id;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobObject {
    pub id: String,
    pub name: String,
    pub status: JobState,
    pub progress: u8,
    pub detail: Option<String>,
    pub retry: JobRetry,
    /// Only for a job with a schedule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<JobSchedule>,
    /// The scheduled job that created this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The newest item is last.
    pub history: Vec<JobHistoryItem>,
    pub created_at: u64,
    pub updated_at: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobRetry {
    /// Retries so far.
    pub attempt: u32,
    pub max_attempts: u32,
    pub backoff_base_ms: u64,
    /// Maximum wait before the next retry; 0 if none is planned.
    pub next_backoff_ms: u64,
    /// Rounded up.
    pub next_retry_at: Option<u64>,
}

/// The schedule of a job and its progress.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobSchedule {
    #[serde(flatten)]
    pub schedule: Schedule,
    /// Absent while the job is paused or ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<u64>,
    /// Number of created jobs.
    pub fired: u64,
    /// The newest created job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<String>,
}

impl JobSchedule {
    fn from_facts(facts: &JobFacts, schedule: &Schedule) -> JobSchedule {
        let makes = facts.makes.as_ref();
        JobSchedule {
            schedule: schedule.clone(),
            next_at: facts.until.filter(|_| facts.state == JobState::Waiting).map(|at| at.div_ceil(1_000)),
            fired: makes.map_or(0, |makes| makes.count),
            last: makes.and_then(|makes| makes.last.as_ref()?.session).map(format_session_id),
        }
    }
}

/// One item of a job's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobHistoryItem {
    pub at: u64,
    pub phase: JobPhase,
    pub status: JobState,
    pub progress: u8,
    pub detail: Option<String>,
    pub retry: JobRetry,
}

impl SessionSummary {
    /// Returns the job object. `is_held`: a process holds the session lease.
    pub fn job_object(&self, is_held: bool) -> Option<JobObject> {
        let (facts, session) = (self.job.as_ref()?, self.session?);
        let mandate = Mandate::from_value(self.origin.mandate.as_ref()).ok().flatten();
        let retry = mandate
            .as_ref()
            .map_or(RetryPolicy { max: 0, ..RetryPolicy::default() }, |mandate| mandate.retry);
        let schedule = mandate.as_ref().and_then(|mandate| mandate.schedule.as_ref());
        let until = facts.until.filter(|_| schedule.is_none());
        Some(JobObject {
            id: format_session_id(session),
            name: self.name.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
            status: self.job_state(is_held)?,
            progress: facts.percent,
            detail: self.damage_detail(facts).or_else(|| facts.detail.clone()),
            retry: JobRetry::from_policy(&retry, facts.retries, until),
            schedule: schedule.map(|schedule| JobSchedule::from_facts(facts, schedule)),
            of: mandate.as_ref().and_then(|mandate| mandate.of.clone()),
            history: history_items(facts, &retry),
            created_at: self.created / 1_000,
            updated_at: self.updated / 1_000,
        })
    }
}

impl SessionSummary {
    /// Returns the detail of an open job whose log is damaged.
    fn damage_detail(&self, facts: &JobFacts) -> Option<String> {
        let why = self.damaged.as_ref().filter(|_| !facts.state.is_final())?;
        let look = self.session.map(format_session_id).unwrap_or_default();
        Some(format!("needs attention: its log is damaged ({why}); run `minke log verify {look}`"))
    }
}

impl JobRetry {
    fn from_policy(retry: &RetryPolicy, attempt: u32, until: Option<u64>) -> JobRetry {
        JobRetry {
            attempt,
            max_attempts: retry.max,
            backoff_base_ms: retry.base_ms,
            next_backoff_ms: until
                .filter(|_| attempt < retry.max)
                .map_or(0, |_| max_retry_wait(retry, attempt + 1)),
            next_retry_at: until.map(|until| until.div_ceil(1_000)),
        }
    }
}

fn history_items(facts: &JobFacts, retry: &RetryPolicy) -> Vec<JobHistoryItem> {
    facts.history.iter().map(|item| history_item(item, retry)).collect()
}

/// Converts an item of a job's history.
pub fn history_item(item: &JobItem, retry: &RetryPolicy) -> JobHistoryItem {
    JobHistoryItem {
        at: item.at / 1_000,
        phase: item.phase,
        status: item.state,
        progress: item.percent,
        detail: item.detail.clone(),
        retry: JobRetry::from_policy(retry, item.retries, item.until),
    }
}
