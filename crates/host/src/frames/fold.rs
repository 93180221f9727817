//! From entries to frames: the one fold. Pure; what it keeps is what later frames must name (open calls, the open turn).
//!
//! Elsewhere: live events (`live`), the frames of a call (`protocol::api`).
//! Invariant: a call's state goes with its result, so that what is kept stays small
//! (`what_has_ended_is_not_kept`).

use std::collections::BTreeMap;

use minke_protocol::api::{ApiEvent, CallFold, CallView};
use minke_record::{
    Action, Ask, AskKind, AssistantItem, CallId, Content, Entry, GoalChange, Item, Kind, LlmCall, Outcome,
    Position, Purpose, RunId, SessionId, Text, ToolDispatch, TurnResult,
};

use super::job::JobFold;
use super::{Channel, Frame, FrameId, Goal, Place, ThreadFrame, Told, UserInput};

/// Calls that are kept at most: a log that leaves more without a result is not one of ours.
const CALLS: usize = 4_096;

/// A thread's frames as far as its entries were seen.
#[derive(Debug, Clone)]
pub struct Frames {
    pub(crate) thread: SessionId,
    pub(crate) cwd: String,
    /// Calls that have no result yet.
    calls: BTreeMap<CallId, Call>,
    /// The turn that was started and has not ended.
    turn: Option<String>,
    /// The run that goes on.
    pub(crate) run: Option<RunId>,
    /// Commands that outlive their calls, by call.
    pub(crate) behind: BTreeMap<CallId, String>,
    /// What was shown live of blocks that are not in the log yet.
    pub(crate) shown: Vec<Channel>,
    pub(crate) head: Option<Position>,
    /// Only of a thread that is a job.
    job: Option<JobFold>,
}

/// A call, and what its dispatch said it would do.
#[derive(Debug, Clone)]
struct Call {
    fold: CallFold,
    doing: Option<Doing>,
}

/// What a started call does, in the words of frames.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Doing {
    Command(String),
    Patch(Vec<String>),
    Mcp { server: String, tool: String },
}

impl Frames {
    pub fn new(thread: SessionId) -> Frames {
        Frames {
            thread,
            cwd: String::new(),
            calls: BTreeMap::new(),
            turn: None,
            run: None,
            behind: BTreeMap::new(),
            shown: Vec::new(),
            head: None,
            job: None,
        }
    }

    /// The last entry that was folded.
    pub fn head(&self) -> Option<Position> {
        self.head
    }

    /// What an entry tells, in order.
    pub fn entry(&mut self, entry: &Entry) -> Vec<Frame> {
        let position = Position { seq: entry.seq, h: entry.h };
        self.head = Some(position);
        let mut told = Vec::new();
        self.tell(entry, &mut told);
        self.tell_of_job(entry, &mut told);
        let (thread, ts) = (self.thread, entry.ts);
        let framed =
            |(n, told): (u32, Told)| Frame { place: Place::At(FrameId { position, n }), thread, ts, told };
        (0..).zip(told).map(framed).collect()
    }

    /// The command that a call runs, or has left running.
    pub(crate) fn command_of(&self, call: &CallId) -> Option<&str> {
        let open = self.calls.get(call).and_then(|call| match &call.doing {
            Some(Doing::Command(command)) => Some(command.as_str()),
            _ => None,
        });
        open.or_else(|| self.behind.get(call).map(String::as_str))
    }

    fn tell(&mut self, entry: &Entry, out: &mut Vec<Told>) {
        match &entry.kind {
            Kind::SessionStart(start) => self.cwd.clone_from(&start.cwd),
            // Commands of an earlier life are gone with it.
            Kind::Opened(_) => self.behind.clear(),
            Kind::Invoke(_) => {
                self.run = entry.run;
                out.extend(of_run(entry.run, |response_id| ThreadFrame::ResponseStart { response_id }));
            }
            Kind::LlmCall(call) => self.asks_model(call, entry.run, out),
            Kind::AssistantItem(block) => self.block(block, entry.run, out),
            Kind::LlmEnd(_) => self.shown.clear(),
            Kind::Ask(ask) if ask.ask != AskKind::Approval => out.extend(question(ask)),
            Kind::Ask(ask) => {
                if let Some(id) = &ask.subject.call_id {
                    self.known(id, ask.subject.tool.as_deref());
                }
                self.calls_take(entry, out);
            }
            Kind::Answer(_) => self.calls_take(entry, out),
            Kind::ToolDispatch(dispatch) => self.started(dispatch, entry, out),
            Kind::ToolResult(result) => self.ended(result, entry, out),
            Kind::TurnEnd(end) => {
                self.turn = None;
                let turn_id = turn_id(entry.run, end.turn);
                out.push(match &end.result {
                    TurnResult::Finished => ThreadFrame::TurnComplete { turn_id }.into(),
                    other => ThreadFrame::TurnAborted { turn_id, reason: other.to_string() }.into(),
                });
            }
            Kind::RunCompleted(done) => self.run_over(entry.run, done.result.as_str(), out),
            Kind::RunErrored(failed) => {
                out.push(
                    ThreadFrame::Error {
                        response_id: entry.run.map(|run| run.to_string()),
                        code: failed.code.clone(),
                        message: failed.message.clone(),
                    }
                    .into(),
                );
                self.run_over(entry.run, "error", out);
            }
            Kind::Goal(goal) => out.push(match &goal.change {
                GoalChange::Clear => ThreadFrame::ThreadGoalCleared.into(),
                change => {
                    let goal = Goal {
                        objective: goal.text.clone(),
                        status: if *change == GoalChange::Done { "done" } else { "active" },
                        used: goal.used,
                        evidence: goal.evidence.clone(),
                    };
                    ThreadFrame::ThreadGoalUpdated { goal }.into()
                }
            }),
            // What was taken back is no longer open.
            Kind::Rewound(_) => {
                self.calls.clear();
                self.turn = None;
            }
            _ => {}
        }
    }

    fn tell_of_job(&mut self, entry: &Entry, out: &mut Vec<Told>) {
        let items = match (&entry.kind, &mut self.job) {
            (Kind::SessionStart(start), job) => {
                *job = JobFold::begin(start, entry);
                job.as_ref().map(|job| job.made_at(entry.seq)).unwrap_or_default()
            }
            (_, Some(job)) => job.take(entry),
            (_, None) => return,
        };
        let job_id = format!("s_{}", self.thread);
        let frame = |item| ThreadFrame::JobUpdated { job_id: job_id.clone(), item }.into();
        out.extend(items.into_iter().map(frame));
    }

    fn asks_model(&mut self, call: &LlmCall, run: Option<RunId>, out: &mut Vec<Told>) {
        if call.purpose != Purpose::Turn || call.continues.is_some() {
            return;
        }
        let turn_id = turn_id(run, call.turn);
        self.turn = Some(turn_id.clone());
        out.push(ThreadFrame::TurnStarted { turn_id }.into());
    }

    /// A block is whole: what was shown of it live is replaced by it.
    fn block(&mut self, block: &AssistantItem, run: Option<RunId>, out: &mut Vec<Told>) {
        let shown = &mut self.shown;
        let mut whole = |text: &Text, channel| {
            shown.retain(|shown| *shown != channel);
            out.extend(of_run(run, |response_id| ThreadFrame::ResponseDelta {
                response_id,
                delta: text.here().unwrap_or_default().to_owned(),
                channel,
                whole: true,
                blob: match text {
                    Text::Blob(name) => Some(name.blob.clone()),
                    Text::Here(_) => None,
                },
            }));
        };
        match &block.item {
            Item::Message { content, .. } => {
                for part in content {
                    if let Content::Text { text } | Content::Refusal { text } = part {
                        whole(text, Channel::Text);
                    }
                }
            }
            Item::Reasoning { text, summary, .. } if text.is_empty() => {
                whole(&Text::Here(summary.join("\n")), Channel::Reasoning);
            }
            Item::Reasoning { text, .. } => whole(text, Channel::Reasoning),
            Item::ToolCall { call_id, name, arguments } => {
                let view = self.view(call_id, name, &arguments.show());
                self.keep(call_id.clone(), view);
            }
            Item::ToolResult { .. } | Item::Unknown => {}
        }
    }

    fn started(&mut self, dispatch: &ToolDispatch, entry: &Entry, out: &mut Vec<Told>) {
        self.known(&dispatch.call_id, Some(&dispatch.tool));
        self.calls_take(entry, out);
        let doing = doing(&dispatch.action, dispatch.preview.as_ref().map(|preview| preview.path.as_str()));
        if let Some(doing) = &doing {
            out.extend(begins(doing, &dispatch.call_id, &self.cwd));
        }
        if let Some(call) = self.calls.get_mut(&dispatch.call_id) {
            call.doing = doing;
        }
    }

    fn ended(&mut self, result: &minke_record::ToolResult, entry: &Entry, out: &mut Vec<Told>) {
        let Item::ToolResult { call_id, summary, .. } = &result.item else { return };
        self.known(call_id, None);
        if let Some(doing) = self.calls.get_mut(call_id).and_then(|call| call.doing.take()) {
            if let (Doing::Command(command), true) = (&doing, goes_on(summary)) {
                self.behind.insert(call_id.clone(), command.clone());
                while self.behind.len() > CALLS {
                    self.behind.pop_first();
                }
            } else {
                out.extend(ends(&doing, call_id, summary, result.outcome == Outcome::Done));
            }
        }
        self.calls_take(entry, out);
        self.calls.remove(call_id);
    }

    /// A run is over, and whatever of it was open.
    fn run_over(&mut self, run: Option<RunId>, reason: &str, out: &mut Vec<Told>) {
        self.shown.clear();
        self.run = None;
        if let Some(turn_id) = self.turn.take() {
            out.push(ThreadFrame::TurnAborted { turn_id, reason: reason.to_owned() }.into());
        }
        out.extend(of_run(run, |response_id| ThreadFrame::ResponseEnd { response_id }));
    }

    fn calls_take(&mut self, entry: &Entry, out: &mut Vec<Told>) {
        for call in self.calls.values_mut() {
            out.extend(call.fold.take(entry).into_iter().filter_map(|event| match event {
                ApiEvent::GenericEventFrame { frame } => Some(Told::Call(frame)),
                ApiEvent::ToolLifecycle { .. } | ApiEvent::ApprovalLifecycle { .. } => None,
            }));
        }
    }

    /// A call that the model did not make has no entry before its ask or its dispatch.
    fn known(&mut self, call: &CallId, tool: Option<&str>) {
        if !self.calls.contains_key(call) {
            let view = self.view(call, tool.unwrap_or_default(), "{}");
            self.keep(call.clone(), view);
        }
    }

    fn keep(&mut self, id: CallId, view: CallView) {
        self.calls.insert(id, Call { fold: CallFold::new(view), doing: None });
        while self.calls.len() > CALLS {
            self.calls.pop_first();
        }
    }

    fn view(&self, call: &CallId, tool: &str, arguments: &str) -> CallView {
        CallView {
            call_id: call.clone(),
            tool: tool.to_owned(),
            arguments: arguments.to_owned(),
            cwd: self.cwd.clone(),
        }
    }

    /// Whether nothing is open: from here on the frames are the same as if the log began here.
    pub(crate) fn plain(&self) -> bool {
        self.calls.is_empty() && self.turn.is_none() && self.run.is_none() && self.behind.is_empty()
    }
}

fn of_run(run: Option<RunId>, make: impl FnOnce(String) -> ThreadFrame) -> Option<Told> {
    run.map(|run| make(run.to_string()).into())
}

fn turn_id(run: Option<RunId>, turn: u64) -> String {
    format!("{}:{turn}", run.map(|run| run.to_string()).unwrap_or_default())
}

fn question(ask: &Ask) -> Option<Told> {
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

fn doing(action: &Action, preview: Option<&str>) -> Option<Doing> {
    if let Some(command) = &action.command {
        return Some(Doing::Command(command.clone()));
    }
    if let Some(name) = &action.mcp {
        let mut words = name.strip_prefix("mcp__").unwrap_or(name).splitn(2, "__");
        let mut word = || words.next().unwrap_or_default().to_owned();
        return Some(Doing::Mcp { server: word(), tool: word() });
    }
    let paths = match preview {
        Some(path) => vec![path.to_owned()],
        None => action.writes.clone(),
    };
    (!paths.is_empty()).then_some(Doing::Patch(paths))
}

fn begins(doing: &Doing, call_id: &CallId, cwd: &str) -> Vec<Told> {
    match doing {
        Doing::Command(command) => {
            let (call_id, command, cwd) = (call_id.clone(), command.clone(), cwd.to_owned());
            vec![ThreadFrame::ExecCommandBegin { call_id, command, cwd }.into()]
        }
        Doing::Patch(paths) => {
            let begin = |path: &String| {
                ThreadFrame::PatchApplyBegin { call_id: call_id.clone(), path: path.clone() }.into()
            };
            paths.iter().map(begin).collect()
        }
        Doing::Mcp { server, tool } => {
            let (server_name, tool_name) = (server.clone(), tool.clone());
            vec![ThreadFrame::McpToolCallBegin { server_name, tool_name }.into()]
        }
    }
}

fn ends(doing: &Doing, call_id: &CallId, summary: &str, ok: bool) -> Vec<Told> {
    match doing {
        Doing::Command(command) => {
            let (call_id, command) = (call_id.clone(), command.clone());
            vec![ThreadFrame::ExecCommandEnd { call_id, command, exit_code: exit_code(summary) }.into()]
        }
        Doing::Patch(paths) => {
            let end = |path: &String| {
                ThreadFrame::PatchApplyEnd { call_id: call_id.clone(), path: path.clone(), ok }.into()
            };
            paths.iter().map(end).collect()
        }
        Doing::Mcp { server, tool } => {
            let (server_name, tool_name) = (server.clone(), tool.clone());
            vec![ThreadFrame::McpToolCallEnd { server_name, tool_name, ok }.into()]
        }
    }
}

/// The shell tool ends its summary with how the command ended, `… (exit 3)`; the log says it nowhere else.
fn exit_code(summary: &str) -> Option<i32> {
    summary.strip_suffix(')')?.rsplit_once("(exit ")?.1.parse().ok()
}

/// A command in the background goes on after its call: `… (running as x)`.
fn goes_on(summary: &str) -> bool {
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
        let mut fold = Frames::new(run.parse().expect("it is an id"));
        for (seq, (kind, plain)) in story.into_iter().enumerate() {
            let mut object = json!({ "seq": seq, "ts": 1, "run": run, "h": "0".repeat(32) });
            object.as_object_mut().expect("it is one").extend(kind.as_object().expect("it is one").clone());
            fold.entry(&line::parse(&object.to_string()).expect("it is an entry"));
            assert_eq!(fold.plain(), plain, "after {kind}");
        }
        assert!(fold.calls.is_empty());
    }
}
