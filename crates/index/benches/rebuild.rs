//! Benchmarks of the index: built from the logs of ten thousand sessions, refreshed after one change, and searched.
//!
//! Prints medians of the samples, and the time to only read the same files for comparison. A missed goal is printed as
//! missed.

#![expect(clippy::print_stdout, reason = "the figures are the output")]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_index::Index;
use minke_record::{ChainHash, Draft, Durability, Entry, IdGenerator, SessionId};
use minke_session::{FileStore, RealDisk, SessionStore};
use serde_json::{Value, json};

const SESSION_COUNT: u64 = 10_000;
/// Inputs and answers of each session.
const TURNS_PER_SESSION: u64 = 20;
const REBUILD_GOAL: Duration = Duration::from_secs(10);
const SEARCH_GOAL: Duration = Duration::from_millis(50);
const SAMPLE_COUNT: usize = 51;
const COMMON_WORDS: [&str; 16] = [
    "fence", "budget", "whale", "parser", "socket", "commit", "ledger", "harbour", "thread", "orbit",
    "lease", "prompt", "kernel", "window", "copper", "meadow",
];

fn main() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let sessions = temp.path().join("sessions");
    fs::create_dir(&sessions).expect("the directory is new");
    let store = FileStore::new(Arc::new(RealDisk), sessions.clone()).without_sync();
    for number in 0..SESSION_COUNT {
        create_session(&store, number);
    }
    let file = temp.path().join("index.sqlite");
    let (floor, bytes) = measure(|| read_all_logs(&sessions));
    let (rebuilt, mut index) = measure(|| {
        let (opened, refreshed) = Index::open_refreshed(&file, &store).expect("the logs are intact");
        assert!(refreshed.failures.is_empty());
        opened.index
    });
    report_time("10,000 sessions rebuilt", rebuilt, REBUILD_GOAL);
    println!(
        "  for comparison, reading their {} MiB: {floor:?}; {:.1} times that",
        bytes / (1 << 20),
        rebuilt.as_secs_f64() / floor.as_secs_f64()
    );
    let again = median_time(5, || drop(index.refresh(&store).expect("nothing has changed")));
    println!("no changes: {again:?}");
    for (label, words) in [
        ("a rare word", "w4711"),
        ("a common word", "fence"),
        ("two words", "fence w47"),
        ("a prefix of words in every message", "fen"),
        ("none", "nowhere"),
    ] {
        let time =
            median_time(SAMPLE_COUNT, || drop(index.search_messages(words, 50).expect("a valid search")));
        report_time(&format!("search, {label}"), time, SEARCH_GOAL);
    }
}

fn create_session(store: &FileStore, number: u64) {
    let id = SessionId(IdGenerator::new(1_000 + number, number).next_uuid());
    let start = json!({
        "kind": "session_start", "session": id, "format": 1, "version": "0.1.0", "name": format!("pod-{number}"),
        "created_by": { "actor": "person" }, "cwd": "/p", "workspace": "/p", "manifest": {}, "scope": { "allow": [] },
    });
    let mut step = vec![entry_draft(0, &start)];
    for talk in 0..TURNS_PER_SESSION {
        let text = format!(
            "{} w{} {}",
            common_word(number + talk),
            number % 5_000,
            make_sentence(number * 31 + talk)
        );
        let input = json!({ "kind": "user_input", "segments": [{ "kind": "text", "content": text }],
            "from": { "actor": "person" } });
        let item = json!({ "kind": "message", "role": "assistant",
            "content": [{ "kind": "text", "text": make_sentence(number * 17 + talk * 3) }] });
        step.push(entry_draft(2 * talk + 1, &input));
        step.push(entry_draft(
            2 * talk + 2,
            &json!({ "kind": "assistant_item", "call": talk, "item": item }),
        ));
    }
    drop(store.create(id, step, Vec::new()).expect("a new session"));
}

fn common_word(number: u64) -> &'static str {
    COMMON_WORDS[usize::try_from(number % COMMON_WORDS.len() as u64).expect("it is small")]
}

/// Half of the words are common ones, the rest are some thousands of rare ones.
fn make_sentence(seed: u64) -> String {
    let dice = |at: u64| (seed * 31 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let said = |at: u64| match at % 2 {
        0 => common_word(dice(at)).to_owned(),
        _ => format!("{}{}", common_word(dice(at)), dice(at + 1_000) % 400),
    };
    (0..30).map(said).collect::<Vec<_>>().join(" ")
}

fn entry_draft(seq: u64, kind: &Value) -> Draft {
    let mut line = kind.clone();
    let at = json!({ "seq": seq, "ts": 1_000 + seq, "h": ChainHash::default() });
    line.as_object_mut().expect("an object").extend(at.as_object().expect("an object").clone());
    let entry: Entry = serde_json::from_value(line).expect("a valid entry");
    Draft { seq, ts: entry.ts, run: None, kind: entry.kind, durability: Durability::Lazy }
}

fn read_all_logs(dir: &Path) -> u64 {
    let mut bytes = 0;
    for found in fs::read_dir(dir).expect("the directory exists").flatten() {
        for file in fs::read_dir(found.path()).into_iter().flatten().flatten() {
            if file.file_type().is_ok_and(|kind| kind.is_file()) {
                bytes += fs::read(file.path()).map_or(0, |content| content.len() as u64);
            }
        }
    }
    bytes
}

fn report_time(label: &str, time: Duration, goal: Duration) {
    let verdict = if time <= goal { "met" } else { "MISSED" };
    println!("{label}: {time:?} (goal {goal:?}: {verdict})");
}

fn measure<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start_time = Instant::now();
    let done = work();
    (start_time.elapsed(), done)
}

fn median_time(samples: usize, mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..samples).map(|_| measure(&mut work).0).collect();
    times.sort_unstable();
    times[samples / 2]
}
