//! Small pieces of JSON that all providers write, each in its own way.
//!
//! Here: names of kinds, ids of calls, what a person can read. Elsewhere: values of loose types (`loose`), everything
//! that belongs to one scheme.
//! Invariant: two calls of a reply never have the same id (test below).

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use super::add_bounded;

/// Only what sort of event it is; the rest may be anything.
#[derive(Debug, Deserialize)]
pub(crate) struct Kind<'a> {
    #[serde(borrow, rename = "type", default)]
    pub(crate) kind: Cow<'a, str>,
}

/// The ids of the calls of one reply.
#[derive(Debug, Default)]
pub(crate) struct CallIds {
    taken: Vec<String>,
}

impl CallIds {
    /// The provider's id if it gave one that is new, else one of ours.
    pub(crate) fn take(&mut self, given: Option<&str>) -> String {
        let given = given.filter(|id| !id.is_empty());
        let mut id = given.map_or_else(|| format!("call_{}", self.taken.len()), str::to_owned);
        let mut copies = 1;
        while self.taken.contains(&id) {
            copies += 1;
            id = format!("{}_{copies}", given.unwrap_or("call"));
        }
        self.taken.push(id.clone());
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
        let given = [Some("a"), None, Some("a"), Some(""), Some("call_3"), None, Some("a_2")];
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
