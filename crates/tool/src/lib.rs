//! Tool: what a tool is.
//!
//! Here: the contract. Elsewhere: the built-in tools (`tools`), who may call them (`policy`), when they run (`pod`).
//! The gate, the scheduler and the fence all work from the `Action`, never from a tool's name.

mod news;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use minke_record::{Action, CallId, Class, Own, Preview, Scope, ToolSpec};

pub use news::{CommandEnd, CommandNews, News, Stream};

/// The longest that a call may take, if its tool does not say otherwise.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Where a call takes place.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub cwd: PathBuf,
    pub scope: Scope,
}

/// One call on its way: which, where, and whom to tell what a command says while it runs.
#[derive(Clone)]
pub struct Call {
    pub id: CallId,
    pub place: Arc<Place>,
    pub news: News,
    /// Variables for the command that it runs, over all others; their values are nobody's to show.
    pub env: Arc<BTreeMap<String, String>>,
}

impl Call {
    /// One that brings no variables.
    pub fn new(id: impl Into<CallId>, place: impl Into<Arc<Place>>, news: News) -> Call {
        Call { id: id.into(), place: place.into(), news, env: Arc::default() }
    }
}

/// What a call came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolOutput {
    /// Always stays in the context; at most `limits::SUMMARY_BYTES`.
    pub summary: String,
    pub content: Option<String>,
    /// What the model is to see.
    pub images: Vec<Image>,
    /// A file of the pod's own `output` directory that holds all of what `content` shows a part of.
    pub rest: Option<PathBuf>,
}

/// An image, as its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub media_type: String,
    pub bytes: Vec<u8>,
}

/// What a call would change, and what it would replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Previewed {
    pub preview: Preview,
    /// The file as it is now; absent if there is none.
    pub before: Option<Before>,
    /// The outermost directory that would be made for it.
    pub missing: Option<PathBuf>,
}

/// A file as it is before a call changes it, for undo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Before {
    pub mode: u32,
    pub content: Vec<u8>,
}

/// Why a call did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolError {
    /// The arguments do not say something that can be done; the text quotes the problem.
    Invalid(String),
    /// It was tried and could not be done: what, on what, why, what to do.
    Failed(String),
    /// It ran out of its own time and was stopped; `said` is what it had come to.
    TimedOut { after: Duration, said: ToolOutput },
    /// We were wrong about our own code.
    Internal(String),
}

impl ToolError {
    pub fn message(&self) -> &str {
        match self {
            ToolError::Invalid(text) | ToolError::Failed(text) | ToolError::Internal(text) => text,
            ToolError::TimedOut { said, .. } => &said.summary,
        }
    }
}

/// A call on its way. Dropping it stops waiting for it; what it started in a process dies with its group.
pub type Running = Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send>>;

/// Something a model may call.
pub trait Tool: Send + Sync {
    /// Name, description and the schema of the arguments, as the model reads them.
    fn spec(&self) -> ToolSpec;

    /// What may be done when a call was started and its result is not known.
    fn class(&self) -> Class;

    /// What a call with these arguments (the model's JSON text) would touch. Pure: looks at nothing outside.
    fn prepare(&self, arguments: &str, place: &Place) -> Result<Action, ToolError>;

    /// What the pod's own mind is to do, if the call is one of those that change only its log; then it never runs.
    /// Pure, like `prepare`.
    fn own(&self, _arguments: &str) -> Result<Option<Own>, ToolError> {
        Ok(None)
    }

    /// What the call would change, found by reading only and only inside the scope.
    fn preview(
        &self,
        _arguments: &str,
        _action: &Action,
        _place: &Place,
    ) -> Result<Option<Previewed>, ToolError> {
        Ok(None)
    }

    /// How long a call with these arguments may take before it is stopped from outside.
    fn deadline(&self, _arguments: &str) -> Duration {
        DEADLINE
    }

    /// Does it.
    fn run(&self, arguments: &str, call: &Call) -> Running;
}
