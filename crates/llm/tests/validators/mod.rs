//! Validators: one for each scheme, written from its public format, as strict as its strictest server.
//!
//! Each parses a whole request and returns the first error with its location. They share no code with the
//! builders. `tests/requests.rs` breaks valid requests in many ways to show that they detect errors.

#![allow(dead_code, reason = "each test target uses a part")]

pub(crate) mod anthropic;
pub(crate) mod broken_requests;
pub(crate) mod chat;
pub(crate) mod gemini;
pub(crate) mod random_histories;
pub(crate) mod responses;
pub(crate) mod sample_history;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::{ModelSettings, WireScheme};
use serde_json::{Map, Value};

/// The error with its location.
pub(crate) type Validation<T = ()> = Result<T, String>;

/// Validates a request of any scheme.
pub(crate) fn validate_request(request: &Value, settings: &ModelSettings) -> Validation {
    match settings.scheme {
        WireScheme::Anthropic => anthropic::validate_request(request),
        WireScheme::OpenaiResponses => responses::validate_request(request),
        WireScheme::OpenaiChat => chat::validate_request(request, &settings.quirks),
        WireScheme::Gemini => gemini::validate_request(request, settings.quirks.call_signatures),
        WireScheme::Scripted => Err("scripted has no requests".to_owned()),
    }
}

/// Returns an object with all `required` fields and no others except `optional` ones.
pub(crate) fn required_object<'v>(
    value: &'v Value,
    at: &str,
    required: &[&str],
    optional: &[&str],
) -> Validation<&'v Map<String, Value>> {
    let map = value.as_object().ok_or_else(|| format!("{at}: not an object"))?;
    if let Some(missing) = required.iter().find(|key| !map.contains_key(**key)) {
        return Err(format!("{at}: `{missing}` is missing"));
    }
    match map.keys().find(|key| !required.contains(&key.as_str()) && !optional.contains(&key.as_str())) {
        Some(other) => Err(format!("{at}: `{other}` is not a field")),
        None => Ok(map),
    }
}

pub(crate) fn nonempty_list<'v>(value: &'v Value, at: &str) -> Validation<&'v [Value]> {
    match value.as_array() {
        Some(list) if !list.is_empty() => Ok(list),
        Some(_) => Err(format!("{at}: an empty list")),
        None => Err(format!("{at}: not a list")),
    }
}

pub(crate) fn json_text<'v>(value: &'v Value, at: &str) -> Validation<&'v str> {
    value.as_str().ok_or_else(|| format!("{at}: not a text"))
}

/// Returns a text that is not blank.
pub(crate) fn nonblank_text<'v>(value: &'v Value, at: &str) -> Validation<&'v str> {
    let text = json_text(value, at)?;
    if text.trim().is_empty() { Err(format!("{at}: an empty text")) } else { Ok(text) }
}

pub(crate) fn number_at_least(value: &Value, at: &str, least: u64) -> Validation<u64> {
    match value.as_u64() {
        Some(number) if number >= least => Ok(number),
        Some(number) => Err(format!("{at}: {number} is less than {least}")),
        None => Err(format!("{at}: not a whole number")),
    }
}

pub(crate) fn json_bool(value: &Value, at: &str) -> Validation<bool> {
    value.as_bool().ok_or_else(|| format!("{at}: not true or false"))
}

pub(crate) fn one_of_words<'v>(value: &'v Value, at: &str, words: &[&str]) -> Validation<&'v str> {
    let word = json_text(value, at)?;
    if words.contains(&word) { Ok(word) } else { Err(format!("{at}: `{word}` is not one of {words:?}")) }
}

/// A tool name that all schemes accept.
pub(crate) fn validate_tool_name<'v>(value: &'v Value, at: &str) -> Validation<&'v str> {
    let name = json_text(value, at)?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain && (1..=64).contains(&name.len()) {
        Ok(name)
    } else {
        Err(format!("{at}: `{name}` is not a tool name"))
    }
}

/// A call id of at most `longest` characters.
pub(crate) fn validate_call_id<'v>(value: &'v Value, at: &str, longest: usize) -> Validation<&'v str> {
    let id = json_text(value, at)?;
    if id.is_empty() || id.len() > longest || !id.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("{at}: `{id}` is not an id"));
    }
    Ok(id)
}

pub(crate) fn validate_base64(value: &Value, at: &str, longest: usize) -> Validation {
    let data = json_text(value, at)?;
    let bytes = BASE64_STANDARD.decode(data).map_err(|e| format!("{at}: not base64: {e}"))?;
    if bytes.is_empty() || data.len() > longest {
        Err(format!("{at}: {} bytes", bytes.len()))
    } else {
        Ok(())
    }
}

/// The schema of a tool's arguments.
pub(crate) fn validate_schema(value: &Value, at: &str) -> Validation {
    let map = value.as_object().ok_or_else(|| format!("{at}: not an object"))?;
    match map.get("type").and_then(Value::as_str) {
        Some("object") => Ok(()),
        _ => Err(format!("{at}: its type is not `object`")),
    }
}

/// A text with a JSON object.
pub(crate) fn validate_arguments(value: &Value, at: &str) -> Validation {
    match serde_json::from_str::<Value>(json_text(value, at)?) {
        Ok(Value::Object(_)) => Ok(()),
        Ok(_) => Err(format!("{at}: JSON, but not an object")),
        Err(e) => Err(format!("{at}: not JSON: {e}")),
    }
}

/// An image as a data URL.
pub(crate) fn validate_data_url(value: &Value, at: &str) -> Validation {
    let url = json_text(value, at)?;
    let (kind, data) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .ok_or_else(|| format!("{at}: not a data URL"))?;
    one_of_words(&Value::from(kind), at, &["image/png", "image/jpeg", "image/gif", "image/webp"])?;
    validate_base64(&Value::from(data), at, 30_000_000)
}
