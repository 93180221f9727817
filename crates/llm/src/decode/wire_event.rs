//! Small JSON structures that every provider has in its own variant.
//!
//! Here: names of kinds, ids of calls, readable text. Elsewhere: values with varying types (`lenient`),
//! everything specific to one scheme. Invariant: two calls of a reply never have the same id (test below).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{StreamFrame, append_limited, parse_event, preview_text};
use crate::classify;
use crate::error::ProviderError;
use crate::settings::WireScheme;

/// The kind of an event and whether it is an error; other fields are ignored.
#[derive(Debug, Deserialize)]
pub(crate) struct EventHeader<'a> {
    #[serde(borrow, rename = "type", default)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(default)]
    pub(crate) error: Value,
}

/// Handles an event that could not be parsed as one of the `known` kinds; `problem` is the reason. It may be
/// an error, which has various structures, or an event of a new kind. Otherwise it is invalid.
pub(crate) fn handle_unreadable(
    frame: StreamFrame<'_>,
    problem: ProviderError,
    known: &[&str],
    scheme: WireScheme,
) -> Result<(), ProviderError> {
    let Ok(EventHeader { kind, error }) = parse_event(frame) else {
        if frame.name == "error" {
            let said = Value::String(preview_text(frame.data));
            return Err(classify::classify_error_json(
                scheme,
                None,
                &json!({ "error": { "message": said } }),
            ));
        }
        return Err(problem);
    };
    let kind = if kind.is_empty() { frame.name } else { &*kind };
    if kind == "error" || !error.is_null() {
        return Err(classify::classify_error_json(scheme, None, &parse_event(frame)?));
    }
    if known.contains(&kind) { Err(problem) } else { Ok(()) }
}

/// The ids of the calls of one reply.
#[derive(Debug, Default)]
pub(crate) struct CallIdSet {
    /// Each id with the number of its uses.
    uses: BTreeMap<String, u64>,
}

impl CallIdSet {
    /// Returns the provider's id if it is new, else a generated one.
    pub(crate) fn unique_id(&mut self, given: Option<&str>) -> String {
        let given = given.filter(|id| !id.is_empty()).unwrap_or("call");
        let mut id = given.to_owned();
        while self.uses.contains_key(&id) {
            let asked = self.uses.entry(given.to_owned()).or_default();
            *asked += 1;
            id = format!("{given}_{asked}");
        }
        self.uses.insert(id.clone(), 1);
        id
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.uses.is_empty()
    }
}

/// Returns a field of an object if it is a non-empty text.
pub(crate) fn text_field<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// Collects the readable texts in an unknown value, up to a limit.
pub(crate) fn collect_readable(value: &Value, text: &mut String) {
    match value {
        Value::String(piece) => append_limited(text, piece),
        Value::Array(members) => members.iter().for_each(|member| collect_readable(member, text)),
        Value::Object(fields) => {
            for name in READABLE_FIELDS {
                if let Some(found) = fields.get(name) {
                    collect_readable(found, text);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Fields with readable content, in all formats.
const READABLE_FIELDS: [&str; 13] = [
    "name",
    "text",
    "content",
    "input",
    "arguments",
    "output",
    "result",
    "stdout",
    "stderr",
    "code",
    "query",
    "title",
    "error",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_unique() {
        let mut ids = CallIdSet::default();
        let given = [
            Some("a"),
            None,
            Some("a"),
            Some(""),
            Some("call_3"),
            None,
            Some("a_2"),
            Some("a"),
            Some("a"),
            None,
        ];
        let taken: Vec<String> = given.into_iter().map(|id| ids.unique_id(id)).collect();
        let mut distinct = taken.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), taken.len(), "{taken:?}");
        assert_eq!(taken.first().map(String::as_str), Some("a"));
    }

    #[test]
    fn texts_are_found_and_bounded() {
        let mut text = String::new();
        collect_readable(
            &serde_json::json!({"type": "x", "content": [{"text": "found"}], "id": "hidden"}),
            &mut text,
        );
        assert_eq!(text, "found");
        collect_readable(&Value::String("é".repeat(super::super::MAX_UNKNOWN_BYTES)), &mut text);
        assert!(text.len() <= super::super::MAX_UNKNOWN_BYTES);
    }
}
