//! Imported history: items of Minke, or `{role, content}` as most programs write them.
//!
//! Invariant: a history that no model accepts is refused here, before a thread exists
//! (`only_a_conversation_that_can_go_on_is_imported`).

use std::collections::BTreeSet;

use minke_record::{Item, Role};
use serde_json::Value;

use crate::error::ApiError;

/// The maximum number of items.
const MAX_IMPORT_ITEMS: usize = 10_000;

/// Parses the items. Errors name the index of the item.
pub(crate) fn parse_items(values: &[Value]) -> Result<Vec<Item>, ApiError> {
    if values.len() > MAX_IMPORT_ITEMS {
        return Err(ApiError::invalid(format!(
            "history: has {} items; the limit is {MAX_IMPORT_ITEMS}",
            values.len()
        )));
    }
    let mut items = Vec::with_capacity(values.len());
    let mut open = BTreeSet::new();
    for (at, value) in values.iter().enumerate() {
        let item =
            parse_item(value).map_err(|reason| ApiError::invalid(format!("history[{at}]: {reason}")))?;
        match &item {
            Item::ToolCall { call_id, .. } if !open.insert(call_id.clone()) => {
                return Err(ApiError::invalid(format!("history[{at}]: duplicate call `{call_id}`")));
            }
            Item::ToolResult { call_id, .. } if !open.remove(call_id) => {
                return Err(ApiError::invalid(format!(
                    "history[{at}]: no call `{call_id}` waits for a result"
                )));
            }
            _ => {}
        }
        items.push(item);
    }
    match open.first() {
        Some(call) => Err(ApiError::invalid(format!("history: the call `{call}` has no result"))),
        None => Ok(items),
    }
}

fn parse_item(value: &Value) -> Result<Item, String> {
    if value.get("kind").is_some() {
        return match serde_json::from_value(value.clone()) {
            Ok(Item::Unknown) => Err("unknown kind".to_owned()),
            Ok(item) => Ok(item),
            Err(e) => Err(e.to_string()),
        };
    }
    let fields = value.as_object().ok_or("expected an object")?;
    if let Some(other) = fields.keys().find(|key| !["role", "content"].contains(&key.as_str())) {
        return Err(format!("unknown field `{}`", crate::request::quote_input(other)));
    }
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err("role: must be user, assistant or system".to_owned()),
    };
    let text = fields.get("content").and_then(Value::as_str).ok_or("content: must be a text")?;
    Ok(Item::message(role, text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_conversation_that_can_go_on_is_imported() {
        let user = json!({ "role": "user", "content": "hi" });
        let call = |id: &str| json!({ "kind": "tool_call", "call_id": id, "name": "t", "arguments": "{}" });
        let result = |id: &str| json!({ "kind": "tool_result", "call_id": id, "summary": "s" });
        let reasoning = json!({ "kind": "reasoning", "text": "hm" });
        let imported =
            parse_items(&[user.clone(), reasoning, call("a"), call("b"), result("b"), result("a")]);
        assert_eq!(imported.unwrap().len(), 6);
        for (values, says) in [
            (vec![call("a")], "has no result"),
            (vec![result("a")], "no call `a` waits"),
            (vec![call("a"), call("a")], "duplicate"),
            (vec![call("a"), result("a"), result("a")], "waits"),
            (vec![json!(7)], "history[0]"),
            (vec![user.clone(), json!({ "kind": "song" })], "history[1]"),
            (vec![json!({ "role": "user", "content": [1] })], "content"),
            (vec![user; MAX_IMPORT_ITEMS + 1], "the limit is"),
        ] {
            let api_error = parse_items(&values).unwrap_err();
            assert!(api_error.message.contains(says), "{}", api_error.message);
        }
    }
}
