//! One logged request, without its secrets.

use std::collections::BTreeMap;

use hyper::HeaderMap;
use hyper::header::HeaderName;
use serde::Serialize;

use minke_llm::WireScheme;

/// Headers whose values are not logged.
const SECRET_HEADERS: [&str; 6] =
    ["authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization"];
/// Replaces such a value.
const REDACTED: &str = "[hidden]";
/// The longest logged header value, path or problem.
const MAX_SHOWN_CHARS: usize = 500;

/// One request, as a line of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct LoggedRequest {
    /// Milliseconds since 1970.
    pub time: u64,
    pub method: String,
    /// Without the query, which may contain secrets.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<WireScheme>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether the request had a key.
    pub key: bool,
    pub stream: bool,
    pub messages: usize,
    /// Number of reasoning parts, with a valid signature where the format signs them.
    pub reasoning: usize,
    /// Number of images in messages and results.
    pub images: usize,
    /// The turn of the script that answers, from 1.
    pub turn: Option<usize>,
    /// Earlier attempts of the same request.
    pub attempt: u32,
    pub status: u16,
    /// Why the request was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub headers: BTreeMap<String, String>,
}

impl LoggedRequest {
    /// Records the headers and whether one of them is a key.
    pub(crate) fn record_headers(&mut self, headers: &HeaderMap) {
        for (name, value) in headers {
            let secret = is_secret_header(name);
            self.key |= secret && name != hyper::header::COOKIE;
            let shown = if secret {
                REDACTED.to_owned()
            } else {
                truncate_text(&String::from_utf8_lossy(value.as_bytes()))
            };
            self.headers.insert(name.as_str().to_owned(), shown);
        }
    }
}

/// Returns whether the name suggests a secret.
fn is_secret_header(name: &HeaderName) -> bool {
    let name = name.as_str();
    SECRET_HEADERS.contains(&name) || ["key", "token", "secret"].iter().any(|word| name.contains(word))
}

pub(crate) fn truncate_text(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}
