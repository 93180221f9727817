//! History that a client brings along: items of ours, or `{role, content}` as everybody writes them.
//!
//! Invariant: what could not be sent to a model is refused here, before a thread exists
//! (`only_a_conversation_that_can_go_on_is_imported`).

use std::collections::BTreeSet;

use minke_record::{Item, Role};
use serde_json::Value;

use crate::fault::Fault;

/// The most items that are taken.
const ITEMS: usize = 10_000;

/// Reads them, each named by its place if it cannot be used.
pub(crate) fn items(given: &[Value]) -> Result<Vec<Item>, Fault> {
    if given.len() > ITEMS {
        return Err(Fault::invalid(format!("history: has {} items; at most {ITEMS} are taken", given.len())));
    }
    let mut items = Vec::with_capacity(given.len());
    let mut open = BTreeSet::new();
    for (at, value) in given.iter().enumerate() {
        let item = item(value).map_err(|why| Fault::invalid(format!("history[{at}]: {why}")))?;
        match &item {
            Item::ToolCall { call_id, .. } if !open.insert(call_id.clone()) => {
                return Err(Fault::invalid(format!("history[{at}]: there is a call `{call_id}` already")));
            }
            Item::ToolResult { call_id, .. } if !open.remove(call_id) => {
                return Err(Fault::invalid(format!("history[{at}]: no call `{call_id}` waits for a result")));
            }
            _ => {}
        }
        items.push(item);
    }
    match open.first() {
        Some(call) => Err(Fault::invalid(format!("history: the call `{call}` has no result"))),
        None => Ok(items),
    }
}

fn item(value: &Value) -> Result<Item, String> {
    if value.get("kind").is_some() {
        return match serde_json::from_value(value.clone()) {
            Ok(Item::Unknown) => Err("its kind is not known".to_owned()),
            Ok(item) => Ok(item),
            Err(e) => Err(e.to_string()),
        };
    }
    let fields = value.as_object().ok_or("is no object")?;
    if let Some(other) = fields.keys().find(|key| !["role", "content"].contains(&key.as_str())) {
        return Err(format!("unknown field `{}`", crate::request::quoted(other)));
    }
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("system") => Role::System,
        _ => return Err("role: is none of user, assistant, system".to_owned()),
    };
    let text = fields.get("content").and_then(Value::as_str).ok_or("content: is no text")?;
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
        let taken = items(&[user.clone(), reasoning, call("a"), call("b"), result("b"), result("a")]);
        assert_eq!(taken.unwrap().len(), 6);
        for (given, says) in [
            (vec![call("a")], "has no result"),
            (vec![result("a")], "waits"),
            (vec![call("a"), call("a")], "already"),
            (vec![call("a"), result("a"), result("a")], "waits"),
            (vec![json!(7)], "history[0]"),
            (vec![user.clone(), json!({ "kind": "song" })], "history[1]"),
            (vec![json!({ "role": "user", "content": [1] })], "content"),
            (vec![user; ITEMS + 1], "at most"),
        ] {
            let fault = items(&given).unwrap_err();
            assert!(fault.message.contains(says), "{}", fault.message);
        }
    }
}
