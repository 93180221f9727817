//! The connection of a client: join, lag, reconnect, end.

use minke_protocol::{
    Activity, AlertEvent, CompactFailed, CompactStart, Event, EventPosition, Frame, InFlight, Lag, McpServer,
    McpStatus, Snapshot, Status, StatusEvent,
};
use minke_record::{AlertLevel, AlertSource, Entry, Position};
use minke_view::Conversation;
use serde_json::json;

use crate::log_builder::*;

fn snapshot_frame(entries: &[Entry], head: &Entry) -> Frame {
    let greeting = json!({
        "pod_name": "alpha", "cwd": "/w", "model": "m1", "posture": "ask", "context_window": 200_000,
        "context_tokens": 70, "parent": "boss",
    });
    Frame::new_direct(Event::Snapshot(Box::new(Snapshot {
        entries: entries.to_vec(),
        greeting: serde_json::from_value(greeting).expect("it is one"),
        status: Status::Running,
        activity: Some(Activity::Model),
        waiting: None,
        head: Position { seq: head.seq, h: head.h },
        in_flight: InFlight {
            blocks: vec![minke_protocol::StreamingBlock::Text { text: "half".to_owned() }],
            commands: Vec::new(),
        },
        older: true,
    })))
}

fn alert_frame(message: &str) -> Frame {
    let (level, source) = (AlertLevel::Warn, AlertSource::Pod);
    let alert = AlertEvent { level, source, message: message.to_owned(), timestamp_ms: 9 };
    Frame::new_live(Event::Alert(alert), 0, None)
}

fn sample_log() -> LogBuilder {
    let mut log = LogBuilder::with_session_start();
    log.add_input("hello").add_llm_call(0);
    log
}

#[test]
fn who_joins_is_greeted_and_sees_what_is_open() {
    let log = sample_log();
    let mut conversation = Conversation::new();
    conversation.apply_frame(&alert_frame("no key"), 1);
    conversation.apply_frame(&snapshot_frame(&log.entries[2..], &log.entries[4]), 1);
    assert_eq!(conversation_lines(&conversation), ["you: hello", "~warn: no key", "~reply…: half"]);
    let standing = conversation.status();
    assert_eq!((standing.name.as_str(), standing.posture.as_str()), ("alpha", "ask"));
    assert_eq!(standing.model, "m1", "not the one of the last request");
    assert_eq!((standing.tokens.context_window, standing.tokens.context_tokens), (200_000, 70));
    assert_eq!(
        (standing.status.clone(), standing.activity.clone()),
        (Some(Status::Running), Some(Activity::Model))
    );
    assert_eq!(conversation.older_seq(), Some(2));
    assert_eq!(conversation.position().map(|position| position.seq), Some(4));
}

#[test]
fn alerts_that_stand_in_no_log_keep_their_place() {
    let mut log = sample_log();
    let mut conversation = log.fold_entries();
    conversation.apply_frame(&alert_frame("one"), 1);
    conversation.apply_frame(&alert_frame("two"), 1);
    log.add_reply(0, "hi").add_llm_end(0);
    log.entries.iter().for_each(|entry| conversation.apply_entry(entry));
    conversation.apply_frame(&alert_frame("three"), 1);
    assert_eq!(
        conversation_lines(&conversation),
        ["you: hello", "~warn: one", "~warn: two", "reply: hi", "~warn: three"]
    );
    // A logged alert arrives with its entry, and only once.
    log.add_entry(json!({ "kind": "alert", "level": "error", "source": "pod", "message": "four" }));
    let entry = log.entries.last().expect("there is one");
    for event in minke_protocol::entry_events(entry) {
        conversation
            .apply_frame(&Frame { event, position: EventPosition::Logged { seq: entry.seq }, run: None }, 1);
    }
    assert_eq!(conversation_lines(&conversation)[5..], ["error: four"]);
}

#[test]
fn who_comes_back_goes_on_where_it_was() {
    let mut log = sample_log();
    let mut conversation = Conversation::new();
    conversation.apply_frame(&snapshot_frame(&log.entries, &log.entries[4]), 1);
    conversation.take_changed();
    // Nothing happened in between.
    conversation.apply_frame(&snapshot_frame(&[], &log.entries[4]), 2);
    assert_eq!(conversation_lines(&conversation), ["you: hello", "~reply…: half"]);
    log.add_reply(0, "half and half");
    conversation.apply_frame(&snapshot_frame(&log.entries[5..], &log.entries[5]), 3);
    assert_eq!(conversation_lines(&conversation), ["you: hello", "reply: half and half", "~reply…: half"]);
    assert_eq!(conversation.older_seq(), None);
    assert_eq!(conversation.take_changed(), Some(1));
}

#[test]
fn another_log_is_begun_anew() {
    let log = sample_log();
    let mut conversation = Conversation::new();
    conversation.apply_frame(&snapshot_frame(&log.entries, &log.entries[4]), 1);
    let before = conversation.blocks()[0].version;
    conversation.take_changed();
    // After a power loss the numbers are reused, so the snapshot is complete.
    let mut other = LogBuilder::with_session_start();
    other.add_input("another").add_llm_call(0);
    conversation.apply_frame(&snapshot_frame(&other.entries, &other.entries[4]), 2);
    assert_eq!(conversation_lines(&conversation), ["you: another", "~reply…: half"]);
    assert_eq!(conversation.take_changed(), Some(0));
    assert!(conversation.blocks()[0].version > before, "lines rendered from the same id are outdated");
}

#[test]
fn who_falls_behind_is_told_the_entries_and_what_is_open() {
    let mut log = sample_log();
    let mut conversation = log.fold_entries();
    conversation.apply_frame(&Frame::new_live(Event::ThinkingStart, 4, None), 1);
    log.add_item(0, thinking_json("done")).add_reply(0, "one");
    conversation.apply_frame(&Frame::new_direct(Event::Lag(Lag { from_seq: 5 })), 1);
    log.entries.iter().for_each(|entry| conversation.apply_entry(entry));
    let blocks = vec![minke_protocol::StreamingBlock::Text { text: "two".to_owned() }];
    conversation
        .apply_frame(&Frame::new_direct(Event::InFlight(InFlight { blocks, commands: Vec::new() })), 1);
    assert_eq!(
        conversation_lines(&conversation),
        ["you: hello", "thinking: done", "reply: one", "~reply…: two"]
    );
}

#[test]
fn what_a_pod_does_is_in_the_standing() {
    let mut conversation = sample_log().fold_entries();
    let status = StatusEvent {
        status: Status::Running,
        activity: Some(Activity::Tool),
        detail: Some("Bash cargo test".to_owned()),
        waiting: None,
    };
    conversation.apply_live(&Event::Status(status), 1);
    assert_eq!(conversation.status().detail.as_deref(), Some("Bash cargo test"));
    conversation.apply_live(&Event::CompactStart(CompactStart { reason: "full".to_owned() }), 1);
    assert!(conversation.status().compacting);
    conversation.apply_live(&Event::CompactFailed(CompactFailed { error: "busy".to_owned() }), 1);
    assert!(!conversation.status().compacting);
    assert!(
        conversation_lines(&conversation)[1].contains("could not be compacted: busy"),
        "{:?}",
        conversation_lines(&conversation)
    );
    for status in [McpStatus::Starting, McpStatus::Ready] {
        let server = McpServer { server: "files".to_owned(), status, error: None };
        conversation.apply_live(&Event::McpServer(server), 1);
    }
    let servers: Vec<_> = conversation.status().servers.iter().map(|server| server.status.clone()).collect();
    assert_eq!(servers, [McpStatus::Ready]);
    conversation.apply_live(&Event::Shutdown, 1);
    assert!(conversation.status().has_stopped);
}

#[test]
fn a_parent_speaks_by_its_name() {
    let mut log = sample_log();
    let segments = json!([{ "kind": "text", "content": "do it" }]);
    let from = json!({ "actor": "pod", "session": CHILD });
    log.add_entry(json!({ "kind": "user_input", "segments": segments, "from": from }));
    let mut conversation = Conversation::new();
    conversation.apply_frame(&snapshot_frame(&log.entries, &log.entries[5]), 1);
    assert_eq!(conversation_lines(&conversation)[1], "boss: do it");
}
