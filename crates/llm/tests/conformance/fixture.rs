//! The recorded bodies: found by listing their folders, never by name.

use std::path::{Path, PathBuf};

use minke_llm::Scheme;
use serde_json::Value;

use super::common;

/// One recorded response.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) scheme: Scheme,
    /// Folder and file, for messages.
    pub(crate) name: String,
    pub(crate) body: Vec<u8>,
    pub(crate) status: u16,
    /// What the SDK read; null where nobody asked it (the turns of loops).
    pub(crate) expected: Value,
}

impl Fixture {
    /// Whether it is an event stream; else it is one JSON body, or an array of events.
    pub(crate) fn is_sse(&self) -> bool {
        self.name.ends_with(".sse") && !matches!(self.first_byte(), Some(b'{' | b'['))
    }

    fn first_byte(&self) -> Option<u8> {
        self.body.iter().copied().find(|byte| !byte.is_ascii_whitespace())
    }

    /// The body as text; all recorded ones are.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    /// The payloads of the stream, read without the decoder under test: good enough for recorded bodies, which have
    /// one data line an event.
    pub(crate) fn payloads(&self) -> Vec<Value> {
        if let Ok(Value::Array(all)) = serde_json::from_str(self.text()) {
            return all;
        }
        if let Ok(one) = serde_json::from_str(self.text()) {
            return vec![one];
        }
        let data = self.text().lines().filter_map(|line| line.strip_prefix("data:"));
        data.filter_map(|data| serde_json::from_str(data.trim()).ok()).collect()
    }
}

fn folder(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Anthropic => "anthropic",
        Scheme::OpenaiResponses => "openai-responses",
        Scheme::OpenaiChat => "openai-chat",
        Scheme::Gemini => "gemini",
        Scheme::Scripted => panic!("nobody recorded scripted"),
    }
}

/// All bodies of a scheme: those that an SDK has read, and the turns of whole loops.
pub(crate) fn all(scheme: Scheme) -> Vec<Fixture> {
    let mut found = compared(scheme);
    let place = common::providers().join("loops").join(folder(scheme));
    for turns in if place.is_dir() { sorted(&place) } else { Vec::new() } {
        for path in sorted(&turns).iter().filter(|path| is_body(path)) {
            let name = path.strip_prefix(&place).unwrap_or(path).display();
            let (name, body) = (format!("loops/{name}"), read(path));
            found.push(Fixture { scheme, name, body, status: 200, expected: Value::Null });
        }
    }
    found
}

/// The bodies with what an SDK read from them. None at all is a failure: a suite that finds nothing proves nothing.
pub(crate) fn compared(scheme: Scheme) -> Vec<Fixture> {
    let folder = folder(scheme);
    let root = common::providers();
    let mut found = Vec::new();
    for kind in ["", "-reframed", "-derived"] {
        let place = root.join(format!("{folder}{kind}"));
        if place.is_dir() {
            read_folder(&place, scheme, &mut found);
        }
    }
    assert!(!found.is_empty(), "no fixtures of {folder} in {}", root.display());
    found
}

fn read_folder(place: &Path, scheme: Scheme, found: &mut Vec<Fixture>) {
    let index = place.join("index.json");
    let index = if index.is_file() { read_json(&index) } else { Value::Null };
    for path in sorted(place).iter().filter(|path| is_body(path)) {
        let file = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8").to_owned();
        let entry = index.as_array().into_iter().flatten().find(|entry| entry["file"] == *file);
        let expected = read_json(&path.with_extension("expected.json"));
        let status =
            entry.and_then(|entry| entry["status"].as_u64()).or(expected["error"]["status"].as_u64());
        found.push(Fixture {
            scheme,
            name: format!("{}/{file}", place.file_name().and_then(|name| name.to_str()).unwrap_or_default()),
            body: read(path),
            status: u16::try_from(status.unwrap_or(200)).expect("a status"),
            expected,
        });
    }
}

fn sorted(place: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place).unwrap_or_else(|e| panic!("{}: {e}", place.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn is_body(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let helper = name == "index.json" || name.ends_with(".expected.json") || name.ends_with(".request.json");
    (name.ends_with(".sse") || name.ends_with(".json")) && !helper
}

fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
