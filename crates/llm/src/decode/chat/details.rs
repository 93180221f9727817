//! Details: reasoning in the form in which it is to be sent back (`reasoning_details`).
//!
//! A stream brings them in pieces; sent back they are whole, in the order in which they came.

use serde_json::{Map, Value};

/// The details of the thinking block that is open.
#[derive(Debug, Default)]
pub(super) struct Details {
    list: Vec<Value>,
}

impl Details {
    pub(super) fn add(&mut self, detail: &Value) {
        let joined = match (self.list.last_mut(), detail) {
            (Some(Value::Object(last)), Value::Object(piece)) if continues(last, piece) => {
                join(last, piece);
                true
            }
            _ => false,
        };
        if !joined {
            self.list.push(detail.clone());
        }
    }

    /// All of them as one JSON array; then there are none.
    pub(super) fn take(&mut self) -> Option<String> {
        let list = std::mem::take(&mut self.list);
        (!list.is_empty()).then(|| Value::Array(list).to_string())
    }
}

/// What a person can read of a detail.
pub(super) fn readable(detail: &Value) -> Option<&str> {
    let field = |name| detail.get(name).and_then(Value::as_str).filter(|text: &&str| !text.is_empty());
    field("text").or_else(|| field("summary"))
}

/// Whether a detail is a further piece of the one before: the same type, place and name. Encrypted ones come whole.
fn continues(last: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let agree = |key: &str| match (last.get(key), piece.get(key)) {
        (Some(Value::Null) | None, _) | (_, Some(Value::Null) | None) => true,
        (Some(a), Some(b)) => a == b,
    };
    let readable =
        matches!(piece.get("type").and_then(Value::as_str), Some("reasoning.text" | "reasoning.summary"));
    readable && last.get("type") == piece.get("type") && agree("index") && agree("id")
}

/// Adds a piece: texts grow, everything else is what came last; nothing does not replace something.
fn join(last: &mut Map<String, Value>, piece: &Map<String, Value>) {
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
