//! A parsed request in a neutral form: the history as items, and the options of the client.
//!
//! Here: the neutral form and the checks common to all formats. Elsewhere: parsing a body (one file per
//! format). The mock is as strict as the providers: it rejects a call without its result and a request that
//! ends with the assistant (`a_broken_history_is_refused`).

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_model::Prompt;
use minke_record::{CallId, Item, Purpose, Role, Route};
use serde_json::Value;

/// Tags around system messages in formats without a role for them.
const NOTICE_TAGS: (&str, &str) = ("<system-reminder>", "</system-reminder>");

/// One parsed request.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) model: String,
    pub(crate) system: String,
    pub(crate) history: RequestHistory,
    /// Number of messages or input items.
    pub(crate) message_count: usize,
    pub(crate) options: RequestOptions,
}

/// Options of the client that affect the encoding.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    /// openai_chat: usage at the end.
    pub(crate) wants_usage: bool,
    /// openai_responses: encrypted reasoning.
    pub(crate) wants_encrypted: bool,
    /// gemini: events instead of one JSON array.
    pub(crate) wants_events: bool,
}

impl ParsedRequest {
    /// Returns the prompt for the script.
    pub(crate) fn to_prompt(&self, scheme: &str, ended: u64) -> Prompt {
        Prompt {
            route: Route { provider: "mock".into(), model: self.model.clone(), scheme: scheme.into() },
            purpose: Purpose::Turn,
            system: self.system.clone().into(),
            tools: Arc::default(),
            items: self.history.items.clone(),
            max_tokens: None,
            reasoning: None,
            sampling: Default::default(),
            cache_key: None,
            images: std::collections::BTreeMap::new(),
            ended_requests: Some(ended),
        }
    }
}

/// A history under construction.
#[derive(Debug, Default)]
pub(crate) struct RequestHistory {
    pub(crate) items: Vec<Arc<Item>>,
    /// Number of reasoning parts, with a valid signature where the format signs them.
    pub(crate) reasoning_count: usize,
    /// Number of images in messages and results.
    pub(crate) image_count: usize,
}

impl RequestHistory {
    pub(crate) fn push_user(&mut self, text: &str) {
        match text.trim().strip_prefix(NOTICE_TAGS.0).and_then(|rest| rest.strip_suffix(NOTICE_TAGS.1)) {
            Some(notice) => self.push_item(Item::message(Role::System, notice.trim())),
            None => self.push_item(Item::user_message(text)),
        }
    }

    pub(crate) fn push_notice(&mut self, text: &str) {
        self.push_item(Item::message(Role::System, text));
    }

    pub(crate) fn push_assistant(&mut self, text: &str) {
        self.push_item(Item::assistant_message(text));
    }

    pub(crate) fn push_call(&mut self, id: &str, name: &str, arguments: String) {
        let (call_id, name) = (CallId(id.to_owned()), name.to_owned());
        self.push_item(Item::ToolCall { call_id, name, arguments: arguments.into() });
    }

    pub(crate) fn push_result(&mut self, id: &str, text: String, is_error: bool) {
        let call_id = CallId(id.to_owned());
        let (summary, content) = (String::new(), Some(text.into()));
        self.push_item(Item::ToolResult {
            call_id,
            summary,
            content,
            is_error,
            blob: None,
            images: Vec::new(),
        });
    }

    pub(crate) fn push_thought(&mut self, text: &str) {
        self.reasoning_count += 1;
        let (text, summary) = (text.into(), Vec::new());
        self.push_item(Item::Reasoning { text, summary, signature: None, encrypted: None, by: None });
    }

    /// Adds a base64 image; `place` is its location in the request.
    pub(crate) fn push_image(&mut self, media_type: &str, data: &str, location: &str) -> Result<(), String> {
        if !media_type.starts_with("image/") {
            return Err(format!("{location}: `{media_type}` is not an image type"));
        }
        match BASE64_STANDARD.decode(data) {
            Ok(bytes) if bytes.is_empty() => Err(format!("{location}: the image is empty")),
            Ok(_) => {
                self.image_count += 1;
                Ok(())
            }
            Err(e) => Err(format!("{location}: the image is not base64: {e}")),
        }
    }

    /// Adds an image URL, which may be external.
    pub(crate) fn push_image_url(&mut self, url: &str, place: &str) -> Result<(), String> {
        match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((media_type, data)) => self.push_image(media_type, data, place),
            None if url.starts_with("https://") || url.starts_with("http://") => {
                self.image_count += 1;
                Ok(())
            }
            None => Err(format!("{place}: neither a URL nor `data:<type>;base64,<content>`")),
        }
    }

    fn push_item(&mut self, item: Item) {
        self.items.push(Arc::new(item));
    }

    /// Returns an error for a history that every provider rejects.
    pub(crate) fn check_order(&self) -> Result<(), String> {
        let mut open: Vec<&CallId> = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            match &**item {
                Item::ToolCall { call_id, .. } if open.contains(&call_id) => {
                    return Err(format!("two calls of one reply have the id `{call_id}`"));
                }
                Item::ToolCall { call_id, .. } => open.push(call_id),
                Item::ToolResult { call_id, .. } => match open.iter().position(|id| *id == call_id) {
                    Some(location) => drop(open.remove(location)),
                    None => return Err(format!("the result of `{call_id}` belongs to no open call")),
                },
                Item::Message { role: Role::User | Role::System, .. } => {
                    if let Some(id) = open.first() {
                        return Err(format!("the call `{id}` has no result before item {at}"));
                    }
                }
                Item::Message { .. } | Item::Reasoning { .. } | Item::Unknown => {}
            }
        }
        if let Some(id) = open.first() {
            return Err(format!("the call `{id}` has no result"));
        }
        match self.items.last().map(|item| &**item) {
            None => Err("there is no message".to_owned()),
            Some(Item::Message { role: Role::Assistant, .. } | Item::Reasoning { .. }) => {
                Err("the request ends with the assistant: this model does not support a prefilled reply"
                    .to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns the call for a result without an id: the first open one with this name.
    pub(crate) fn find_open_call(&self, name: &str) -> Option<String> {
        let answered = |id: &CallId| {
            let answers = |item: &Item| matches!(item, Item::ToolResult { call_id, .. } if call_id == id);
            self.items.iter().any(|item| answers(item))
        };
        self.items.iter().find_map(|item| match &**item {
            Item::ToolCall { call_id, name: called, .. } if called == name && !answered(call_id) => {
                Some(call_id.0.clone())
            }
            _ => None,
        })
    }
}

/// Returns a required text; `place` is its location in the request.
pub(crate) fn required_text<'a>(value: &'a Value, key: &str, location: &str) -> Result<&'a str, String> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| format!("{location}{key}: a text is required"))
}

pub(crate) fn required_list<'a>(value: &'a Value, key: &str, place: &str) -> Result<&'a [Value], String> {
    match value.get(key) {
        Some(Value::Array(list)) => Ok(list),
        _ => Err(format!("{place}{key}: a list is required")),
    }
}

/// Returns the texts of a string or of a list of parts with a `text`.
pub(crate) fn required_texts(value: Option<&Value>, location: &str) -> Result<Vec<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
            Ok(parts.iter().filter_map(text).collect())
        }
        Some(_) => Err(format!("{location}: a text or a list of parts is required")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history_error(build: impl FnOnce(&mut RequestHistory)) -> String {
        let mut history = RequestHistory::default();
        build(&mut history);
        history.check_order().err().unwrap_or_default()
    }

    #[test]
    fn a_broken_history_is_refused() {
        let asks: fn(&mut RequestHistory) = |h| {
            h.push_user("hi");
            h.push_call("1", "Read", "{}".into());
            h.push_call("2", "Read", "{}".into());
        };
        let good = |h: &mut RequestHistory| {
            asks(h);
            h.push_result("2", "b".into(), false);
            h.push_result("1", "a".into(), true);
        };
        assert_eq!(history_error(good), "");
        assert!(history_error(|_| {}).contains("no message"));
        assert!(history_error(asks).contains("`1` has no result"));
        assert!(history_error(|h| h.push_result("1", "a".into(), false)).contains("belongs to no open call"));
        let interrupted = |h: &mut RequestHistory| {
            asks(h);
            h.push_result("1", "a".into(), false);
            h.push_user("well?");
        };
        assert!(history_error(interrupted).contains("`2` has no result before item 4"));
        let twice = |h: &mut RequestHistory| {
            asks(h);
            h.push_call("1", "Read", "{}".into());
        };
        assert!(history_error(twice).contains("have the id `1`"));
        let prefilled = |h: &mut RequestHistory| {
            h.push_user("hi");
            h.push_assistant("he");
        };
        assert!(history_error(prefilled).contains("ends with the assistant"));
    }

    #[test]
    fn a_reminder_is_a_notice_and_not_something_that_the_user_said() {
        let mut history = RequestHistory::default();
        history.push_user("<system-reminder>\nthe child is done\n</system-reminder>");
        assert_eq!(*history.items[0], Item::message(Role::System, "the child is done"));
    }
}
