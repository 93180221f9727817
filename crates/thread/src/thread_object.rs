//! The thread object of the API: a summary and whether a process holds the session.

use minke_record::{ActorKind, ForkOrigin, GitState, ParentCall, SessionId, SessionUsage};
use serde::{Deserialize, Serialize};

use crate::summary::SessionSummary;

/// The status of a thread. The first match in the specified order applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadStatus {
    Waiting,
    Running,
    Interrupted,
    Paused,
    Idle,
}

/// The origin of a thread, fixed at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadSource {
    Fork,
    Pod,
    Job,
    Api,
    Resume,
    Interactive,
    Unknown,
}

/// One thread. Optional members are absent, not null; times are Unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThreadObject {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub preview: String,
    pub status: ThreadStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_result: Option<String>,
    pub source: ThreadSource,
    pub ephemeral: bool,
    pub archived: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archived_at: Option<u64>,
    pub model_provider: String,
    pub model: String,
    pub approval_mode: String,
    pub sandbox: String,
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitState>,
    pub cli_version: String,
    pub created_at: u64,
    pub updated_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<ParentCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ForkOrigin>,
    pub usage: SessionUsage,
    /// Why the log cannot be read to its end; the other fields describe the readable part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// Formats a session id.
pub(crate) fn format_session_id(session: SessionId) -> String {
    format!("s_{session}")
}

impl SessionSummary {
    /// Returns the status of the thread. `is_held`: a process holds the session lease.
    pub fn thread_status(&self, is_held: bool) -> ThreadStatus {
        let last = self.last.as_ref().filter(|last| !last.abandoned);
        let interrupted = last.is_some_and(crate::LastRun::is_interrupted);
        if self.thread_wait().is_some() {
            ThreadStatus::Waiting
        } else if self.run.is_some() && is_held {
            ThreadStatus::Running
        } else if !is_held && (self.run.is_some() || interrupted) {
            ThreadStatus::Interrupted
        } else if last.is_some_and(crate::LastRun::is_paused) || (interrupted && is_held) {
            ThreadStatus::Paused
        } else {
            ThreadStatus::Idle
        }
    }

    pub fn thread_source(&self) -> ThreadSource {
        let Some(by) = &self.origin.created_by else { return ThreadSource::Unknown };
        if self.origin.from.is_some() {
            ThreadSource::Fork
        } else if self.origin.parent.is_some() {
            ThreadSource::Pod
        } else if self.origin.mandate.is_some() {
            ThreadSource::Job
        } else if by.surface.as_deref() == Some("host") {
            ThreadSource::Api
        } else if self.imported {
            ThreadSource::Resume
        } else if by.actor == ActorKind::Person {
            ThreadSource::Interactive
        } else {
            ThreadSource::Unknown
        }
    }

    /// Returns the thread object, or `None` for a log without a start.
    pub fn thread_object(&self, is_held: bool, path: Option<String>) -> Option<ThreadObject> {
        let session = self.session?;
        let or_empty = |word: &Option<String>| word.clone().unwrap_or_default();
        Some(ThreadObject {
            id: format_session_id(session),
            name: self.name.as_ref().map(|name| name.as_str().to_owned()),
            preview: self.preview.clone(),
            status: self.thread_status(is_held),
            last_result: self.last_result_name().map(str::to_owned),
            source: self.thread_source(),
            ephemeral: false,
            archived: self.archived.is_some(),
            archived_at: self.archived.map(|at| at / 1_000),
            model_provider: or_empty(&self.provider),
            model: or_empty(&self.model),
            approval_mode: or_empty(&self.posture),
            sandbox: self.sandbox.clone().unwrap_or_else(|| "scope".to_owned()),
            cwd: self.cwd.clone(),
            path,
            git: self.origin.git.clone(),
            cli_version: self.origin.version.clone(),
            created_at: self.created / 1_000,
            updated_at: self.updated / 1_000,
            parent: self.origin.parent.clone(),
            from: self.origin.from.clone(),
            usage: self.usage.clone(),
            damaged: self.damaged.clone(),
        })
    }
}
