//! Seen: one request as it is logged, without its secrets.

use std::collections::BTreeMap;

use hyper::HeaderMap;
use hyper::header::HeaderName;
use serde::Serialize;

use crate::settings::Scheme;

/// Headers whose values are never written down.
const SECRET: [&str; 6] =
    ["authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie", "proxy-authorization"];
/// What stands for such a value.
const HIDDEN: &str = "[hidden]";
/// Characters of a header's value, a path or a problem that are shown.
const SHOWN_CHARS: usize = 500;

/// One request, as a line of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Seen {
    /// Milliseconds since 1970.
    pub time: u64,
    pub method: String,
    /// Without its query, which may hold anything.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheme: Option<Scheme>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether a key came with it.
    pub key: bool,
    pub stream: bool,
    pub messages: usize,
    /// Pieces of reasoning that came back; where the format signs them, with a good signature.
    pub reasoning: usize,
    /// Images that came, of the user and of results.
    pub images: usize,
    /// The turn of the script that answers, from 1.
    pub turn: Option<usize>,
    /// Attempts of the same request before this one.
    pub attempt: u32,
    pub status: u16,
    /// Why it was refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    pub headers: BTreeMap<String, String>,
}

impl Seen {
    /// Takes down the headers, and whether one of them is a key.
    pub(super) fn take_headers(&mut self, headers: &HeaderMap) {
        for (name, value) in headers {
            let secret = is_secret(name);
            self.key |= secret && name != hyper::header::COOKIE;
            let shown =
                if secret { HIDDEN.to_owned() } else { bounded(&String::from_utf8_lossy(value.as_bytes())) };
            self.headers.insert(name.as_str().to_owned(), shown);
        }
    }
}

/// Anything that sounds like one is taken for a secret.
fn is_secret(name: &HeaderName) -> bool {
    let name = name.as_str();
    SECRET.contains(&name) || ["key", "token", "secret"].iter().any(|word| name.contains(word))
}

pub(super) fn bounded(text: &str) -> String {
    text.chars().take(SHOWN_CHARS).collect()
}
