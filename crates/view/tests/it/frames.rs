//! A client's life: joining, falling behind, coming back, the end.

use minke_protocol::{
    Activity, AlertEvent, CompactFailed, CompactStart, Event, Frame, InFlight, Lag, McpServer, McpStatus,
    Place, Snapshot, Status, StatusEvent,
};
use minke_record::{AlertLevel, AlertSource, Entry, Position};
use minke_view::Conversation;
use serde_json::json;

use crate::log::*;

fn snapshot(entries: &[Entry], head: &Entry) -> Frame {
    let greeting = json!({
        "pod_name": "alpha", "cwd": "/w", "model": "m1", "posture": "ask", "context_window": 200_000,
        "context_tokens": 70, "parent": "boss",
    });
    Frame::one(Event::Snapshot(Box::new(Snapshot {
        entries: entries.to_vec(),
        greeting: serde_json::from_value(greeting).expect("it is one"),
        status: Status::Running,
        activity: Some(Activity::Model),
        waiting: None,
        head: Position { seq: head.seq, h: head.h },
        in_flight: InFlight {
            blocks: vec![minke_protocol::Block::Text { text: "half".to_owned() }],
            commands: Vec::new(),
        },
        older: true,
    })))
}

fn alert(message: &str) -> Frame {
    let (level, source) = (AlertLevel::Warn, AlertSource::Pod);
    let alert = AlertEvent { level, source, message: message.to_owned(), timestamp_ms: 9 };
    Frame::live(Event::Alert(alert), 0, None)
}

fn log() -> Log {
    let mut log = Log::begins();
    log.says("hello").asks_model(0);
    log
}

#[test]
fn who_joins_is_greeted_and_sees_what_is_open() {
    let log = log();
    let mut conversation = Conversation::new();
    conversation.frame(&alert("no key"), 1);
    conversation.frame(&snapshot(&log.entries[2..], &log.entries[4]), 1);
    assert_eq!(words(&conversation), ["you: hello", "~warn: no key", "~reply…: half"]);
    let standing = conversation.standing();
    assert_eq!((standing.name.as_str(), standing.posture.as_str()), ("alpha", "ask"));
    assert_eq!(standing.model, "m1", "not the one of the last request");
    assert_eq!((standing.tokens.window, standing.tokens.context), (200_000, 70));
    assert_eq!(
        (standing.status.clone(), standing.activity.clone()),
        (Some(Status::Running), Some(Activity::Model))
    );
    assert_eq!(conversation.older(), Some(2));
    assert_eq!(conversation.position().map(|position| position.seq), Some(4));
}

#[test]
fn alerts_that_stand_in_no_log_keep_their_place() {
    let mut log = log();
    let mut conversation = log.fold();
    conversation.frame(&alert("one"), 1);
    conversation.frame(&alert("two"), 1);
    log.replies(0, "hi").model_ends(0);
    log.entries.iter().for_each(|entry| conversation.entry(entry));
    conversation.frame(&alert("three"), 1);
    assert_eq!(words(&conversation), ["you: hello", "~warn: one", "~warn: two", "reply: hi", "~warn: three"]);
    // One that is logged comes with its entry, and only once.
    log.add(json!({ "kind": "alert", "level": "error", "source": "pod", "message": "four" }));
    let entry = log.entries.last().expect("there is one");
    for event in minke_protocol::events(entry) {
        conversation.frame(&Frame { event, place: Place::Logged { seq: entry.seq }, run: None }, 1);
    }
    assert_eq!(words(&conversation)[5..], ["error: four"]);
}

#[test]
fn who_comes_back_goes_on_where_it_was() {
    let mut log = log();
    let mut conversation = Conversation::new();
    conversation.frame(&snapshot(&log.entries, &log.entries[4]), 1);
    conversation.changed();
    // Nothing came meanwhile.
    conversation.frame(&snapshot(&[], &log.entries[4]), 2);
    assert_eq!(words(&conversation), ["you: hello", "~reply…: half"]);
    log.replies(0, "half and half");
    conversation.frame(&snapshot(&log.entries[5..], &log.entries[5]), 3);
    assert_eq!(words(&conversation), ["you: hello", "reply: half and half", "~reply…: half"]);
    assert_eq!(conversation.older(), None);
    assert_eq!(conversation.changed(), Some(1));
}

#[test]
fn another_log_is_begun_anew() {
    let log = log();
    let mut conversation = Conversation::new();
    conversation.frame(&snapshot(&log.entries, &log.entries[4]), 1);
    let before = conversation.blocks()[0].version;
    conversation.changed();
    // After a power cut the numbers are used again: the snapshot is a full one.
    let mut other = Log::begins();
    other.says("another").asks_model(0);
    conversation.frame(&snapshot(&other.entries, &other.entries[4]), 2);
    assert_eq!(words(&conversation), ["you: another", "~reply…: half"]);
    assert_eq!(conversation.changed(), Some(0));
    assert!(conversation.blocks()[0].version > before, "what was drawn of the same id is out of date");
}

#[test]
fn who_falls_behind_is_told_the_entries_and_what_is_open() {
    let mut log = log();
    let mut conversation = log.fold();
    conversation.frame(&Frame::live(Event::ThinkingStart, 4, None), 1);
    log.model(0, thinking("done")).replies(0, "one");
    conversation.frame(&Frame::one(Event::Lag(Lag { from_seq: 5 })), 1);
    log.entries.iter().for_each(|entry| conversation.entry(entry));
    let blocks = vec![minke_protocol::Block::Text { text: "two".to_owned() }];
    conversation.frame(&Frame::one(Event::InFlight(InFlight { blocks, commands: Vec::new() })), 1);
    assert_eq!(words(&conversation), ["you: hello", "thinking: done", "reply: one", "~reply…: two"]);
}

#[test]
fn what_a_pod_does_is_in_the_standing() {
    let mut conversation = log().fold();
    let status = StatusEvent {
        status: Status::Running,
        activity: Some(Activity::Tool),
        detail: Some("Bash cargo test".to_owned()),
        waiting: None,
    };
    conversation.live(&Event::Status(status), 1);
    assert_eq!(conversation.standing().detail.as_deref(), Some("Bash cargo test"));
    conversation.live(&Event::CompactStart(CompactStart { reason: "full".to_owned() }), 1);
    assert!(conversation.standing().compacting);
    conversation.live(&Event::CompactFailed(CompactFailed { error: "busy".to_owned() }), 1);
    assert!(!conversation.standing().compacting);
    assert!(words(&conversation)[1].contains("could not be compacted: busy"), "{:?}", words(&conversation));
    for status in [McpStatus::Starting, McpStatus::Ready] {
        let server = McpServer { server: "files".to_owned(), status, error: None };
        conversation.live(&Event::McpServer(server), 1);
    }
    let servers: Vec<_> =
        conversation.standing().servers.iter().map(|server| server.status.clone()).collect();
    assert_eq!(servers, [McpStatus::Ready]);
    conversation.live(&Event::Shutdown, 1);
    assert!(conversation.standing().gone);
}

#[test]
fn a_parent_speaks_by_its_name() {
    let mut log = log();
    let segments = json!([{ "kind": "text", "content": "do it" }]);
    let from = json!({ "actor": "pod", "session": CHILD });
    log.add(json!({ "kind": "user_input", "segments": segments, "from": from }));
    let mut conversation = Conversation::new();
    conversation.frame(&snapshot(&log.entries, &log.entries[5]), 1);
    assert_eq!(words(&conversation)[1], "boss: do it");
}
