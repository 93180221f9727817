//! Answers that change nothing: where the pod stands, what it greets with, completions, what a client may read.

use std::sync::Arc;

use minke_pod::{Pod, RewindScan};
use minke_protocol::{
    ChildRow, Completion, CompletionKind, Completions, Event, Frame, Greeting, Id, ListCompletions,
    QueueState, Refusal, ReplyData, RewindTarget, RewindTargets, Snapshot, StatusReply, reply,
};
use minke_record::{Content, ErrorCode, Item, Position, Route, Text};
use minke_references::{References, Wanted};
use minke_session::{Reader, StoreError};
use std::ops::ControlFlow;

use crate::clients::refusal_line;
use crate::library::{Library, unread};
use crate::news::OpenCommands;
use crate::wire;

/// What the greeting says that the log does not.
#[derive(Debug, Clone)]
pub(crate) struct Introduction {
    pub(crate) pod_name: String,
    pub(crate) route: Option<Route>,
    /// Tokens that the model can read, if that is known.
    pub(crate) window: Option<u64>,
    pub(crate) notices: Vec<String>,
}

pub(crate) fn greeting(pod: &Pod, introduction: &Introduction) -> Greeting {
    let state = pod.state();
    let about = state.facts.about.as_ref();
    let route = introduction.route.as_ref();
    let tools =
        state.segment.as_ref().map(|segment| segment.tools.iter().map(|tool| tool.name.clone()).collect());
    Greeting {
        pod_name: introduction.pod_name.clone(),
        session: about.map(|about| about.session),
        cwd: about.map(|about| about.cwd.clone()).unwrap_or_default(),
        provider: route.map(|route| route.provider.clone()).unwrap_or_default(),
        scheme: route.map(|route| route.scheme.clone()).unwrap_or_default(),
        model: route.map(|route| route.model.clone()).unwrap_or_default(),
        scope_summary: about.map(|about| minke_policy::listing(&about.scope)).unwrap_or_default(),
        fence: pod.fence().to_string(),
        tools: tools.unwrap_or_default(),
        context_window: introduction.window.unwrap_or(0),
        context_tokens: context_tokens(state.context.items()),
        posture: pod.posture().as_str().to_owned(),
        parent: None,
        notices: introduction.notices.clone(),
    }
}

/// A rough count of what the model is shown: four bytes of text are a token. A provider's own count is in `usage`.
fn context_tokens(items: &[Arc<Item>]) -> u64 {
    let mut bytes = 0;
    for item in items {
        bytes += match item.as_ref() {
            Item::Message { content, .. } => content.iter().map(part_bytes).sum(),
            Item::Reasoning { text, .. } => text.bytes(),
            Item::ToolCall { arguments, .. } => arguments.bytes(),
            Item::ToolResult { content, summary, .. } => {
                content.as_ref().map_or(summary.len() as u64, Text::bytes)
            }
            Item::Unknown => 0,
        };
    }
    bytes / 4
}

fn part_bytes(part: &Content) -> u64 {
    match part {
        Content::Text { text } | Content::Refusal { text } => text.bytes(),
        Content::Image { .. } | Content::Unknown => 0,
    }
}

/// A snapshot without its entries.
pub(crate) fn around(
    pod: &Pod,
    introduction: &Introduction,
    head: Position,
    commands: &OpenCommands,
) -> Snapshot {
    let status = pod.status();
    Snapshot {
        entries: Vec::new(),
        greeting: greeting(pod, introduction),
        status: wire::status_word(status.phase, pod.state().facts.run.is_some()),
        activity: wire::activity(&status),
        waiting: status.waiting.as_ref().map(wire::waiting),
        head,
        in_flight: wire::in_flight(pod.open_blocks(), commands),
        older: false,
    }
}

pub(crate) fn status(pod: &Pod, head: Position) -> StatusReply {
    let (status, facts) = (pod.status(), &pod.state().facts);
    StatusReply {
        status: wire::status_word(status.phase, facts.run.is_some()),
        activity: wire::activity(&status),
        waiting: status.waiting.as_ref().map(wire::waiting),
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

/// Gives every entry of a session to `see`, those of a fork's parents first.
pub(crate) fn scan_lineage(
    reader: &dyn Reader,
    see: &mut dyn FnMut(&minke_record::Entry),
) -> Result<(), StoreError> {
    if let Some(parent) = reader.parent()? {
        scan_lineage(parent.as_ref(), see)?;
    }
    reader.scan(0, &mut |sealed| {
        see(&sealed.entry);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

/// The answer to `rewind_targets`: a reply, or the event for a client without ids.
pub(crate) fn rewind_targets(library: &Library, id: Option<Id>) -> Option<Arc<str>> {
    let found = (|| {
        let reader = library.reader()?;
        let mut scan = RewindScan::new(None);
        scan_lineage(reader.as_ref(), &mut |entry| scan.see(entry))?;
        let head = reader.head()?;
        Ok((scan.finish().0, head))
    })();
    let (targets, head) = match found {
        Ok((targets, Some(head))) => (targets, head),
        Ok((_, None)) => {
            return Some(refusal_line(id, Refusal::new(ErrorCode::NotFound, "the log has no entry yet")));
        }
        Err(error) => return Some(refusal_line(id, unread(error))),
    };
    let targets = targets
        .into_iter()
        .map(|t| RewindTarget { seq: t.seq, ts: t.ts, turn: t.turn, preview: t.preview, warning: t.warning })
        .collect();
    let targets = RewindTargets { head, targets };
    Some(match id {
        Some(id) => reply(id, ReplyData::ok(&targets)),
        None => Frame::one(Event::RewindTargets(targets)).line(),
    })
}

/// The answer to `list_completions`: a reply, or the event for a client without ids.
pub(crate) fn completions(library: &Library, list: &ListCompletions, id: Option<Id>) -> Option<Arc<str>> {
    let completions = completed(library.references(), list);
    Some(match id {
        Some(id) => reply(id, ReplyData::ok(&completions)),
        None => Frame::one(Event::Completions(completions)).line(),
    })
}

/// What could be meant.
pub(crate) fn completed(references: &References, list: &ListCompletions) -> Completions {
    let wanted = match list.kind {
        CompletionKind::File => Wanted::File,
        CompletionKind::Knowledge => Wanted::Knowledge,
        CompletionKind::Workflow => Wanted::Workflow,
        CompletionKind::Skill => Wanted::Skill,
        CompletionKind::Command => Wanted::Command,
    };
    let found = references.complete(wanted, &list.prefix).into_iter();
    let entries = found.map(|found| Completion { value: found.value, is_dir: found.is_dir }).collect();
    Completions { kind: list.kind, entries }
}
