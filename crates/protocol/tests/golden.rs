//! Golden lines: every method and event in its encoded form, and the older forms that are still accepted.
//!
//! Each golden line parses and is encoded to the same text. The lists below have no `_`, so that a new
//! variant neither compiles without a name nor passes without a line.

use std::collections::BTreeSet;

use minke_protocol::{ClientRequest, Event, Frame, Method};

const METHODS: &str = include_str!("golden/methods.jsonl");
const EVENTS: &str = include_str!("golden/events.jsonl");
/// Pairs: the older form, and the same in the current form. The fourteen shapes of `spec/02-wire.md`.
const LEGACY_LINES: &str = include_str!("golden/older.jsonl");
/// Pairs: a line of an older or newer pod, and the meaning that a reader extracts.
const LENIENT_LINES: &str = include_str!("golden/older_reading.jsonl");

fn method_name(method: &Method) -> &'static str {
    match method {
        Method::Hello(_) => "hello",
        Method::Run(_) => "run",
        Method::Dequeue(_) => "dequeue",
        Method::Notify(_) => "notify",
        Method::PodEvent(_) => "pod_event",
        Method::Resume(_) => "resume",
        Method::Pause(_) => "pause",
        Method::Cancel(_) => "cancel",
        Method::Answer(_) => "answer",
        Method::Compact(_) => "compact",
        Method::RewindTargets => "rewind_targets",
        Method::Rewind(_) => "rewind",
        Method::Undo(_) => "undo",
        Method::Fork(_) => "fork",
        Method::CallTool(_) => "call_tool",
        Method::Checkpoint(_) => "checkpoint",
        Method::Set(_) => "set",
        Method::Yield => "yield",
        Method::RestartMcp(_) => "restart_mcp",
        Method::Status => "status",
        Method::Read(_) => "read",
        Method::ReadBlob(_) => "read_blob",
        Method::Wait(_) => "wait",
        Method::ListCompletions(_) => "list_completions",
        Method::ListPods => "list_pods",
        Method::RestorePod(_) => "restore_pod",
        Method::Shutdown(_) => "shutdown",
        Method::GetHistory => "get_history",
    }
}

fn event_name(event: &Event) -> &str {
    match event {
        Event::Hello(_) => "hello",
        Event::Snapshot(_) => "snapshot",
        Event::InFlight(_) => "in_flight",
        Event::Lag(_) => "lag",
        Event::Reply(_) => "reply",
        Event::Error(_) => "error",
        Event::Completions(_) => "completions",
        Event::RewindTargets(_) => "rewind_targets",
        Event::History(_) => "history",
        Event::Entry(_) => "entry",
        Event::Status(_) => "status",
        Event::InvokeStart(_) => "invoke_start",
        Event::UserMessage(_) => "user_message",
        Event::SystemItem(_) => "system_item",
        Event::TurnStart(_) => "turn_start",
        Event::TurnEnd(_) => "turn_end",
        Event::RunEnd(_) => "run_end",
        Event::SegmentRotated(_) => "segment_rotated",
        Event::LlmCallStart(_) => "llm_call_start",
        Event::LlmContinuation(_) => "llm_continuation",
        Event::LlmRetry(_) => "llm_retry",
        Event::LlmCallEnd(_) => "llm_call_end",
        Event::TextDelta(_) => "text_delta",
        Event::TextDone(_) => "text_done",
        Event::ThinkingStart => "thinking_start",
        Event::ThinkingDelta(_) => "thinking_delta",
        Event::ThinkingDone(_) => "thinking_done",
        Event::ToolCallStart(_) => "tool_call_start",
        Event::ToolCallArgsDelta(_) => "tool_call_args_delta",
        Event::ToolCallDone(_) => "tool_call_done",
        Event::Usage(_) => "usage",
        Event::Command(_) => "command",
        Event::ToolResult(_) => "tool_result",
        Event::Ask(_) => "ask",
        Event::Answered(_) => "answered",
        Event::ChildStarted(_) => "child_started",
        Event::ChildEnded(_) => "child_ended",
        Event::CompactStart(_) => "compact_start",
        Event::CompactFailed(_) => "compact_failed",
        Event::CompactDone(_) => "compact_done",
        Event::MemoryWorker(_) => "memory_worker",
        Event::McpServer(_) => "mcp_server",
        Event::Alert(_) => "alert",
        Event::Shutdown => "shutdown",
        Event::Unknown(name) => name,
    }
}

/// Parses and encodes a line of a client or a pod.
fn reencode_line(line: &str) -> String {
    if line.starts_with("{\"method\"") {
        ClientRequest::parse(line).unwrap_or_else(|e| panic!("{line}: {e:?}")).to_line()
    } else {
        Frame::parse(line).unwrap_or_else(|e| panic!("{line}: {e}")).to_line().to_string()
    }
}

#[test]
fn every_golden_line_is_written_back_as_it_was() {
    for line in METHODS.lines().chain(EVENTS.lines()) {
        assert_eq!(reencode_line(line), format!("{line}\n"));
    }
}

#[test]
fn every_method_has_a_golden_line() {
    let have: BTreeSet<&str> =
        METHODS.lines().map(|line| method_name(&ClientRequest::parse(line).unwrap().method)).collect();
    let all: BTreeSet<&str> = Method::NAMES.iter().copied().collect();
    assert_eq!(have, all);
}

#[test]
fn every_event_has_a_golden_line() {
    let frames: Vec<Frame> = EVENTS.lines().map(|line| Frame::parse(line).unwrap()).collect();
    let have: BTreeSet<&str> = frames.iter().map(|frame| event_name(&frame.event)).collect();
    let all: BTreeSet<&str> = Event::NAMES.iter().copied().collect();
    assert_eq!(have, all);
}

#[test]
fn names_are_the_names_that_are_written() {
    for line in METHODS.lines() {
        let method = ClientRequest::parse(line).unwrap().method;
        assert_eq!(method.name(), method_name(&method));
    }
    for line in EVENTS.lines() {
        let event = Frame::parse(line).unwrap().event;
        assert_eq!(event.name(), event_name(&event));
    }
}

#[test]
fn the_fourteen_older_shapes_are_understood() {
    let lines: Vec<&str> = LEGACY_LINES.lines().collect();
    assert_eq!(lines.len(), 2 * 14);
    for pair in lines.chunks_exact(2) {
        assert_eq!(reencode_line(pair[0]), format!("{}\n", pair[1]));
    }
}

#[test]
fn readers_take_what_they_do_not_know_as_unknown() {
    for pair in LENIENT_LINES.lines().collect::<Vec<_>>().chunks_exact(2) {
        assert_eq!(reencode_line(pair[0]), format!("{}\n", pair[1]));
    }
}

#[test]
fn params_may_be_absent_null_or_empty() {
    for name in ["resume", "cancel", "compact", "undo", "fork", "shutdown", "hello", "status", "yield"] {
        let bare = ClientRequest::parse(&format!("{{\"method\":\"{name}\"}}")).unwrap();
        for params in ["null", "{}", "{\"a_later_field\":[1,{}]}"] {
            let line = format!("{{\"params\":{params},\"id\":null,\"method\":\"{name}\"}}");
            assert_eq!(ClientRequest::parse(&line).unwrap(), bare, "{line}");
        }
    }
}

#[test]
fn numbers_are_read_as_they_were_written() {
    let line = r#"{"event":"usage","data":{"input_tokens":1,"output_tokens":1,"cache_read_input_tokens":0,"cache_write_input_tokens":0,"cost_usd":31.245270191439438},"seq":9}"#;
    assert_eq!(reencode_line(line), format!("{line}\n"));
}
