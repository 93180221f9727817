//! Job state: a job is a session with a mandate that names an objective.
//!
//! Here: the types, part of the facts of a session. Elsewhere: applying entries and valid transitions
//! (`thread`), advancing jobs (`pod`, and `host` while no pod is running).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::ids::{Millis, SessionId};
use crate::text::Text;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Queued,
    Running,
    Waiting,
    Paused,
    Interrupted,
    Completed,
    Failed,
    Cancelled,
    /// A state of a later version: the user must act, nothing runs automatically.
    #[serde(other)]
    Unknown,
}

impl JobState {
    pub const ALL: [JobState; 8] = [
        JobState::Queued,
        JobState::Running,
        JobState::Waiting,
        JobState::Paused,
        JobState::Interrupted,
        JobState::Completed,
        JobState::Failed,
        JobState::Cancelled,
    ];

    pub fn state_name(self) -> &'static str {
        match self {
            JobState::Queued => "queued",
            JobState::Running => "running",
            JobState::Waiting => "waiting",
            JobState::Paused => "paused",
            JobState::Interrupted => "interrupted",
            JobState::Completed => "completed",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Unknown => "unknown",
        }
    }

    /// A final state never changes; a repetition is a fork.
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Completed | JobState::Failed | JobState::Cancelled)
    }
}

/// The kind of a job event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    Created,
    Running,
    ProgressUpdated,
    Completed,
    /// If retries are left, the job waits.
    Failed,
    Cancelled,
    Paused,
    Resumed,
    QueuedAfterResume,
    #[serde(other)]
    Unknown,
}

/// The folded state of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobFacts {
    pub state: JobState,
    /// The maximum number of retries.
    pub max: u32,
    /// The mandate has an acceptance command.
    #[serde(default)]
    pub accepts: bool,
    /// Retries so far.
    #[serde(default)]
    pub retries: u32,
    /// The time of the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// The provider requests a delay until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Millis>,
    /// The last attempt failed: the next one is a retry.
    #[serde(default)]
    pub failed: bool,
    /// A run has finished, and the acceptance command has not decided yet.
    #[serde(default)]
    pub accepting: bool,
    /// The number of started acceptances, used in their unique names.
    #[serde(default)]
    pub acceptances: u64,
    /// Why the acceptance command rejected the last attempt; not yet passed to the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedAttempt>,
    /// 0 to 100.
    #[serde(default)]
    pub percent: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Only for a job that creates others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub makes: Option<JobTrigger>,
    /// Oldest first; the log has the rest.
    #[serde(default)]
    pub history: VecDeque<JobItem>,
}

impl JobFacts {
    /// It has ended, and its successor has not been created yet.
    pub fn needs_successor(&self) -> bool {
        let ended = matches!(self.state, JobState::Completed | JobState::Failed);
        let owed = |makes: &JobTrigger| {
            makes.when == TriggerCondition::AfterEnd && makes.last.as_ref().is_none_or(|last| !last.made)
        };
        ended && self.makes.as_ref().is_some_and(owed)
    }

    /// It remains while other jobs are created from it, and never runs itself.
    pub fn is_scheduled(&self) -> bool {
        self.makes.as_ref().is_some_and(|makes| makes.when == TriggerCondition::OnSchedule)
    }

    /// A job that the log has announced and that may not exist yet.
    pub fn pending_firing(&self) -> Option<&JobFiring> {
        let last = self.makes.as_ref()?.last.as_ref()?;
        (last.session.is_some() && !last.made).then_some(last)
    }
}

/// The jobs created from a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobTrigger {
    pub when: TriggerCondition,
    /// The number of jobs created so far.
    #[serde(default)]
    pub count: u64,
    /// The newest job that was or will be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<JobFiring>,
}

/// When another job is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TriggerCondition {
    OnSchedule,
    AfterEnd,
    /// A value of a later version: no job is created.
    #[serde(other)]
    Unknown,
}

/// A time at which another job should be created.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobFiring {
    pub due: Millis,
    /// The session id of the new job, logged before the job is created with exactly this id. Absent: no job
    /// is created this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The session exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
    /// Earlier times that were missed, because no host was running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<MissedFirings>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MissedFirings {
    /// At most the counting limit.
    pub count: u64,
    pub first: Millis,
    pub last: Millis,
}

/// Why an attempt was rejected.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RejectedAttempt {
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Text>,
}

/// An event of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobItem {
    /// Its entry.
    pub seq: u64,
    pub at: Millis,
    pub phase: JobPhase,
    pub state: JobState,
    pub percent: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    pub retries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
}
