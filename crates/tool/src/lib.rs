//! Tool: the contract of a tool.
//!
//! Here: the `Tool` trait and its types. Elsewhere: the built-in tools (`tools`), permission to call them
//! (`policy`), scheduling of calls (`pod`). Policy, scheduler and sandbox use only the `Action`, never the
//! name of a tool.

mod command_events;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use minke_record::{Action, CallId, Class, InternalCall, Preview, Scope, ToolSpec};

pub use command_events::{CommandEnd, CommandEvent, CommandEventSink, OutputStream};

/// The time limit of a call, unless its tool sets another one.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);

/// The working directory and scope of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolContext {
    pub cwd: PathBuf,
    pub scope: Scope,
}

/// One running call: its id, its context and the sink for the events of its commands.
#[derive(Clone)]
pub struct ToolInvocation {
    pub id: CallId,
    pub context: Arc<ToolContext>,
    pub events: CommandEventSink,
    /// Variables for the command of the call, which override all others. Their values are secret.
    pub env: Arc<BTreeMap<String, String>>,
}

impl ToolInvocation {
    /// Creates a call without extra variables.
    pub fn new(
        id: impl Into<CallId>,
        place: impl Into<Arc<ToolContext>>,
        events: CommandEventSink,
    ) -> ToolInvocation {
        ToolInvocation { id: id.into(), context: place.into(), events, env: Arc::default() }
    }
}

/// The result of a call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// Always part of the context, at most `limits::SUMMARY_BYTES`.
    pub summary: String,
    pub content: Option<String>,
    /// Images for the model.
    pub images: Vec<ToolImage>,
    /// A file in the pod's `output` directory with the complete output, if `content` is only a part of it.
    pub full_output: Option<PathBuf>,
}

/// An image with its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolImage {
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// The change that a call would make, and the file that it would replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallPreview {
    pub preview: Preview,
    /// The current file, if it exists.
    pub before: Option<FileSnapshot>,
    /// The outermost directory that the call would create.
    pub missing_dir: Option<PathBuf>,
}

/// A file before a call changes it, for undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSnapshot {
    pub mode: u32,
    pub content: Vec<u8>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolError {
    /// The arguments are invalid; the text quotes the problem.
    InvalidArguments(String),
    /// The execution failed; the text names the action, its target, the reason and a remedy.
    ExecutionFailed(String),
    /// The call exceeded its time limit and was stopped; `output` is its partial output.
    TimedOut { after: Duration, output: ToolOutput },
    /// A bug in Minke.
    Internal(String),
}

impl ToolError {
    pub fn message(&self) -> &str {
        match self {
            ToolError::InvalidArguments(text)
            | ToolError::ExecutionFailed(text)
            | ToolError::Internal(text) => text,
            ToolError::TimedOut { output, .. } => &output.summary,
        }
    }
}

/// A running call. Dropping it stops waiting. Processes that it started end with their process group.
pub type ToolFuture = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;

/// A tool that a model may call.
pub trait Tool: Send + Sync {
    /// Name, description and argument schema for the model.
    fn spec(&self) -> ToolSpec;

    /// Returns how to treat a call whose result is unknown after a crash.
    fn class(&self) -> Class;

    /// Returns the action of a call with these arguments (JSON text of the model). Pure: has no access to
    /// files or processes.
    fn prepare(&self, arguments: &str, place: &ToolContext) -> Result<Action, ToolError>;

    /// Returns the internal call for calls that change only the log of the pod. Such a call never runs. Pure,
    /// like `prepare`.
    fn internal_call(&self, _arguments: &str) -> Result<Option<InternalCall>, ToolError> {
        Ok(None)
    }

    /// Returns the change that the call would make. Only reads, and only inside the scope.
    fn preview(
        &self,
        _arguments: &str,
        _action: &Action,
        _place: &ToolContext,
    ) -> Result<Option<CallPreview>, ToolError> {
        Ok(None)
    }

    /// Returns the time limit of a call with these arguments.
    fn timeout(&self, _arguments: &str) -> Duration {
        DEFAULT_TIMEOUT
    }

    /// Runs the call.
    fn execute(&self, arguments: &str, call: &ToolInvocation) -> ToolFuture;
}
