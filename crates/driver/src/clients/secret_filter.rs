//! Secret filter: rejects client input that must not be logged.
//!
//! Here: a line that contains the value of a known secret is refused, whatever its method; text that only
//! looks like a secret raises an alert. Elsewhere: the known secrets (`secrets`), tool output (`calls`).
//! Invariant: no part of a refused line reaches the event loop
//! (`input_that_holds_a_secret_is_refused_and_not_logged`).

use std::sync::Arc;

use minke_protocol::{ClientRequest, Method, Refusal, RequestError};
use minke_record::{ErrorCode, InputSegment};
use minke_secrets::KeyRedactor;

use crate::calls::secret_alerts::SecretAlerts;
use crate::clients::log_reader::SessionReader;

/// Longer lines are searched on another thread.
const LONG_LINE_BYTES: usize = 256 * 1024;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct SecretFilter {
    pub(crate) redactor: Arc<KeyRedactor>,
    pub(crate) alerts: SecretAlerts,
}

impl SecretFilter {
    /// The names of the secrets in a line, or the reason why the search failed.
    pub(crate) async fn find_secrets(
        &self,
        line: &str,
        session_reader: &SessionReader,
    ) -> Result<Vec<String>, String> {
        if line.len() <= LONG_LINE_BYTES
            && let Some(names) = self.redactor.try_names_in(line.as_bytes())
        {
            return Ok(names);
        }
        let (redactor, line) = (Arc::clone(&self.redactor), line.to_owned());
        session_reader
            .run_blocking(move |_| redactor.names_in(line.as_bytes()).map_err(|e| e.to_string()))
            .await
    }

    /// Raises an alert for text that looks like a secret.
    pub(crate) async fn alert_secrets(&self, input: &[InputSegment]) {
        for segment in input {
            if let InputSegment::Text { content } | InputSegment::Paste { content, .. } = segment {
                self.alerts.check_text(content.inline().unwrap_or_default(), "your input").await;
            }
        }
    }
}

/// Replaces a request by a refusal if its line contains, or may contain, secrets. The refusal does not repeat
/// the request.
pub(crate) fn filter_request(
    parsed: Result<ClientRequest, RequestError>,
    secrets: Result<Vec<String>, String>,
) -> Result<ClientRequest, RequestError> {
    let (id, method) = match parsed {
        Ok(ClientRequest { id, method }) => (id, Some(method)),
        Err(bad) if secrets.is_err() => return Err(bad),
        Err(bad) => (bad.id, None),
    };
    let message = match (secrets, method) {
        // Methods that add no text to the log are allowed.
        (Err(_), Some(method)) if !carries_text(&method) => return Ok(ClientRequest { id, method }),
        (Err(why), _) => format!("could not check the request for secrets, so it was refused: {why}"),
        (Ok(names), _) => format!(
            "the request was refused and not logged: it contains the secret {}. Leave the value out; a command \
             gets it by its variable (`sandbox.env.pass`) or reads it from a file in scope",
            names.join(" and ")
        ),
    };
    Err(RequestError { id, refusal: Refusal::new(ErrorCode::InvalidRequest, message) })
}

fn carries_text(method: &Method) -> bool {
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
