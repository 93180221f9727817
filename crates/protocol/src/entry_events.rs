//! Converts entries to events. All events about logged facts are made here.
//!
//! Elsewhere: live events (`driver` makes them from pod events).
//! Invariant: `entry_frames` encodes exactly the events of `entry_events`
//! (`frames_are_the_events_written_once`), and every entry ends with its `entry` event
//! (`every_kind_makes_the_events_of_the_table`).

use std::sync::Arc;

use minke_record::{
    AssistantItem, Content, Entry, ErrorCode, Item, Kind, LlmCall, Purpose, RunResult, SegmentReason, Text,
};

use crate::event::*;
use crate::frame::{EventPosition, encode_event, encode_raw_event};
use crate::limits::MAX_CONTINUATIONS;

/// Returns all events of an entry in order; `entry` is the last.
pub fn entry_events(entry: &Entry) -> Vec<Event> {
    let mut events = Vec::with_capacity(3);
    if starts_new_segment(entry) {
        events.push(Event::SegmentRotated(EntryEvent { entry: Box::new(entry.clone()) }));
    }
    push_meaning_events(entry, &mut events);
    events.push(Event::Entry(EntryEvent { entry: Box::new(entry.clone()) }));
    events
}

/// Returns the lines of these events with newlines. Embeds the entry's own line, so that the entry is encoded
/// once and clients get exactly the logged text.
pub fn entry_frames(entry: &Entry, line: &str) -> Vec<Arc<str>> {
    let place = EventPosition::Logged { seq: entry.seq };
    let whole = |name| encode_raw_event(name, &["{\"entry\":", line, "}"], &place, entry.run);
    let mut made = Vec::with_capacity(2);
    push_meaning_events(entry, &mut made);
    let mut frames = Vec::with_capacity(made.len() + 2);
    if starts_new_segment(entry) {
        frames.push(whole("segment_rotated"));
    }
    frames.extend(made.iter().map(|event| encode_event(event, &place, entry.run)));
    frames.push(whole("entry"));
    frames
}

fn starts_new_segment(entry: &Entry) -> bool {
    matches!(entry.kind, Kind::SegmentStart(_))
}

/// Adds the events that express the meaning of the entry. The caller adds those that contain the entry
/// itself.
fn push_meaning_events(entry: &Entry, out: &mut Vec<Event>) {
    match &entry.kind {
        Kind::SegmentStart(start) => {
            if start.reason == SegmentReason::Compaction {
                let (before, after) = start.tokens.as_ref().map(|t| (t.before, t.after)).unzip();
                out.push(Event::CompactDone(CompactDone { segment: start.segment, before, after }));
            }
        }
        Kind::Invoke(invoke) => out.push(Event::InvokeStart(InvokeStart { kind: invoke.trigger.clone() })),
        Kind::UserInput(input) => {
            out.push(Event::UserMessage(UserMessage { segments: input.segments.clone(), run: entry.run }));
        }
        Kind::SystemEntry(system) => {
            out.push(Event::SystemItem(SystemItemEvent { item: system.item.clone() }));
        }
        Kind::LlmCall(call) => push_call_started(call, out),
        Kind::AssistantItem(block) => push_block_done(block, out),
        Kind::LlmUsage(usage) => out.push(Event::Usage(UsageEvent {
            input_tokens: Some(usage.input),
            output_tokens: Some(usage.output),
            cache_read_input_tokens: Some(usage.cache_read),
            cache_write_input_tokens: Some(usage.cache_write),
            cost_usd: usage.cost_usd,
        })),
        Kind::LlmEnd(end) => {
            let outcome = Some(end.outcome.clone());
            out.push(Event::LlmCallEnd(LlmCallEnd { llm_call: end.call, outcome }));
        }
        Kind::ToolResult(result) => push_tool_result(result, out),
        Kind::TurnEnd(end) => {
            out.push(Event::TurnEnd(TurnEnd { turn: end.turn, result: end.result.clone() }));
        }
        Kind::RunCompleted(finished) => out.push(Event::RunEnd(RunEnd {
            result: to_run_end(&finished.result),
            reason: finished.reason.clone(),
            error: None,
        })),
        Kind::RunErrored(failed) => push_run_failed(failed.code.clone(), &failed.message, out),
        Kind::Ask(ask) => out.push(Event::Ask(AskEvent { ask: Box::new(ask.clone()) })),
        Kind::Answer(answer) => out.push(Event::Answered(Answered {
            ask: answer.id,
            decision: answer.decision.clone(),
            by: answer.by.clone(),
        })),
        Kind::Child(child) => out.push(Event::ChildStarted(ChildStarted {
            session: child.session,
            name: child.name.clone(),
            call_id: child.call_id.clone(),
            scope: child.scope.clone(),
            budget: child.budget,
        })),
        Kind::ChildEnd(end) => out.push(Event::ChildEnded(ChildEnded {
            session: end.session,
            name: end.name.clone(),
            outcome: end.outcome.clone(),
            exit: end.exit,
            spent: end.spent,
        })),
        Kind::Alert(alert) => out.push(Event::Alert(AlertEvent {
            level: alert.level.clone(),
            source: alert.source.clone(),
            message: alert.message.clone(),
            timestamp_ms: entry.ts,
        })),
        Kind::SessionStart(_)
        | Kind::Opened(_)
        | Kind::Carry(_)
        | Kind::QueuedInput(_)
        | Kind::Dequeued(_)
        | Kind::Inbox(_)
        | Kind::Pruned(_)
        | Kind::ToolDispatch(_)
        | Kind::Grant(_)
        | Kind::ChildSpent(_)
        | Kind::Outbox(_)
        | Kind::OutboxAck(_)
        | Kind::StateChange(_)
        | Kind::Progress(_)
        | Kind::Goal(_)
        | Kind::Task(_)
        | Kind::ReadTo(_)
        | Kind::Snapshot(_)
        | Kind::Checkpoint(_)
        | Kind::Rewound(_)
        | Kind::ConfigChanged(_)
        | Kind::Renamed(_)
        | Kind::Archived(_)
        | Kind::Unarchived(_)
        | Kind::Extension(_)
        | Kind::Unknown(_) => {}
    }
}

fn push_call_started(call: &LlmCall, out: &mut Vec<Event>) {
    match &call.continues {
        None if call.purpose == Purpose::Turn => out.push(Event::TurnStart(TurnStart { turn: call.turn })),
        None => {}
        Some(continues) => out.push(Event::LlmContinuation(LlmContinuation {
            llm_call: call.call,
            attempt: continues.attempt,
            max_attempts: MAX_CONTINUATIONS,
            reason: continues.reason.clone(),
        })),
    }
    out.push(Event::LlmCallStart(LlmCallStart {
        llm_call: call.call,
        route: Some(call.route.clone()),
        purpose: Some(call.purpose.clone()),
    }));
}

/// Adds the events of a complete block. A message has one `text_done` per text.
fn push_block_done(block: &AssistantItem, out: &mut Vec<Event>) {
    match &block.item {
        Item::Message { content, .. } => out.extend(content.iter().filter_map(|part| match part {
            Content::Text { text } | Content::Refusal { text } => {
                Some(Event::TextDone(Done { text: text.clone() }))
            }
            Content::Image { .. } | Content::Unknown => None,
        })),
        Item::Reasoning { text, summary, .. } => {
            // Some providers only return a summary of the thinking.
            let text = if text.is_empty() { Text::Inline(summary.join("\n")) } else { text.clone() };
            out.push(Event::ThinkingDone(Done { text }));
        }
        Item::ToolCall { call_id, name, arguments } => out.push(Event::ToolCallDone(ToolCallDone {
            id: call_id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
        })),
        Item::ToolResult { .. } | Item::Unknown => {}
    }
}

fn push_tool_result(result: &minke_record::ToolResult, out: &mut Vec<Event>) {
    let Item::ToolResult { call_id, summary, content, is_error, .. } = &result.item else {
        return; // Of a later version: the entry says it.
    };
    out.push(Event::ToolResult(ToolResult {
        id: call_id.clone(),
        summary: summary.clone(),
        output: content.clone(),
        is_error: *is_error,
        outcome: Some(result.outcome.clone()),
        by: result.by.clone(),
    }));
}

fn push_run_failed(code: ErrorCode, message: &str, out: &mut Vec<Event>) {
    let error = Refusal::new(code, message);
    out.push(Event::Error(error.clone()));
    out.push(Event::RunEnd(RunEnd { result: RunEndResult::Error, reason: None, error: Some(error) }));
}

fn to_run_end(result: &RunResult) -> RunEndResult {
    RunEndResult::from(result.as_str())
}
