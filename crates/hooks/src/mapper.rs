//! Maps log entries to the events that hooks get.
//!
//! Here: the event of each entry, and the lifecycle events of the API. Elsewhere: the surrounding object
//! (`payload`), the receivers (`observers`). The result depends only on the log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use minke_record::{
    Action, Answer, Ask, AskKind, CallId, Content, Entry, Holder, Item, Kind, Purpose, Role, RunResult,
    SegmentReason, SegmentStart, ToolDispatch, ToolResult, flatten_input,
};
use serde_json::{Map, Value, json};

use crate::event::HookEvent;
use crate::job_events::{JobChange, JobTracker};
use crate::payload::observed_text;

/// The frames that API clients get for an entry, built by the driver.
pub type FramesFn = Arc<dyn Fn(&Entry) -> Vec<Value> + Send + Sync>;

/// The maximum number of calls tracked between their first entry and their result.
const MAX_TRACKED_CALLS: usize = 4096;

/// An event for observers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ObservedEvent {
    pub(crate) event: HookEvent,
    pub(crate) fields: Map<String, Value>,
    pub(crate) tool: Option<String>,
    pub(crate) paths: Vec<String>,
    /// A job has ended or paused: the hooks that its mandate names are notified.
    pub(crate) job_ends: bool,
}

/// The logged data of a call so far.
#[derive(Debug, Clone, Default)]
struct TrackedCall {
    tool: String,
    input: Value,
    action: Option<Action>,
    checked: bool,
    dispatched: bool,
    denied: bool,
}

/// Maps entries in order.
pub(crate) struct EventMapper {
    calls: BTreeMap<String, TrackedCall>,
    order: VecDeque<String>,
    /// The call of each ask.
    asks: BTreeMap<String, String>,
    frames: FramesFn,
    /// The job, if the session is one and was read from its start.
    job: Option<JobTracker>,
}

impl EventMapper {
    pub(crate) fn new(frames: FramesFn) -> EventMapper {
        EventMapper {
            calls: BTreeMap::new(),
            order: VecDeque::new(),
            asks: BTreeMap::new(),
            frames,
            job: None,
        }
    }

    /// The events of an entry.
    pub(crate) fn map_entry(&mut self, entry: &Entry) -> Vec<ObservedEvent> {
        let news = self.job_change(entry);
        let mut all = self.map_events(entry);
        all.extend(self.lifecycle_events(entry));
        if let Some(news) = news {
            // The job event contains more than the entry.
            let same = |one: &ObservedEvent| one.event == HookEvent::Job || one.is_job_lifecycle();
            all.retain(|one| !same(one));
            all.push(ObservedEvent {
                job_ends: news.is_end(),
                ..new_event(HookEvent::Job, news.to_fields())
            });
            all.push(lifecycle_event(news.lifecycle_fields()));
        }
        for happened in &mut all {
            happened.fields.insert("seq".to_owned(), entry.seq.into());
            if let Some(run) = &entry.run {
                happened.fields.insert("run".to_owned(), json!(run));
            }
        }
        all
    }

    fn job_change(&mut self, entry: &Entry) -> Option<JobChange> {
        if let Some((job, news)) = JobTracker::from_entry(entry) {
            self.job = Some(job);
            return Some(news);
        }
        self.job.as_mut()?.apply_entry(entry)
    }

    fn map_events(&mut self, entry: &Entry) -> Vec<ObservedEvent> {
        let one = |event, fields| vec![new_event(event, fields)];
        match &entry.kind {
            Kind::Opened(opened) if opened.holder == Holder::Pod => one(
                HookEvent::SessionStart,
                json!({ "epoch": opened.epoch, "version": opened.version, "sandbox": opened.sandbox.name() }),
            ),
            Kind::UserInput(input) => {
                let text = message_text(&flatten_input(&input.segments));
                one(HookEvent::UserPrompt, json!({ "text": observed_text(&text), "from": input.from }))
            }
            Kind::AssistantItem(item) => {
                if let Item::ToolCall { call_id, name, arguments } = &item.item {
                    let input = arguments.inline().and_then(|text| serde_json::from_str(text).ok());
                    let known = self.tracked_call(call_id);
                    known.tool = name.clone();
                    known.input = input.unwrap_or_else(|| observed_text(&arguments.display_text()));
                }
                Vec::new()
            }
            Kind::ToolDispatch(dispatch) => vec![self.map_dispatch(dispatch)],
            Kind::ToolResult(result) => self.map_result(result).into_iter().collect(),
            Kind::Ask(ask) => vec![ask_event(ask)],
            Kind::RunCompleted(end) => {
                let fields = json!({ "result": end.result, "reason": end.reason });
                let mut all = one(HookEvent::RunEnd, fields);
                if end.result == RunResult::Finished {
                    all.push(new_event(HookEvent::BeforeStop, json!({ "result": end.result })));
                }
                all
            }
            Kind::RunErrored(end) => one(
                HookEvent::RunEnd,
                json!({ "result": "error", "code": end.code, "reason": end.message, "retryable": end.retryable }),
            ),
            Kind::Child(child) => one(
                HookEvent::PodSpawn,
                json!({ "name": child.name, "session": child.session, "call_id": child.call_id,
                        "scope": child.scope }),
            ),
            Kind::ChildEnd(end) => one(
                HookEvent::PodEnd,
                json!({ "name": end.name, "session": end.session, "outcome": end.outcome, "exit": end.exit,
                        "spent": end.spent }),
            ),
            Kind::SegmentStart(segment) if segment.reason == SegmentReason::Compaction => {
                one(HookEvent::Compact, compaction_fields(segment))
            }
            Kind::StateChange(state) => one(
                HookEvent::Job,
                json!({ "state": state.state, "on": state.on, "until": state.until, "reason": state.reason }),
            ),
            Kind::Progress(progress) => one(
                HookEvent::Job,
                json!({ "state": "working", "percent": progress.percent, "note": progress.note }),
            ),
            _ => Vec::new(),
        }
    }

    fn map_dispatch(&mut self, dispatch: &ToolDispatch) -> ObservedEvent {
        let known = self.tracked_call(&dispatch.call_id);
        known.tool = dispatch.tool.clone();
        known.action = Some(dispatch.action.clone());
        if let Some(arguments) = &dispatch.arguments {
            known.input = arguments
                .inline()
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_else(|| observed_text(&arguments.display_text()));
        }
        let fields = json!({
            "call_id": dispatch.call_id,
            "tool": dispatch.tool,
            "input": truncate_texts(known.input.clone()),
            "action": dispatch.action,
            "verdict": dispatch.verdict,
        });
        with_call_fields(new_event(HookEvent::BeforeTool, fields), known)
    }

    fn map_result(&mut self, result: &ToolResult) -> Option<ObservedEvent> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else { return None };
        let known = self.tracked_call(call_id).clone();
        let fields = json!({
            "call_id": call_id,
            "tool": known.tool,
            "input": truncate_texts(known.input.clone()),
            "action": known.action,
            "outcome": result.outcome,
            "is_error": is_error,
            "summary": observed_text(summary),
            "content": content.as_ref().map(|content| observed_text(&content.display_text())),
            "verdict": result.verdict,
        });
        Some(with_call_fields(new_event(HookEvent::AfterTool, fields), &known))
    }

    fn tracked_call(&mut self, call: &CallId) -> &mut TrackedCall {
        if !self.calls.contains_key(&call.0) {
            self.order.push_back(call.0.clone());
            if self.order.len() > MAX_TRACKED_CALLS
                && let Some(oldest) = self.order.pop_front()
            {
                self.calls.remove(&oldest);
                self.asks.retain(|_, about| *about != oldest);
            }
        }
        self.calls.entry(call.0.clone()).or_default()
    }

    /// The lifecycle events of the API for an entry, in order.
    fn lifecycle_events(&mut self, entry: &Entry) -> Vec<ObservedEvent> {
        let frames: Vec<ObservedEvent> = (self.frames)(entry)
            .into_iter()
            .map(|frame| lifecycle_event(json!({ "type": "generic_event_frame", "frame": frame })))
            .collect();
        let one = |fields| vec![lifecycle_event(fields)];
        match &entry.kind {
            Kind::LlmCall(call) if call.purpose == Purpose::Turn => {
                one(json!({ "type": "response_start", "response_id": response_id(call.call) }))
            }
            Kind::AssistantItem(item) => {
                let text = message_text(&item.item);
                if text.is_empty() {
                    return Vec::new();
                }
                one(
                    json!({ "type": "response_delta", "response_id": response_id(item.call), "delta": observed_text(&text) }),
                )
            }
            Kind::LlmEnd(end) => one(
                json!({ "type": "response_end", "response_id": response_id(end.call), "outcome": end.outcome }),
            ),
            Kind::Ask(ask) => self.ask_lifecycle(ask, frames),
            Kind::Answer(answer) => self.answer_lifecycle(answer, frames),
            Kind::ToolDispatch(dispatch) => self.dispatch_lifecycle(dispatch, frames),
            Kind::ToolResult(result) => self.result_lifecycle(result, frames),
            Kind::StateChange(state) => {
                one(json!({ "type": "job_lifecycle", "phase": state.state, "detail": state.reason }))
            }
            Kind::Progress(progress) => one(json!({ "type": "job_lifecycle", "phase": "progress",
                                                    "progress": progress.percent, "detail": progress.note })),
            _ => frames,
        }
    }

    fn ask_lifecycle(&mut self, ask: &Ask, frames: Vec<ObservedEvent>) -> Vec<ObservedEvent> {
        let mut all = Vec::new();
        if let (AskKind::Approval, Some(call)) = (&ask.ask, &ask.subject.call_id) {
            self.asks.insert(ask.id.to_string(), call.0.clone());
            let known = self.tracked_call(call);
            if let Some(tool) = &ask.subject.tool {
                known.tool = tool.clone();
            }
            known.action = known.action.take().or_else(|| ask.subject.action.clone());
            all.extend(precheck_event(known, call, json!({ "verdict": ask.subject.verdict })));
        }
        all.push(approval_event(&ask.id.to_string(), "requested", ask.subject.text.as_deref()));
        all.extend(frames);
        all
    }

    fn answer_lifecycle(&mut self, answer: &Answer, frames: Vec<ObservedEvent>) -> Vec<ObservedEvent> {
        let id = answer.id.to_string();
        let phase = if answer.decision.is_approval() { "approved" } else { "denied" };
        if let Some(known) = self.asks.remove(&id).and_then(|call| self.calls.get_mut(&call)) {
            known.denied = phase == "denied";
        }
        let mut all = vec![approval_event(&id, phase, answer.note.as_deref())];
        all.extend(frames);
        all
    }

    fn dispatch_lifecycle(
        &mut self,
        dispatch: &ToolDispatch,
        frames: Vec<ObservedEvent>,
    ) -> Vec<ObservedEvent> {
        let known = self.tracked_call(&dispatch.call_id);
        let mut all: Vec<ObservedEvent> =
            precheck_event(known, &dispatch.call_id, json!({ "verdict": dispatch.verdict }))
                .into_iter()
                .collect();
        known.dispatched = true;
        all.extend(frames);
        let payload =
            json!({ "call_id": dispatch.call_id, "execution_kind": execution_kind(&dispatch.action) });
        all.push(tool_event(known, &dispatch.call_id, "dispatching", payload));
        all
    }

    fn result_lifecycle(&mut self, result: &ToolResult, frames: Vec<ObservedEvent>) -> Vec<ObservedEvent> {
        let Item::ToolResult { call_id, summary, is_error, .. } = &result.item else { return frames };
        let known = self.tracked_call(call_id);
        let mut all = Vec::new();
        if !known.dispatched {
            // Denied: by policy, a hook or the user.
            all.extend(precheck_event(known, call_id, json!({ "verdict": result.verdict })));
            if !known.denied {
                let reason = result.verdict.as_ref().map_or(summary.as_str(), |verdict| &verdict.reason);
                all.push(approval_event(&format!("approval-{}", call_id.0), "denied", Some(reason)));
            }
            all.extend(frames);
            return all;
        }
        all.extend(frames);
        all.push(if *is_error {
            tool_event(
                known,
                call_id,
                "failed",
                json!({ "call_id": call_id, "error": observed_text(summary) }),
            )
        } else {
            tool_event(known, call_id, "completed", json!({ "call_id": call_id, "ok": true }))
        });
        all
    }
}

impl ObservedEvent {
    fn is_job_lifecycle(&self) -> bool {
        self.event == HookEvent::Lifecycle
            && self.fields.get("type").is_some_and(|word| word == "job_lifecycle")
    }
}

fn new_event(event: HookEvent, fields: Value) -> ObservedEvent {
    let mut all = Map::new();
    all.insert("type".to_owned(), event.as_str().into());
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    ObservedEvent { event, fields: all, tool: None, paths: Vec::new(), job_ends: false }
}

/// A lifecycle event; its type is a name of the API.
fn lifecycle_event(fields: Value) -> ObservedEvent {
    new_event(HookEvent::Lifecycle, fields)
}

fn with_call_fields(mut happened: ObservedEvent, known: &TrackedCall) -> ObservedEvent {
    happened.tool = Some(known.tool.clone());
    happened.paths = known.action.as_ref().map(action_paths).unwrap_or_default();
    happened
}

fn action_paths(action: &Action) -> Vec<String> {
    action.reads.iter().chain(&action.writes).cloned().collect()
}

fn ask_event(ask: &Ask) -> ObservedEvent {
    let subject = &ask.subject;
    let fields = json!({
        "id": ask.id,
        "kind": ask.ask,
        "call_id": subject.call_id,
        "tool": subject.tool,
        "cwd": subject.cwd,
        "text": subject.text.as_deref().map(observed_text),
        "diff": subject.diff.as_deref().map(observed_text),
        "action": subject.action,
        "verdict": subject.verdict,
        "always": subject.always,
        "options": ask.options,
        "expires": ask.expires,
    });
    let mut happened = new_event(HookEvent::Ask, fields);
    happened.tool = subject.tool.clone();
    happened.paths = subject.action.as_ref().map(action_paths).unwrap_or_default();
    happened
}

fn compaction_fields(segment: &SegmentStart) -> Value {
    json!({
        "segment": segment.segment,
        "to_seq": segment.compacted_to_seq,
        "before": segment.tokens.as_ref().map(|tokens| tokens.before),
        "after": segment.tokens.as_ref().map(|tokens| tokens.after),
    })
}

fn precheck_event(known: &mut TrackedCall, call: &CallId, payload: Value) -> Option<ObservedEvent> {
    let first = !std::mem::replace(&mut known.checked, true);
    first.then(|| tool_event(known, call, "precheck", payload))
}

fn tool_event(known: &TrackedCall, call: &CallId, phase: &str, payload: Value) -> ObservedEvent {
    lifecycle_event(
        json!({ "type": "tool_lifecycle", "response_id": call, "tool_name": known.tool, "phase": phase,
                      "payload": payload }),
    )
}

fn approval_event(id: &str, phase: &str, reason: Option<&str>) -> ObservedEvent {
    lifecycle_event(
        json!({ "type": "approval_lifecycle", "approval_id": id, "phase": phase, "reason": reason.map(observed_text) }),
    )
}

fn execution_kind(action: &Action) -> &'static str {
    match action {
        Action { mcp: Some(_), .. } => "mcp",
        Action { command: Some(_), .. } => "shell",
        _ => "tool",
    }
}

fn response_id(call: u64) -> String {
    format!("resp-{call}")
}

/// The text of a message; empty for other items.
fn message_text(item: &Item) -> String {
    let Item::Message { role, content } = item else { return String::new() };
    if !matches!(role, Role::User | Role::Assistant) {
        return String::new();
    }
    let texts = content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Refusal { text } => Some(text.display_text()),
        Content::Image { .. } | Content::Unknown => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A call's input with long texts truncated: the log has the full input.
fn truncate_texts(value: Value) -> Value {
    match value {
        Value::String(text) => observed_text(&text),
        Value::Array(list) => list.into_iter().map(truncate_texts).collect(),
        Value::Object(object) => object.into_iter().map(|(key, one)| (key, truncate_texts(one))).collect(),
        other => other,
    }
}
