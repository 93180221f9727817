//! Every kind of entry produces the events in the table of `spec/02-wire.md`, in order, and the lines for
//! clients are those events encoded once.

use std::collections::BTreeSet;

use minke_protocol::{
    CommandOutput, EntryPage, Event, EventPosition, Frame, Greeting, InFlight, OpenCommand, OutputStream,
    ReadReply, Snapshot, Status, StreamingBlock, encode_history, encode_snapshot, entry_events, entry_frames,
    limits,
};
use minke_record::{Entry, Item, Kind, Position, line};

/// One line per kind, and more where the events depend on the fields.
const ENTRIES: &str = include_str!("golden/entries.jsonl");

/// The column "made from" of the table, inverted.
fn expected_events(kind: &Kind) -> &'static [&'static str] {
    match kind {
        Kind::SegmentStart(start) if start.tokens.is_some() => &["segment_rotated", "compact_done", "entry"],
        Kind::SegmentStart(_) => &["segment_rotated", "entry"],
        Kind::Invoke(_) => &["invoke_start", "entry"],
        Kind::UserInput(_) => &["user_message", "entry"],
        Kind::SystemEntry(_) => &["system_item", "entry"],
        Kind::LlmCall(call) if call.continues.is_some() => &["llm_continuation", "llm_call_start", "entry"],
        Kind::LlmCall(call) if call.call == 2 => &["llm_call_start", "entry"],
        Kind::LlmCall(_) => &["turn_start", "llm_call_start", "entry"],
        Kind::AssistantItem(block) => match block.item {
            Item::Message { .. } => &["text_done", "text_done", "entry"],
            Item::Reasoning { .. } => &["thinking_done", "entry"],
            Item::ToolCall { .. } => &["tool_call_done", "entry"],
            Item::ToolResult { .. } | Item::Unknown => &["entry"],
        },
        Kind::LlmUsage(_) => &["usage", "entry"],
        Kind::LlmEnd(_) => &["llm_call_end", "entry"],
        Kind::ToolResult(_) => &["tool_result", "entry"],
        Kind::TurnEnd(_) => &["turn_end", "entry"],
        Kind::RunCompleted(_) => &["run_end", "entry"],
        Kind::RunErrored(_) => &["error", "run_end", "entry"],
        Kind::Ask(_) => &["ask", "entry"],
        Kind::Answer(_) => &["answered", "entry"],
        Kind::Child(_) => &["child_started", "entry"],
        Kind::ChildEnd(_) => &["child_ended", "entry"],
        Kind::Alert(_) => &["alert", "entry"],
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
        | Kind::Unknown(_) => &["entry"],
    }
}

fn golden_entries() -> Vec<(Entry, &'static str)> {
    ENTRIES
        .lines()
        .map(|text| (line::parse_entry(text).unwrap_or_else(|e| panic!("{text}: {e}")), text))
        .collect()
}

#[test]
fn every_kind_makes_the_events_of_the_table() {
    let mut seen = BTreeSet::new();
    for (entry, text) in golden_entries() {
        assert_eq!(serde_json::to_string(&entry).unwrap(), text);
        let made = entry_events(&entry);
        let names: Vec<&str> = made.iter().map(Event::name).collect();
        assert_eq!(names, expected_events(&entry.kind), "{text}");
        seen.insert(entry.kind.name().to_owned());
    }
    for name in Kind::NAMES {
        assert!(seen.remove(*name), "no golden entry of the kind {name}");
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["song"]);
}

#[test]
fn frames_are_the_events_written_once() {
    for (entry, text) in golden_entries() {
        let plain: Vec<String> = entry_events(&entry)
            .into_iter()
            .map(|event| {
                let frame =
                    Frame { event, position: EventPosition::Logged { seq: entry.seq }, run: entry.run };
                frame.to_line().to_string()
            })
            .collect();
        let made = entry_frames(&entry, text);
        assert!(made.iter().map(|line| &**line).eq(plain.iter().map(String::as_str)), "{made:?}\n{plain:?}");
        for line in made {
            assert!(line.ends_with("}\n"));
            let frame = Frame::parse(line.trim_end()).unwrap();
            assert_eq!(frame.position, EventPosition::Logged { seq: entry.seq });
            assert_eq!(frame.run, entry.run);
        }
    }
}

#[test]
fn what_the_events_say_is_what_the_entry_says() {
    let quoted: Vec<String> = golden_entries()
        .iter()
        .flat_map(|(entry, text)| entry_frames(entry, text))
        .filter(|line| !line.starts_with("{\"event\":\"entry\"") && !line.contains("segment_rotated"))
        .map(|line| line.trim_end().to_owned())
        .collect();
    assert_eq!(quoted.join("\n"), include_str!("golden/logged.jsonl").trim_end());
}

fn snapshot_with(in_flight: InFlight) -> Snapshot {
    let greeting: Greeting = serde_json::from_str(r#"{"pod_name":"alpha"}"#).expect("a greeting");
    Snapshot {
        entries: Vec::new(),
        greeting,
        status: Status::Idle,
        activity: None,
        waiting: None,
        head: Position { seq: 46, h: minke_record::ChainHash::ZERO },
        in_flight,
        older: false,
    }
}

#[test]
fn a_snapshot_is_the_event_with_the_logs_own_lines() {
    let outer = snapshot_with(InFlight::default());
    let lines: Vec<&str> = ENTRIES.lines().collect();
    let line = encode_snapshot(&outer, &lines);
    let Event::Snapshot(read) = Frame::parse(line.trim_end()).unwrap().event else { panic!("{line}") };
    let whole = Snapshot { entries: golden_entries().into_iter().map(|(entry, _)| entry).collect(), ..outer };
    assert_eq!(*read, whole);
    assert_eq!(Frame::new_direct(Event::Snapshot(Box::new(whole))).to_line(), line);
}

#[test]
fn a_snapshot_always_fits_a_frame() {
    // A control character is encoded in six bytes, the worst case for in-flight data.
    let bad = "\u{1}".repeat(512 * 1024);
    let output = CommandOutput { stream: OutputStream::Stdout, start: 0, end: 9, text: bad.clone() };
    let command = OpenCommand {
        command_id: "k".into(),
        call_id: "c".into(),
        command: "x".into(),
        cwd: "/w".into(),
        output: vec![output],
    };
    let in_flight = InFlight { blocks: vec![StreamingBlock::Text { text: bad }], commands: vec![command] };
    let long = format!(
        r#"{{"seq":44,"ts":1,"kind":"alert","level":"warn","source":"pod","message":"{}","h":"{}"}}"#,
        "x".repeat(1_000_000),
        minke_record::ChainHash::ZERO
    );
    let lines = [long.as_str(); 6];
    let line = encode_snapshot(&snapshot_with(in_flight), &lines);
    assert!(line.len() <= limits::MAX_FRAME_BYTES, "{}", line.len());
    let Event::Snapshot(read) = Frame::parse(line.trim_end()).unwrap().event else {
        panic!("not a snapshot")
    };
    assert!(read.older, "it was cut and does not say so");
    assert_eq!(read.entries.len(), 3);
    let Some(StreamingBlock::Text { text }) = read.in_flight.blocks.first() else { panic!("no block") };
    assert!(text.contains("bytes omitted"));
}

#[test]
fn a_page_holds_the_logs_own_lines_and_says_where_it_ends() {
    let lines: Vec<&str> = ENTRIES.lines().collect();
    let mut page = EntryPage::new(5);
    let taken = lines.iter().take_while(|line| page.push(line)).count();
    assert_eq!(taken, 5);
    let reply: ReadReply = page.into_reply(Some(5)).parse_result().unwrap().unwrap();
    assert_eq!(reply.next_seq, Some(5));
    assert!(reply.entries.iter().eq(golden_entries().iter().take(5).map(|(entry, _)| entry)));

    let long = format!("{{\"x\":\"{}\"}}", "x".repeat(1024 * 1024));
    let mut page = EntryPage::new(usize::MAX);
    assert_eq!((0..9).take_while(|_| page.push(&long)).count(), 3);
    let line = minke_protocol::encode_reply(minke_protocol::RequestId::new("1"), page.into_reply(None));
    assert!(line.len() <= limits::MAX_FRAME_BYTES);
}

#[test]
fn an_older_history_keeps_the_newest_items_that_fit() {
    let greeting: Greeting = serde_json::from_str(r#"{"pod_name":"alpha"}"#).expect("a greeting");
    let items: Vec<Item> =
        (0..9).map(|i| Item::user_message(format!("{i}{}", "x".repeat(1_000_000)))).collect();
    let line = encode_history(&items, &greeting);
    assert!(line.len() <= limits::MAX_FRAME_BYTES);
    let Event::History(read) = Frame::parse(line.trim_end()).unwrap().event else { panic!("not a history") };
    assert!(read.items.iter().map(|item| &item.0).eq(&items[5..]));
}
