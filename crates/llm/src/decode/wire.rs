//! Small pieces of JSON that all providers write, each in its own way.
//!
//! Here: names of kinds, ids of calls, what a person can read. Elsewhere: values of loose types (`loose`), everything
//! that belongs to one scheme.
//! Invariant: two calls of a reply never have the same id (test below).

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Frame, add_bounded, parse, preview};
use crate::classify;
use crate::problem::Problem;
use crate::settings::Scheme;

/// Only what sort of event it is, and whether it is an error; the rest may be anything.
#[derive(Debug, Deserialize)]
pub(crate) struct Kind<'a> {
    #[serde(borrow, rename = "type", default)]
    pub(crate) kind: Cow<'a, str>,
    #[serde(default)]
    pub(crate) error: Value,
}

/// An event that could not be read in the shape of those that we know (`known`): `problem` says why. It may be an error,
/// which has all sorts of shapes, or an event of a new kind, which may have any; else it is broken.
pub(crate) fn odd(frame: Frame<'_>, problem: Problem, known: &[&str], scheme: Scheme) -> Result<(), Problem> {
    let Ok(Kind { kind, error }) = parse(frame) else {
        if frame.name == "error" {
            let said = Value::String(preview(frame.data));
            return Err(classify::from_error_json(scheme, None, &json!({ "error": { "message": said } })));
        }
        return Err(problem);
    };
    let kind = if kind.is_empty() { frame.name } else { &*kind };
    if kind == "error" || !error.is_null() {
        return Err(classify::from_error_json(scheme, None, &parse(frame)?));
    }
    if known.contains(&kind) { Err(problem) } else { Ok(()) }
}

/// The ids of the calls of one reply.
#[derive(Debug, Default)]
pub(crate) struct CallIds {
    /// Each with how often it was asked for.
    taken: BTreeMap<String, u64>,
}

impl CallIds {
    /// The provider's id if it gave one that is new, else one of ours.
    pub(crate) fn take(&mut self, given: Option<&str>) -> String {
        let given = given.filter(|id| !id.is_empty()).unwrap_or("call");
        let mut id = given.to_owned();
        while self.taken.contains_key(&id) {
            let asked = self.taken.entry(given.to_owned()).or_default();
            *asked += 1;
            id = format!("{given}_{asked}");
        }
        self.taken.insert(id.clone(), 1);
        id
    }

    pub(crate) fn any(&self) -> bool {
        !self.taken.is_empty()
    }
}

/// A field of an object, if it is a text with something in it.
pub(crate) fn text_field<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// What a person could read in something that we do not know: its texts, bounded.
pub(crate) fn readable(value: &Value, text: &mut String) {
    match value {
        Value::String(piece) => add_bounded(text, piece),
        Value::Array(members) => members.iter().for_each(|member| readable(member, text)),
        Value::Object(fields) => {
            for name in READABLE {
                if let Some(found) = fields.get(name) {
                    readable(found, text);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Fields that hold what was said, called or found, in all formats.
const READABLE: [&str; 13] = [
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
        let mut ids = CallIds::default();
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
        let taken: Vec<String> = given.into_iter().map(|id| ids.take(id)).collect();
        let mut distinct = taken.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), taken.len(), "{taken:?}");
        assert_eq!(taken.first().map(String::as_str), Some("a"));
    }

    #[test]
    fn texts_are_found_and_bounded() {
        let mut text = String::new();
        readable(
            &serde_json::json!({"type": "x", "content": [{"text": "found"}], "id": "hidden"}),
            &mut text,
        );
        assert_eq!(text, "found");
        readable(&Value::String("é".repeat(super::super::UNKNOWN_BYTES)), &mut text);
        assert!(text.len() <= super::super::UNKNOWN_BYTES);
    }
}
