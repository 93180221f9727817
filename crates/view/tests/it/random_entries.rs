//! Any sequence of entries and events is shown without a panic and within the memory limits.

use minke_protocol::Frame;
use minke_record::{Entry, line};
use minke_view::{Conversation, PrependResult};
use proptest::prelude::*;
use serde_json::Value;

use crate::random_log::SeededRng;

const ENTRIES: &str = include_str!("../../../protocol/tests/golden/entries.jsonl");
const EVENTS: &str = include_str!("../../../protocol/tests/golden/events.jsonl");

/// Golden lines in random order with increasing numbers. Some words are replaced by others of the same log.
fn random_entries(rng: &mut SeededRng, len: usize) -> Vec<Entry> {
    let lines: Vec<Value> = ENTRIES.lines().map(|line| serde_json::from_str(line).expect("golden")).collect();
    let mut entries = Vec::new();
    while entries.len() < len {
        let mut line = lines[rng.next_below(lines.len())].clone();
        line["seq"] = entries.len().into();
        line["ts"] = (entries.len() as u64).into();
        for key in ["call_id", "call", "to_seq", "turn"] {
            if line.get(key).is_some_and(Value::is_number) {
                line[key] = rng.next_below(len).into();
            }
        }
        if rng.is_one_in(10) {
            line.as_object_mut().expect("it is one").remove("run");
        }
        let Value::Object(mut fields) = line else { continue };
        // `h` is the last member.
        let h = fields.remove("h").expect("every line has one");
        fields.insert("h".to_owned(), h);
        if let Ok(entry) = line::parse_entry(&Value::Object(fields).to_string()) {
            entries.push(entry);
        }
    }
    entries
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn folding_anything_never_panics(seed: u64) {
        let mut rng = SeededRng::new(seed);
        let entries = random_entries(&mut rng, 120);
        let events: Vec<Frame> =
            EVENTS.lines().filter_map(|line| Frame::parse(line).ok()).collect();
        prop_assert!(events.len() > 20, "{}", events.len());
        let at = rng.next_below(100);
        let mut conversation = Conversation::new();
        for entry in &entries[at..] {
            conversation.apply_entry(entry);
            for _ in 0..rng.next_below(4) {
                conversation.apply_frame(&events[rng.next_below(events.len())], 1);
            }
        }
        if conversation.older_seq() == Some(at as u64) && at > 0 {
            let applied = conversation.prepend_page(&entries[..at]);
            prop_assert!(matches!(applied, PrependResult::Prepended { .. }), "{applied:?}");
        }
        prop_assert!(conversation.blocks().len() < 2_000);
    }
}

#[test]
fn texts_that_never_end_are_bounded() {
    let mut conversation = Conversation::new();
    let piece = "x".repeat(10_000);
    for _ in 0..1_000 {
        let delta = minke_protocol::Event::TextDelta(minke_protocol::Delta { text: piece.clone() });
        conversation.apply_live(&delta, 1);
    }
    let held: usize = conversation
        .blocks()
        .iter()
        .map(|block| match &block.body {
            minke_view::BlockBody::Reply(words) => words.text.len(),
            other => panic!("{other:?}"),
        })
        .sum();
    assert!(held <= 1024 * 1024, "{held}");
}

#[test]
fn news_that_never_end_are_bounded() {
    let mut log = crate::log_builder::LogBuilder::with_session_start();
    log.add_input("x").add_llm_call(0);
    let mut conversation = log.fold_entries();
    for at in 0..5_000 {
        let start =
            minke_protocol::ToolCallStart { id: format!("c{at}").as_str().into(), name: "Bash".to_owned() };
        conversation.apply_live(&minke_protocol::Event::ToolCallStart(start), 1);
    }
    assert!(conversation.blocks().len() <= 1_100, "{}", conversation.blocks().len());
    for at in 0..3_000 {
        let alert = serde_json::json!({ "level": "warn", "source": "pod", "message": format!("alert {at}") });
        let alert = serde_json::from_value(alert).expect("it is one");
        conversation.apply_live(&minke_protocol::Event::Alert(alert), 1);
    }
    assert!(conversation.blocks().len() <= 1_700, "{}", conversation.blocks().len());
    assert!(crate::log_builder::conversation_lines(&conversation).contains(&"~warn: alert 2999".to_owned()));
}
