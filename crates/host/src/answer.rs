//! The one shape in which requests about threads are answered.
//!
//! Optional members are absent, not null; lists and `data` are always there. Golden JSON of every verb:
//! `every_verb_answers_as_documented`.

use minke_record::{ErrorCode, SessionId};
use minke_thread::Thread;
use serde::Serialize;
use serde_json::{Value, json};

use crate::fault::Fault;
use crate::request::{Override, ThreadName};

/// An answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Answer {
    pub thread_id: String,
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<Thread>,
    pub threads: Vec<Thread>,
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

impl Answer {
    pub(crate) fn new(session: SessionId, status: &'static str, data: Value) -> Answer {
        Answer { thread_id: id(session), status, data, ..Answer::default() }
    }

    /// With the thread, and what holds for it.
    #[must_use]
    pub(crate) fn with(mut self, thread: Thread) -> Answer {
        let known = |word: &str| (!word.is_empty()).then(|| word.to_owned());
        self.model = known(&thread.model);
        self.model_provider = known(&thread.model_provider);
        self.cwd = known(&thread.cwd);
        self.approval_policy = known(&thread.approval_mode);
        self.sandbox = known(&thread.sandbox);
        self.thread = Some(thread);
        self
    }

    pub(crate) fn value(&self) -> Result<Value, Fault> {
        serde_json::to_value(self)
            .map_err(|e| Fault::new(ErrorCode::Internal, format!("an answer cannot be written: {e}")))
    }
}

/// How an id is written.
pub(crate) fn id(session: SessionId) -> String {
    format!("s_{session}")
}

/// No thread has this id: the same for every verb and through every door.
pub(crate) fn missing(name: &ThreadName, over: &Override) -> Fault {
    let answer = Answer {
        thread_id: name.written(),
        status: "missing",
        approval_policy: over.approval_policy.map(|approval| approval.0.as_str().to_owned()),
        sandbox: over.sandbox.map(|sandbox| sandbox.as_str().to_owned()),
        data: json!({ "error": "thread not found" }),
        ..Answer::default()
    };
    let whole = serde_json::to_value(answer).ok().map(Box::new);
    Fault {
        code: ErrorCode::NotFound,
        message: format!("there is no thread {}", name.written()),
        answer: whole,
    }
}
