//! The backend of the UI: requests to the program that knows sessions, pods and models.
//!
//! All access beyond one pod's socket uses this trait, so that the UI can be tested without a terminal or
//! pods.

use std::path::PathBuf;
use std::pin::Pin;

use minke_protocol::{Completions, ListCompletions};
use minke_record::{AskId, Decision, InputSegment, Item, Millis, SessionId};
use minke_view::PodRow;

use crate::panes::{AskRow, ThreadRow};

/// A request to the backend.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendRequest {
    /// Returns the pod of a session; starts it if necessary.
    OpenPod(SessionId),
    /// Creates a session in this directory with a first input, and starts its pod. `model: None` uses the
    /// configured model.
    Launch {
        input: Vec<InputSegment>,
        model: Option<String>,
        place: WorkTarget,
    },
    /// Lists running and known pods.
    Pods,
    /// Lists threads, or searches for words in them. `everywhere` includes other directories.
    Threads {
        words: String,
        everywhere: bool,
    },
    /// Returns completions for a new pod in this directory.
    Complete(ListCompletions),
    /// Lists the available models.
    Models,
    /// Returns suggestions for new users.
    FirstRun,
    /// Forks a session at its end.
    Fork(SessionId),
    /// Returns the history before a fork.
    ForkHistory(SessionId),
    Archive(SessionId),
    /// Stops the pod; its session remains.
    Stop(SessionId),
    /// Moves a session out of the archive.
    Unarchive(SessionId),
    /// Pauses the run of a pod at a safe point.
    PausePod(SessionId),
    /// Resumes a paused run.
    ResumePod(SessionId),
    Rename {
        session: SessionId,
        name: String,
    },
    /// Sends an input to a pod that is not attached; it waits while a run is active.
    Message {
        session: SessionId,
        input: Vec<InputSegment>,
    },
    /// Lists the open asks of all pods. `everywhere` includes sessions without a running pod, which takes
    /// longer.
    Asks {
        everywhere: bool,
    },
    AnswerAsk {
        session: SessionId,
        ask: AskId,
        decision: Decision,
        note: Option<String>,
    },
    /// Returns the last input and the last reply of a thread.
    Preview(SessionId),
    /// Lists models of responding local servers.
    LocalModels,
    /// Returns the rules for the session or the current directory; with a line, the decision for that
    /// command.
    Policy {
        session: Option<SessionId>,
        line: Option<String>,
    },
    /// Lists the skills and workflows for the session or the current directory.
    Skills(Option<SessionId>),
    Doctor,
    /// Exports the conversation to a file.
    Export {
        session: SessionId,
        file: Option<String>,
    },
    /// Runs the tour, which takes over the terminal.
    Tour,
    /// Saves the model for all new sessions.
    SetModel(String),
}

/// A response of the backend.
#[derive(Debug, Clone, PartialEq)]
pub enum BackendResponse {
    PodOpened {
        session: SessionId,
        name: String,
        socket: PathBuf,
    },
    Pods(Vec<PodRow>),
    Threads(Vec<ThreadRow>),
    Completions(Completions),
    Models(Vec<ModelLine>),
    FirstRun(FirstRun),
    /// Another pod has write access to the directory of the new session.
    ScopeHeld(ScopeHolder),
    Asks {
        rows: Vec<AskRow>,
        /// Unreadable logs with the error.
        unreadable_logs: Vec<String>,
    },
    Preview(ThreadPreview),
    LocalModels(Vec<ModelLine>),
    Skills(Vec<SkillLine>),
    Text {
        title: String,
        lines: Vec<String>,
    },
    Forked(SessionId),
    ForkHistory(Vec<Item>),
    /// Done; contains the message for the user.
    Done(String),
}

/// Why a request failed, with a hint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendError {
    pub message: String,
    pub hint: Option<String>,
}

impl std::fmt::Display for BackendError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

/// Where a new session works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkTarget {
    /// In the directory with write access.
    #[default]
    CurrentDir,
    /// In the directory without write access.
    ReadOnly,
    /// In a clone of the workspace.
    Clone,
}

/// The pod that has write access to a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopeHolder {
    pub session: SessionId,
    pub name: String,
    /// Describes its scope and its activity.
    pub description: String,
}

/// The end of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPreview {
    pub session: SessionId,
    pub last_input: String,
    pub last_reply: String,
}

/// A skill or a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillLine {
    pub name: String,
    pub description: String,
    /// Its kind and origin.
    pub source: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelLine {
    pub reference: String,
    /// Whether the model can be used now.
    pub is_ready: bool,
    /// A note; for an unavailable model, how to set it up.
    pub note: String,
}

/// Suggestions for the first start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FirstRun {
    /// The configured model for new pods.
    pub model: Option<String>,
    /// Available models: their key is set, or they need none.
    pub ready_models: Vec<ModelLine>,
    /// Providers without a key, and how to get one.
    pub missing_keys: Vec<ModelLine>,
}

/// Requests are asynchronous; the UI keeps running.
pub type BackendFuture<'a> = Pin<Box<dyn Future<Output = Result<BackendResponse, BackendError>> + 'a>>;

/// The program around the UI.
pub trait TuiBackend {
    fn send_request(&self, question: BackendRequest) -> BackendFuture<'_>;

    /// Resolves references in an input relative to the directory of the session.
    fn resolve_references(&self, session: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment>;

    /// Returns milliseconds since 1970.
    fn now_ms(&self) -> Millis;

    /// Returns the client description for pods.
    fn client_info(&self) -> minke_protocol::ClientInfo;
}
