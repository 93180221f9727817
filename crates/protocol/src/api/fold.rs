//! From a call's entries to what API clients are told of it, in the order of the table in `spec/09-policy.md`.
//!
//! Pure: one entry in, what it means out; the host only carries it. Entries of other calls are passed over.

use minke_record::{
    Action, Answer, Ask, AskKind, CallId, Entry, ErrorCode, Item, Judgement, Kind, Outcome, Text,
    ToolDispatch, ToolResult, Verdict,
};
use serde_json::{Value, json};

use super::call::{OlderDecision, SHELL};
use super::frame::{
    ApiEvent, ApiFrame, ApiOutput, ApprovalPhase, ExecApprovalRequest, InvokeResult, InvokeStatus, ToolPhase,
};
use super::verdict::{ExecutionKind, Precheck, Proposal, precheck, subject};

/// What is known of a call before its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallView {
    pub call_id: CallId,
    pub tool: String,
    /// JSON text, as the model or the client wrote it.
    pub arguments: String,
    pub cwd: String,
}

/// One thing that is told, and the entry that it is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    pub seq: u64,
    pub event: ApiEvent,
}

/// Everything that these entries tell of a call, in order.
pub fn told<'a>(view: CallView, entries: impl IntoIterator<Item = &'a Entry>) -> (Vec<Told>, CallFold) {
    let mut fold = CallFold::new(view);
    let mut told = Vec::new();
    for entry in entries {
        told.extend(fold.take(entry).into_iter().map(|event| Told { seq: entry.seq, event }));
    }
    (told, fold)
}

/// A call as far as its entries were seen.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFold {
    view: CallView,
    response_id: Option<String>,
    precheck: Option<Precheck>,
    action: Action,
    /// Asks of this call, and whether each is answered.
    asks: Vec<(Ask, bool)>,
    dispatched: bool,
    ended: Option<(InvokeStatus, Option<ApiOutput>, Option<String>)>,
    frames: Vec<ApiFrame>,
}

impl CallFold {
    pub fn new(view: CallView) -> CallFold {
        CallFold {
            action: written(&view),
            view,
            response_id: None,
            precheck: None,
            asks: Vec::new(),
            dispatched: false,
            ended: None,
            frames: Vec::new(),
        }
    }

    /// What an entry tells of this call.
    pub fn take(&mut self, entry: &Entry) -> Vec<ApiEvent> {
        let mut out = Vec::new();
        match &entry.kind {
            Kind::Ask(ask)
                if ask.ask == AskKind::Approval
                    && ask.subject.call_id.as_ref() == Some(&self.view.call_id) =>
            {
                self.seen(entry);
                self.asked(ask, &mut out);
            }
            Kind::Answer(answer) => self.answered(answer, &mut out),
            Kind::ToolDispatch(dispatch) if dispatch.call_id == self.view.call_id => {
                self.seen(entry);
                self.started(dispatch, &mut out);
            }
            Kind::ToolResult(result) if self.is_of(&result.item) => {
                self.seen(entry);
                self.over(result, &mut out);
            }
            _ => {}
        }
        self.frames.extend(out.iter().filter_map(|event| match event {
            ApiEvent::GenericEventFrame { frame } => Some(frame.clone()),
            ApiEvent::ToolLifecycle { .. } | ApiEvent::ApprovalLifecycle { .. } => None,
        }));
        out
    }

    /// The result of `tool/invoke` as it stands: none as long as the call is on its way.
    pub fn result(&self) -> Option<InvokeResult> {
        let open = self.open_ask();
        let (status, output, error) = match (&self.ended, open) {
            (Some(ended), _) => ended.clone(),
            (None, Some(ask)) => {
                let reason = ask.subject.verdict.as_ref().map(|verdict| verdict.reason.clone());
                (InvokeStatus::ApprovalRequired, None, reason)
            }
            (None, None) => return None,
        };
        let kind = self.precheck.as_ref().map(|precheck| precheck.execution_kind.clone());
        Some(InvokeResult {
            ok: status == InvokeStatus::Completed,
            status,
            execution_kind: kind.unwrap_or(ExecutionKind::Tool),
            response_id: self.response_id(),
            precheck: self.precheck.clone(),
            output,
            error,
            approval_id: open.map(|ask| ask.id.to_string()),
            events: self.frames.clone(),
        })
    }

    fn open_ask(&self) -> Option<&Ask> {
        self.asks.iter().find(|(_, answered)| !answered).map(|(ask, _)| ask)
    }

    fn seen(&mut self, entry: &Entry) {
        self.response_id = self.response_id.take().or_else(|| entry.run.map(|run| run.to_string()));
    }

    /// The run's id; a client's call outside of a run stands for itself.
    fn response_id(&self) -> String {
        self.response_id.clone().unwrap_or_else(|| format!("tool-{}", self.view.call_id))
    }

    fn is_of(&self, item: &Item) -> bool {
        matches!(item, Item::ToolResult { call_id, .. } if *call_id == self.view.call_id)
    }

    /// The gate has spoken.
    fn judged(&mut self, verdict: &Verdict, action: &Action, always: Option<&str>, out: &mut Vec<ApiEvent>) {
        self.action = action.clone();
        let seen = precheck(verdict, action, &self.view.tool, &self.view.cwd, always);
        out.push(self.phase(ToolPhase::Precheck, json!(seen)));
        self.precheck = Some(seen);
    }

    fn asked(&mut self, ask: &Ask, out: &mut Vec<ApiEvent>) {
        let subject = &ask.subject;
        let unknown = Verdict {
            outcome: Judgement::Ask,
            rule: None,
            layer: None,
            reason: subject.text.clone().unwrap_or_default(),
            fence: None,
        };
        let verdict = subject.verdict.clone().unwrap_or(unknown);
        if let Some(tool) = &subject.tool {
            self.view.tool.clone_from(tool);
        }
        if let Some(cwd) = &subject.cwd {
            self.view.cwd.clone_from(cwd);
        }
        let action = subject.action.clone().unwrap_or_default();
        self.judged(&verdict, &action, subject.always.as_deref(), out);
        out.push(ApiEvent::ApprovalLifecycle {
            approval_id: ask.id.to_string(),
            phase: ApprovalPhase::Requested,
            reason: Some(verdict.reason.clone()),
        });
        let Proposal { commands, hosts } = Proposal::of(subject.always.as_deref());
        let (command, _) = self::subject(&action, &self.view.tool);
        let request = ExecApprovalRequest {
            call_id: self.view.call_id.clone(),
            approval_id: ask.id.to_string(),
            turn_id: self.response_id(),
            command: command.to_owned(),
            cwd: self.view.cwd.clone(),
            reason: verdict.reason,
            network_approval_context: None,
            proposed_execpolicy_amendment: commands,
            proposed_network_policy_amendments: hosts,
            additional_permissions: Vec::new(),
            available_decisions: OlderDecision::available(ask),
        };
        out.push(frame(ApiFrame::ExecApprovalRequest { request: Box::new(request) }));
        self.asks.push((ask.clone(), false));
    }

    fn answered(&mut self, answer: &Answer, out: &mut Vec<ApiEvent>) {
        let Some((_, answered)) = self.asks.iter_mut().find(|(ask, _)| ask.id == answer.id) else { return };
        *answered = true;
        let approved = answer.decision.approves();
        let phase = if approved { ApprovalPhase::Approved } else { ApprovalPhase::Denied };
        let reason = answer.note.clone().or_else(|| Some(answer.decision.to_string()));
        let approval_id = answer.id.to_string();
        out.push(ApiEvent::ApprovalLifecycle { approval_id, phase, reason });
    }

    fn started(&mut self, dispatch: &ToolDispatch, out: &mut Vec<ApiEvent>) {
        self.view.tool.clone_from(&dispatch.tool);
        // What was asked about has been told with the ask.
        if self.asks.is_empty() {
            self.judged(&dispatch.verdict, &dispatch.action, None, out);
        }
        self.action = dispatch.action.clone();
        self.dispatched = true;
        let written =
            dispatch.arguments.as_ref().map_or(self.view.arguments.clone(), |text| text.show().into());
        out.push(frame(ApiFrame::ToolCallStart {
            response_id: self.response_id(),
            call_id: self.view.call_id.clone(),
            tool_name: self.view.tool.clone(),
            arguments: serde_json::from_str(&written).unwrap_or(Value::String(written)),
        }));
        let (_, kind) = subject(&self.action, &self.view.tool);
        let payload = json!({ "call_id": self.view.call_id, "execution_kind": kind });
        out.push(self.phase(ToolPhase::Dispatching, payload));
    }

    fn over(&mut self, result: &ToolResult, out: &mut Vec<ApiEvent>) {
        let Item::ToolResult { summary, content, blob, .. } = &result.item else { return };
        let done = result.outcome == Outcome::Done;
        if !self.dispatched {
            self.refused(result, summary, out);
        }
        if done {
            let output = output(&self.action, summary, content.as_ref(), blob.clone());
            out.push(frame(ApiFrame::ToolCallResult {
                response_id: self.response_id(),
                call_id: self.view.call_id.clone(),
                tool_name: self.view.tool.clone(),
                output: output.clone(),
            }));
            out.push(self.phase(ToolPhase::Completed, json!({ "ok": true })));
            self.ended = Some((InvokeStatus::Completed, Some(output), None));
            return;
        }
        let message = content.as_ref().and_then(Text::here).unwrap_or(summary);
        let (status, code) = match result.outcome {
            Outcome::Refused => (InvokeStatus::Denied, ErrorCode::Denied),
            Outcome::Invalid => (InvokeStatus::Failed, ErrorCode::InvalidRequest),
            Outcome::Cancelled => (InvokeStatus::Cancelled, ErrorCode::NotRunning),
            Outcome::TimedOut => (InvokeStatus::Timeout, ErrorCode::ToolError),
            Outcome::Done | Outcome::Failed | Outcome::Lost | Outcome::Other(_) => {
                (InvokeStatus::Failed, ErrorCode::ToolError)
            }
        };
        let response_id = self.response_id();
        out.push(frame(ApiFrame::Error { response_id, code, message: message.to_owned() }));
        if self.dispatched {
            let mut payload = json!({ "error": message });
            if status == InvokeStatus::Timeout {
                payload["timeout"] = json!(true);
            }
            out.push(self.phase(ToolPhase::Failed, payload));
        }
        self.ended = Some((status, None, Some(message.to_owned())));
    }

    /// It was not let: by policy at once, or because nobody approved it.
    fn refused(&mut self, result: &ToolResult, why: &str, out: &mut Vec<ApiEvent>) {
        if let Some(verdict) = result.verdict.as_ref().filter(|_| self.asks.is_empty()) {
            let action = self.action.clone();
            self.judged(verdict, &action, None, out);
        }
        let open = self.open_ask().map(|ask| ask.id.to_string());
        // Nobody was asked, so nobody's id says it.
        let fresh = self.asks.is_empty().then(|| format!("approval-{}", self.view.call_id));
        if let Some(approval_id) = open.or(fresh.filter(|_| result.outcome == Outcome::Refused)) {
            let reason = Some(why.to_owned());
            out.push(ApiEvent::ApprovalLifecycle { approval_id, phase: ApprovalPhase::Denied, reason });
        }
        self.asks.iter_mut().for_each(|(_, answered)| *answered = true);
    }

    fn phase(&self, phase: ToolPhase, payload: Value) -> ApiEvent {
        let (response_id, tool_name) = (self.response_id(), self.view.tool.clone());
        ApiEvent::ToolLifecycle { response_id, tool_name, phase, payload }
    }
}

/// What a call that was refused at once would have run, as its arguments say: no other entry does.
fn written(view: &CallView) -> Action {
    let line =
        || serde_json::from_str::<Value>(&view.arguments).ok()?.get("command")?.as_str().map(str::to_owned);
    Action {
        command: if view.tool == SHELL { line() } else { None },
        mcp: view.tool.starts_with("mcp__").then(|| view.tool.clone()),
        ..Action::default()
    }
}

fn frame(frame: ApiFrame) -> ApiEvent {
    ApiEvent::GenericEventFrame { frame }
}

/// What a tool said, as much of it as stands in the entry.
fn output(action: &Action, summary: &str, content: Option<&Text>, blob: Option<String>) -> ApiOutput {
    let (here, whole) = match content {
        Some(Text::Here(text)) => (text.clone(), blob),
        Some(Text::Blob(name)) => (summary.to_owned(), blob.or(Some(name.blob.clone()))),
        None => (summary.to_owned(), blob),
    };
    if action.mcp.is_some() {
        return ApiOutput::Mcp { result: json!({ "content": [{ "type": "text", "text": here }] }) };
    }
    ApiOutput::Function { body: Some(here), success: true, blob: whole }
}
