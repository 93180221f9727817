//! `tool/invoke`: one tool call of a client, checked by the thread's own pod; and the answer to a waiting call.
//!
//! Elsewhere: the frames of a call (`protocol::api`), the permission check (`pod`), asks (`asks`).

use std::ops::ControlFlow;
use std::time::Duration;

use minke_launch::new_ids;
use minke_protocol::api::{CallDescription, CallFold, InvokeResult, ToolInvoke};
use minke_protocol::{CallTool, Method};
use minke_record::{Actor, CallId, Entry, ErrorCode, Kind, SessionId};
use minke_session::SealedEntry;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::error::ApiError;
use crate::request::{RequestOverrides, ThreadName, params_object};
use crate::threads::log::read_session_start;

/// How long to wait for a call; the tool has its own limit.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60 * 60);

impl Engine {
    pub(crate) async fn invoke_tool(&self, params: Value, by: &Actor) -> Result<Value, ApiError> {
        let invoke: ToolInvoke = serde_json::from_value(Value::Object(params_object(params)?))
            .map_err(|e| ApiError::invalid(format!("tool/invoke: {e}")))?;
        let thread = invoke.thread_id.as_deref().map(ThreadName::new);
        let thread =
            thread.ok_or_else(|| ApiError::invalid("thread_id: is missing; a call needs a thread"))?;
        let session = self.resolve_session(&thread, &RequestOverrides::default())?;
        let cwd = read_session_start(&self.home, session)?.cwd;
        if let Some(wanted) = invoke.requested_cwd().filter(|wanted| *wanted != cwd) {
            return Err(ApiError::invalid(format!(
                "cwd: a call runs in the thread's own directory {cwd}, not in {wanted}"
            )));
        }
        let (tool, arguments) = invoke.call.tool_and_arguments();
        let call_id =
            invoke.call.call_id().unwrap_or_else(|| CallId(format!("call-{}", new_ids().next_uuid())));
        let view = CallDescription {
            call_id: call_id.clone(),
            tool: tool.clone(),
            arguments: arguments.clone(),
            cwd,
        };
        let mut fold = CallFold::new(view);
        let mut hearing = self.listen_to_pod(session, CALL_TIMEOUT, by).await?;
        let method = Method::CallTool(CallTool {
            name: tool,
            arguments: Value::String(arguments),
            call_id: Some(call_id),
            cwd: None,
        });
        let sent = hearing.send_method(method).await?;
        let mut result = hearing.wait_until(Some(&sent), |entry| fold_call_entry(&mut fold, entry)).await?;
        if result.precheck.is_none() {
            result.execution_kind = invoke.call.execution_kind();
        }
        Ok(json!(result))
    }

    /// Returns the call of an ask as its log describes it so far, and the last entry read.
    pub(crate) fn load_call(
        &self,
        session: SessionId,
        call_id: &CallId,
    ) -> Result<(CallFold, Option<u64>), ApiError> {
        let cwd = read_session_start(&self.home, session)?.cwd;
        let (mut view, mut entries, mut last) = (None, Vec::new(), None);
        self.home.store.open_reader(session)?.scan_entries(0, &mut |sealed: SealedEntry| {
            last = Some(sealed.entry.seq);
            if let Kind::Ask(ask) = &sealed.entry.kind
                && ask.subject.call_id.as_ref() == Some(call_id)
                && view.is_none()
            {
                view = Some(CallDescription {
                    call_id: call_id.clone(),
                    tool: ask.subject.tool.clone().unwrap_or_default(),
                    arguments: String::new(),
                    cwd: ask.subject.cwd.clone().unwrap_or_else(|| cwd.clone()),
                });
            }
            if matches!(
                sealed.entry.kind,
                Kind::Ask(_) | Kind::Answer(_) | Kind::ToolDispatch(_) | Kind::ToolResult(_)
            ) {
                entries.push(sealed.entry);
            }
            ControlFlow::Continue(())
        })?;
        let view = view.ok_or_else(|| {
            ApiError::new(
                ErrorCode::NotFound,
                format!("thread s_{session} has no call `{call_id}` with an ask"),
            )
        })?;
        let mut fold = CallFold::new(view);
        entries.iter().for_each(|entry| drop(fold.apply_entry(entry)));
        Ok((fold, last))
    }
}

/// Folds an entry. Returns the result of the call if the entry contains it.
pub(crate) fn fold_call_entry(fold: &mut CallFold, entry: &Entry) -> Option<InvokeResult> {
    drop(fold.apply_entry(entry));
    fold.invoke_result()
}
