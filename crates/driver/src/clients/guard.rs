//! The guard at the door: what a client sends and must not be written down.
//!
//! Here: a line that holds a value of a known secret is refused, whatever its method; what only looks like a key is told.
//! Elsewhere: which values those are (`llm::Cover`), what tools bring in (`calls`).
//! Invariant: nothing of a refused line reaches the loop (`input_that_holds_a_secret_is_refused_and_not_logged`).

use std::sync::Arc;

use minke_llm::Cover;
use minke_protocol::{BadRequest, Method, Refusal, Request};
use minke_record::{ErrorCode, InputSegment};

use crate::library::Library;
use crate::noticed::Noticed;

/// A longer line is looked through on another thread.
const LONG: usize = 256 * 1024;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) cover: Arc<Cover>,
    pub(crate) noticed: Noticed,
}

impl Guard {
    /// The names of the secrets in a line, or why they could not be looked for.
    pub(crate) async fn secrets_in(&self, line: &str, library: &Library) -> Result<Vec<String>, String> {
        if line.len() <= LONG
            && let Some(names) = self.cover.names_at_once(line.as_bytes())
        {
            return Ok(names);
        }
        let (cover, line) = (Arc::clone(&self.cover), line.to_owned());
        library.off_loop(move |_| cover.names_in(line.as_bytes()).map_err(|e| e.to_string())).await
    }

    /// Tells of what looks like a key in what somebody says.
    pub(crate) async fn notice(&self, input: &[InputSegment]) {
        for segment in input {
            if let InputSegment::Text { content } | InputSegment::Paste { content, .. } = segment {
                self.noticed.look(content.here().unwrap_or_default(), "what you said").await;
            }
        }
    }
}

/// What becomes of a request in whose line there are secrets, or may be: its own words are not repeated to anybody.
pub(crate) fn guarded(
    parsed: Result<Request, BadRequest>,
    secrets: Result<Vec<String>, String>,
) -> Result<Request, BadRequest> {
    let (id, method) = match parsed {
        Ok(Request { id, method }) => (id, Some(method)),
        Err(bad) if secrets.is_err() => return Err(bad),
        Err(bad) => (bad.id, None),
    };
    let message = match (secrets, method) {
        // What brings no text into the log can go on.
        (Err(_), Some(method)) if !brings_text(&method) => return Ok(Request { id, method }),
        (Err(why), _) => format!("it was not taken, since keys in it could not be looked for: {why}"),
        (Ok(names), _) => format!(
            "it was not taken and nothing of it was logged: it holds the secret {}. Leave the value out; a command \
             gets it by its variable (`sandbox.env.pass`) or reads it from a file in scope",
            names.join(" and ")
        ),
    };
    Err(BadRequest { id, refusal: Refusal::new(ErrorCode::InvalidRequest, message) })
}

fn brings_text(method: &Method) -> bool {
    matches!(
        method,
        Method::Run(_)
            | Method::Notify(_)
            | Method::PodEvent(_)
            | Method::Answer(_)
            | Method::Compact(_)
            | Method::CallTool(_)
            | Method::Checkpoint(_)
            | Method::Set(_)
            | Method::Fork(_)
    )
}
