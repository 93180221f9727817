//! What a file's format has no place for travels beside it: a member `minke` that other programs pass over.
//!
//! A line is written, read as anybody's line is read, and compared with what was meant. Where that differs, the line also
//! holds what was meant. So whatever a format can say is said in it, and nothing is lost on the way back.

use minke_record::limits::SUMMARY_BYTES;
use minke_record::{Item, hex};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::plain::cut;

/// The `type` of a line that holds an item which the format has no line for.
pub(crate) const OWN_LINE: &str = "minke";
/// The member that holds what a line could not say.
pub(crate) const OWN: &str = "minke";

/// What must stand beside a line that reads as `read`, where `meant` was meant.
pub(crate) fn beside(read: &[Item], meant: &Item) -> Option<Value> {
    if read == [meant.clone()] {
        return None;
    }
    if let ([one], Item::ToolResult { summary, is_error, .. }) = (read, meant) {
        let patch = json!({ "summary": summary, "is_error": is_error });
        if patched(one.clone(), &patch) == *meant {
            return Some(patch);
        }
    }
    Some(json!({ "items": [meant] }))
}

/// What was meant by a line, from what it says and what stands beside it.
pub(crate) fn meant(read: Vec<Item>, beside: Option<&Value>) -> Vec<Item> {
    let Some(beside) = beside else { return read };
    if let Some(items) = beside.get("items").and_then(Value::as_array) {
        return items.iter().filter_map(own_item).collect();
    }
    match <[Item; 1]>::try_from(read) {
        Ok([one]) => vec![patched(one, beside)],
        Err(read) => read,
    }
}

/// An item in our own form; what it is must be told apart from what it claims by `plain`, later.
pub(crate) fn own_item(value: &Value) -> Option<Item> {
    serde_json::from_value(value.clone()).ok()
}

fn patched(item: Item, patch: &Value) -> Item {
    match item {
        Item::ToolResult { call_id, summary, content, is_error, blob, images } => {
            let text = patch.get("summary").and_then(Value::as_str);
            let summary = text.map_or(summary, |text| cut(text, SUMMARY_BYTES));
            let is_error = patch.get("is_error").and_then(Value::as_bool).unwrap_or(is_error);
            // A short text stands in the summary alone, unless that is another one.
            Item::ToolResult { call_id, summary, content, is_error, blob, images }
        }
        other => other,
    }
}

/// An id that is always the same for the same thing of the same session.
pub(crate) fn id(session: &str, number: usize) -> String {
    let digest = hex(&Sha256::digest(format!("{session}/{number}")));
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    // Version 8: made from whatever the maker likes.
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

/// An id or name as every provider takes it: letters, digits, `_` and `-`, 64 at most. Another one for another text.
pub(crate) fn fitting(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.len() <= 64 && text.chars().all(fits) {
        return text.to_owned();
    }
    let begin: String = text.chars().filter(|c| fits(*c)).take(40).collect();
    let digest = hex(&Sha256::digest(text));
    format!("{begin}_{}", digest.get(..12).unwrap_or_default())
}

/// A text that providers take: not blank.
pub(crate) fn sayable(text: &str) -> &str {
    if text.trim().is_empty() { "(blank)" } else { text }
}
