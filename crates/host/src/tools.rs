//! `tool/invoke`: one call for a client, through the gate of the thread's own pod; and the answer to one that waits.
//!
//! Elsewhere: what clients are told of a call (`protocol::api`, one fold), the gate (`pod`), questions (`asks`).

use std::ops::ControlFlow;
use std::time::Duration;

use minke_protocol::api::{CallFold, CallView, InvokeResult, ToolInvoke};
use minke_protocol::{CallTool, Method};
use minke_record::{Actor, CallId, Entry, ErrorCode, Kind, SessionId};
use minke_session::Sealed;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::look::start;
use crate::request::{Override, ThreadName, object};
use crate::visits::ids;

/// How long a call is waited for; its own limit is the tool's.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60 * 60);

impl Engine {
    pub(crate) async fn tool_invoke(&self, params: Value, by: &Actor) -> Result<Value, Fault> {
        let invoke: ToolInvoke = serde_json::from_value(Value::Object(object(params)?))
            .map_err(|e| Fault::invalid(format!("tool/invoke: {e}")))?;
        let thread = invoke.thread_id.as_deref().map(ThreadName::new);
        let thread = thread.ok_or_else(|| Fault::invalid("thread_id: is missing: whose tools are meant?"))?;
        let session = self.session(&thread, &Override::default())?;
        let cwd = start(&self.home, session)?.cwd;
        if let Some(wanted) = invoke.wanted_cwd().filter(|wanted| *wanted != cwd) {
            return Err(Fault::invalid(format!(
                "cwd: a call runs in the thread's own directory {cwd}, not in {wanted}"
            )));
        }
        let (tool, arguments) = invoke.call.tool();
        let call_id = invoke.call.call_id().unwrap_or_else(|| CallId(format!("call-{}", ids().next_uuid())));
        let view =
            CallView { call_id: call_id.clone(), tool: tool.clone(), arguments: arguments.clone(), cwd };
        let mut fold = CallFold::new(view);
        let mut hearing = self.hear(session, PATIENCE, by).await?;
        let method = Method::CallTool(CallTool {
            name: tool,
            arguments: Value::String(arguments),
            call_id: Some(call_id),
            cwd: None,
        });
        let sent = hearing.send(method).await?;
        let mut result = hearing.until(Some(&sent), |entry| taken(&mut fold, entry)).await?;
        if result.precheck.is_none() {
            result.execution_kind = invoke.call.execution_kind();
        }
        Ok(json!(result))
    }

    /// The call that a question is about, as its log tells it so far, and the last entry that was read for it.
    pub(crate) fn call_so_far(
        &self,
        session: SessionId,
        call_id: &CallId,
    ) -> Result<(CallFold, Option<u64>), Fault> {
        let cwd = start(&self.home, session)?.cwd;
        let (mut view, mut entries, mut last) = (None, Vec::new(), None);
        self.home.store.reader(session)?.scan(0, &mut |sealed: Sealed| {
            last = Some(sealed.entry.seq);
            if let Kind::Ask(ask) = &sealed.entry.kind
                && ask.subject.call_id.as_ref() == Some(call_id)
                && view.is_none()
            {
                view = Some(CallView {
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
            Fault::new(
                ErrorCode::NotFound,
                format!("thread s_{session} has no call `{call_id}` that was asked about"),
            )
        })?;
        let mut fold = CallFold::new(view);
        entries.iter().for_each(|entry| drop(fold.take(entry)));
        Ok((fold, last))
    }
}

/// What came of a call, if this entry says so.
pub(crate) fn taken(fold: &mut CallFold, entry: &Entry) -> Option<InvokeResult> {
    drop(fold.take(entry));
    fold.result()
}
