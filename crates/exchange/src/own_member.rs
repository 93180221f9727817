//! The own member `minke`: data that a foreign format cannot represent, which other programs ignore.
//!
//! Each written line is parsed like a foreign one and compared with the original item. If they differ, the line also
//! contains the original. So the format represents as much as it can, and an import loses nothing.

use minke_record::limits::SUMMARY_BYTES;
use minke_record::{Item, to_hex};
use minke_text::cut_to_bytes;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The `type` of a line with an item that the format cannot represent.
pub(crate) const OWN_LINE_TYPE: &str = "minke";
/// The member with the data that a line cannot represent.
pub(crate) const OWN_MEMBER: &str = "minke";

/// Returns the own member of a line that parses as `read` but represents `meant`, if they differ.
pub(crate) fn own_member_for(read: &[Item], meant: &Item) -> Option<Value> {
    if read == [meant.clone()] {
        return None;
    }
    if let ([one], Item::ToolResult { summary, is_error, .. }) = (read, meant) {
        let patch = json!({ "summary": summary, "is_error": is_error });
        if apply_patch(one.clone(), &patch) == *meant {
            return Some(patch);
        }
    }
    Some(json!({ "items": [meant] }))
}

/// Returns the original items of a line, from its content and its own member.
pub(crate) fn resolve_items(read: Vec<Item>, beside: Option<&Value>) -> Vec<Item> {
    let Some(beside) = beside else { return read };
    if let Some(items) = beside.get("items").and_then(Value::as_array) {
        return items.iter().filter_map(parse_own_item).collect();
    }
    match <[Item; 1]>::try_from(read) {
        Ok([one]) => vec![apply_patch(one, beside)],
        Err(read) => read,
    }
}

/// Parses an item in Minke's format. `portable` checks its content later.
pub(crate) fn parse_own_item(value: &Value) -> Option<Item> {
    serde_json::from_value(value.clone()).ok()
}

fn apply_patch(item: Item, patch: &Value) -> Item {
    match item {
        Item::ToolResult { call_id, summary, content, is_error, blob, images } => {
            let text = patch.get("summary").and_then(Value::as_str);
            let summary = text.map_or(summary, |text| cut_to_bytes(text, SUMMARY_BYTES).to_owned());
            let is_error = patch.get("is_error").and_then(Value::as_bool).unwrap_or(is_error);
            // A short text is only in the summary, unless they differ.
            Item::ToolResult { call_id, summary, content, is_error, blob, images }
        }
        other => other,
    }
}

/// Returns a deterministic id for an object of a session.
pub(crate) fn stable_id(session: &str, number: usize) -> String {
    let digest = to_hex(&Sha256::digest(format!("{session}/{number}")));
    let part = |from: usize, to: usize| digest.get(from..to).unwrap_or_default();
    // Version 8: a UUID with custom content.
    format!("{}-{}-8{}-8{}-{}", part(0, 8), part(8, 12), part(13, 16), part(17, 20), part(20, 32))
}

/// Returns an id or name that every provider accepts: letters, digits, `_` and `-`, 64 at most. Unique for each text.
pub(crate) fn clean_id(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !text.is_empty() && text.len() <= 64 && text.chars().all(fits) {
        return text.to_owned();
    }
    let begin: String = text.chars().filter(|c| fits(*c)).take(40).collect();
    let digest = to_hex(&Sha256::digest(text));
    format!("{begin}_{}", digest.get(..12).unwrap_or_default())
}

/// Returns a non-blank text, as providers require it.
pub(crate) fn non_blank(text: &str) -> &str {
    if text.trim().is_empty() { "(blank)" } else { text }
}
