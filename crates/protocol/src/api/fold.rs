//! Converts the entries of a call to events for API clients, in the order of the table in
//! `spec/09-policy.md`.
//!
//! Pure; the host only forwards the events. Ignores entries of other calls.

use minke_record::{
    Action, Answer, Ask, AskKind, CallId, Entry, ErrorCode, Item, Judgement, Kind, LoggedBackend, Outcome,
    PolicyVerdict, Text, ToolDispatch, ToolResult,
};
use serde_json::{Value, json};

use super::call::{LegacyDecision, SHELL_TOOL};
use super::frame::{
    ApiEvent, ApiFrame, ApiOutput, ApprovalPhase, ExecApprovalRequest, InvokeResult, InvokeStatus, ToolPhase,
};
use super::precheck::{ExecutionKind, Precheck, ProposedRules, build_precheck, call_subject};

/// The known properties of a call before its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallDescription {
    pub call_id: CallId,
    pub tool: String,
    /// JSON text that the model or the client wrote.
    pub arguments: String,
    pub cwd: String,
}

/// An event with the entry that it is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct SequencedEvent {
    pub seq: u64,
    pub event: ApiEvent,
}

/// Returns all events of a call from its entries, in order.
pub fn fold_call_entries<'a>(
    view: CallDescription,
    entries: impl IntoIterator<Item = &'a Entry>,
) -> (Vec<SequencedEvent>, CallFold) {
    let mut fold = CallFold::new(view);
    let mut events = Vec::new();
    for entry in entries {
        events.extend(
            fold.apply_entry(entry).into_iter().map(|event| SequencedEvent { seq: entry.seq, event }),
        );
    }
    (events, fold)
}

/// The state of a call after the applied entries.
#[derive(Debug, Clone, PartialEq)]
pub struct CallFold {
    view: CallDescription,
    response_id: Option<String>,
    precheck: Option<Precheck>,
    action: Action,
    /// Asks of this call, and whether each is answered.
    asks: Vec<(Ask, bool)>,
    is_dispatched: bool,
    ending: Option<(InvokeStatus, Option<ApiOutput>, Option<String>)>,
    frames: Vec<ApiFrame>,
}

impl CallFold {
    pub fn new(view: CallDescription) -> CallFold {
        CallFold {
            action: requested_action(&view),
            view,
            response_id: None,
            precheck: None,
            asks: Vec::new(),
            is_dispatched: false,
            ending: None,
            frames: Vec::new(),
        }
    }

    /// Applies an entry and returns its events.
    pub fn apply_entry(&mut self, entry: &Entry) -> Vec<ApiEvent> {
        let mut out = Vec::new();
        match &entry.kind {
            Kind::Ask(ask)
                if ask.ask == AskKind::Approval
                    && ask.subject.call_id.as_ref() == Some(&self.view.call_id) =>
            {
                self.replay_entry(entry);
                self.on_ask(ask, &mut out);
            }
            Kind::Answer(answer) => self.on_answer(answer, &mut out),
            Kind::ToolDispatch(dispatch) if dispatch.call_id == self.view.call_id => {
                self.replay_entry(entry);
                self.on_dispatch(dispatch, &mut out);
            }
            Kind::ToolResult(result) if self.owns_item(&result.item) => {
                self.replay_entry(entry);
                self.on_result(result, &mut out);
            }
            _ => {}
        }
        self.frames.extend(out.iter().filter_map(|event| match event {
            ApiEvent::GenericEventFrame { frame } => Some(frame.clone()),
            ApiEvent::ToolLifecycle { .. } | ApiEvent::ApprovalLifecycle { .. } => None,
        }));
        out
    }

    /// Returns the result of `tool/invoke`, or `None` while the call is in progress.
    pub fn invoke_result(&self) -> Option<InvokeResult> {
        let open = self.open_ask();
        let (status, output, error) = match (&self.ending, open) {
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

    fn replay_entry(&mut self, entry: &Entry) {
        self.response_id = self.response_id.take().or_else(|| entry.run.map(|run| run.to_string()));
    }

    /// Returns the id of the run, or the id of a client's call outside of a run.
    fn response_id(&self) -> String {
        self.response_id.clone().unwrap_or_else(|| format!("tool-{}", self.view.call_id))
    }

    fn owns_item(&self, item: &Item) -> bool {
        matches!(item, Item::ToolResult { call_id, .. } if *call_id == self.view.call_id)
    }

    /// Handles the policy verdict.
    fn on_verdict(
        &mut self,
        verdict: &PolicyVerdict,
        action: &Action,
        always: Option<&str>,
        out: &mut Vec<ApiEvent>,
    ) {
        self.action = action.clone();
        let seen = build_precheck(verdict, action, &self.view.tool, &self.view.cwd, always);
        out.push(self.phase_event(ToolPhase::Precheck, json!(seen)));
        self.precheck = Some(seen);
    }

    fn on_ask(&mut self, ask: &Ask, out: &mut Vec<ApiEvent>) {
        let subject = &ask.subject;
        let unknown = PolicyVerdict {
            outcome: Judgement::Ask,
            rule: None,
            layer: None,
            reason: subject.text.clone().unwrap_or_default(),
            sandbox: LoggedBackend::NONE,
        };
        let verdict = subject.verdict.clone().unwrap_or(unknown);
        if let Some(tool) = &subject.tool {
            self.view.tool.clone_from(tool);
        }
        if let Some(cwd) = &subject.cwd {
            self.view.cwd.clone_from(cwd);
        }
        let action = subject.action.clone().unwrap_or_default();
        self.on_verdict(&verdict, &action, subject.always.as_deref(), out);
        out.push(ApiEvent::ApprovalLifecycle {
            approval_id: ask.id.to_string(),
            phase: ApprovalPhase::Requested,
            reason: Some(verdict.reason.clone()),
        });
        let ProposedRules { commands, hosts } = ProposedRules::from_rule(subject.always.as_deref());
        let (command, _) = self::call_subject(&action, &self.view.tool);
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
            available_decisions: LegacyDecision::available_for(ask),
        };
        out.push(frame_event(ApiFrame::ExecApprovalRequest { request: Box::new(request) }));
        self.asks.push((ask.clone(), false));
    }

    fn on_answer(&mut self, answer: &Answer, out: &mut Vec<ApiEvent>) {
        let Some((_, answered)) = self.asks.iter_mut().find(|(ask, _)| ask.id == answer.id) else { return };
        *answered = true;
        let approved = answer.decision.is_approval();
        let phase = if approved { ApprovalPhase::Approved } else { ApprovalPhase::Denied };
        let reason = answer.note.clone().or_else(|| Some(answer.decision.to_string()));
        let approval_id = answer.id.to_string();
        out.push(ApiEvent::ApprovalLifecycle { approval_id, phase, reason });
    }

    fn on_dispatch(&mut self, dispatch: &ToolDispatch, out: &mut Vec<ApiEvent>) {
        self.view.tool.clone_from(&dispatch.tool);
        // The ask already contained the verdict.
        if self.asks.is_empty() {
            self.on_verdict(&dispatch.verdict, &dispatch.action, None, out);
        }
        self.action = dispatch.action.clone();
        self.is_dispatched = true;
        let written = dispatch
            .arguments
            .as_ref()
            .map_or(self.view.arguments.clone(), |text| text.display_text().into());
        out.push(frame_event(ApiFrame::ToolCallStart {
            response_id: self.response_id(),
            call_id: self.view.call_id.clone(),
            tool_name: self.view.tool.clone(),
            arguments: serde_json::from_str(&written).unwrap_or(Value::String(written)),
        }));
        let (_, kind) = call_subject(&self.action, &self.view.tool);
        let payload = json!({ "call_id": self.view.call_id, "execution_kind": kind });
        out.push(self.phase_event(ToolPhase::Dispatching, payload));
    }

    fn on_result(&mut self, result: &ToolResult, out: &mut Vec<ApiEvent>) {
        let Item::ToolResult { summary, content, blob, .. } = &result.item else { return };
        let finished = result.outcome == Outcome::Done;
        if !self.is_dispatched {
            self.on_refusal(result, summary, out);
        }
        if finished {
            let output = api_output(&self.action, summary, content.as_ref(), blob.clone());
            out.push(frame_event(ApiFrame::ToolCallResult {
                response_id: self.response_id(),
                call_id: self.view.call_id.clone(),
                tool_name: self.view.tool.clone(),
                output: output.clone(),
            }));
            out.push(self.phase_event(ToolPhase::Completed, json!({ "ok": true })));
            self.ending = Some((InvokeStatus::Completed, Some(output), None));
            return;
        }
        let message = content.as_ref().and_then(Text::inline).unwrap_or(summary);
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
        out.push(frame_event(ApiFrame::Error { response_id, code, message: message.to_owned() }));
        if self.is_dispatched {
            let mut payload = json!({ "error": message });
            if status == InvokeStatus::Timeout {
                payload["timeout"] = json!(true);
            }
            out.push(self.phase_event(ToolPhase::Failed, payload));
        }
        self.ending = Some((status, None, Some(message.to_owned())));
    }

    /// Handles a refusal: by policy, or because the approval was denied.
    fn on_refusal(&mut self, result: &ToolResult, why: &str, out: &mut Vec<ApiEvent>) {
        if let Some(verdict) = result.verdict.as_ref().filter(|_| self.asks.is_empty()) {
            let action = self.action.clone();
            self.on_verdict(verdict, &action, None, out);
        }
        let open = self.open_ask().map(|ask| ask.id.to_string());
        // Without an ask there is no approval id.
        let fresh = self.asks.is_empty().then(|| format!("approval-{}", self.view.call_id));
        if let Some(approval_id) = open.or(fresh.filter(|_| result.outcome == Outcome::Refused)) {
            let reason = Some(why.to_owned());
            out.push(ApiEvent::ApprovalLifecycle { approval_id, phase: ApprovalPhase::Denied, reason });
        }
        self.asks.iter_mut().for_each(|(_, answered)| *answered = true);
    }

    fn phase_event(&self, phase: ToolPhase, payload: Value) -> ApiEvent {
        let (response_id, tool_name) = (self.response_id(), self.view.tool.clone());
        ApiEvent::ToolLifecycle { response_id, tool_name, phase, payload }
    }
}

/// Derives the action of an immediately refused call from its arguments, because no entry contains it.
fn requested_action(view: &CallDescription) -> Action {
    let line =
        || serde_json::from_str::<Value>(&view.arguments).ok()?.get("command")?.as_str().map(str::to_owned);
    Action {
        command: if view.tool == SHELL_TOOL { line() } else { None },
        mcp: view.tool.starts_with("mcp__").then(|| view.tool.clone()),
        ..Action::default()
    }
}

fn frame_event(frame: ApiFrame) -> ApiEvent {
    ApiEvent::GenericEventFrame { frame }
}

/// Returns the output of a tool as far as the entry contains it.
fn api_output(action: &Action, summary: &str, content: Option<&Text>, blob: Option<String>) -> ApiOutput {
    let (here, whole) = match content {
        Some(Text::Inline(text)) => (text.clone(), blob),
        Some(Text::Blob(name)) => (summary.to_owned(), blob.or(Some(name.blob.clone()))),
        None => (summary.to_owned(), blob),
    };
    if action.mcp.is_some() {
        return ApiOutput::Mcp { result: json!({ "content": [{ "type": "text", "text": here }] }) };
    }
    ApiOutput::Function { body: Some(here), success: true, blob: whole }
}
