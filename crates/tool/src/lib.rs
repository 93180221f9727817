//! Tool: what a tool is.
//!
//! Here: the contract. Elsewhere: the built-in tools (`tools`), who may call them (`policy`), when they run (`pod`).
//! The gate, the scheduler and the fence all work from the `Action`, never from a tool's name.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

use minke_record::{Action, Class, Preview, Scope, ToolSpec};

/// Where a call takes place.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub cwd: PathBuf,
    pub scope: Scope,
}

/// What a call came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// Always stays in the context; at most `limits::SUMMARY_BYTES`.
    pub summary: String,
    pub content: Option<String>,
}

/// Why a call did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolError {
    /// The arguments do not say something that can be done; the text quotes the problem.
    Invalid(String),
    /// It was tried and could not be done: what, on what, why, what to do.
    Failed(String),
    /// We were wrong about our own code.
    Internal(String),
}

impl ToolError {
    pub fn message(&self) -> &str {
        match self {
            ToolError::Invalid(text) | ToolError::Failed(text) | ToolError::Internal(text) => text,
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

    /// What the call would change, found by reading only and only inside the scope.
    fn preview(
        &self,
        _arguments: &str,
        _action: &Action,
        _place: &Place,
    ) -> Result<Option<Preview>, ToolError> {
        Ok(None)
    }

    /// Does it.
    fn run(&self, arguments: &str, place: &Place) -> Running;
}
