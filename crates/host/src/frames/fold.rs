//! Derives frames from entries. Pure; its state is the data that later frames need (open calls, the open turn).
//!
//! Elsewhere: live events (`live_frames`), the frames of a call (`protocol::api`).
//! Invariant: a call's state is dropped with its result, so that the state stays small
//! (`what_has_ended_is_not_kept`).

use std::collections::BTreeMap;

use minke_protocol::api::{ApiEvent, CallDescription, CallFold};
use minke_record::{
    Action, Ask, AskKind, AssistantItem, CallId, Content, Entry, GoalChange, Item, Kind, LlmCall, Outcome,
    Position, Purpose, RunId, SessionId, Text, ToolDispatch, TurnResult,
};

use super::job::JobFold;
use super::{Frame, FrameContent, FrameId, FramePosition, OutputChannel, ThreadFrame, ThreadGoal, UserInput};

/// The maximum number of open calls. No log of Minke has more.
const MAX_OPEN_CALLS: usize = 4_096;

/// The fold of a thread's entries so far.
#[derive(Debug, Clone)]
pub struct FrameFold {
    pub(crate) thread: SessionId,
    pub(crate) cwd: String,
    /// Calls without a result.
    calls: BTreeMap<CallId, OpenCall>,
    /// The turn that has started and not ended.
    open_turn: Option<String>,
    /// The open run.
    pub(crate) open_run: Option<RunId>,
    /// Background commands of finished calls, by call.
    pub(crate) background_commands: BTreeMap<CallId, String>,
    /// The channels with live output of blocks that are not in the log yet.
    pub(crate) live_channels: Vec<OutputChannel>,
    pub(crate) head: Option<Position>,
    /// Only for a thread that is a job.
    job: Option<JobFold>,
}

/// A call, and the activity that its dispatch announced.
#[derive(Debug, Clone)]
struct OpenCall {
    fold: CallFold,
    activity: Option<CallActivity>,
}

/// The activity of a started call, as frames show it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum CallActivity {
    Command(String),
    Patch(Vec<String>),
    Mcp { server: String, tool: String },
}

impl FrameFold {
    pub fn new(thread: SessionId) -> FrameFold {
        FrameFold {
            thread,
            cwd: String::new(),
            calls: BTreeMap::new(),
            open_turn: None,
            open_run: None,
            background_commands: BTreeMap::new(),
            live_channels: Vec::new(),
            head: None,
            job: None,
        }
    }

    /// Returns the last folded entry.
    pub fn head(&self) -> Option<Position> {
        self.head
    }

    /// Returns the frames of an entry, in order.
    pub fn fold_entry(&mut self, entry: &Entry) -> Vec<Frame> {
        let position = Position { seq: entry.seq, h: entry.h };
        self.head = Some(position);
        let mut contents = Vec::new();
        self.entry_frames(entry, &mut contents);
        self.job_frames(entry, &mut contents);
        let (thread, ts) = (self.thread, entry.ts);
        let framed = |(n, content): (u32, FrameContent)| Frame {
            position: FramePosition::AtEntry(FrameId { position, n }),
            thread,
            ts,
            content,
        };
        (0..).zip(contents).map(framed).collect()
    }

    /// Returns the command that a call runs, or left running.
    pub(crate) fn command_of_call(&self, call: &CallId) -> Option<&str> {
        let open = self.calls.get(call).and_then(|call| match &call.activity {
            Some(CallActivity::Command(command)) => Some(command.as_str()),
            _ => None,
        });
        open.or_else(|| self.background_commands.get(call).map(String::as_str))
    }

    fn entry_frames(&mut self, entry: &Entry, out: &mut Vec<FrameContent>) {
        match &entry.kind {
            Kind::SessionStart(start) => self.cwd.clone_from(&start.cwd),
            // Background commands end with their process.
            Kind::Opened(_) => self.background_commands.clear(),
            Kind::Invoke(_) => {
                self.open_run = entry.run;
                out.extend(frame_of_run(entry.run, |response_id| ThreadFrame::ResponseStart { response_id }));
            }
            Kind::LlmCall(call) => self.begin_model_call(call, entry.run, out),
            Kind::AssistantItem(block) => self.finish_block(block, entry.run, out),
            Kind::LlmEnd(_) => self.live_channels.clear(),
            Kind::Ask(ask) if ask.ask != AskKind::Approval => out.extend(question_frame(ask)),
            Kind::Ask(ask) => {
                if let Some(id) = &ask.subject.call_id {
                    self.ensure_call(id, ask.subject.tool.as_deref());
                }
                self.update_calls(entry, out);
            }
            Kind::Answer(_) => self.update_calls(entry, out),
            Kind::ToolDispatch(dispatch) => self.begin_call(dispatch, entry, out),
            Kind::ToolResult(result) => self.finish_call(result, entry, out),
            Kind::TurnEnd(end) => {
                self.open_turn = None;
                let turn_id = format_turn_id(entry.run, end.turn);
                out.push(match &end.result {
                    TurnResult::Finished => ThreadFrame::TurnComplete { turn_id }.into(),
                    other => ThreadFrame::TurnAborted { turn_id, reason: other.to_string() }.into(),
                });
            }
            Kind::RunCompleted(done) => self.finish_run(entry.run, done.result.as_str(), out),
            Kind::RunErrored(failed) => {
                out.push(
                    ThreadFrame::Error {
                        response_id: entry.run.map(|run| run.to_string()),
                        code: failed.code.clone(),
                        message: failed.message.clone(),
                    }
                    .into(),
                );
                self.finish_run(entry.run, "error", out);
            }
            Kind::Goal(goal) => out.push(match &goal.change {
                GoalChange::Clear => ThreadFrame::ThreadGoalCleared.into(),
                change => {
                    let goal = ThreadGoal {
                        objective: goal.text.clone(),
                        status: if *change == GoalChange::Done { "done" } else { "active" },
                        used: goal.used,
                        evidence: goal.evidence.clone(),
                    };
                    ThreadFrame::ThreadGoalUpdated { goal }.into()
                }
            }),
            // A rewound run or turn is no longer open.
            Kind::Rewound(_) => {
                self.calls.clear();
                self.open_turn = None;
            }
            _ => {}
        }
    }

    fn job_frames(&mut self, entry: &Entry, out: &mut Vec<FrameContent>) {
        let items = match (&entry.kind, &mut self.job) {
            (Kind::SessionStart(start), job) => {
                *job = JobFold::from_session_start(start, entry);
                job.as_ref().map(|job| job.frames_at(entry.seq)).unwrap_or_default()
            }
            (_, Some(job)) => job.fold_entry(entry),
            (_, None) => return,
        };
        let job_id = format!("s_{}", self.thread);
        let frame = |item| ThreadFrame::JobUpdated { job_id: job_id.clone(), item }.into();
        out.extend(items.into_iter().map(frame));
    }

    fn begin_model_call(&mut self, call: &LlmCall, run: Option<RunId>, out: &mut Vec<FrameContent>) {
        if call.purpose != Purpose::Turn || call.continues.is_some() {
            return;
        }
        let turn_id = format_turn_id(run, call.turn);
        self.open_turn = Some(turn_id.clone());
        out.push(ThreadFrame::TurnStarted { turn_id }.into());
    }

    /// Returns the frames of a complete block, which replaces its live output.
    fn finish_block(&mut self, block: &AssistantItem, run: Option<RunId>, out: &mut Vec<FrameContent>) {
        let live_channels = &mut self.live_channels;
        let mut push_complete = |text: &Text, channel| {
            live_channels.retain(|shown| *shown != channel);
            out.extend(frame_of_run(run, |response_id| ThreadFrame::ResponseDelta {
                response_id,
                delta: text.inline().unwrap_or_default().to_owned(),
                channel,
                whole: true,
                blob: match text {
                    Text::Blob(name) => Some(name.blob.clone()),
                    Text::Inline(_) => None,
                },
            }));
        };
        match &block.item {
            Item::Message { content, .. } => {
                for part in content {
                    if let Content::Text { text } | Content::Refusal { text } = part {
                        push_complete(text, OutputChannel::Text);
                    }
                }
            }
            Item::Reasoning { text, summary, .. } if text.is_empty() => {
                push_complete(&Text::Inline(summary.join("\n")), OutputChannel::Reasoning);
            }
            Item::Reasoning { text, .. } => push_complete(text, OutputChannel::Reasoning),
            Item::ToolCall { call_id, name, arguments } => {
                let view = self.call_view(call_id, name, &arguments.display_text());
                self.insert_call(call_id.clone(), view);
            }
            Item::ToolResult { .. } | Item::Unknown => {}
        }
    }

    fn begin_call(&mut self, dispatch: &ToolDispatch, entry: &Entry, out: &mut Vec<FrameContent>) {
        self.ensure_call(&dispatch.call_id, Some(&dispatch.tool));
        self.update_calls(entry, out);
        let doing =
            call_activity(&dispatch.action, dispatch.preview.as_ref().map(|preview| preview.path.as_str()));
        if let Some(doing) = &doing {
            out.extend(begin_frames(doing, &dispatch.call_id, &self.cwd));
        }
        if let Some(call) = self.calls.get_mut(&dispatch.call_id) {
            call.activity = doing;
        }
    }

    fn finish_call(&mut self, result: &minke_record::ToolResult, entry: &Entry, out: &mut Vec<FrameContent>) {
        let Item::ToolResult { call_id, summary, .. } = &result.item else { return };
        self.ensure_call(call_id, None);
        if let Some(doing) = self.calls.get_mut(call_id).and_then(|call| call.activity.take()) {
            if let (CallActivity::Command(command), true) = (&doing, runs_in_background(summary)) {
                self.background_commands.insert(call_id.clone(), command.clone());
                while self.background_commands.len() > MAX_OPEN_CALLS {
                    self.background_commands.pop_first();
                }
            } else {
                out.extend(end_frames(&doing, call_id, summary, result.outcome == Outcome::Done));
            }
        }
        self.update_calls(entry, out);
        self.calls.remove(call_id);
    }

    /// Ends a run and everything in it that is open.
    fn finish_run(&mut self, run: Option<RunId>, reason: &str, out: &mut Vec<FrameContent>) {
        self.live_channels.clear();
        self.open_run = None;
        if let Some(turn_id) = self.open_turn.take() {
            out.push(ThreadFrame::TurnAborted { turn_id, reason: reason.to_owned() }.into());
        }
        out.extend(frame_of_run(run, |response_id| ThreadFrame::ResponseEnd { response_id }));
    }

    fn update_calls(&mut self, entry: &Entry, out: &mut Vec<FrameContent>) {
        for call in self.calls.values_mut() {
            out.extend(call.fold.apply_entry(entry).into_iter().filter_map(|event| match event {
                ApiEvent::GenericEventFrame { frame } => Some(FrameContent::Call(frame)),
                ApiEvent::ToolLifecycle { .. } | ApiEvent::ApprovalLifecycle { .. } => None,
            }));
        }
    }

    /// Ensures that a call is known. A call that the model did not make has no entry before its ask or dispatch.
    fn ensure_call(&mut self, call: &CallId, tool: Option<&str>) {
        if !self.calls.contains_key(call) {
            let view = self.call_view(call, tool.unwrap_or_default(), "{}");
            self.insert_call(call.clone(), view);
        }
    }

    fn insert_call(&mut self, id: CallId, view: CallDescription) {
        self.calls.insert(id, OpenCall { fold: CallFold::new(view), activity: None });
        while self.calls.len() > MAX_OPEN_CALLS {
            self.calls.pop_first();
        }
    }

    fn call_view(&self, call: &CallId, tool: &str, arguments: &str) -> CallDescription {
        CallDescription {
            call_id: call.clone(),
            tool: tool.to_owned(),
            arguments: arguments.to_owned(),
            cwd: self.cwd.clone(),
        }
    }

    /// Returns whether nothing is open: then the following frames do not depend on earlier entries.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.is_empty()
            && self.open_turn.is_none()
            && self.open_run.is_none()
            && self.background_commands.is_empty()
    }
}

fn frame_of_run(run: Option<RunId>, make: impl FnOnce(String) -> ThreadFrame) -> Option<FrameContent> {
    run.map(|run| make(run.to_string()).into())
}

fn format_turn_id(run: Option<RunId>, turn: u64) -> String {
    format!("{}:{turn}", run.map(|run| run.to_string()).unwrap_or_default())
}

fn question_frame(ask: &Ask) -> Option<FrameContent> {
    let text = ask.subject.text.clone().unwrap_or_default();
    let request_id = ask.id.to_string();
    Some(match ask.ask {
        AskKind::Question => {
            let request = UserInput { request_id, question: text, options: ask.options.clone() };
            ThreadFrame::UserInputRequest { request }.into()
        }
        AskKind::Elicitation => {
            let server_name = ask.subject.tool.clone().unwrap_or_default();
            ThreadFrame::ElicitationRequest { server_name, request_id, prompt: text }.into()
        }
        AskKind::Approval | AskKind::Other(_) => return None,
    })
}

fn call_activity(action: &Action, preview: Option<&str>) -> Option<CallActivity> {
    if let Some(command) = &action.command {
        return Some(CallActivity::Command(command.clone()));
    }
    if let Some(name) = &action.mcp {
        let mut words = name.strip_prefix("mcp__").unwrap_or(name).splitn(2, "__");
        let mut word = || words.next().unwrap_or_default().to_owned();
        return Some(CallActivity::Mcp { server: word(), tool: word() });
    }
    let paths = match preview {
        Some(path) => vec![path.to_owned()],
        None => action.writes.clone(),
    };
    (!paths.is_empty()).then_some(CallActivity::Patch(paths))
}

fn begin_frames(doing: &CallActivity, call_id: &CallId, cwd: &str) -> Vec<FrameContent> {
    match doing {
        CallActivity::Command(command) => {
            let (call_id, command, cwd) = (call_id.clone(), command.clone(), cwd.to_owned());
            vec![ThreadFrame::ExecCommandBegin { call_id, command, cwd }.into()]
        }
        CallActivity::Patch(paths) => {
            let begin = |path: &String| {
                ThreadFrame::PatchApplyBegin { call_id: call_id.clone(), path: path.clone() }.into()
            };
            paths.iter().map(begin).collect()
        }
        CallActivity::Mcp { server, tool } => {
            let (server_name, tool_name) = (server.clone(), tool.clone());
            vec![ThreadFrame::McpToolCallBegin { server_name, tool_name }.into()]
        }
    }
}

fn end_frames(doing: &CallActivity, call_id: &CallId, summary: &str, ok: bool) -> Vec<FrameContent> {
    match doing {
        CallActivity::Command(command) => {
            let (call_id, command) = (call_id.clone(), command.clone());
            vec![ThreadFrame::ExecCommandEnd { call_id, command, exit_code: parse_exit_code(summary) }.into()]
        }
        CallActivity::Patch(paths) => {
            let end = |path: &String| {
                ThreadFrame::PatchApplyEnd { call_id: call_id.clone(), path: path.clone(), ok }.into()
            };
            paths.iter().map(end).collect()
        }
        CallActivity::Mcp { server, tool } => {
            let (server_name, tool_name) = (server.clone(), tool.clone());
            vec![ThreadFrame::McpToolCallEnd { server_name, tool_name, ok }.into()]
        }
    }
}

/// Parses the exit code from a shell tool's summary, `… (exit 3)`. The log does not contain it elsewhere.
fn parse_exit_code(summary: &str) -> Option<i32> {
    summary.strip_suffix(')')?.rsplit_once("(exit ")?.1.parse().ok()
}

/// Returns whether the summary reports a background command: `… (running as x)`.
fn runs_in_background(summary: &str) -> bool {
    summary.ends_with(')') && summary.rsplit_once(" (").is_some_and(|(_, how)| how.starts_with("running as "))
}

#[cfg(test)]
mod tests {
    use minke_record::line;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_has_ended_is_not_kept() {
        let run = "01970000-0000-7000-8000-000000000005";
        let by = json!({ "actor": "person" });
        let call = json!({ "kind": "tool_call", "call_id": "c", "name": "Bash", "arguments": "{}" });
        let result = json!({ "kind": "tool_result", "call_id": "c", "summary": "$ x (exit 0)" });
        let story: [(Value, bool); 5] = [
            (json!({ "kind": "invoke", "trigger": "user_send", "by": by, "attempt": 1 }), false),
            (json!({ "kind": "assistant_item", "call": 1, "item": call }), false),
            (json!({ "kind": "tool_result", "item": result, "outcome": "done" }), false),
            (json!({ "kind": "run_completed", "result": "finished" }), true),
            (json!({ "kind": "renamed", "name": "n", "by": by }), true),
        ];
        let mut fold = FrameFold::new(run.parse().expect("a valid id"));
        for (seq, (kind, plain)) in story.into_iter().enumerate() {
            let mut object = json!({ "seq": seq, "ts": 1, "run": run, "h": "0".repeat(32) });
            object.as_object_mut().expect("an object").extend(kind.as_object().expect("an object").clone());
            fold.fold_entry(&line::parse_entry(&object.to_string()).expect("a valid entry"));
            assert_eq!(fold.is_idle(), plain, "after {kind}");
        }
        assert!(fold.calls.is_empty());
    }
}
