//! The figures of the index: made from the logs of ten thousand sessions, brought up to date when one has changed, and
//! searched.
//!
//! Printed: medians of the samples, the making beside a floor that only reads the same files; a goal that is missed is
//! printed as missed.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_index::Index;
use minke_record::{Chain, Draft, Durability, Entry, Ids, SessionId};
use minke_session::{FileStore, RealDisk, Store};
use serde_json::{Value, json};

const SESSIONS: u64 = 10_000;
/// Inputs and answers of each.
const TALKS: u64 = 20;
const REBUILD: Duration = Duration::from_secs(10);
const SEARCH: Duration = Duration::from_millis(50);
const SAMPLES: usize = 51;
const WORDS: [&str; 16] = [
    "fence", "budget", "whale", "parser", "socket", "commit", "ledger", "harbour", "thread", "orbit",
    "lease", "prompt", "kernel", "window", "copper", "meadow",
];

fn main() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let sessions = temp.path().join("sessions");
    fs::create_dir(&sessions).expect("it is new");
    let store = FileStore::new(Arc::new(RealDisk), sessions.clone()).unsynced();
    for number in 0..SESSIONS {
        make(&store, number);
    }
    let file = temp.path().join("index.sqlite");
    let (floor, bytes) = timed(|| read(&sessions));
    let (rebuilt, mut index) = timed(|| {
        let (opened, refreshed) = Index::fresh(&file, &store).expect("the logs are good");
        assert!(refreshed.unread.is_empty());
        opened.index
    });
    said("10,000 sessions made anew", rebuilt, REBUILD);
    println!(
        "  the floor, reading their {} MiB: {floor:?}; {:.1} times that",
        bytes / (1 << 20),
        rebuilt.as_secs_f64() / floor.as_secs_f64()
    );
    let again = median(5, || drop(index.refresh(&store).expect("nothing has changed")));
    println!("nothing new: {again:?}");
    for (what, words) in [
        ("a rare word", "w4711"),
        ("a common word", "fence"),
        ("two words", "fence w47"),
        ("a beginning of words in every message", "fen"),
        ("none", "nowhere"),
    ] {
        let time = median(SAMPLES, || drop(index.search(words, 50).expect("a good search")));
        said(&format!("search, {what}"), time, SEARCH);
    }
}

fn make(store: &FileStore, number: u64) {
    let id = SessionId(Ids::new(1_000 + number, number).next_uuid());
    let start = json!({
        "kind": "session_start", "session": id, "format": 1, "version": "0.1.0", "name": format!("pod-{number}"),
        "created_by": { "actor": "person" }, "cwd": "/p", "workspace": "/p", "manifest": {}, "scope": { "allow": [] },
    });
    let mut step = vec![draft(0, &start)];
    for talk in 0..TALKS {
        let text = format!("{} w{} {}", word(number + talk), number % 5_000, sentence(number * 31 + talk));
        let input = json!({ "kind": "user_input", "segments": [{ "kind": "text", "content": text }],
            "from": { "actor": "person" } });
        let item = json!({ "kind": "message", "role": "assistant",
            "content": [{ "kind": "text", "text": sentence(number * 17 + talk * 3) }] });
        step.push(draft(2 * talk + 1, &input));
        step.push(draft(2 * talk + 2, &json!({ "kind": "assistant_item", "call": talk, "item": item })));
    }
    drop(store.create(id, step, Vec::new()).expect("a new session"));
}

fn word(number: u64) -> &'static str {
    WORDS[usize::try_from(number % WORDS.len() as u64).expect("it is small")]
}

/// Every other word is one of a few that everybody uses, the rest are of some thousands.
fn sentence(seed: u64) -> String {
    let dice = |at: u64| (seed * 31 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let said = |at: u64| match at % 2 {
        0 => word(dice(at)).to_owned(),
        _ => format!("{}{}", word(dice(at)), dice(at + 1_000) % 400),
    };
    (0..30).map(said).collect::<Vec<_>>().join(" ")
}

fn draft(seq: u64, kind: &Value) -> Draft {
    let mut line = kind.clone();
    let at = json!({ "seq": seq, "ts": 1_000 + seq, "h": Chain::default() });
    line.as_object_mut().expect("an object").extend(at.as_object().expect("an object").clone());
    let entry: Entry = serde_json::from_value(line).expect("a good entry");
    Draft { seq, ts: entry.ts, run: None, kind: entry.kind, durability: Durability::Lazy }
}

fn read(dir: &Path) -> u64 {
    let mut bytes = 0;
    for found in fs::read_dir(dir).expect("it is there").flatten() {
        for file in fs::read_dir(found.path()).into_iter().flatten().flatten() {
            if file.file_type().is_ok_and(|kind| kind.is_file()) {
                bytes += fs::read(file.path()).map_or(0, |content| content.len() as u64);
            }
        }
    }
    bytes
}

fn said(what: &str, time: Duration, goal: Duration) {
    let held = if time <= goal { "met" } else { "MISSED" };
    println!("{what}: {time:?} (goal {goal:?}: {held})");
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let done = work();
    (begun.elapsed(), done)
}

fn median(samples: usize, mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..samples).map(|_| timed(&mut work).0).collect();
    times.sort_unstable();
    times[samples / 2]
}
