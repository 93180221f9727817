//! Read-only replies: status, greeting, completions, and the history that a client may read.

use std::sync::Arc;

use minke_pod::{Pod, RewindScan};
use minke_protocol::{
    ChildRow, Completion, CompletionKind, Completions, Event, Frame, Greeting, ListCompletions, QueueState,
    Refusal, ReplyData, RequestId, RewindTarget, RewindTargets, Snapshot, StatusReply, encode_reply,
};
use minke_record::{Content, ErrorCode, Item, Position, Route, Text};
use minke_references::ReferenceResolver;
use minke_session::{Reader, StoreError};
use std::ops::ControlFlow;

use crate::calls::command_output::OpenCommands;
use crate::clients::convert;
use crate::clients::log_reader::{SessionReader, read_refusal};
use crate::clients::refusal_line;

/// The parts of the greeting that are not in the log.
#[derive(Debug, Clone)]
pub(crate) struct GreetingInfo {
    pub(crate) pod_name: String,
    pub(crate) route: Option<Route>,
    /// The model's context window in tokens, if known.
    pub(crate) context_window: Option<u64>,
    pub(crate) notices: Vec<String>,
}

pub(crate) fn build_greeting(pod: &Pod, greeting_info: &GreetingInfo) -> Greeting {
    let state = pod.state();
    let about = state.facts.about.as_ref();
    let route = greeting_info.route.as_ref();
    let tools =
        state.segment.as_ref().map(|segment| segment.tools.iter().map(|tool| tool.name.clone()).collect());
    Greeting {
        pod_name: greeting_info.pod_name.clone(),
        session: about.map(|about| about.session),
        cwd: about.map(|about| about.cwd.clone()).unwrap_or_default(),
        provider: route.map(|route| route.provider.clone()).unwrap_or_default(),
        scheme: route.map(|route| route.scheme.clone()).unwrap_or_default(),
        model: route.map(|route| route.model.clone()).unwrap_or_default(),
        scope_summary: about.map(|about| minke_policy::scope_listing(&about.scope)).unwrap_or_default(),
        sandbox: pod.sandbox_backend().to_string(),
        tools: tools.unwrap_or_default(),
        context_window: greeting_info.context_window.unwrap_or(0),
        context_tokens: estimate_context_tokens(state.context.items()),
        posture: pod.posture().as_str().to_owned(),
        parent: None,
        notices: greeting_info.notices.clone(),
    }
}

/// Estimates the tokens of the context: four bytes of text count as one token. The provider's own count is in
/// `usage`.
fn estimate_context_tokens(items: &[Arc<Item>]) -> u64 {
    let mut bytes = 0;
    for item in items {
        bytes += match item.as_ref() {
            Item::Message { content, .. } => content.iter().map(content_bytes).sum(),
            Item::Reasoning { text, .. } => text.byte_len(),
            Item::ToolCall { arguments, .. } => arguments.byte_len(),
            Item::ToolResult { content, summary, .. } => {
                content.as_ref().map_or(summary.len() as u64, Text::byte_len)
            }
            Item::Unknown => 0,
        };
    }
    bytes / 4
}

fn content_bytes(part: &Content) -> u64 {
    match part {
        Content::Text { text } | Content::Refusal { text } => text.byte_len(),
        Content::Image { .. } | Content::Unknown => 0,
    }
}

/// A snapshot without its entries.
pub(crate) fn snapshot_header(
    pod: &Pod,
    greeting_info: &GreetingInfo,
    head: Position,
    commands: &OpenCommands,
) -> Snapshot {
    let status = pod.status();
    Snapshot {
        entries: Vec::new(),
        greeting: build_greeting(pod, greeting_info),
        status: convert::convert_status(status.phase, pod.state().facts.run.is_some()),
        activity: convert::convert_activity(&status),
        waiting: status.waiting.as_ref().map(convert::convert_waiting),
        head,
        in_flight: convert::convert_in_flight(pod.open_blocks(), commands),
        older: false,
    }
}

pub(crate) fn status_reply(pod: &Pod, head: Position) -> StatusReply {
    let (status, facts) = (pod.status(), &pod.state().facts);
    StatusReply {
        status: convert::convert_status(status.phase, facts.run.is_some()),
        activity: convert::convert_activity(&status),
        waiting: status.waiting.as_ref().map(convert::convert_waiting),
        detail: status.detail,
        run: facts.run.as_ref().map(|run| run.id),
        usage: facts.usage.clone(),
        head,
        children: facts
            .children
            .iter()
            .map(|child| ChildRow { session: child.session, name: child.name.clone() })
            .collect(),
        asks: facts.asks.iter().map(|ask| ask.id).collect(),
        queue: QueueState { length: facts.queue.len(), held: facts.held },
        mcp_servers: Vec::new(),
    }
}

/// Passes every entry of a session to `see`; a fork starts with the entries of its parents.
pub(crate) fn scan_lineage(
    reader: &dyn Reader,
    visit_entry: &mut dyn FnMut(&minke_record::Entry),
) -> Result<(), StoreError> {
    if let Some(parent) = reader.parent_reader()? {
        scan_lineage(parent.as_ref(), visit_entry)?;
    }
    reader.scan_entries(0, &mut |sealed| {
        visit_entry(&sealed.entry);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// The reply to `rewind_targets`, or an event for a client without ids.
pub(crate) fn rewind_targets_reply(
    session_reader: &SessionReader,
    id: Option<RequestId>,
) -> Option<Arc<str>> {
    let found = (|| {
        let reader = session_reader.reader()?;
        let mut scan = RewindScan::new(None);
        scan_lineage(reader.as_ref(), &mut |entry| scan.scan_entry(entry))?;
        let head = reader.head_position()?;
        Ok((scan.into_targets().0, head))
    })();
    let (targets, head) = match found {
        Ok((targets, Some(head))) => (targets, head),
        Ok((_, None)) => {
            return Some(refusal_line(id, Refusal::new(ErrorCode::NotFound, "the log has no entry yet")));
        }
        Err(error) => return Some(refusal_line(id, read_refusal(error))),
    };
    let targets = targets
        .into_iter()
        .map(|t| RewindTarget { seq: t.seq, ts: t.ts, turn: t.turn, preview: t.preview, warning: t.warning })
        .collect();
    let targets = RewindTargets { head, targets };
    Some(match id {
        Some(id) => encode_reply(id, ReplyData::from_result(&targets)),
        None => Frame::new_direct(Event::RewindTargets(targets)).to_line(),
    })
}

/// The reply to `list_completions`, or an event for a client without ids.
pub(crate) fn completions_reply(
    session_reader: &SessionReader,
    list: &ListCompletions,
    id: Option<RequestId>,
) -> Option<Arc<str>> {
    let completions = find_completions(session_reader.references(), list);
    Some(match id {
        Some(id) => encode_reply(id, ReplyData::from_result(&completions)),
        None => Frame::new_direct(Event::Completions(completions)).to_line(),
    })
}

/// Finds the completions for the typed text.
pub(crate) fn find_completions(references: &ReferenceResolver, list: &ListCompletions) -> Completions {
    let wanted = match list.kind {
        CompletionKind::File => minke_references::CompletionKind::File,
        CompletionKind::Knowledge => minke_references::CompletionKind::Knowledge,
        CompletionKind::Workflow => minke_references::CompletionKind::Workflow,
        CompletionKind::Skill => minke_references::CompletionKind::Skill,
        CompletionKind::Command => minke_references::CompletionKind::Command,
    };
    let found = references.complete_prefix(wanted, &list.prefix).into_iter();
    let entries = found.map(|found| Completion { value: found.value, is_dir: found.is_dir }).collect();
    Completions { kind: list.kind, entries }
}
