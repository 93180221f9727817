//! Benchmark: open, verify and fold a whole log. Checks every line and applies every entry to a pod's state.
//!
//! It is here and not in `session`, because the fold belongs to the pod. `cargo xtask bench log` runs it and
//! stores the samples.

#![expect(clippy::print_stdout, reason = "the figure is the output")]

use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use minke_pod::State;
use minke_record::{
    Actor, AssistantItem, Draft, Durability, History, InputSegment, Item, Kind, LOG_FORMAT, Large, Scope,
    SegmentReason, SegmentStart, SessionFacts, SessionId, SessionStart, UserInput,
};
use minke_session::{FileStore, RealDisk, SessionStore, verify_session};
use serde_json::json;

const ENTRY_COUNT: u64 = 100_000;
/// Number of entries per step.
const ENTRIES_PER_STEP: u64 = 16;
const SAMPLE_COUNT: usize = 9;
const GOAL_MS: f64 = 500.0;

fn main() {
    let home = tempfile::tempdir().expect("a temporary directory");
    let store = FileStore::new(Arc::new(RealDisk), home.path().join("sessions"));
    let id = write_log(&store);
    let size = log_bytes(&home.path().join("sessions")) as f64 / 1e6;
    let mut samples = Vec::with_capacity(SAMPLE_COUNT);
    for _ in 0..SAMPLE_COUNT {
        let start = Instant::now();
        let mut state = State::default();
        let found = verify_session(&store, id, &mut |entry| state.apply_entry(entry)).expect("a good log");
        samples.push(start.elapsed().as_secs_f64() * 1e3);
        assert!(found.is_intact() && state.next_seq >= ENTRY_COUNT, "the whole log was read");
    }
    let mut sorted = samples.clone();
    sorted.sort_by(f64::total_cmp);
    let median = sorted[SAMPLE_COUNT / 2];
    let word = if median <= GOAL_MS { "met" } else { "MISSED" };
    let name = format!("open, verify and fold {ENTRY_COUNT} entries ({size:.0} MB), ms");
    println!(
        "{name}: {median:.1} (goal <= {GOAL_MS}: {word}; {SAMPLE_COUNT} samples, {:.1} to {:.1})",
        sorted[0],
        sorted[SAMPLE_COUNT - 1]
    );
    append_sample(&json!({ "name": name, "goal": format!("<= {GOAL_MS}"), "samples": samples }));
}

/// Writes a conversation of long alternating messages.
fn write_log(store: &FileStore) -> SessionId {
    let id: SessionId = "01980000-0000-7000-8000-000000000001".parse().expect("an id");
    let mut writer = store.create(id, first_drafts(id), Vec::new()).expect("room on the disk");
    let text = "The quick brown fox jumps over the lazy dog, and \"so\" on.\n".repeat(14);
    while writer.next_seq() < ENTRY_COUNT {
        let from = writer.next_seq();
        let entry = |seq: u64| {
            let kind: Kind = if seq.is_multiple_of(2) {
                let segments = vec![InputSegment::from_text(text.clone())];
                UserInput { segments, op_id: None, from: Actor::from_minke(), queued: None }.into()
            } else {
                AssistantItem { call: seq, item: Item::assistant_message(text.clone()) }.into()
            };
            lazy_draft(seq, kind)
        };
        writer
            .append((from..from + ENTRIES_PER_STEP).map(entry).collect(), Vec::new())
            .expect("room on the disk");
    }
    id
}

fn first_drafts(id: SessionId) -> Vec<Draft> {
    let start = SessionStart {
        session: id,
        format: LOG_FORMAT,
        version: "bench".to_owned(),
        name: "bench".parse().expect("a name"),
        created_by: Actor::from_minke(),
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
        carry: Large::Here(Box::new(SessionFacts::default())),
        compacted_to_seq: None,
        tokens: None,
    };
    vec![lazy_draft(0, start.into()), lazy_draft(1, segment.into())]
}

fn lazy_draft(seq: u64, kind: Kind) -> Draft {
    Draft { seq, ts: 1_780_000_000_000 + seq, run: None, kind, durability: Durability::Lazy }
}

/// Returns the total size of the log files below a directory.
fn log_bytes(folder: &Path) -> u64 {
    let listed = std::fs::read_dir(folder).expect("the sessions can be listed");
    listed
        .map(|entry| {
            let path = entry.expect("it can be listed").path();
            if path.is_dir() {
                log_bytes(&path)
            } else if path.extension().is_some_and(|ext| ext == "jsonl") {
                path.metadata().expect("a file has a size").len()
            } else {
                0
            }
        })
        .sum()
}

/// Appends a raw sample, one object per line, to the file of `cargo xtask bench`.
fn append_sample(figure: &serde_json::Value) {
    let Some(path) = std::env::var_os("MINKE_BENCH_SAMPLES") else { return };
    let mut file = std::fs::File::options().append(true).create(true).open(path).expect("a file for samples");
    writeln!(file, "{figure}").expect("room for samples");
}
