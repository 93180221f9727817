//! The fold is pure and total: every prefix of every log, valid or not, folds without panic, and the last
//! carry replaces all earlier entries.

use minke_pod::{Audit, PodCommand, State};
use minke_record::{Actor, Carry, Entry, History, Kind, Large, line};
use minke_testkit::{StoryScene, StoryStop, StoryWorld, SyncTiming, simulated_logs};
use proptest::prelude::*;

const SEEDS: u64 = 6;
const ACTS: usize = 800;

fn simulated_log_set() -> Vec<Vec<Entry>> {
    let of = |seed| simulated_logs(seed, ACTS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let logs: Vec<Vec<Entry>> = (0..SEEDS).flat_map(of).collect();
    assert!(logs.iter().map(Vec::len).sum::<usize>() > 500, "the logs say too little");
    logs
}

/// Replays the entries that an opening reads: the carry's `segment_start`, the carry and later entries.
fn replay_from_carry<'a>(entries: &'a [Entry], carry: &'a Entry, after: &'a [Entry]) -> State {
    let Kind::Carry(inside) = &carry.kind else { panic!("not a carry") };
    let start = entries.iter().find(|entry| entry.seq == inside.start).expect("a carry names its segment");
    State::replay([start, carry].into_iter().chain(after))
}

#[test]
fn every_prefix_of_a_log_folds() {
    for log in simulated_log_set() {
        let mut state = State::default();
        for (at, entry) in log.iter().enumerate() {
            state.apply_entry(entry);
            assert_eq!(state.next_seq, at as u64 + 1);
        }
        assert_eq!(state, State::replay(&log));
    }
}

/// A carry at any position of a log replaces all earlier entries.
#[test]
fn the_fold_from_a_carry_is_the_fold_of_everything() {
    let mut carries = 0;
    for log in simulated_log_set() {
        for at in 0..log.len() {
            let before = State::replay(&log[..=at]);
            let Some(segment) = &before.segment else { continue };
            let carry = Carry {
                segment: before.facts.segment,
                start: segment.start,
                history: History::Here(before.context.to_items()),
                carry: Large::Here(Box::new(before.facts.clone())),
            };
            // It reuses the number of the entry before it, so that later entries keep theirs.
            let entry = Entry { kind: carry.into(), run: None, more: false, ..log[at].clone() };
            let rest = &log[at + 1..];
            let whole = State::replay(log[..=at].iter().chain([&entry]).chain(rest));
            assert_eq!(replay_from_carry(&log, &entry, rest), whole, "a carry after entry {at}");
            carries += 1;
        }
    }
    assert!(carries > 300, "{carries}");
}

/// The pod writes a carry within 10,000 entries, and opening needs no older entry.
#[test]
fn a_carry_is_written_in_time() {
    let mut world = StoryWorld::new(StoryScene::default(), SyncTiming::Immediate);
    world.keeps_transcript = false;
    let done: Result<(), StoryStop> = (|| {
        world.boot_pod()?;
        let run = PodCommand::Run {
            input: vec![minke_record::InputSegment::from_text("hello")],
            attached: Ok(Vec::new()),
            mode: minke_pod::RunMode::Reject,
            op_id: Some("first".to_owned()),
        };
        world.send_command(Actor::from_person("test"), run)?;
        for at in 0..minke_record::limits::CARRY_EVERY {
            let state = serde_json::json!({ "at": at });
            world.send_command(
                Actor::from_person("test"),
                PodCommand::Checkpoint { id: "c".to_owned(), state },
            )?;
        }
        Ok(())
    })();
    assert_eq!(done, Ok(()));
    let entries = world.log.entries();
    let at =
        entries.iter().rposition(|entry| matches!(entry.kind, Kind::Carry(_))).expect("a carry was written");
    assert!(entries[at].seq < minke_record::limits::CARRY_EVERY, "too late: {}", entries[at].seq);
    assert_eq!(replay_from_carry(entries, &entries[at], &entries[at + 1..]), State::replay(entries));
}

fn entry_lines() -> Vec<String> {
    let text = |entry: &Entry| serde_json::to_string(entry).expect("an entry is plain data");
    simulated_log_set().iter().flatten().map(text).collect()
}

fn fold_anything(lines: &[String]) {
    let mut state = State::default();
    let mut audit = Audit::new();
    for entry in lines.iter().filter_map(|text| line::parse_entry(text).ok()) {
        state.apply_entry(&entry);
        audit.check_entry(&entry);
        let again = state.clone();
        assert_eq!(again.phase(), state.phase());
    }
    audit.into_problems();
}

#[derive(Debug, Clone)]
enum LogMutation {
    Drop(prop::sample::Index),
    Repeat(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Byte(prop::sample::Index, prop::sample::Index, u8),
    Splice(prop::sample::Index, prop::sample::Index),
}

fn damage_strategy() -> impl Strategy<Value = LogMutation> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(LogMutation::Drop),
        index().prop_map(LogMutation::Repeat),
        (index(), index()).prop_map(|(a, b)| LogMutation::Swap(a, b)),
        (index(), index(), any::<u8>()).prop_map(|(a, b, byte)| LogMutation::Byte(a, b, byte)),
        (index(), index()).prop_map(|(a, b)| LogMutation::Splice(a, b)),
    ]
}

fn apply_damage(lines: &mut Vec<String>, hurt: &LogMutation) {
    match hurt {
        LogMutation::Drop(at) => {
            lines.remove(at.index(lines.len()));
        }
        LogMutation::Repeat(at) => {
            let again = lines[at.index(lines.len())].clone();
            lines.push(again);
        }
        LogMutation::Swap(a, b) => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
        }
        LogMutation::Byte(line, at, byte) => {
            let line = line.index(lines.len());
            let mut bytes = std::mem::take(&mut lines[line]).into_bytes();
            let at = at.index(bytes.len().max(1));
            if let Some(hit) = bytes.get_mut(at) {
                *hit = *byte;
            }
            lines[line] = String::from_utf8_lossy(&bytes).into_owned();
        }
        // Adds the fields of another line: wrong in every way that still parses.
        LogMutation::Splice(a, b) => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            let number = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            if let (Some(mut one), Some(two)) = (number(&lines[a]), number(&lines[b]))
                && let (Some(one), Some(two)) = (one.as_object_mut(), two.as_object())
            {
                for (key, value) in two {
                    one.entry(key.clone()).or_insert_with(|| value.clone());
                }
                one.extend(two.get("seq").map(|seq| ("seq".to_owned(), seq.clone())));
                lines[a] = serde_json::to_string(one).unwrap_or_default();
            }
        }
    }
}

/// An inconsistent log never causes a panic.
#[test]
fn a_hurt_log_folds() {
    let whole = entry_lines();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let window = 120usize;
    runner
        .run(
            &(any::<prop::sample::Index>(), prop::collection::vec(damage_strategy(), 1..20)),
            |(from, hurts)| {
                let from = from.index(whole.len() - window);
                let mut some = whole[from..from + window].to_vec();
                for hurt in &hurts {
                    apply_damage(&mut some, hurt);
                }
                fold_anything(&some);
                Ok(())
            },
        )
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Arbitrary bytes are not an entry, or fold without panic.
    #[test]
    fn arbitrary_bytes_fold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        fold_anything(&lines);
    }
}
