//! The common form of responses to thread requests.
//!
//! Optional members are absent, not null; lists and `data` are always present. Golden JSON of every verb:
//! `every_verb_answers_as_documented`.

use minke_record::{ErrorCode, SessionId};
use minke_thread::ThreadObject;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::request::{RequestOverrides, ThreadName};

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ThreadResponse {
    pub thread_id: String,
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<ThreadObject>,
    pub threads: Vec<ThreadObject>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    pub events: Vec<Value>,
    pub data: Value,
}

impl ThreadResponse {
    pub(crate) fn new(session: SessionId, status: &'static str, data: Value) -> ThreadResponse {
        ThreadResponse { thread_id: format_session_id(session), status, data, ..ThreadResponse::default() }
    }

    /// Adds the thread and the notes about it.
    #[must_use]
    pub(crate) fn with_thread(mut self, thread: ThreadObject) -> ThreadResponse {
        let non_empty = |word: &str| (!word.is_empty()).then(|| word.to_owned());
        self.model = non_empty(&thread.model);
        self.model_provider = non_empty(&thread.model_provider);
        self.cwd = non_empty(&thread.cwd);
        self.approval_policy = non_empty(&thread.approval_mode);
        self.sandbox = non_empty(&thread.sandbox);
        self.thread = Some(thread);
        self
    }

    pub(crate) fn to_value(&self) -> Result<Value, ApiError> {
        serde_json::to_value(self)
            .map_err(|e| ApiError::new(ErrorCode::Internal, format!("could not serialize the response: {e}")))
    }
}

/// Returns a session id as clients see it.
pub(crate) fn format_session_id(session: SessionId) -> String {
    format!("s_{session}")
}

/// Returns the error for an unknown thread, which is the same for every verb and transport.
pub(crate) fn missing_thread_error(name: &ThreadName, over: &RequestOverrides) -> ApiError {
    let answer = ThreadResponse {
        thread_id: name.to_text(),
        status: "missing",
        approval_policy: over.approval_policy.map(|approval| approval.0.as_str().to_owned()),
        sandbox: over.sandbox.map(|sandbox| sandbox.as_str().to_owned()),
        data: json!({ "error": "thread not found" }),
        ..ThreadResponse::default()
    };
    let full_response = serde_json::to_value(answer).ok().map(Box::new);
    ApiError {
        code: ErrorCode::NotFound,
        message: format!("there is no thread {}", name.to_text()),
        response: full_response,
    }
}
