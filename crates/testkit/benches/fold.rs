//! Open, verify and fold of a whole log: every line checked, every entry applied to a pod's state.
//!
//! Here and not in `session`, because folding is the pod's. `cargo xtask bench log` runs it and keeps the samples.

#![expect(clippy::print_stdout, reason = "the figure is the output")]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use minke_pod::State;
use minke_record::{
    Actor, AssistantItem, Draft, Durability, FORMAT, Facts, History, InputSegment, Item, Kind, Large, Scope,
    SegmentReason, SegmentStart, SessionId, SessionStart, UserInput,
};
use minke_session::{FileStore, RealDisk, Store, verify};
use serde_json::json;

const ENTRIES: u64 = 100_000;
/// Entries of one step.
const STEP: u64 = 16;
const SAMPLES: usize = 9;
const GOAL_MS: f64 = 500.0;

fn main() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let store = FileStore::new(Arc::new(RealDisk), home.path().join("sessions"));
    let id = write(&store);
    let size = bytes(&home.path().join("sessions")) as f64 / 1e6;
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let start = Instant::now();
        let mut state = State::default();
        let found = verify(&store, id, &mut |entry| state.apply(entry)).expect("a good log");
        samples.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(found.is_ok() && state.next_seq >= ENTRIES, "the whole log was read");
    }
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[SAMPLES / 2];
    let word = if median <= GOAL_MS { "met" } else { "MISSED" };
    let name = format!("open, verify and fold {ENTRIES} entries ({size:.0} MB), ms");
    println!(
        "{name}: {median:.1} (goal <= {GOAL_MS}: {word}; {SAMPLES} samples, {:.1} to {:.1})",
        sorted[0],
        sorted[SAMPLES - 1]
    );
    keep(&json!({ "name": name, "goal": format!("<= {GOAL_MS}"), "samples": samples }));
}

/// A conversation of long messages, one side after the other.
fn write(store: &FileStore) -> SessionId {
    let id: SessionId = "01980000-0000-7000-8000-000000000001".parse().expect("an id");
    let mut writer = store.create(id, first(id), Vec::new()).expect("room on the disk");
    let text = "The quick brown fox jumps over the lazy dog, and \"so\" on.\n".repeat(14);
    while writer.next_seq() < ENTRIES {
        let from = writer.next_seq();
        let entry = |seq: u64| {
            let kind: Kind = if seq.is_multiple_of(2) {
                let segments = vec![InputSegment::text(text.clone())];
                UserInput { segments, op_id: None, from: Actor::minke(), queued: None }.into()
            } else {
                AssistantItem { call: seq, item: Item::assistant(text.clone()) }.into()
            };
            draft(seq, kind)
        };
        writer.append((from..from + STEP).map(entry).collect(), Vec::new()).expect("room on the disk");
    }
    id
}

fn first(id: SessionId) -> Vec<Draft> {
    let start = SessionStart {
        session: id,
        format: FORMAT,
        version: "bench".to_owned(),
        name: "bench".parse().expect("a name"),
        created_by: Actor::minke(),
        cwd: "/".to_owned(),
        workspace: "/".to_owned(),
        git: None,
        manifest: json!({}),
        scope: Scope::default(),
        mandate: None,
        metadata: None,
        parent: None,
        from: None,
    };
    let segment = SegmentStart {
        segment: 0,
        reason: SegmentReason::Initial,
        system_prompt: "Be brief.".into(),
        tools: Large::Here(Vec::new()),
        config: json!({}),
        history: History::Here(Vec::new()),
        carry: Large::Here(Box::new(Facts::default())),
        compacted_to_seq: None,
        tokens: None,
    };
    vec![draft(0, start.into()), draft(1, segment.into())]
}

fn draft(seq: u64, kind: Kind) -> Draft {
    Draft { seq, ts: 1_780_000_000_000 + seq, run: None, kind, durability: Durability::Lazy }
}

/// All bytes of the log files below a directory.
fn bytes(folder: &Path) -> u64 {
    let listed = std::fs::read_dir(folder).expect("the sessions can be listed");
    listed
        .map(|entry| {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                bytes(&path)
            } else if path.extension().is_some_and(|ext| ext == "jsonl") {
                path.metadata().expect("a file has a size").len()
            } else {
                0
            }
        })
        .sum()
}

/// Raw samples, one object a line, where `cargo xtask bench` asks for them.
fn keep(figure: &serde_json::Value) {
    let Some(path) = std::env::var_os("MINKE_BENCH_SAMPLES") else { return };
    let mut file = std::fs::File::options().append(true).create(true).open(path).expect("a file for samples");
    writeln!(file, "{figure}").expect("room for samples");
}
