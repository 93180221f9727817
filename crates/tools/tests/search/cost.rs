//! The cost of a search: a cancelled search ends soon, and an endless line is harmless. `search_memory` tests
//! memory.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Tools, home};

/// The time in which a cancelled search must end.
const MAX_STOP_TIME: Duration = Duration::from_millis(50);
/// The maximum number of tries; one of them must be undisturbed by other processes.
const MAX_TRIES: u32 = 10;

/// The tools, with the time after which they are cancelled.
const GREP: (&str, Duration) = ("Grep", Duration::from_millis(60));
const GLOB: (&str, Duration) = ("Glob", Duration::from_millis(3));

/// Starts a search, drops it while it runs, and returns the time until all of its work has ended.
fn time_to_stop(root: &Path, (tool, after): (&str, Duration), arguments: &Value) -> Duration {
    let tools = Tools::at(root);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let start = Instant::now();
    runtime.block_on(async {
        let search = tools.tool(tool).execute(&arguments.to_string(), &tools.call());
        let cut = tokio::time::timeout(after, search).await;
        assert!(cut.is_err(), "the search ended before it could be dropped: {:?} {cut:?}", start.elapsed());
    });
    let start = Instant::now();
    // Dropping the runtime waits for blocking work.
    drop(runtime);
    start.elapsed()
}

fn assert_stops_soon(root: &Path, tool: (&str, Duration), arguments: Value) {
    let fastest =
        (0..MAX_TRIES).map(|_| time_to_stop(root, tool, &arguments)).find(|took| *took < MAX_STOP_TIME);
    let took =
        fastest.unwrap_or_else(|| panic!("{arguments}: never within {MAX_STOP_TIME:?} in {MAX_TRIES} tries"));
    eprintln!("{arguments}: ended after {took:?}");
}

/// Creates many large files quickly, as hard links to one file.
fn create_large_tree(root: &Path, files: usize) {
    let text = "some words of text that no search finds\n".repeat(100_000);
    fs::create_dir(root.join("0")).unwrap();
    fs::write(root.join("0/first.txt"), text).unwrap();
    for n in 1..files {
        let dir = root.join((n / 50).to_string());
        fs::create_dir_all(&dir).unwrap();
        fs::hard_link(root.join("0/first.txt"), dir.join(format!("{n}.txt"))).unwrap();
    }
}

#[test]
fn a_dropped_search_ends_soon() {
    let (_home, root) = home();
    create_large_tree(&root, 2_000);
    assert_stops_soon(&root, GREP, json!({"pattern": "no such thing"}));
    assert_stops_soon(&root, GREP, json!({"pattern": "words", "output_mode": "content", "-C": 2}));
}

#[test]
fn a_dropped_search_of_one_huge_file_ends_soon() {
    let (_home, root) = home();
    let huge = fs::File::create(root.join("huge")).unwrap();
    huge.set_len(1 << 30).unwrap();
    assert_stops_soon(&root, GREP, json!({"pattern": "no such thing", "path": "huge"}));
    assert_stops_soon(
        &root,
        GREP,
        json!({"pattern": "no such thing", "path": "huge", "output_mode": "count", "-i": true}),
    );
}

#[test]
fn a_dropped_listing_ends_soon() {
    let (_home, root) = home();
    fs::write(root.join("0"), "").unwrap();
    for n in 1..30_000 {
        fs::hard_link(root.join("0"), root.join(n.to_string())).unwrap();
    }
    assert_stops_soon(&root, GLOB, json!({"pattern": "*"}));
}

#[tokio::test]
async fn an_endless_line_is_counted_as_unreadable() {
    let (_home, root) = home();
    let mut endless = fs::File::create(root.join("endless")).unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..34 {
        endless.write_all(&piece).unwrap();
    }
    fs::write(root.join("good"), "xyz\n").unwrap();
    let tools = Tools::at(&root);
    for multiline in [false, true] {
        let output = tools.run("Grep", json!({"pattern": "xy", "multiline": multiline})).await.unwrap();
        assert_eq!(output.content.as_deref(), Some("good\n"));
        assert!(output.summary.ends_with("; 1 file could not be read"), "{}", output.summary);
    }
}
