//! `exec --json`: the run as the objects that `docs/reference/cli.md` documents, one per line.
//!
//! Here: a pure fold from entries and live events to objects. Elsewhere: selecting the entries of the run
//! (`watch`).
//! Invariant: every started item is completed exactly once (`every_started_item_is_completed`).

use std::collections::BTreeMap;

use minke_protocol::{Event, InFlight, StreamingBlock};
use minke_record::{
    Action, AlertSource, CallId, Content, Entry, ErrorCode, Item, Kind, LlmUsage, Outcome, Role, RunErrored,
    RunResult, SessionId, Text, ToolDispatch, ToolResult,
};
use serde_json::{Map, Value, json};

use crate::render::transcript::describe_retry;

/// State of the fold: open items and the token usage of the turn.
#[derive(Debug, Default)]
pub(crate) struct RunJsonFold {
    items: u64,
    /// The message or reasoning that is streaming.
    open_item: Option<OpenJsonItem>,
    /// Started calls: their item, without its result.
    calls: BTreeMap<CallId, Map<String, Value>>,
    /// Name and arguments of calls that the model has made and that are not dispatched yet.
    requested_calls: BTreeMap<CallId, (String, Text)>,
    usage: TurnUsage,
    turn_open: bool,
}

#[derive(Debug)]
struct OpenJsonItem {
    id: String,
    kind: &'static str,
    text: String,
}

#[derive(Debug, Default, Clone, Copy)]
struct TurnUsage {
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

/// Adds the reason, where a script can act on it.
fn run_completed_because(result: &str, reason: Option<&str>) -> Value {
    let mut object = run_completed(result);
    if let Some(reason) = reason {
        object["reason"] = reason.into();
    }
    object
}

impl RunJsonFold {
    /// Returns the objects for an entry of the run.
    pub(crate) fn entry_objects(&mut self, entry: &Entry) -> Vec<Value> {
        let mut out = Vec::new();
        match &entry.kind {
            Kind::LlmCall(call) if call.continues.is_none() => {
                self.turn_open = true;
                self.usage = TurnUsage::default();
                out.push(json!({ "type": "turn.started" }));
            }
            Kind::AssistantItem(assistant) => self.complete_item(&assistant.item, &mut out),
            Kind::LlmUsage(usage) => self.add_usage(usage),
            // An incomplete block is not an item of the history, but it was reported as started.
            Kind::LlmEnd(_) => self.close_open_item(&mut out),
            Kind::ToolDispatch(dispatch) if dispatch.by.is_none() => out.push(self.start_call(dispatch)),
            Kind::ToolResult(result) if result.by.is_none() => out.extend(self.complete_call(result)),
            Kind::TurnEnd(end) if end.result != minke_record::TurnResult::Error => {
                self.turn_open = false;
                out.push(json!({ "type": "turn.completed", "usage": self.usage_json() }));
            }
            Kind::RunErrored(error) => {
                self.close_all_items(&mut out);
                self.fail_turn(error, &mut out);
                out.push(match error.code {
                    ErrorCode::Refused => run_completed_because("refused", Some(&error.message)),
                    _ => run_completed("error"),
                });
            }
            Kind::RunCompleted(end) => {
                self.close_all_items(&mut out);
                if std::mem::take(&mut self.turn_open) {
                    out.push(json!({ "type": "turn.completed", "usage": self.usage_json() }));
                }
                let reason = end.reason.as_deref().filter(|_| end.result == RunResult::LimitReached);
                out.push(run_completed_because(end.result.as_str(), reason));
            }
            // Reading an AGENTS.md file is not an error.
            Kind::Alert(alert) if alert.source == AlertSource::AgentsMd => {}
            Kind::Alert(alert) => {
                out.push(self.complete_at_once("error", json!({ "message": alert.message })))
            }
            _ => {}
        }
        out
    }

    /// Returns the objects for a live event of the run.
    pub(crate) fn event_objects(&mut self, event: &Event) -> Vec<Value> {
        match event {
            Event::TextDelta(delta) => self.append_delta("agent_message", &delta.text),
            Event::ThinkingDelta(delta) => self.append_delta("reasoning", &delta.text),
            Event::LlmRetry(retry) => {
                vec![self.complete_at_once("error", json!({ "message": describe_retry(retry) }))]
            }
            _ => Vec::new(),
        }
    }

    /// Catches up with blocks that were open at connect time, or after dropped events.
    pub(crate) fn in_flight_objects(&mut self, in_flight: &InFlight) -> Vec<Value> {
        let mut out = Vec::new();
        for block in &in_flight.blocks {
            let (kind, text) = match block {
                StreamingBlock::Text { text } => ("agent_message", text),
                StreamingBlock::Thinking { text } => ("reasoning", text),
                StreamingBlock::ToolCall { .. } | StreamingBlock::Unknown => continue,
            };
            let shown =
                self.open_item.as_ref().filter(|open| open.kind == kind).map_or("", |open| &open.text);
            if let Some(rest) = text.strip_prefix(shown).map(str::to_owned) {
                out.extend(self.append_delta(kind, &rest));
            }
        }
        out
    }

    fn append_delta(&mut self, kind: &'static str, text: &str) -> Vec<Value> {
        let mut out = Vec::new();
        if self.open_item.as_ref().is_some_and(|open| open.kind != kind) {
            self.close_open_item(&mut out);
        }
        let id = match &self.open_item {
            Some(open) => open.id.clone(),
            None => {
                let id = self.next_id();
                out.push(json!({ "type": "item.started", "item": { "id": id, "type": kind } }));
                self.open_item = Some(OpenJsonItem { id: id.clone(), kind, text: String::new() });
                id
            }
        };
        if let Some(open) = &mut self.open_item
            && !text.is_empty()
        {
            open.text.push_str(text);
            out.push(json!({ "type": "item.updated", "item": { "id": id, "type": kind, "delta": text } }));
        }
        out
    }

    fn complete_item(&mut self, item: &Item, out: &mut Vec<Value>) {
        let (kind, text) = match item {
            Item::Message { role: Role::Assistant, content } => ("agent_message", message_text(content)),
            // Without text, the entry only contains data for the provider.
            Item::Reasoning { text, .. } if text.is_empty() && self.open_item.is_none() => return,
            Item::Reasoning { text, .. } => ("reasoning", text.display_text().into_owned()),
            Item::ToolCall { call_id, name, arguments } => {
                self.requested_calls.insert(call_id.clone(), (name.clone(), arguments.clone()));
                return;
            }
            Item::Message { .. } | Item::ToolResult { .. } | Item::Unknown => return,
        };
        if self.open_item.as_ref().is_some_and(|open| open.kind != kind) {
            self.close_open_item(out);
        }
        let id = self.open_item.take().map_or_else(|| self.next_id(), |open| open.id);
        out.push(json!({ "type": "item.completed", "item": { "id": id, "type": kind, "text": text } }));
    }

    fn start_call(&mut self, dispatch: &ToolDispatch) -> Value {
        let arguments = match (&dispatch.arguments, self.requested_calls.remove(&dispatch.call_id)) {
            (Some(own), _) => Some(own.clone()),
            (None, Some((_, requested))) => Some(requested),
            (None, None) => None,
        };
        let mut item = call_item(self.next_id(), &dispatch.tool, &dispatch.action, arguments.as_ref());
        item.insert("call_id".to_owned(), dispatch.call_id.0.clone().into());
        let mut started = item.clone();
        started.insert("status".to_owned(), "in_progress".into());
        self.calls.insert(dispatch.call_id.clone(), item);
        json!({ "type": "item.started", "item": started })
    }

    fn complete_call(&mut self, result: &ToolResult) -> Option<Value> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
            return None;
        };
        let mut item = match self.calls.remove(call_id) {
            Some(item) => item,
            // A refused or malformed call never started.
            None => {
                let (name, arguments) = self.requested_calls.remove(call_id).unwrap_or_default();
                let mut item = call_item(self.next_id(), &name, &Action::default(), Some(&arguments));
                item.insert("call_id".to_owned(), call_id.0.clone().into());
                item
            }
        };
        item.insert("status".to_owned(), if *is_error { "failed" } else { "completed" }.into());
        item.insert("outcome".to_owned(), result.outcome.as_str().into());
        item.insert("summary".to_owned(), summary.clone().into());
        if let Some(content) = content {
            item.insert("output".to_owned(), content.display_text().into());
        }
        Some(json!({ "type": "item.completed", "item": item }))
    }

    fn fail_turn(&mut self, error: &RunErrored, out: &mut Vec<Value>) {
        self.turn_open = false;
        let error = json!({ "code": error.code.as_str(), "message": error.message });
        out.push(json!({ "type": "turn.failed", "error": error }));
    }

    /// Closes everything that is open when the run has ended.
    fn close_all_items(&mut self, out: &mut Vec<Value>) {
        self.close_open_item(out);
        for (_, mut item) in std::mem::take(&mut self.calls) {
            item.insert("status".to_owned(), "failed".into());
            item.insert("outcome".to_owned(), Outcome::Cancelled.as_str().into());
            out.push(json!({ "type": "item.completed", "item": item }));
        }
    }

    fn close_open_item(&mut self, out: &mut Vec<Value>) {
        if let Some(OpenJsonItem { id, kind, text }) = self.open_item.take() {
            let item = json!({ "id": id, "type": kind, "text": text, "status": "incomplete" });
            out.push(json!({ "type": "item.completed", "item": item }));
        }
    }

    /// Reports an item as completed without a start.
    fn complete_at_once(&mut self, kind: &str, fields: Value) -> Value {
        let mut item = json!({ "id": self.next_id(), "type": kind });
        if let (Some(item), Value::Object(fields)) = (item.as_object_mut(), fields) {
            item.extend(fields);
        }
        json!({ "type": "item.completed", "item": item })
    }

    fn add_usage(&mut self, usage: &LlmUsage) {
        self.usage.input += usage.input;
        self.usage.cached += usage.cache_read;
        self.usage.output += usage.output;
    }

    fn usage_json(&self) -> Value {
        let TurnUsage { input, cached, output } = self.usage;
        json!({ "input_tokens": input, "cached_input_tokens": cached, "output_tokens": output })
    }

    fn next_id(&mut self) -> String {
        let id = format!("item_{}", self.items);
        self.items += 1;
        id
    }
}

/// Returns the text of a message, with placeholders for texts in blobs.
pub(crate) fn message_text(content: &[Content]) -> String {
    let texts = content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Refusal { text } => Some(text.display_text()),
        Content::Image { .. } | Content::Unknown => None,
    });
    texts.collect()
}

/// Builds the item of a call. Its action selects the type; a call without outside effects is reported like
/// that of any other tool.
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
        // As an object if it is valid JSON, else as text.
        let text = arguments.display_text();
        let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text.into_owned()));
        item.insert("arguments".to_owned(), value);
    }
    item
}

#[cfg(test)]
mod tests {
    use minke_protocol::{Delta, LlmRetry};
    use minke_record::{AssistantItem, ChainHash, LlmEnd, LlmOutcome, RunCompleted};

    use super::*;

    fn sample_entry(kind: impl Into<Kind>) -> Entry {
        Entry { seq: 7, ts: 0, run: None, more: false, kind: kind.into(), h: ChainHash::ZERO }
    }

    fn assistant_entry(text: &str) -> Entry {
        sample_entry(AssistantItem { call: 0, item: Item::assistant_message(text) })
    }

    fn text_delta(text: &str) -> Event {
        Event::TextDelta(Delta { text: text.to_owned() })
    }

    fn thinking_delta(text: &str) -> Event {
        Event::ThinkingDelta(Delta { text: text.to_owned() })
    }

    /// Returns `started item_0`, `updated item_0` …
    fn object_names(objects: &[Value]) -> Vec<String> {
        let word = |object: &Value| object["type"].as_str().unwrap_or_default().replace("item.", "");
        objects.iter().map(|object| format!("{} {}", word(object), object["item"]["id"])).collect()
    }

    #[test]
    fn a_message_has_one_id_from_its_first_word_to_its_entry() {
        let mut lines = RunJsonFold::default();
        let mut objects = lines.event_objects(&text_delta("a"));
        objects.extend(lines.event_objects(&text_delta("b")));
        objects.extend(lines.entry_objects(&assistant_entry("ab")));
        let all = ["started \"item_0\"", "updated \"item_0\"", "updated \"item_0\"", "completed \"item_0\""];
        assert_eq!(object_names(&objects), all);
        // A message without live events is completed at once.
        assert_eq!(object_names(&lines.entry_objects(&assistant_entry("c"))), ["completed \"item_1\""]);
    }

    #[test]
    fn every_started_item_is_completed() {
        let cut = sample_entry(LlmEnd {
            call: 0,
            outcome: LlmOutcome::Broken,
            attempts: 1,
            stream_blob: None,
            stream_bytes: None,
        });
        let ended = sample_entry(RunCompleted { result: RunResult::Cancelled, reason: None });
        for end in [cut, ended] {
            let mut lines = RunJsonFold::default();
            let mut objects = lines.event_objects(&thinking_delta("hm"));
            objects.extend(lines.event_objects(&text_delta("a")));
            objects.extend(lines.entry_objects(&end));
            let text = object_names(&objects);
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
        let mut lines = RunJsonFold::default();
        let retry = LlmRetry {
            llm_call: 0,
            failed_attempt: 1,
            max_attempts: 6,
            wait_ms: 90_000,
            status: Some(429),
            error: "busy".to_owned(),
        };
        let objects = lines.event_objects(&Event::LlmRetry(retry));
        let message = objects[0]["item"]["message"].as_str().unwrap();
        assert_eq!(message, "attempt 2 of 6 in 90 s, after error: busy");
        let signed = Item::Reasoning {
            text: "".into(),
            summary: Vec::new(),
            signature: Some("s".into()),
            encrypted: None,
            by: None,
        };
        assert!(lines.entry_objects(&sample_entry(AssistantItem { call: 0, item: signed })).is_empty());
    }

    #[test]
    fn whoever_joins_in_the_middle_gets_what_was_said_before() {
        let mut lines = RunJsonFold::default();
        let open =
            InFlight { blocks: vec![StreamingBlock::Text { text: "ab".to_owned() }], commands: Vec::new() };
        let objects = lines.in_flight_objects(&open);
        assert_eq!(objects[1]["item"]["delta"], "ab");
        assert!(lines.in_flight_objects(&open).is_empty(), "known text is not repeated");
    }
}
