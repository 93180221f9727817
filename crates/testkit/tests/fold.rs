//! The fold is pure and total: every prefix of every log, valid or not, folds to something; and the last carry is all
//! that is needed of what came before it.

use minke_pod::{Audit, Order, State};
use minke_record::{Actor, Carry, Entry, History, Kind, Large, line};
use minke_testkit::{Scene, Stop, SyncWhen, World, simulated_logs};
use proptest::prelude::*;

const SEEDS: u64 = 6;
const ACTS: usize = 800;

fn logs() -> Vec<Vec<Entry>> {
    let of = |seed| simulated_logs(seed, ACTS).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    let logs: Vec<Vec<Entry>> = (0..SEEDS).flat_map(of).collect();
    assert!(logs.iter().map(Vec::len).sum::<usize>() > 500, "the logs say too little");
    logs
}

/// What an opening reads: the carry's `segment_start`, the carry, and what follows.
fn from_carry<'a>(entries: &'a [Entry], carry: &'a Entry, after: &'a [Entry]) -> State {
    let Kind::Carry(inside) = &carry.kind else { panic!("not a carry") };
    let start = entries.iter().find(|entry| entry.seq == inside.start).expect("a carry names its segment");
    State::replay([start, carry].into_iter().chain(after))
}

#[test]
fn every_prefix_of_a_log_folds() {
    for log in logs() {
        let mut state = State::default();
        for (at, entry) in log.iter().enumerate() {
            state.apply(entry);
            assert_eq!(state.next_seq, at as u64 + 1);
        }
        assert_eq!(state, State::replay(&log));
    }
}

/// A carry anywhere in a log says everything that is needed of what stands before it.
#[test]
fn the_fold_from_a_carry_is_the_fold_of_everything() {
    let mut carries = 0;
    for log in logs() {
        for at in 0..log.len() {
            let before = State::replay(&log[..=at]);
            let Some(segment) = &before.segment else { continue };
            let carry = Carry {
                segment: before.facts.segment,
                start: segment.start,
                history: History::Here(before.context.to_items()),
                carry: Large::Here(Box::new(before.facts.clone())),
            };
            // It takes the number of the entry before it, so that no later entry has to be renumbered.
            let entry = Entry { kind: carry.into(), run: None, more: false, ..log[at].clone() };
            let rest = &log[at + 1..];
            let whole = State::replay(log[..=at].iter().chain([&entry]).chain(rest));
            assert_eq!(from_carry(&log, &entry, rest), whole, "a carry after entry {at}");
            carries += 1;
        }
    }
    assert!(carries > 300, "{carries}");
}

/// The pod's own carry: written before 10,000 entries are over, and opening needs no older entry.
#[test]
fn a_carry_is_written_in_time() {
    let mut world = World::new(Scene::default(), SyncWhen::AtOnce);
    world.keeps_transcript = false;
    let done: Result<(), Stop> = (|| {
        world.boot()?;
        let run = Order::Run {
            input: vec![minke_record::InputSegment::text("hello")],
            attached: Ok(Vec::new()),
            mode: minke_pod::RunMode::Reject,
            op_id: Some("first".to_owned()),
        };
        world.order(Actor::person("test"), run)?;
        for at in 0..minke_record::limits::CARRY_EVERY {
            let state = serde_json::json!({ "at": at });
            world.order(Actor::person("test"), Order::Checkpoint { id: "c".to_owned(), state })?;
        }
        Ok(())
    })();
    assert_eq!(done, Ok(()));
    let entries = world.log.entries();
    let at =
        entries.iter().rposition(|entry| matches!(entry.kind, Kind::Carry(_))).expect("a carry was written");
    assert!(entries[at].seq < minke_record::limits::CARRY_EVERY, "too late: {}", entries[at].seq);
    assert_eq!(from_carry(entries, &entries[at], &entries[at + 1..]), State::replay(entries));
}

fn lines() -> Vec<String> {
    let text = |entry: &Entry| serde_json::to_string(entry).expect("an entry is plain data");
    logs().iter().flatten().map(text).collect()
}

fn fold_anything(lines: &[String]) {
    let mut state = State::default();
    let mut audit = Audit::new();
    for entry in lines.iter().filter_map(|text| line::parse(text).ok()) {
        state.apply(&entry);
        audit.see(&entry);
        let again = state.clone();
        assert_eq!(again.phase(), state.phase());
    }
    audit.finish();
}

#[derive(Debug, Clone)]
enum Hurt {
    Drop(prop::sample::Index),
    Repeat(prop::sample::Index),
    Swap(prop::sample::Index, prop::sample::Index),
    Byte(prop::sample::Index, prop::sample::Index, u8),
    Splice(prop::sample::Index, prop::sample::Index),
}

fn hurt() -> impl Strategy<Value = Hurt> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        index().prop_map(Hurt::Drop),
        index().prop_map(Hurt::Repeat),
        (index(), index()).prop_map(|(a, b)| Hurt::Swap(a, b)),
        (index(), index(), any::<u8>()).prop_map(|(a, b, byte)| Hurt::Byte(a, b, byte)),
        (index(), index()).prop_map(|(a, b)| Hurt::Splice(a, b)),
    ]
}

fn apply(lines: &mut Vec<String>, hurt: &Hurt) {
    match hurt {
        Hurt::Drop(at) => {
            lines.remove(at.index(lines.len()));
        }
        Hurt::Repeat(at) => {
            let again = lines[at.index(lines.len())].clone();
            lines.push(again);
        }
        Hurt::Swap(a, b) => {
            let (a, b) = (a.index(lines.len()), b.index(lines.len()));
            lines.swap(a, b);
        }
        Hurt::Byte(line, at, byte) => {
            let line = line.index(lines.len());
            let mut bytes = std::mem::take(&mut lines[line]).into_bytes();
            let at = at.index(bytes.len().max(1));
            if let Some(hit) = bytes.get_mut(at) {
                *hit = *byte;
            }
            lines[line] = String::from_utf8_lossy(&bytes).into_owned();
        }
        // The kind of one line with the fields of another: wrong in every way that still parses.
        Hurt::Splice(a, b) => {
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

/// A log that says nonsense folds to something, never to a panic.
#[test]
fn a_hurt_log_folds() {
    let whole = lines();
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    });
    let window = 120usize;
    runner
        .run(&(any::<prop::sample::Index>(), prop::collection::vec(hurt(), 1..20)), |(from, hurts)| {
            let from = from.index(whole.len() - window);
            let mut some = whole[from..from + window].to_vec();
            for hurt in &hurts {
                apply(&mut some, hurt);
            }
            fold_anything(&some);
            Ok(())
        })
        .unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Arbitrary bytes are not an entry, or they fold.
    #[test]
    fn arbitrary_bytes_fold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
        fold_anything(&lines);
    }
}
