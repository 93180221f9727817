//! Read, Edit and Write of a small file, as a model calls them. `cargo bench -p minke-tools --bench files`
//! prints a table.
//!
//! On disk every change waits for `fsync`; in memory (`/dev/shm`, where it exists) only Minke's own time
//! remains. `MINKE_BENCH_ROUNDS` sets the number of rounds.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::Scope;
use minke_tool::{CommandEventSink, ToolContext, ToolInvocation};
use serde_json::{Value, json};

const ROUNDS: usize = 1_000;
const FILE_LINES: usize = 200;

fn main() {
    let rounds = std::env::var("MINKE_BENCH_ROUNDS").ok().and_then(|text| text.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS);
    print_text(&format!("a file of {FILE_LINES} lines, {rounds} rounds; microseconds\n"));
    print_text(&format!("{:<10} {:<8} {:>8} {:>8}\n", "where", "call", "p50", "p95"));
    let disk = tempfile::tempdir().expect("a temporary directory");
    measure_calls("disk", disk.path(), rounds);
    match tempfile::tempdir_in("/dev/shm") {
        Ok(memory) => measure_calls("memory", memory.path(), rounds),
        Err(e) => print_text(&format!("memory: not measured, {e}\n")),
    }
}

fn measure_calls(place_name: &str, dir: &Path, rounds: usize) {
    let root = dir.canonicalize().expect("the directory exists");
    let scope = Scope::writable(root.to_string_lossy());
    let config = FilesConfig { scope: scope.clone(), ..FilesConfig::default() };
    let tools = minke_tools::file_tools(&Arc::new(ScopedFiles::new(config).expect("the scope is valid")));
    let place = Arc::new(ToolContext { cwd: root.clone(), scope });
    let call = ToolInvocation::new("c", place, CommandEventSink::discard());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let run = |name: &str, arguments: Value| -> Duration {
        let tool = tools.iter().find(|tool| tool.spec().name == name).expect("a file tool");
        let arguments = arguments.to_string();
        let start = Instant::now();
        runtime.block_on(tool.execute(&arguments, &call)).expect("the call succeeds");
        start.elapsed()
    };
    let text: String = (0..FILE_LINES).map(|n| format!("    let value_{n} = compute({n});\n")).collect();
    fs::write(root.join("f"), text).expect("the file is written");
    let read = || run("Read", json!({"file_path": "f"}));
    read();
    print_times(place_name, "Read", (0..rounds).map(|_| read()));
    let edit = |n: usize| {
        let (old, new) =
            if n.is_multiple_of(2) { ("value_100 = ", "other = ") } else { ("other = ", "value_100 = ") };
        run("Edit", json!({"file_path": "f", "old_string": old, "new_string": new}))
    };
    print_times(place_name, "Edit", (0..rounds).map(edit));
    let write = |n: usize| run("Write", json!({"file_path": "g", "content": format!("{n}\n")}));
    print_times(place_name, "Write", (0..rounds).map(write));
}

fn print_times(place: &str, what: &str, times: impl Iterator<Item = Duration>) {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let at = |share: usize| times.get(times.len() * share / 100).map_or(0, Duration::as_micros);
    print_text(&format!("{place:<10} {what:<8} {:>8} {:>8}\n", at(50), at(95)));
}

fn print_text(text: &str) {
    // An error on standard output cannot be reported anywhere.
    drop(std::io::stdout().write_all(text.as_bytes()));
}
