//! The thread as API clients get it: a summary, and whether somebody holds the session now.

use minke_record::{ActorKind, ForkedFrom, Git, Parent, SessionId, Usage};
use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// What a thread is doing; the first that fits, in the order of the specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThreadStatus {
    Waiting,
    Running,
    Interrupted,
    Paused,
    Idle,
}

/// Where a thread came from. Fixed at its creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
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
pub struct Thread {
    pub id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub preview: String,
    pub status: ThreadStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_result: Option<String>,
    pub source: Source,
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
    pub git: Option<Git>,
    pub cli_version: String,
    pub created_at: u64,
    pub updated_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ForkedFrom>,
    pub usage: Usage,
    /// Why the log cannot be read to its end, if it cannot: everything else here is of what stands before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// How an id is written.
pub(crate) fn written(session: SessionId) -> String {
    format!("s_{session}")
}

impl Summary {
    /// What the thread is doing. `held`: somebody has the session's lease.
    pub fn status(&self, held: bool) -> ThreadStatus {
        let last = self.last.as_ref().filter(|last| !last.abandoned);
        let interrupted = last.is_some_and(crate::Ended::is_interrupted);
        if self.waits().is_some() {
            ThreadStatus::Waiting
        } else if self.run.is_some() && held {
            ThreadStatus::Running
        } else if !held && (self.run.is_some() || interrupted) {
            ThreadStatus::Interrupted
        } else if last.is_some_and(crate::Ended::is_paused) || (interrupted && held) {
            ThreadStatus::Paused
        } else {
            ThreadStatus::Idle
        }
    }

    pub fn source(&self) -> Source {
        let Some(by) = &self.created_by else { return Source::Unknown };
        if self.from.is_some() {
            Source::Fork
        } else if self.parent.is_some() {
            Source::Pod
        } else if self.mandate.is_some() {
            Source::Job
        } else if by.surface.as_deref() == Some("host") {
            Source::Api
        } else if self.imported {
            Source::Resume
        } else if by.actor == ActorKind::Person {
            Source::Interactive
        } else {
            Source::Unknown
        }
    }

    /// The object, or `None` for a log without a beginning.
    pub fn thread(&self, held: bool, path: Option<String>) -> Option<Thread> {
        let session = self.session?;
        let or_empty = |word: &Option<String>| word.clone().unwrap_or_default();
        Some(Thread {
            id: written(session),
            name: self.name.as_ref().map(|name| name.as_str().to_owned()),
            preview: self.preview.clone(),
            status: self.status(held),
            last_result: self.last_result().map(str::to_owned),
            source: self.source(),
            ephemeral: false,
            archived: self.archived.is_some(),
            archived_at: self.archived.map(|at| at / 1_000),
            model_provider: or_empty(&self.provider),
            model: or_empty(&self.model),
            approval_mode: or_empty(&self.posture),
            sandbox: self.sandbox.clone().unwrap_or_else(|| "scope".to_owned()),
            cwd: self.cwd.clone(),
            path,
            git: self.git.clone(),
            cli_version: self.version.clone(),
            created_at: self.created / 1_000,
            updated_at: self.updated / 1_000,
            parent: self.parent.clone(),
            from: self.from.clone(),
            usage: self.usage.clone(),
            damaged: self.damaged.clone(),
        })
    }
}
