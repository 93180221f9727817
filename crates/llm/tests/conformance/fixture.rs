//! The recorded bodies, found by listing their directories.

use std::path::{Path, PathBuf};

use minke_llm::WireScheme;
use serde_json::Value;

use super::common;

/// One recorded response.
#[derive(Clone)]
pub(crate) struct RecordedResponse {
    pub(crate) scheme: WireScheme,
    /// Directory and file name, for messages.
    pub(crate) name: String,
    pub(crate) body: Vec<u8>,
    pub(crate) status: u16,
    /// The result of the SDK; null if there is none (turns of loops).
    pub(crate) expected: Value,
}

impl RecordedResponse {
    /// Returns whether the body is an event stream; otherwise it is one JSON body or an array of events.
    pub(crate) fn is_sse(&self) -> bool {
        self.name.ends_with(".sse") && !matches!(self.first_byte(), Some(b'{' | b'['))
    }

    fn first_byte(&self) -> Option<u8> {
        self.body.iter().copied().find(|byte| !byte.is_ascii_whitespace())
    }

    /// Returns the body as text.
    pub(crate) fn body_text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// Returns the payloads of the stream without the decoder under test. Sufficient for the recorded bodies,
    /// which have one data line per event.
    pub(crate) fn event_payloads(&self) -> Vec<Value> {
        if let Ok(Value::Array(all)) = serde_json::from_str(self.body_text()) {
            return all;
        }
        if let Ok(one) = serde_json::from_str(self.body_text()) {
            return vec![one];
        }
        let data = self.body_text().lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
    }
}

fn scheme_folder(scheme: WireScheme) -> &'static str {
    match scheme {
        WireScheme::Anthropic => "anthropic",
        WireScheme::OpenaiResponses => "openai-responses",
        WireScheme::OpenaiChat => "openai-chat",
        WireScheme::Gemini => "gemini",
        WireScheme::Scripted => panic!("there are no recordings of scripted"),
    }
}

/// Returns all bodies of a scheme: those with an SDK result, and the turns of loops.
pub(crate) fn all_responses(scheme: WireScheme) -> Vec<RecordedResponse> {
    let mut found = responses_with_expectation(scheme);
    let dir = common::provider_fixtures().join("loops").join(scheme_folder(scheme));
    for turns in if dir.is_dir() { sorted_paths(&dir) } else { Vec::new() } {
        for path in sorted_paths(&turns).iter().filter(|path| is_body_file(path)) {
            let name = path.strip_prefix(&dir).unwrap_or(path).display();
            let (name, body) = (format!("loops/{name}"), read_bytes(path));
            found.push(RecordedResponse { scheme, name, body, status: 200, expected: Value::Null });
        }
    }
    found
}

/// Returns the bodies with an SDK result. Fails if there is none, because an empty suite proves nothing.
pub(crate) fn responses_with_expectation(scheme: WireScheme) -> Vec<RecordedResponse> {
    let folder = scheme_folder(scheme);
    let root = common::provider_fixtures();
    let mut found = Vec::new();
    for kind in ["", "-reframed", "-derived"] {
        let dir = root.join(format!("{folder}{kind}"));
        if dir.is_dir() {
            read_folder(&dir, scheme, &mut found);
        }
    }
    assert!(!found.is_empty(), "no fixtures of {folder} in {}", root.display());
    found
}

fn read_folder(place: &Path, scheme: WireScheme, found: &mut Vec<RecordedResponse>) {
    let index = place.join("index.json");
    let index = if index.is_file() { read_json(&index) } else { Value::Null };
    for path in sorted_paths(place).iter().filter(|path| is_body_file(path)) {
        let file = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8").to_owned();
        let entry = index.as_array().into_iter().flatten().find(|entry| entry["file"] == *file);
        let expected = read_json(&path.with_extension("expected.json"));
        let status =
            entry.and_then(|entry| entry["status"].as_u64()).or(expected["error"]["status"].as_u64());
        found.push(RecordedResponse {
            scheme,
            name: format!("{}/{file}", place.file_name().and_then(|name| name.to_str()).unwrap_or_default()),
            body: read_bytes(path),
            status: u16::try_from(status.unwrap_or(200)).expect("a status"),
            expected,
        });
    }
}

fn sorted_paths(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths
}

fn read_bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn is_body_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let helper = name == "index.json" || name.ends_with(".expected.json") || name.ends_with(".request.json");
    (name.ends_with(".sse") || name.ends_with(".json")) && !helper
}

fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
