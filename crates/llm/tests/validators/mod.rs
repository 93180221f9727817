//! Validators: one for each scheme, written from its public format, as strict as its strictest server.
//!
//! Each reads a whole request and gives the first thing that is wrong with it, with its place. They know nothing of the
//! builders. That they can fail is shown by `tests/requests.rs`, which breaks good requests in many ways.

#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod anthropic;
pub(crate) mod broken;
pub(crate) mod chat;
pub(crate) mod gemini;
pub(crate) mod histories;
pub(crate) mod responses;
pub(crate) mod story;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_llm::{Scheme, Settings};
use serde_json::{Map, Value};

/// What is wrong, and where.
pub(crate) type Verdict<T = ()> = Result<T, String>;

/// Whether the scheme takes the request.
pub(crate) fn validate(request: &Value, settings: &Settings) -> Verdict {
    match settings.scheme {
        Scheme::Anthropic => anthropic::validate(request),
        Scheme::OpenaiResponses => responses::validate(request),
        Scheme::OpenaiChat => chat::validate(request, &settings.quirks),
        Scheme::Gemini => gemini::validate(request, settings.quirks.call_signatures),
        Scheme::Scripted => Err("scripted has no requests".to_owned()),
    }
}

/// An object that has all of `required` and nothing beside them but `optional`.
pub(crate) fn object<'v>(
    value: &'v Value,
    at: &str,
    required: &[&str],
    optional: &[&str],
) -> Verdict<&'v Map<String, Value>> {
    let map = value.as_object().ok_or_else(|| format!("{at}: not an object"))?;
    if let Some(missing) = required.iter().find(|key| !map.contains_key(**key)) {
        return Err(format!("{at}: `{missing}` is missing"));
    }
    match map.keys().find(|key| !required.contains(&key.as_str()) && !optional.contains(&key.as_str())) {
        Some(other) => Err(format!("{at}: `{other}` is not a field")),
        None => Ok(map),
    }
}

pub(crate) fn list<'v>(value: &'v Value, at: &str) -> Verdict<&'v [Value]> {
    match value.as_array() {
        Some(list) if !list.is_empty() => Ok(list),
        Some(_) => Err(format!("{at}: an empty list")),
        None => Err(format!("{at}: not a list")),
    }
}

pub(crate) fn text<'v>(value: &'v Value, at: &str) -> Verdict<&'v str> {
    value.as_str().ok_or_else(|| format!("{at}: not a text"))
}

/// A text that says something.
pub(crate) fn words<'v>(value: &'v Value, at: &str) -> Verdict<&'v str> {
    let text = text(value, at)?;
    if text.trim().is_empty() { Err(format!("{at}: an empty text")) } else { Ok(text) }
}

pub(crate) fn number(value: &Value, at: &str, least: u64) -> Verdict<u64> {
    match value.as_u64() {
        Some(number) if number >= least => Ok(number),
        Some(number) => Err(format!("{at}: {number} is less than {least}")),
        None => Err(format!("{at}: not a whole number")),
    }
}

pub(crate) fn flag(value: &Value, at: &str) -> Verdict<bool> {
    value.as_bool().ok_or_else(|| format!("{at}: not true or false"))
}

pub(crate) fn one_of<'v>(value: &'v Value, at: &str, words: &[&str]) -> Verdict<&'v str> {
    let word = text(value, at)?;
    if words.contains(&word) { Ok(word) } else { Err(format!("{at}: `{word}` is none of {words:?}")) }
}

/// A tool's name: all schemes take this.
pub(crate) fn tool_name<'v>(value: &'v Value, at: &str) -> Verdict<&'v str> {
    let name = text(value, at)?;
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if plain && (1..=64).contains(&name.len()) {
        Ok(name)
    } else {
        Err(format!("{at}: `{name}` is no tool name"))
    }
}

/// A call's id of at most `longest` characters.
pub(crate) fn call_id<'v>(value: &'v Value, at: &str, longest: usize) -> Verdict<&'v str> {
    let id = text(value, at)?;
    if id.is_empty() || id.len() > longest || !id.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(format!("{at}: `{id}` is no id"));
    }
    Ok(id)
}

pub(crate) fn base64(value: &Value, at: &str, longest: usize) -> Verdict {
    let data = text(value, at)?;
    let bytes = BASE64_STANDARD.decode(data).map_err(|e| format!("{at}: not base64: {e}"))?;
    if bytes.is_empty() || data.len() > longest {
        Err(format!("{at}: {} bytes", bytes.len()))
    } else {
        Ok(())
    }
}

/// A schema of a tool's arguments.
pub(crate) fn schema(value: &Value, at: &str) -> Verdict {
    let map = value.as_object().ok_or_else(|| format!("{at}: not an object"))?;
    match map.get("type").and_then(Value::as_str) {
        Some("object") => Ok(()),
        _ => Err(format!("{at}: its type is not `object`")),
    }
}

/// A text that holds a JSON object.
pub(crate) fn arguments(value: &Value, at: &str) -> Verdict {
    match serde_json::from_str::<Value>(text(value, at)?) {
        Ok(Value::Object(_)) => Ok(()),
        Ok(_) => Err(format!("{at}: JSON, but not an object")),
        Err(e) => Err(format!("{at}: not JSON: {e}")),
    }
}

/// An image in an URL.
pub(crate) fn data_url(value: &Value, at: &str) -> Verdict {
    let url = text(value, at)?;
    let (kind, data) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
        .ok_or_else(|| format!("{at}: not a data URL"))?;
    one_of(&Value::from(kind), at, &["image/png", "image/jpeg", "image/gif", "image/webp"])?;
    base64(&Value::from(data), at, 30_000_000)
}
