//! What a search costs: it ends when nobody waits for it, and no line is too long for it. Its memory: `search_memory`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Tools, home};

/// How soon a search that nobody waits for must end.
const SOON: Duration = Duration::from_millis(50);
/// Others use this machine, too; one try of so many must be undisturbed.
const TRIES: u32 = 10;

/// When each is dropped: in the middle.
const GREP: (&str, Duration) = ("Grep", Duration::from_millis(60));
const GLOB: (&str, Duration) = ("Glob", Duration::from_millis(3));

/// Starts a search, drops it in the middle, and waits until nothing of it runs any more.
fn dropped(root: &Path, (tool, after): (&str, Duration), arguments: &Value) -> Duration {
    let tools = Tools::at(root);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let start = Instant::now();
    runtime.block_on(async {
        let search = tools.tool(tool).run(&arguments.to_string(), &tools.call());
        let cut = tokio::time::timeout(after, search).await;
        assert!(
            cut.is_err(),
            "the search was over before it could be dropped: {:?} {cut:?}",
            start.elapsed()
        );
    });
    let start = Instant::now();
    // This waits for the work off the loop.
    drop(runtime);
    start.elapsed()
}

fn ends_soon(root: &Path, tool: (&str, Duration), arguments: Value) {
    let fastest = (0..TRIES).map(|_| dropped(root, tool, &arguments)).find(|took| *took < SOON);
    let took = fastest.unwrap_or_else(|| panic!("{arguments}: not once in {TRIES} tries within {SOON:?}"));
    eprintln!("{arguments}: ended after {took:?}");
}

/// Many large files, made quickly: they are links to one.
fn large_tree(root: &Path, files: usize) {
    let text = "some words of text that nobody looks for\n".repeat(100_000);
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
    large_tree(&root, 2_000);
    ends_soon(&root, GREP, json!({"pattern": "no such thing"}));
    ends_soon(&root, GREP, json!({"pattern": "words", "output_mode": "content", "-C": 2}));
}

#[test]
fn a_dropped_search_of_one_huge_file_ends_soon() {
    let (_home, root) = home();
    let huge = fs::File::create(root.join("huge")).unwrap();
    huge.set_len(1 << 30).unwrap();
    ends_soon(&root, GREP, json!({"pattern": "no such thing", "path": "huge"}));
    ends_soon(
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
    ends_soon(&root, GLOB, json!({"pattern": "*"}));
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
