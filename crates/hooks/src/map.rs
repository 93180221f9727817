//! From entries of the log to what happened, as hooks are told it.
//!
//! Here: which entry is which event, and the lifecycle that API clients know. Elsewhere: the object around it
//! (`payload`), who gets it (`observe`). The same log gives the same events: nothing here looks at anything else.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use minke_record::{
    Action, Answer, Ask, AskKind, CallId, Content, Entry, Holder, Item, Kind, Purpose, Role, RunResult,
    SegmentReason, SegmentStart, ToolDispatch, ToolResult, flatten,
};
use serde_json::{Map, Value, json};

use crate::event::Event;
use crate::payload::told;
use crate::work::{News, Work};

/// The frames that API clients get for an entry, as the driver makes them.
pub type Frames = Arc<dyn Fn(&Entry) -> Vec<Value> + Send + Sync>;

/// So many calls are remembered between their first entry and their result.
const CALLS_MOST: usize = 4096;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Happened {
    pub(crate) event: Event,
    pub(crate) fields: Map<String, Value>,
    pub(crate) tool: Option<String>,
    pub(crate) paths: Vec<String>,
    /// A job is over, or stands still: those hear of it whom its mandate names.
    pub(crate) job_ends: bool,
}

/// What was said of a call so far.
#[derive(Debug, Clone, Default)]
struct Known {
    tool: String,
    input: Value,
    action: Option<Action>,
    checked: bool,
    dispatched: bool,
    denied: bool,
}

/// Reads entries in their order.
pub(crate) struct Mapper {
    calls: BTreeMap<String, Known>,
    order: VecDeque<String>,
    /// Which call an ask is about.
    asks: BTreeMap<String, String>,
    frames: Frames,
    /// The job, if the session is one and was read from its beginning.
    job: Option<Work>,
}

impl Mapper {
    pub(crate) fn new(frames: Frames) -> Mapper {
        Mapper { calls: BTreeMap::new(), order: VecDeque::new(), asks: BTreeMap::new(), frames, job: None }
    }

    /// What an entry tells.
    pub(crate) fn take(&mut self, entry: &Entry) -> Vec<Happened> {
        let news = self.job_news(entry);
        let mut all = self.events(entry);
        all.extend(self.lifecycle(entry));
        if let Some(news) = news {
            // What the job makes of an entry says more than the entry.
            let same = |one: &Happened| one.event == Event::Job || one.is_job_lifecycle();
            all.retain(|one| !same(one));
            all.push(Happened { job_ends: news.ends(), ..happened(Event::Job, news.fields()) });
            all.push(lifecycle(news.lifecycle()));
        }
        for happened in &mut all {
            happened.fields.insert("seq".to_owned(), entry.seq.into());
            if let Some(run) = &entry.run {
                happened.fields.insert("run".to_owned(), json!(run));
            }
        }
        all
    }

    fn job_news(&mut self, entry: &Entry) -> Option<News> {
        if let Some((job, news)) = Work::begun(entry) {
            self.job = Some(job);
            return Some(news);
        }
        self.job.as_mut()?.take(entry)
    }

    fn events(&mut self, entry: &Entry) -> Vec<Happened> {
        let one = |event, fields| vec![happened(event, fields)];
        match &entry.kind {
            Kind::Opened(opened) if opened.holder == Holder::Pod => one(
                Event::SessionStart,
                json!({ "epoch": opened.epoch, "version": opened.version, "fence": opened.fence }),
            ),
            Kind::UserInput(input) => {
                let text = text_of(&flatten(&input.segments));
                one(Event::UserPrompt, json!({ "text": told(&text), "from": input.from }))
            }
            Kind::AssistantItem(item) => {
                if let Item::ToolCall { call_id, name, arguments } = &item.item {
                    let input = arguments.here().and_then(|text| serde_json::from_str(text).ok());
                    let known = self.known(call_id);
                    known.tool = name.clone();
                    known.input = input.unwrap_or_else(|| told(&arguments.show()));
                }
                Vec::new()
            }
            Kind::ToolDispatch(dispatch) => vec![self.dispatched(dispatch)],
            Kind::ToolResult(result) => self.resulted(result).into_iter().collect(),
            Kind::Ask(ask) => vec![asked(ask)],
            Kind::RunCompleted(end) => {
                let fields = json!({ "result": end.result, "reason": end.reason });
                let mut all = one(Event::RunEnd, fields);
                if end.result == RunResult::Finished {
                    all.push(happened(Event::BeforeStop, json!({ "result": end.result })));
                }
                all
            }
            Kind::RunErrored(end) => one(
                Event::RunEnd,
                json!({ "result": "error", "code": end.code, "reason": end.message, "retryable": end.retryable }),
            ),
            Kind::Child(child) => one(
                Event::PodSpawn,
                json!({ "name": child.name, "session": child.session, "call_id": child.call_id,
                        "scope": child.scope }),
            ),
            Kind::ChildEnd(end) => one(
                Event::PodEnd,
                json!({ "name": end.name, "session": end.session, "outcome": end.outcome, "exit": end.exit,
                        "spent": end.spent }),
            ),
            Kind::SegmentStart(segment) if segment.reason == SegmentReason::Compaction => {
                one(Event::Compact, compacted(segment))
            }
            Kind::StateChange(state) => one(
                Event::Job,
                json!({ "state": state.state, "on": state.on, "until": state.until, "reason": state.reason }),
            ),
            Kind::Progress(progress) => one(
                Event::Job,
                json!({ "state": "working", "percent": progress.percent, "note": progress.note }),
            ),
            _ => Vec::new(),
        }
    }

    fn dispatched(&mut self, dispatch: &ToolDispatch) -> Happened {
        let known = self.known(&dispatch.call_id);
        known.tool = dispatch.tool.clone();
        known.action = Some(dispatch.action.clone());
        if let Some(arguments) = &dispatch.arguments {
            known.input = arguments
                .here()
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_else(|| told(&arguments.show()));
        }
        let fields = json!({
            "call_id": dispatch.call_id,
            "tool": dispatch.tool,
            "input": bounded(known.input.clone()),
            "action": dispatch.action,
            "verdict": dispatch.verdict,
        });
        with_call(happened(Event::BeforeTool, fields), known)
    }

    fn resulted(&mut self, result: &ToolResult) -> Option<Happened> {
        let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else { return None };
        let known = self.known(call_id).clone();
        let fields = json!({
            "call_id": call_id,
            "tool": known.tool,
            "input": bounded(known.input.clone()),
            "action": known.action,
            "outcome": result.outcome,
            "is_error": is_error,
            "summary": told(summary),
            "content": content.as_ref().map(|content| told(&content.show())),
            "verdict": result.verdict,
        });
        Some(with_call(happened(Event::AfterTool, fields), &known))
    }

    fn known(&mut self, call: &CallId) -> &mut Known {
        if !self.calls.contains_key(&call.0) {
            self.order.push_back(call.0.clone());
            if self.order.len() > CALLS_MOST
                && let Some(oldest) = self.order.pop_front()
            {
                self.calls.remove(&oldest);
                self.asks.retain(|_, about| *about != oldest);
            }
        }
        self.calls.entry(call.0.clone()).or_default()
    }

    /// The events of an entry as API clients know them, in their order.
    fn lifecycle(&mut self, entry: &Entry) -> Vec<Happened> {
        let frames: Vec<Happened> = (self.frames)(entry)
            .into_iter()
            .map(|frame| lifecycle(json!({ "type": "generic_event_frame", "frame": frame })))
            .collect();
        let one = |fields| vec![lifecycle(fields)];
        match &entry.kind {
            Kind::LlmCall(call) if call.purpose == Purpose::Turn => {
                one(json!({ "type": "response_start", "response_id": response(call.call) }))
            }
            Kind::AssistantItem(item) => {
                let text = text_of(&item.item);
                if text.is_empty() {
                    return Vec::new();
                }
                one(
                    json!({ "type": "response_delta", "response_id": response(item.call), "delta": told(&text) }),
                )
            }
            Kind::LlmEnd(end) => one(
                json!({ "type": "response_end", "response_id": response(end.call), "outcome": end.outcome }),
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

    fn ask_lifecycle(&mut self, ask: &Ask, frames: Vec<Happened>) -> Vec<Happened> {
        let mut all = Vec::new();
        if let (AskKind::Approval, Some(call)) = (&ask.ask, &ask.subject.call_id) {
            self.asks.insert(ask.id.to_string(), call.0.clone());
            let known = self.known(call);
            if let Some(tool) = &ask.subject.tool {
                known.tool = tool.clone();
            }
            known.action = known.action.take().or_else(|| ask.subject.action.clone());
            all.extend(precheck(known, call, json!({ "verdict": ask.subject.verdict })));
        }
        all.push(approval(&ask.id.to_string(), "requested", ask.subject.text.as_deref()));
        all.extend(frames);
        all
    }

    fn answer_lifecycle(&mut self, answer: &Answer, frames: Vec<Happened>) -> Vec<Happened> {
        let id = answer.id.to_string();
        let phase = if answer.decision.approves() { "approved" } else { "denied" };
        if let Some(known) = self.asks.remove(&id).and_then(|call| self.calls.get_mut(&call)) {
            known.denied = phase == "denied";
        }
        let mut all = vec![approval(&id, phase, answer.note.as_deref())];
        all.extend(frames);
        all
    }

    fn dispatch_lifecycle(&mut self, dispatch: &ToolDispatch, frames: Vec<Happened>) -> Vec<Happened> {
        let known = self.known(&dispatch.call_id);
        let mut all: Vec<Happened> =
            precheck(known, &dispatch.call_id, json!({ "verdict": dispatch.verdict })).into_iter().collect();
        known.dispatched = true;
        all.extend(frames);
        let payload =
            json!({ "call_id": dispatch.call_id, "execution_kind": execution_kind(&dispatch.action) });
        all.push(tool(known, &dispatch.call_id, "dispatching", payload));
        all
    }

    fn result_lifecycle(&mut self, result: &ToolResult, frames: Vec<Happened>) -> Vec<Happened> {
        let Item::ToolResult { call_id, summary, is_error, .. } = &result.item else { return frames };
        let known = self.known(call_id);
        let mut all = Vec::new();
        if !known.dispatched {
            // Refused: by policy, a hook or a person.
            all.extend(precheck(known, call_id, json!({ "verdict": result.verdict })));
            if !known.denied {
                let reason = result.verdict.as_ref().map_or(summary.as_str(), |verdict| &verdict.reason);
                all.push(approval(&format!("approval-{}", call_id.0), "denied", Some(reason)));
            }
            all.extend(frames);
            return all;
        }
        all.extend(frames);
        all.push(if *is_error {
            tool(known, call_id, "failed", json!({ "call_id": call_id, "error": told(summary) }))
        } else {
            tool(known, call_id, "completed", json!({ "call_id": call_id, "ok": true }))
        });
        all
    }
}

impl Happened {
    fn is_job_lifecycle(&self) -> bool {
        self.event == Event::Lifecycle && self.fields.get("type").is_some_and(|word| word == "job_lifecycle")
    }
}

fn happened(event: Event, fields: Value) -> Happened {
    let mut all = Map::new();
    all.insert("type".to_owned(), event.as_str().into());
    if let Value::Object(fields) = fields {
        all.extend(fields);
    }
    Happened { event, fields: all, tool: None, paths: Vec::new(), job_ends: false }
}

/// Its type is one of the names that API clients know.
fn lifecycle(fields: Value) -> Happened {
    happened(Event::Lifecycle, fields)
}

fn with_call(mut happened: Happened, known: &Known) -> Happened {
    happened.tool = Some(known.tool.clone());
    happened.paths = known.action.as_ref().map(paths).unwrap_or_default();
    happened
}

fn paths(action: &Action) -> Vec<String> {
    action.reads.iter().chain(&action.writes).cloned().collect()
}

fn asked(ask: &Ask) -> Happened {
    let subject = &ask.subject;
    let fields = json!({
        "id": ask.id,
        "kind": ask.ask,
        "call_id": subject.call_id,
        "tool": subject.tool,
        "cwd": subject.cwd,
        "text": subject.text.as_deref().map(told),
        "diff": subject.diff.as_deref().map(told),
        "action": subject.action,
        "verdict": subject.verdict,
        "always": subject.always,
        "options": ask.options,
        "expires": ask.expires,
    });
    let mut happened = happened(Event::Ask, fields);
    happened.tool = subject.tool.clone();
    happened.paths = subject.action.as_ref().map(paths).unwrap_or_default();
    happened
}

fn compacted(segment: &SegmentStart) -> Value {
    json!({
        "segment": segment.segment,
        "to_seq": segment.compacted_to_seq,
        "before": segment.tokens.as_ref().map(|tokens| tokens.before),
        "after": segment.tokens.as_ref().map(|tokens| tokens.after),
    })
}

fn precheck(known: &mut Known, call: &CallId, payload: Value) -> Option<Happened> {
    let first = !std::mem::replace(&mut known.checked, true);
    first.then(|| tool(known, call, "precheck", payload))
}

fn tool(known: &Known, call: &CallId, phase: &str, payload: Value) -> Happened {
    lifecycle(json!({ "type": "tool_lifecycle", "response_id": call, "tool_name": known.tool, "phase": phase,
                      "payload": payload }))
}

fn approval(id: &str, phase: &str, reason: Option<&str>) -> Happened {
    lifecycle(
        json!({ "type": "approval_lifecycle", "approval_id": id, "phase": phase, "reason": reason.map(told) }),
    )
}

fn execution_kind(action: &Action) -> &'static str {
    match action {
        Action { mcp: Some(_), .. } => "mcp",
        Action { command: Some(_), .. } => "shell",
        _ => "tool",
    }
}

fn response(call: u64) -> String {
    format!("resp-{call}")
}

/// What a message says. Other items say nothing.
fn text_of(item: &Item) -> String {
    let Item::Message { role, content } = item else { return String::new() };
    if !matches!(role, Role::User | Role::Assistant) {
        return String::new();
    }
    let texts = content.iter().filter_map(|part| match part {
        Content::Text { text } | Content::Refusal { text } => Some(text.show()),
        Content::Image { .. } | Content::Unknown => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// A call's input with its long texts cut: the log has the whole.
fn bounded(value: Value) -> Value {
    match value {
        Value::String(text) => told(&text),
        Value::Array(list) => list.into_iter().map(bounded).collect(),
        Value::Object(object) => object.into_iter().map(|(key, one)| (key, bounded(one))).collect(),
        other => other,
    }
}
