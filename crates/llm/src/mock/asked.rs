//! What a request asks, whatever its format: the history as items, and what the format's answer needs to know.
//!
//! Here: the neutral form and the checks that all formats share. Elsewhere: reading it from a body (one file per
//! format). The mock is strict where providers are: a call without its result, or a request that ends with the
//! assistant, is refused (`a_broken_history_is_refused`).

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use minke_model::Prompt;
use minke_record::{CallId, Item, Purpose, Role, Route};
use serde_json::Value;

/// How mid-history system items are told to formats that have no role for them.
const NOTICE: (&str, &str) = ("<system-reminder>", "</system-reminder>");

/// One request, read.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) system: String,
    pub(super) history: History,
    /// Messages, or input items, as the format counts them.
    pub(super) messages: usize,
    pub(super) wishes: Wishes,
}

/// What a client asks for beside the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// openai_chat: usage at the end.
    pub(super) usage: bool,
    /// openai_responses: reasoning in encrypted form.
    pub(super) encrypted: bool,
    /// gemini: events and not one JSON array.
    pub(super) events: bool,
}

impl Asked {
    /// The request as the script sees it.
    pub(super) fn prompt(&self, scheme: &str, ended: u64) -> Prompt {
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
            ended: Some(ended),
        }
    }
}

/// Items in the making.
#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) items: Vec<Arc<Item>>,
    /// Pieces of reasoning that came back; where the format signs them, with a good signature.
    pub(super) reasoning: usize,
    /// Images that came, of the user and of results.
    pub(super) images: usize,
}

impl History {
    pub(super) fn user(&mut self, text: &str) {
        match text.trim().strip_prefix(NOTICE.0).and_then(|rest| rest.strip_suffix(NOTICE.1)) {
            Some(notice) => self.push(Item::message(Role::System, notice.trim())),
            None => self.push(Item::user(text)),
        }
    }

    pub(super) fn notice(&mut self, text: &str) {
        self.push(Item::message(Role::System, text));
    }

    pub(super) fn assistant(&mut self, text: &str) {
        self.push(Item::assistant(text));
    }

    pub(super) fn call(&mut self, id: &str, name: &str, arguments: String) {
        let (call_id, name) = (CallId(id.to_owned()), name.to_owned());
        self.push(Item::ToolCall { call_id, name, arguments: arguments.into() });
    }

    pub(super) fn result(&mut self, id: &str, text: String, is_error: bool) {
        let call_id = CallId(id.to_owned());
        let (summary, content) = (String::new(), Some(text.into()));
        self.push(Item::ToolResult { call_id, summary, content, is_error, blob: None, images: Vec::new() });
    }

    pub(super) fn thought(&mut self, text: &str) {
        self.reasoning += 1;
        let (text, summary) = (text.into(), Vec::new());
        self.push(Item::Reasoning { text, summary, signature: None, encrypted: None, by: None });
    }

    /// An image as base64; `place` says where it stands.
    pub(super) fn image(&mut self, media_type: &str, data: &str, place: &str) -> Result<(), String> {
        if !media_type.starts_with("image/") {
            return Err(format!("{place}: `{media_type}` is no type of an image"));
        }
        match BASE64_STANDARD.decode(data) {
            Ok(bytes) if bytes.is_empty() => Err(format!("{place}: the image is empty")),
            Ok(_) => {
                self.images += 1;
                Ok(())
            }
            Err(e) => Err(format!("{place}: the image is not base64: {e}")),
        }
    }

    /// An image as an URL, which may lie elsewhere.
    pub(super) fn image_url(&mut self, url: &str, place: &str) -> Result<(), String> {
        match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((media_type, data)) => self.image(media_type, data, place),
            None if url.starts_with("https://") || url.starts_with("http://") => {
                self.images += 1;
                Ok(())
            }
            None => Err(format!("{place}: neither an address nor `data:<type>;base64,<content>`")),
        }
    }

    fn push(&mut self, item: Item) {
        self.items.push(Arc::new(item));
    }

    /// Says what no provider would take.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut open: Vec<&CallId> = Vec::new();
        for (at, item) in self.items.iter().enumerate() {
            match &**item {
                Item::ToolCall { call_id, .. } if open.contains(&call_id) => {
                    return Err(format!("two calls of one reply have the id `{call_id}`"));
                }
                Item::ToolCall { call_id, .. } => open.push(call_id),
                Item::ToolResult { call_id, .. } => match open.iter().position(|id| *id == call_id) {
                    Some(place) => drop(open.remove(place)),
                    None => return Err(format!("the result of `{call_id}` answers no open call")),
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
                Err("the request ends with the assistant: this model takes no beginning of its reply"
                    .to_owned())
            }
            Some(_) => Ok(()),
        }
    }

    /// The call that a result without an id answers: the first open one with its name.
    pub(super) fn open_call(&self, name: &str) -> Option<String> {
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

/// A text that must be there; `place` says where it was missed.
pub(super) fn text<'a>(value: &'a Value, key: &str, place: &str) -> Result<&'a str, String> {
    value.get(key).and_then(Value::as_str).ok_or_else(|| format!("{place}{key}: a text is required"))
}

pub(super) fn list<'a>(value: &'a Value, key: &str, place: &str) -> Result<&'a [Value], String> {
    match value.get(key) {
        Some(Value::Array(list)) => Ok(list),
        _ => Err(format!("{place}{key}: a list is required")),
    }
}

/// The texts of something that is one text or a list of parts with a `text`.
pub(super) fn texts(value: Option<&Value>, place: &str) -> Result<Vec<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(parts)) => {
            let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
            Ok(parts.iter().filter_map(text).collect())
        }
        Some(_) => Err(format!("{place}: a text or a list of parts is required")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(build: impl FnOnce(&mut History)) -> String {
        let mut history = History::default();
        build(&mut history);
        history.check().err().unwrap_or_default()
    }

    #[test]
    fn a_broken_history_is_refused() {
        let asks: fn(&mut History) = |h| {
            h.user("hi");
            h.call("1", "Read", "{}".into());
            h.call("2", "Read", "{}".into());
        };
        let good = |h: &mut History| {
            asks(h);
            h.result("2", "b".into(), false);
            h.result("1", "a".into(), true);
        };
        assert_eq!(check(good), "");
        assert!(check(|_| {}).contains("no message"));
        assert!(check(asks).contains("`1` has no result"));
        assert!(check(|h| h.result("1", "a".into(), false)).contains("answers no open call"));
        let interrupted = |h: &mut History| {
            asks(h);
            h.result("1", "a".into(), false);
            h.user("well?");
        };
        assert!(check(interrupted).contains("`2` has no result before item 4"));
        let twice = |h: &mut History| {
            asks(h);
            h.call("1", "Read", "{}".into());
        };
        assert!(check(twice).contains("have the id `1`"));
        let prefilled = |h: &mut History| {
            h.user("hi");
            h.assistant("he");
        };
        assert!(check(prefilled).contains("ends with the assistant"));
    }

    #[test]
    fn a_reminder_is_a_notice_and_not_something_that_the_user_said() {
        let mut history = History::default();
        history.user("<system-reminder>\nthe child is done\n</system-reminder>");
        assert_eq!(*history.items[0], Item::message(Role::System, "the child is done"));
    }
}
