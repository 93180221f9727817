//! Frames: the frames of each entry and live event, in golden JSON (`MINKE_BLESS=1` rewrites it); and the fold drops
//! state that it no longer needs.
//!
//! The tests of the binary check with real pods that a log gives the same frames read or live.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

use minke_host::{FrameFold, FrameId};
use minke_protocol::{Event, Frame as PodFrame};
use minke_record::{Entry, SessionId, line};
use serde_json::{Value, json};

const RUN: &str = "01970000-0000-7000-8000-000000000005";
const ASK: &str = "01970000-0000-7000-8000-00000000000a";
const THREAD: &str = "01970000-0000-7000-8000-000000000001";

/// Entries and live events in order: entries have a `kind`, live events an `event`.
fn frame_story() -> Vec<Value> {
    let by = json!({ "actor": "person", "surface": "t" });
    let route = json!({ "provider": "p", "model": "m", "scheme": "s" });
    let llm = |call: u64, turn: u64| {
        json!({ "kind": "llm_call", "call": call, "turn": turn, "purpose": "turn", "route": route,
            "request_hash": "x", "builder": 1, "reserved": { "input": 1, "output": 1 } })
    };
    let says = |call: u64, item: Value| json!({ "kind": "assistant_item", "call": call, "item": item });
    let message = |text: Value| json!({ "kind": "message", "role": "assistant", "content": [{ "kind": "text", "text": text }] });
    let calls = |id: &str, name: &str, arguments: &str| json!({ "kind": "tool_call", "call_id": id, "name": name, "arguments": arguments });
    let verdict = |outcome: &str| json!({ "outcome": outcome, "reason": "because", "sandbox": "namespaces" });
    let started = |id: &str, tool: &str, action: Value| {
        json!({ "kind": "tool_dispatch", "call_id": id, "tool": tool, "class": "once", "action": action,
            "verdict": verdict("allow") })
    };
    let ended = |id: &str, summary: &str, outcome: &str| {
        let item = json!({ "kind": "tool_result", "call_id": id, "summary": summary, "is_error": outcome != "done" });
        json!({ "kind": "tool_result", "item": item, "outcome": outcome })
    };
    let command = |line: &str| json!({ "command": line, "side_effects": true });
    vec![
        json!({ "kind": "session_start", "session": THREAD, "format": 1, "version": "0", "name": "w",
            "created_by": by, "cwd": "/w", "workspace": "/w", "manifest": {}, "scope": { "allow": [] }, "mandate": { "objective": "be green" } }),
        json!({ "kind": "goal", "change": "set", "text": "all green", "used": 0 }),
        json!({ "kind": "invoke", "trigger": "user_send", "by": by, "attempt": 1 }),
        llm(1, 1),
        // Live: a stream that breaks off and restarts, then reasoning and text.
        json!({ "event": "text_delta", "data": { "text": "Hal" } }),
        json!({ "event": "llm_retry", "data": { "llm_call": 1, "failed_attempt": 1, "max_attempts": 3,
            "wait_ms": 1, "error": "e" } }),
        json!({ "event": "thinking_delta", "data": { "text": "Hm" } }),
        says(1, json!({ "kind": "reasoning", "text": "Hm." })),
        json!({ "event": "text_delta", "data": { "text": "Look" } }),
        json!({ "event": "in_flight", "data": { "blocks": [{ "kind": "text", "text": "Look" },
            { "kind": "tool_call", "id": "c1", "name": "Bash", "arguments": "{" }], "commands": [] } }),
        says(1, message(json!("Look."))),
        // Logged output is not discarded.
        json!({ "event": "llm_retry", "data": { "llm_call": 1, "failed_attempt": 2, "max_attempts": 3,
            "wait_ms": 1, "error": "e" } }),
        says(1, calls("c1", "Bash", r#"{"command":"make"}"#)),
        says(1, calls("c2", "Write", r#"{"file_path":"/w/a"}"#)),
        says(1, calls("c3", "Bash", r#"{"command":"serve"}"#)),
        says(1, calls("c4", "mcp__git__log", "{}")),
        says(1, calls("c5", "Bash", r#"{"command":"rm -r /"}"#)),
        json!({ "kind": "llm_end", "call": 1, "outcome": "done", "attempts": 2 }),
        json!({ "kind": "ask", "id": ASK, "ask": "approval", "options": ["approved", "denied"],
            "subject": { "call_id": "c1", "digest": "d", "tool": "Bash", "cwd": "/w", "action": command("make"),
                "verdict": verdict("ask") } }),
        json!({ "kind": "answer", "id": ASK, "decision": "approved", "by": by }),
        started("c1", "Bash", command("make")),
        json!({ "event": "command", "data": { "command_id": "k1", "call_id": "c1",
            "started": { "command": "make", "cwd": "/w" } } }),
        json!({ "event": "command", "data": { "command_id": "k1", "call_id": "c1",
            "output": { "stream": "both", "start": 0, "end": 3, "text": "cc\n" } } }),
        json!({ "event": "in_flight", "data": { "blocks": [], "commands": [{ "command_id": "k1", "call_id": "c1",
            "command": "make", "cwd": "/w", "output": [{ "stream": "both", "start": 0, "end": 3, "text": "cc\n" }] }] } }),
        json!({ "event": "command", "data": { "command_id": "k1", "call_id": "c1",
            "ended": { "status": "completed", "exit_code": 2 } } }),
        ended("c1", "$ make (exit 2)", "done"),
        started("c2", "Write", json!({ "writes": ["/w/a"], "side_effects": true })),
        ended("c2", "wrote /w/a", "done"),
        started("c3", "Bash", command("serve")),
        ended("c3", "$ serve (running as k3)", "done"),
        json!({ "event": "command", "data": { "command_id": "k3", "call_id": "c3",
            "ended": { "status": "cancelled" } } }),
        started("c4", "mcp__git__log", json!({ "mcp": "mcp__git__log", "side_effects": true })),
        ended("c4", "no such branch", "failed"),
        ended("c5", "not in scope", "refused"),
        json!({ "kind": "turn_end", "turn": 1, "result": "finished", "stop_reason": "tool_use" }),
        json!({ "kind": "ask", "id": ASK, "ask": "question", "options": ["red", "blue"],
            "subject": { "digest": "d", "text": "Which?" } }),
        json!({ "kind": "ask", "id": ASK, "ask": "elicitation", "options": [],
            "subject": { "digest": "d", "text": "Who?", "tool": "git" } }),
        llm(2, 2),
        says(2, message(json!({ "blob": "ab".repeat(32), "bytes": 9_000_000 }))),
        json!({ "event": "mcp_server", "data": { "server": "git", "status": "starting" } }),
        json!({ "event": "mcp_server", "data": { "server": "git", "status": "ready" } }),
        json!({ "event": "mcp_server", "data": { "server": "git", "status": "failed", "error": "gone" } }),
        json!({ "event": "mcp_server", "data": { "server": "git", "status": "cancelled" } }),
        json!({ "kind": "turn_end", "turn": 2, "result": "cancelled", "stop_reason": "" }),
        llm(3, 3),
        json!({ "kind": "run_errored", "code": "provider_error", "message": "no more", "retryable": true }),
        json!({ "kind": "state", "state": "waiting", "on": "time", "until": 5_001, "run": null }),
        json!({ "kind": "goal", "change": "done", "text": "all green", "used": 2, "evidence": "make" }),
        json!({ "kind": "goal", "change": "clear", "text": "", "used": 2 }),
        json!({ "kind": "invoke", "trigger": "resume", "by": by, "attempt": 1 }),
        json!({ "kind": "run_completed", "result": "finished" }),
    ]
}

enum FrameSource {
    Entry(Box<Entry>),
    Live(Box<Event>),
}

fn frame_sources() -> Vec<FrameSource> {
    let mut seq = 0;
    let mut out = Vec::new();
    for step in frame_story() {
        if step.get("event").is_some() {
            let mut object = step;
            object["after_seq"] = json!(seq - 1);
            out.push(FrameSource::Live(Box::new(PodFrame::parse(&object.to_string()).unwrap().event)));
            continue;
        }
        let mut object = json!({ "seq": seq, "ts": 1_000 + seq, "h": format!("{seq:032x}") });
        // Entries outside of a run are marked.
        if seq > 1 && step.get("run").is_none() {
            object["run"] = json!(RUN);
        }
        object.as_object_mut().unwrap().extend(step.as_object().unwrap().clone());
        object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let entry = line::parse_entry(&object.to_string()).unwrap_or_else(|e| panic!("{object}: {e}"));
        out.push(FrameSource::Entry(Box::new(entry)));
        seq += 1;
    }
    out
}

fn thread_id() -> SessionId {
    THREAD.parse().unwrap()
}

#[test]
fn every_frame_is_written_as_it_was() {
    let mut fold = FrameFold::new(thread_id());
    let mut golden_text = String::new();
    for happening in frame_sources() {
        let frames = match &happening {
            FrameSource::Entry(entry) => fold.fold_entry(entry),
            FrameSource::Live(event) => match event.as_ref() {
                Event::InFlight(open) => fold.in_flight_frames(open, 7),
                event => fold.live_event_frames(event, Some(RUN.parse().unwrap()), 7),
            },
        };
        for frame in frames {
            let id = frame.frame_id().map_or("-".to_owned(), |id| id.to_string());
            golden_text.push_str(&format!("{id} {}\n", serde_json::to_string(&frame).unwrap()));
        }
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/frames.txt");
    if std::env::var_os("MINKE_BLESS").is_some() {
        std::fs::write(file, &golden_text).unwrap();
    }
    let golden = std::fs::read_to_string(file).unwrap();
    for (line, (new, old)) in golden_text.lines().zip(golden.lines()).enumerate() {
        assert_eq!(new, old, "line {}: MINKE_BLESS=1 rewrites the file if the change is intended", line + 1);
    }
    assert_eq!(golden_text.lines().count(), golden.lines().count());
    // Every frame with a source occurs.
    for event in [
        "response_start",
        "response_delta",
        "response_end",
        "turn_started",
        "turn_complete",
        "turn_aborted",
        "tool_call_start",
        "tool_call_result",
        "exec_command_begin",
        "exec_command_output_delta",
        "exec_command_end",
        "patch_apply_begin",
        "patch_apply_end",
        "exec_approval_request",
        "user_input_request",
        "job_updated",
        "elicitation_request",
        "mcp_startup_update",
        "mcp_tool_call_begin",
        "mcp_tool_call_end",
        "thread_goal_updated",
        "thread_goal_cleared",
        "error",
    ] {
        assert!(golden_text.contains(&format!("\"event\":\"{event}\"")), "no golden frame {event}");
    }
}

/// Live events do not change the frames of entries.
#[test]
fn what_was_heard_between_entries_changes_none_of_their_frames() {
    let (mut reader, mut listener) = (FrameFold::new(thread_id()), FrameFold::new(thread_id()));
    for happening in frame_sources() {
        match &happening {
            FrameSource::Entry(entry) => assert_eq!(reader.fold_entry(entry), listener.fold_entry(entry)),
            FrameSource::Live(event) => match event.as_ref() {
                Event::InFlight(open) => drop(listener.in_flight_frames(open, 7)),
                event => drop(listener.live_event_frames(event, Some(RUN.parse().unwrap()), 7)),
            },
        }
    }
}

/// A client that resumes after any id gets the same frames as the others.
#[test]
fn frames_are_numbered_in_their_order() {
    let mut fold = FrameFold::new(thread_id());
    let mut last = None;
    for happening in frame_sources() {
        let FrameSource::Entry(entry) = &happening else { continue };
        for frame in fold.fold_entry(entry) {
            let id = frame.frame_id().unwrap();
            assert!(last < Some((id.position.seq, id.n)), "{id} does not come after {last:?}");
            last = Some((id.position.seq, id.n));
            assert_eq!(id.to_string().parse::<FrameId>().unwrap(), id);
        }
    }
}

#[test]
fn an_id_is_read_strictly() {
    let h = "0123456789abcdef0123456789abcdef";
    assert_eq!(format!("7.{h}").parse::<FrameId>().unwrap().n, u32::MAX);
    let bad = [
        String::new(),
        "7".into(),
        "7.0".into(),
        format!("7.0.{h}.1"),
        format!("+7.0.{h}"),
        format!("7.-1.{h}"),
        format!("7.0.{}", h.to_uppercase()),
        format!("7.0.{h}0"),
        format!("99999999999999999999.0.{h}"),
        format!("7.4294967296.{h}"),
        format!(" 7.0.{h}"),
        format!("7..{h}"),
        format!("7.0.{h}\n"),
    ];
    for text in bad {
        assert!(text.parse::<FrameId>().is_err(), "`{text}` was accepted");
    }
}
