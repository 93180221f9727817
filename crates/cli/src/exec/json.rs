//! `exec --json`: the run as the objects that `docs/reference/cli.md` documents, one a line.
//!
//! Here: a pure fold from entries and live events to objects. Elsewhere: which entries are this run's (`watch`).
//! Invariant: every item that was started is completed, once (`every_started_item_is_completed`).

use std::collections::BTreeMap;

use minke_protocol::{Block, Event, InFlight};
use minke_record::{
    Action, AlertSource, CallId, Content, Entry, ErrorCode, Item, Kind, LlmUsage, Outcome, Role, RunErrored,
    RunResult, SessionId, Text, ToolDispatch, ToolResult,
};
use serde_json::{Map, Value, json};

use crate::transcript::told;

/// The fold: what is open, and what the turn has used.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    items: u64,
    /// The message or the reasoning that is streaming in.
    open: Option<OpenItem>,
    /// Calls that were started: their item, without its result.
    calls: BTreeMap<CallId, Map<String, Value>>,
    /// Names and arguments of calls that the model has made and that are not dispatched yet.
    wished: BTreeMap<CallId, (String, Text)>,
    usage: Usage,
    turn_open: bool,
}

#[derive(Debug)]
struct OpenItem {
    id: String,
    kind: &'static str,
    text: String,
}

#[derive(Debug, Default, Clone, Copy)]
struct Usage {
    input: u64,
    cached: u64,
    output: u64,
}

pub(crate) fn thread_started(session: SessionId) -> Value {
    json!({ "type": "thread.started", "thread_id": format!("s_{session}") })
}

pub(crate) fn run_completed(result: &str) -> Value {
    json!({ "type": "run.completed", "result": result })
}

/// The same with the reason, where a script can act on it.
fn run_completed_because(result: &str, reason: Option<&str>) -> Value {
    let mut object = run_completed(result);
    if let Some(reason) = reason {
        object["reason"] = reason.into();
    }
    object
}

impl Lines {
    /// The objects that an entry of the run leads to.
    pub(crate) fn entry(&mut self, entry: &Entry) -> Vec<Value> {
        let mut out = Vec::new();
        match &entry.kind {
            Kind::LlmCall(call) if call.continues.is_none() => {
                self.turn_open = true;
                self.usage = Usage::default();
                out.push(json!({ "type": "turn.started" }));
            }
            Kind::AssistantItem(assistant) => self.assistant(&assistant.item, &mut out),
            Kind::LlmUsage(usage) => self.use_up(usage),
            // A block that never became whole is not an item of the history, but it was shown as started.
            Kind::LlmEnd(_) => self.give_up_open(&mut out),
            Kind::ToolDispatch(dispatch) if dispatch.by.is_none() => out.push(self.dispatch(dispatch)),
            Kind::ToolResult(result) if result.by.is_none() => out.extend(self.result(result)),
            Kind::TurnEnd(end) if end.result != minke_record::TurnResult::Error => {
                self.turn_open = false;
                out.push(json!({ "type": "turn.completed", "usage": self.usage() }));
            }
            Kind::RunErrored(error) => {
                self.give_up(&mut out);
                self.failed(error, &mut out);
                out.push(match error.code {
                    ErrorCode::Refused => run_completed_because("refused", Some(&error.message)),
                    _ => run_completed("error"),
                });
            }
            Kind::RunCompleted(end) => {
                self.give_up(&mut out);
                if std::mem::take(&mut self.turn_open) {
                    out.push(json!({ "type": "turn.completed", "usage": self.usage() }));
                }
                let reason = end.reason.as_deref().filter(|_| end.result == RunResult::LimitReached);
                out.push(run_completed_because(end.result.as_str(), reason));
            }
            // What was read for the agent is no trouble.
            Kind::Alert(alert) if alert.source == AlertSource::AgentsMd => {}
            Kind::Alert(alert) => out.push(self.whole("error", json!({ "message": alert.message }))),
            _ => {}
        }
        out
    }

    /// The objects that a live event of the run leads to.
    pub(crate) fn live(&mut self, event: &Event) -> Vec<Value> {
        match event {
            Event::TextDelta(delta) => self.delta("agent_message", &delta.text),
            Event::ThinkingDelta(delta) => self.delta("reasoning", &delta.text),
            Event::LlmRetry(retry) => vec![self.whole("error", json!({ "message": told(retry) }))],
            _ => Vec::new(),
        }
    }

    /// The blocks that were open when we came, or after live events were dropped.
    pub(crate) fn in_flight(&mut self, in_flight: &InFlight) -> Vec<Value> {
        let mut out = Vec::new();
        for block in &in_flight.blocks {
            let (kind, text) = match block {
                Block::Text { text } => ("agent_message", text),
                Block::Thinking { text } => ("reasoning", text),
                Block::ToolCall { .. } | Block::Unknown => continue,
            };
            let shown = self.open.as_ref().filter(|open| open.kind == kind).map_or("", |open| &open.text);
            if let Some(rest) = text.strip_prefix(shown).map(str::to_owned) {
                out.extend(self.delta(kind, &rest));
            }
        }
        out
    }

    fn delta(&mut self, kind: &'static str, text: &str) -> Vec<Value> {
        let mut out = Vec::new();
        if self.open.as_ref().is_some_and(|open| open.kind != kind) {
            self.give_up_open(&mut out);
        }
        let id = match &self.open {
            Some(open) => open.id.clone(),
            None => {
                let id = self.next_id();
                out.push(json!({ "type": "item.started", "item": { "id": id, "type": kind } }));
                self.open = Some(OpenItem { id: id.clone(), kind, text: String::new() });
                id
            }
        };
        if let Some(open) = &mut self.open
            && !text.is_empty()
        {
            open.text.push_str(text);
            out.push(json!({ "type": "item.updated", "item": { "id": id, "type": kind, "delta": text } }));
        }
        out
    }

    fn assistant(&mut self, item: &Item, out: &mut Vec<Value>) {
        let (kind, text) = match item {
            Item::Message { role: Role::Assistant, content } => ("agent_message", message_text(content)),
            // Nothing was thought aloud: the entry carries what the provider wants back.
            Item::Reasoning { text, .. } if text.is_empty() && self.open.is_none() => return,
            Item::Reasoning { text, .. } => ("reasoning", text.show().into_owned()),
            Item::ToolCall { call_id, name, arguments } => {
                self.wished.insert(call_id.clone(), (name.clone(), arguments.clone()));
                return;
            }
            Item::Message { .. } | Item::ToolResult { .. } | Item::Unknown => return,
        };
        if self.open.as_ref().is_some_and(|open| open.kind != kind) {
            self.give_up_open(out);
        }
        let id = self.open.take().map_or_else(|| self.next_id(), |open| open.id);
        out.push(json!({ "type": "item.completed", "item": { "id": id, "type": kind, "text": text } }));
    }

    fn dispatch(&mut self, dispatch: &ToolDispatch) -> Value {
        let arguments = match (&dispatch.arguments, self.wished.remove(&dispatch.call_id)) {
            (Some(own), _) => Some(own.clone()),
            (None, Some((_, wished))) => Some(wished),
            (None, None) => None,
        };
        let mut item = call_item(self.next_id(), &dispatch.tool, &dispatch.action, arguments.as_ref());
        item.insert("call_id".to_owned(), dispatch.call_id.0.clone().into());
        let mut started = item.clone();
        started.insert("status".to_owned(), "in_progress".into());
        self.calls.insert(dispatch.call_id.clone(), item);
        json!({ "type": "item.started", "item": started })
    }

    fn result(&mut self, result: &ToolResult) -> Option<Value> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
            return None;
        };
        let mut item = match self.calls.remove(call_id) {
            Some(item) => item,
            // Refused or not even well formed: it never started.
            None => {
                let (name, arguments) = self.wished.remove(call_id).unwrap_or_default();
                let mut item = call_item(self.next_id(), &name, &Action::default(), Some(&arguments));
                item.insert("call_id".to_owned(), call_id.0.clone().into());
                item
            }
        };
        item.insert("status".to_owned(), if *is_error { "failed" } else { "completed" }.into());
        item.insert("outcome".to_owned(), result.outcome.as_str().into());
        item.insert("summary".to_owned(), summary.clone().into());
        if let Some(content) = content {
            item.insert("output".to_owned(), content.show().into());
        }
        Some(json!({ "type": "item.completed", "item": item }))
    }

    fn failed(&mut self, error: &RunErrored, out: &mut Vec<Value>) {
        self.turn_open = false;
        let error = json!({ "code": error.code.as_str(), "message": error.message });
        out.push(json!({ "type": "turn.failed", "error": error }));
    }

    /// Nothing stays open behind a run that has ended.
    fn give_up(&mut self, out: &mut Vec<Value>) {
        self.give_up_open(out);
        for (_, mut item) in std::mem::take(&mut self.calls) {
            item.insert("status".to_owned(), "failed".into());
            item.insert("outcome".to_owned(), Outcome::Cancelled.as_str().into());
            out.push(json!({ "type": "item.completed", "item": item }));
        }
    }

    fn give_up_open(&mut self, out: &mut Vec<Value>) {
        if let Some(OpenItem { id, kind, text }) = self.open.take() {
            let item = json!({ "id": id, "type": kind, "text": text, "status": "incomplete" });
            out.push(json!({ "type": "item.completed", "item": item }));
        }
    }

    /// An item that is whole at once.
    fn whole(&mut self, kind: &str, fields: Value) -> Value {
        let mut item = json!({ "id": self.next_id(), "type": kind });
        if let (Some(item), Value::Object(fields)) = (item.as_object_mut(), fields) {
            item.extend(fields);
        }
        json!({ "type": "item.completed", "item": item })
    }

    fn use_up(&mut self, usage: &LlmUsage) {
        self.usage.input += usage.input;
        self.usage.cached += usage.cache_read;
        self.usage.output += usage.output;
    }

    fn usage(&self) -> Value {
        let Usage { input, cached, output } = self.usage;
        json!({ "input_tokens": input, "cached_input_tokens": cached, "output_tokens": output })
    }

    fn next_id(&mut self) -> String {
        let id = format!("item_{}", self.items);
        self.items += 1;
        id
    }
}

/// The text of a message, with what stands for texts that lie in blobs.
pub(crate) fn message_text(content: &[Content]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Refusal { text } => Some(text.show()),
        Content::Image { .. } | Content::Unknown => None,
    });
    texts.collect()
}

/// A call's item: what it touches says which type it is. What touches nothing outside is a call like that of any
/// other tool.
fn call_item(id: String, tool: &str, action: &Action, arguments: Option<&Text>) -> Map<String, Value> {
    let mut item = Map::new();
    item.insert("id".to_owned(), id.into());
    let kind = if action.command.is_some() {
        "command_execution"
    } else if !action.writes.is_empty() {
        "file_change"
    } else if action.pod.is_some() {
        "pod"
    } else {
        "mcp_tool_call"
    };
    item.insert("type".to_owned(), kind.into());
    if kind == "mcp_tool_call" {
        item.insert("server".to_owned(), "minke".into());
    }
    item.insert("tool".to_owned(), tool.into());
    if let Some(command) = &action.command {
        item.insert("command".to_owned(), command.clone().into());
    }
    if !action.writes.is_empty() {
        let changes: Vec<Value> = action.writes.iter().map(|path| json!({ "path": path })).collect();
        item.insert("changes".to_owned(), changes.into());
    }
    if let Some(pod) = &action.pod {
        item.insert("pod".to_owned(), pod.clone().into());
    }
    if let Some(arguments) = arguments {
        // As an object if the model wrote one, else as it wrote it.
        let text = arguments.show();
        let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.into_owned()));
        item.insert("arguments".to_owned(), value);
    }
    item
}

#[cfg(test)]
mod tests {
    use minke_protocol::{Delta, LlmRetry};
    use minke_record::{AssistantItem, Chain, LlmEnd, LlmOutcome, RunCompleted};

    use super::*;

    fn entry(kind: impl Into<Kind>) -> Entry {
        Entry { seq: 7, ts: 0, run: None, more: false, kind: kind.into(), h: Chain::ZERO }
    }

    fn said(text: &str) -> Entry {
        entry(AssistantItem { call: 0, item: Item::assistant(text) })
    }

    fn delta(text: &str) -> Event {
        Event::TextDelta(Delta { text: text.to_owned() })
    }

    fn thought(text: &str) -> Event {
        Event::ThinkingDelta(Delta { text: text.to_owned() })
    }

    /// `started item_0`, `updated item_0` …
    fn told(objects: &[Value]) -> Vec<String> {
        let word = |object: &Value| object["type"].as_str().unwrap_or_default().replace("item.", "");
        objects.iter().map(|object| format!("{} {}", word(object), object["item"]["id"])).collect()
    }

    #[test]
    fn a_message_has_one_id_from_its_first_word_to_its_entry() {
        let mut lines = Lines::default();
        let mut objects = lines.live(&delta("a"));
        objects.extend(lines.live(&delta("b")));
        objects.extend(lines.entry(&said("ab")));
        let all = ["started \"item_0\"", "updated \"item_0\"", "updated \"item_0\"", "completed \"item_0\""];
        assert_eq!(told(&objects), all);
        // One that nobody saw coming is whole at once.
        assert_eq!(told(&lines.entry(&said("c"))), ["completed \"item_1\""]);
    }

    #[test]
    fn every_started_item_is_completed() {
        let cut = entry(LlmEnd {
            call: 0,
            outcome: LlmOutcome::Broken,
            attempts: 1,
            stream_blob: None,
            stream_bytes: None,
        });
        let ended = entry(RunCompleted { result: RunResult::Cancelled, reason: None });
        for end in [cut, ended] {
            let mut lines = Lines::default();
            let mut objects = lines.live(&thought("hm"));
            objects.extend(lines.live(&delta("a")));
            objects.extend(lines.entry(&end));
            let text = told(&objects);
            for id in ["item_0", "item_1"] {
                assert_eq!(
                    text.iter().filter(|line| **line == format!("completed \"{id}\"")).count(),
                    1,
                    "{text:?}"
                );
            }
        }
    }

    #[test]
    fn a_retry_is_told_and_a_thought_without_words_is_not() {
        let mut lines = Lines::default();
        let retry = LlmRetry {
            llm_call: 0,
            failed_attempt: 1,
            max_attempts: 6,
            wait_ms: 90_000,
            status: Some(429),
            error: "busy".to_owned(),
        };
        let objects = lines.live(&Event::LlmRetry(retry));
        let message = objects[0]["item"]["message"].as_str().unwrap();
        assert_eq!(message, "attempt 2 of 6 comes in 90 s, because: busy");
        let signed = Item::Reasoning {
            text: "".into(),
            summary: Vec::new(),
            signature: Some("s".into()),
            encrypted: None,
            by: None,
        };
        assert!(lines.entry(&entry(AssistantItem { call: 0, item: signed })).is_empty());
    }

    #[test]
    fn whoever_joins_in_the_middle_gets_what_was_said_before() {
        let mut lines = Lines::default();
        let open = InFlight { blocks: vec![Block::Text { text: "ab".to_owned() }], commands: Vec::new() };
        let objects = lines.in_flight(&open);
        assert_eq!(objects[1]["item"]["delta"], "ab");
        assert!(lines.in_flight(&open).is_empty(), "what is known already is not told again");
    }
}
