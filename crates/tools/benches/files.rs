//! Read, Edit and Write of a small file, as a model calls them. `cargo bench -p minke-tools --bench files` prints a table.
//!
//! On disk every change waits for the disk (`fsync`); in memory (`/dev/shm`, where there is one) what is left is ours.
//! `MINKE_BENCH_ROUNDS` changes how often each is measured.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_files::{Files, FilesConfig};
use minke_record::Scope;
use minke_tool::{Call, News, Place};
use serde_json::{Value, json};

const ROUNDS: usize = 1_000;
const LINES: usize = 200;

fn main() {
    let rounds = std::env::var("MINKE_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS);
    say(&format!("a file of {LINES} lines, {rounds} rounds; microseconds\n"));
    say(&format!("{:<10} {:<8} {:>8} {:>8}\n", "where", "call", "p50", "p95"));
    let disk = tempfile::tempdir().expect("a temporary directory can be made");
    measure("disk", disk.path(), rounds);
    match tempfile::tempdir_in("/dev/shm") {
        Ok(memory) => measure("memory", memory.path(), rounds),
        Err(e) => say(&format!("memory: not measured, {e}\n")),
    }
}

fn measure(place_name: &str, dir: &Path, rounds: usize) {
    let root = dir.canonicalize().expect("it was just made");
    let scope = Scope::write(root.to_string_lossy());
    let config = FilesConfig { scope: scope.clone(), ..FilesConfig::default() };
    let tools = minke_tools::file_tools(&Arc::new(Files::new(config).expect("the scope can be held")));
    let place = Arc::new(Place { cwd: root.clone(), scope });
    let call = Call::new("c", place, News::nobody());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let run = |name: &str, arguments: Value| -> Duration {
        let tool = tools.iter().find(|tool| tool.spec().name == name).expect("a file tool");
        let arguments = arguments.to_string();
        let start = Instant::now();
        runtime.block_on(tool.run(&arguments, &call)).expect("it is right");
        start.elapsed()
    };
    let text: String = (0..LINES).map(|n| format!("    let value_{n} = compute({n});\n")).collect();
    fs::write(root.join("f"), text).expect("there is room");
    let read = || run("Read", json!({"file_path": "f"}));
    read();
    show(place_name, "Read", (0..rounds).map(|_| read()));
    let edit = |n: usize| {
        let (old, new) =
            if n.is_multiple_of(2) { ("value_100 = ", "other = ") } else { ("other = ", "value_100 = ") };
        run("Edit", json!({"file_path": "f", "old_string": old, "new_string": new}))
    };
    show(place_name, "Edit", (0..rounds).map(edit));
    let write = |n: usize| run("Write", json!({"file_path": "g", "content": format!("{n}\n")}));
    show(place_name, "Write", (0..rounds).map(write));
}

fn show(place: &str, what: &str, times: impl Iterator<Item = Duration>) {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).map_or(0, Duration::as_micros);
    say(&format!("{place:<10} {what:<8} {:>8} {:>8}\n", at(50), at(95)));
}

fn say(text: &str) {
    // Nobody is left to tell that the table could not be shown.
    drop(std::io::stdout().write_all(text.as_bytes()));
}
