//! Short descriptions of entries, items and replies, for assertions and transcripts.

use minke_pod::{CommandRefusal, Effect, ReplyBody};
use minke_record::{Content, Entry, Item, Kind, Role, flatten_input};

/// Describes an entry as `kind` or `kind(detail)`, as in `log:` lines.
pub(crate) fn describe_entry(entry: &Entry) -> String {
    let name = entry.kind.name();
    match entry_detail(&entry.kind) {
        Some(detail) => format!("{name}({detail})"),
        None => name.to_owned(),
    }
}

fn entry_detail(kind: &Kind) -> Option<String> {
    Some(match kind {
        Kind::Invoke(e) => e.trigger.to_string(),
        Kind::Opened(e) => e.holder.to_string(),
        Kind::SegmentStart(e) => e.reason.to_string(),
        Kind::QueuedInput(e) => e.mode.to_string(),
        Kind::Dequeued(e) => e.why.to_string(),
        Kind::SystemEntry(e) => e.item.kind.to_string(),
        Kind::LlmEnd(e) => e.outcome.to_string(),
        Kind::AssistantItem(e) => match &e.item {
            Item::Message { .. } => "text".to_owned(),
            Item::Reasoning { .. } => "thinking".to_owned(),
            Item::ToolCall { name, .. } => name.clone(),
            Item::ToolResult { .. } | Item::Unknown => return None,
        },
        Kind::ToolDispatch(e) => e.tool.clone(),
        Kind::ToolResult(e) => e.outcome.to_string(),
        Kind::TurnEnd(e) => e.result.to_string(),
        Kind::RunCompleted(e) => e.result.to_string(),
        Kind::RunErrored(e) => e.code.to_string(),
        Kind::Answer(e) => e.decision.to_string(),
        Kind::StateChange(e) => e.state.to_string(),
        Kind::Outbox(e) => match &e.event {
            minke_record::PodEvent::TurnEnded { .. } => "turn_ended".to_owned(),
            event => crate::scripted::pods::event_name(event),
        },
        Kind::Child(e) => e.name.to_string(),
        Kind::ChildEnd(e) => e.outcome.to_string(),
        Kind::Alert(e) => e.source.to_string(),
        Kind::ConfigChanged(e) => e.key.clone(),
        Kind::Ask(e) => e.ask.to_string(),
        _ => return None,
    })
}

/// Describes a context item: `user TEXT`, `assistant TEXT`, `thinking TEXT`, `call Tool`, `result SUMMARY`.
pub(crate) fn describe_item(item: &Item) -> String {
    match item {
        Item::Message { role, content } => {
            let who = match role {
                Role::User => "user",
                Role::Assistant => "assistant",
                Role::System | Role::Other(_) => "system",
            };
            format!("{who} {}", content_text(content))
        }
        Item::Reasoning { text, .. } => format!("thinking {}", text.display_text()),
        Item::ToolCall { name, .. } => format!("call {name}"),
        Item::ToolResult { summary, .. } => format!("result {summary}"),
        Item::Unknown => "unknown".to_owned(),
    }
}

fn content_text(content: &[Content]) -> String {
    let parts: Vec<String> = content
        .iter()
        .map(|part| match part {
            Content::Text { text } | Content::Refusal { text } => text.display_text().into_owned(),
            Content::Image { media_type, .. } => format!("[{media_type}]"),
            Content::Unknown => "[unknown]".to_owned(),
        })
        .collect();
    parts.join(" ")
}

/// Describes a reply.
pub(crate) fn describe_reply(result: &Result<ReplyBody, CommandRefusal>) -> String {
    match result {
        Ok(ReplyBody::Ok) => "ok".to_owned(),
        Ok(ReplyBody::Run(_)) => "run".to_owned(),
        Ok(ReplyBody::Queued(_)) => "queued".to_owned(),
        Ok(ReplyBody::Input(segments)) => {
            let text = describe_item(&flatten_input(segments));
            format!("input {}", text.strip_prefix("user ").unwrap_or(&text))
        }
        Ok(ReplyBody::Call(_)) => "call".to_owned(),
        Ok(ReplyBody::Restored { name, .. }) => format!("restored {name}"),
        Ok(ReplyBody::Waited { reached: true }) => "reached".to_owned(),
        Ok(ReplyBody::Waited { reached: false }) => "late".to_owned(),
        Err(refusal) => format!("refused {}", refusal.code),
    }
}

pub(crate) fn describe_effect(effect: &Effect) -> String {
    match effect {
        Effect::AskModel { call, prompt } => format!("ask the model ({call}), {} items", prompt.items.len()),
        Effect::StopModel { call } => format!("stop the model ({call})"),
        Effect::Prepare { call_id, tool, .. } => format!("prepare {tool} ({call_id})"),
        Effect::RunCall { call_id, tool, class, .. } => format!("run {tool} ({call_id}, {class})"),
        Effect::StopCall { call_id } => format!("stop call {call_id}"),
        Effect::CheckFile { call_id, .. } => format!("look at the file of {call_id}"),
        Effect::Capture { when, .. } => format!("capture the write scope ({when} the run)"),
        Effect::AskHooks { point, .. } => format!("ask hooks at {point:?}"),
        Effect::AddRule { rule } => format!("add the rule {rule}"),
        Effect::Child(order) => format!("tree: {order:?}"),
        Effect::SetTimer { timer, at } => format!("set {timer:?} at {at}"),
        Effect::ClearTimer { timer } => format!("clear {timer:?}"),
        Effect::Exit => "exit".to_owned(),
    }
}

/// Returns whether `pattern` equals `text`; a `…` at either end matches anything.
pub(crate) fn matches_pattern(pattern: &str, text: &str) -> bool {
    match (pattern.strip_prefix('…'), pattern.strip_suffix('…')) {
        (Some(_), Some(_)) => {
            let inner = pattern.trim_matches('…');
            text.contains(inner)
        }
        (Some(end), None) => text.ends_with(end),
        (None, Some(start)) => text.starts_with(start),
        (None, None) => pattern == text,
    }
}

/// Returns the first line in which two long texts differ.
pub(crate) fn first_difference(left: &str, right: &str) -> String {
    let mut path: Vec<&str> = Vec::new();
    for (at, (a, b)) in left.lines().zip(right.lines()).enumerate() {
        if a != b {
            let near = path.last().copied().unwrap_or_default();
            return format!("line {at}, after `{}`: `{}` and `{}`", near.trim(), a.trim(), b.trim());
        }
        if a.ends_with('{') || a.ends_with('[') {
            path.push(a);
        }
    }
    format!("{} and {} lines", left.lines().count(), right.lines().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_stand_for_anything() {
        assert!(
            matches_pattern("a…", "abc")
                && matches_pattern("…c", "abc")
                && matches_pattern("…b…", "abc")
                && matches_pattern("abc", "abc")
        );
        assert!(
            !matches_pattern("b…", "abc")
                && !matches_pattern("…b", "abc")
                && !matches_pattern("…x…", "abc")
                && !matches_pattern("ab", "abc")
        );
    }
}
