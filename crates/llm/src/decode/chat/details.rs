//! Reasoning in the form in which it is sent back (`reasoning_details`).
//!
//! A stream contains pieces. They are sent back joined, in their original order.

use serde_json::{Map, Value};

/// The details of the open thinking block.
#[derive(Debug, Default)]
pub(super) struct ReasoningDetails {
    list: Vec<Value>,
}

impl ReasoningDetails {
    pub(super) fn push_detail(&mut self, detail: &Value) {
        let joined = match (self.list.last_mut(), detail) {
            (Some(Value::Object(last)), Value::Object(piece)) if is_continuation(last, piece) => {
                append_piece(last, piece);
                true
            }
            _ => false,
        };
        if !joined {
            self.list.push(detail.clone());
        }
    }

    /// Returns all details as a JSON array and clears the list.
    pub(super) fn take_json(&mut self) -> Option<String> {
        let list = std::mem::take(&mut self.list);
        (!list.is_empty()).then(|| Value::Array(list).to_string())
    }
}

/// Returns the readable text of a detail.
pub(super) fn readable_text(detail: &Value) -> Option<&str> {
    let field = |name| detail.get(name).and_then(Value::as_str).filter(|text: &&str| !text.is_empty());
    field("text").or_else(|| field("summary"))
}

/// Returns whether a detail continues the previous one: the same type, index and name. Encrypted ones are
/// complete.
fn is_continuation(last: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let agree = |key: &str| match (last.get(key), piece.get(key)) {
        (Some(Value::Null) | None, _) | (_, Some(Value::Null) | None) => true,
        (Some(a), Some(b)) => a == b,
    };
    let readable =
        matches!(piece.get("type").and_then(Value::as_str), Some("reasoning.text" | "reasoning.summary"));
    readable && last.get("type") == piece.get("type") && agree("index") && agree("id")
}

/// Appends a piece: texts are concatenated, other values are replaced unless the new one is null.
fn append_piece(last: &mut Map<String, Value>, piece: &Map<String, Value>) {
    for (key, value) in piece {
        if let (Some(Value::String(text)), "text" | "summary", Value::String(more)) =
            (last.get_mut(key), key.as_str(), value)
        {
            text.push_str(more);
        } else if !(value.is_null() && last.contains_key(key)) {
            last.insert(key.clone(), value.clone());
        }
    }
}
