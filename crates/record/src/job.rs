//! What is known of a job: a session with a mandate that names an objective.
//!
//! Here: the shapes, kept among the facts of a session. Elsewhere: how entries change them and where a job may go
//! (`thread`), who moves it (`pod`, and `host` while no pod lives).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::ids::{Millis, SessionId};
use crate::text::Text;

/// Where a job stands.
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
    /// A word of a later version: somebody must look, nothing runs by itself.
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

    pub fn name(self) -> &'static str {
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

    /// A final state never changes; again is a fork.
    pub fn is_final(self) -> bool {
        matches!(self, JobState::Completed | JobState::Failed | JobState::Cancelled)
    }
}

/// What happened to a job, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum JobPhase {
    Created,
    Running,
    ProgressUpdated,
    Completed,
    /// With a retry left the job waits.
    Failed,
    Cancelled,
    Paused,
    Resumed,
    QueuedAfterResume,
    #[serde(other)]
    Unknown,
}

/// Everything folded of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobFacts {
    pub state: JobState,
    /// Retries that the mandate allows.
    pub max: u32,
    /// The mandate has an acceptance command.
    #[serde(default)]
    pub accepts: bool,
    /// Retries so far.
    #[serde(default)]
    pub retries: u32,
    /// When it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
    /// The provider wants to be left alone until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Millis>,
    /// The last attempt failed: the next one is a retry.
    #[serde(default)]
    pub failed: bool,
    /// A run has finished, and the acceptance command has not spoken.
    #[serde(default)]
    pub accepting: bool,
    /// How often it was begun: no two acceptances have the same name.
    #[serde(default)]
    pub acceptances: u64,
    /// What the acceptance command said against the last attempt; the next one has not heard it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<Rejected>,
    /// 0 to 100.
    #[serde(default)]
    pub percent: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Only of a job that others come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub makes: Option<Makes>,
    /// Oldest first; the log has the rest.
    #[serde(default)]
    pub history: VecDeque<JobItem>,
}

impl JobFacts {
    /// It has ended, and the one that is to follow it does not stand yet.
    pub fn owes_another(&self) -> bool {
        let ended = matches!(self.state, JobState::Completed | JobState::Failed);
        let owed = |makes: &Makes| {
            makes.when == MakesWhen::AfterEnd && makes.last.as_ref().is_none_or(|last| !last.made)
        };
        ended && self.makes.as_ref().is_some_and(owed)
    }

    /// It stays while others are made from it, and never runs itself.
    pub fn is_scheduled(&self) -> bool {
        self.makes.as_ref().is_some_and(|makes| makes.when == MakesWhen::OnSchedule)
    }

    /// Another one that was named in the log and is not known to stand.
    pub fn to_be_made(&self) -> Option<&Firing> {
        let last = self.makes.as_ref()?.last.as_ref()?;
        (last.session.is_some() && !last.made).then_some(last)
    }
}

/// Others that come from a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Makes {
    pub when: MakesWhen,
    /// How many there are so far.
    #[serde(default)]
    pub count: u64,
    /// The newest one that was made, or is to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Firing>,
}

/// When another job comes from one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MakesWhen {
    OnSchedule,
    AfterEnd,
    /// A word of a later version: nothing is made.
    #[serde(other)]
    Unknown,
}

/// A time at which another job was to come from one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Firing {
    pub due: Millis,
    /// The session of the new job. It is written down before that is made, and made with this id and no other.
    /// Absent: none is made this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The session stands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
    /// Times before it at which nobody was there to make one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Missed {
    /// No more than are counted.
    pub count: u64,
    pub first: Millis,
    pub last: Millis,
}

/// Why an attempt was not accepted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rejected {
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Text>,
}

/// One thing that happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct JobItem {
    /// The entry that says so.
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
