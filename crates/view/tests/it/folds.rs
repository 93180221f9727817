//! What was changed, what fills the window, who is whose child.

use minke_record::SessionId;
use minke_view::{Changes, ContextUse, Filling, PodRow, Tree};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::log::*;

fn edit(id: &str, path: &str, diff: &str) -> Value {
    let mut started = dispatch(id, "Edit", &json!({ "writes": [path] }));
    started["preview"] = json!({ "path": path, "before": "1", "after": "2", "diff": diff });
    started
}

fn changes(log: &Log) -> Changes {
    let mut changes = Changes::new();
    log.entries.iter().for_each(|entry| changes.entry(entry));
    changes
}

#[test]
fn what_was_changed_is_told_file_by_file() {
    let mut log = Log::begins();
    let diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n+-- more\n same\n";
    log.add(edit("c1", "/w/src/x.rs", diff)).add(result("c1", "1 edit", "", "done"));
    log.add(edit("c2", "/w/y", "@@ @@\n-gone\n")).add(result("c2", "1 edit", "", "done"));
    log.add(edit("c3", "/w/src/x.rs", "+again\n")).add(result("c3", "1 edit", "", "done"));
    // Neither of these has happened.
    log.add(edit("c4", "/w/z", "+no\n")).add(result("c4", "refused", "", "refused"));
    log.add(edit("c5", "/w/z", "+no\n"));
    let file = json!({ "path": "/w/target/out", "mode": 420, "hash": "h" });
    log.add(json!({ "kind": "snapshot", "when": "before", "files": [file] }));
    log.add(json!({ "kind": "snapshot", "when": "after", "files": [file] }));
    let changes = changes(&log);
    let told: Vec<String> = changes
        .files()
        .iter()
        .map(|file| {
            let each: Vec<String> = file
                .changes
                .iter()
                .map(|change| format!("{} +{} -{}", change.by, change.added, change.removed))
                .collect();
            format!("{}: {}", file.path, each.join(", "))
        })
        .collect();
    assert_eq!(told, ["src/x.rs: Edit +2 -1, Edit +1 -0", "y: Edit +0 -1", "target/out: a command +0 -0"]);
    assert_eq!(changes.lines(), (3, 2));
    assert_eq!(changes.files()[0].changes[0].diff.as_deref(), Some(diff));
}

#[test]
fn changes_are_bounded() {
    let mut log = Log::begins();
    let diff = format!("+{}\n", "x".repeat(200_000));
    for _ in 0..120 {
        log.add(edit("c", "/w/x", &diff)).add(result("c", "1 edit", "", "done"));
    }
    let changes = changes(&log);
    let held = changes.files()[0].changes.iter().filter_map(|change| change.diff.as_ref()).map(String::len);
    assert!(held.sum::<usize>() <= Changes::BYTES);
    assert_eq!(changes.lines(), (120, 0));
}

fn segment(reason: &str, history: &Value) -> Value {
    json!({
        "kind": "segment_start", "segment": 0, "reason": reason, "system_prompt": "p".repeat(400),
        "tools": [{ "name": "Bash", "description": "d".repeat(94), "schema": {} }], "config": {},
        "history": history, "carry": { "blob": "b", "bytes": 1 },
    })
}

fn parts(log: &Log) -> Vec<(Filling, u64)> {
    let mut context = ContextUse::new();
    log.entries.iter().for_each(|entry| context.entry(entry));
    context.parts().into_iter().filter(|(_, tokens)| *tokens > 0).collect()
}

#[test]
fn the_window_is_told_by_what_fills_it() {
    let mut log = Log::begins();
    log.add(segment("initial", &json!([])));
    log.says(&"i".repeat(40)).asks_model(0).model(0, thinking(&"t".repeat(80))).replies(0, &"r".repeat(120));
    log.model(0, tool_call("c1", "Bash", &json!({ "command": "c".repeat(22) }))).model_ends(0);
    log.add(result("c1", "short", &"o".repeat(400), "done"));
    log.add(json!({ "kind": "system_item", "item": { "kind": "notification", "body": "n".repeat(44) } }));
    let told = parts(&log);
    let expected = [
        (Filling::SystemPrompt, 100),
        (Filling::Tools, 25),
        (Filling::Inputs, 10),
        (Filling::Replies, 30),
        (Filling::Thinking, 20),
        (Filling::Calls, 10),
        (Filling::Results, 100),
        (Filling::Notes, 11),
    ];
    assert_eq!(told, expected);
    let mut context = ContextUse::new();
    log.entries.iter().for_each(|entry| context.entry(entry));
    assert_eq!((context.estimate(), context.measured(), context.free(1_000)), (306, Some(115), 885));
    assert!(!context.is_partial());
    let mut later = ContextUse::new();
    log.entries[6..].iter().for_each(|entry| later.entry(entry));
    assert!(later.is_partial());
}

#[test]
fn what_left_the_context_fills_nothing() {
    let mut log = Log::begins();
    log.add(segment("initial", &json!([])));
    log.says(&"i".repeat(40)).asks_model(0);
    log.model(0, tool_call("c1", "Bash", &json!({}))).add(result("c1", "shor", &"o".repeat(400), "done"));
    let pruned_to = log.entries.len() - 1;
    log.add(json!({ "kind": "pruned", "to_seq": pruned_to, "saved": 99 }));
    let at = |told: &[(Filling, u64)], wanted| {
        told.iter().find(|(filling, _)| *filling == wanted).map(|(_, tokens)| *tokens)
    };
    assert_eq!(at(&parts(&log), Filling::Results), Some(1));
    log.ends("finished").says(&"j".repeat(400));
    assert_eq!(at(&parts(&log), Filling::Inputs), Some(110));
    log.ends("rolled_back");
    assert_eq!(at(&parts(&log), Filling::Inputs), Some(10));
    log.add(segment("compaction", &json!([message(&"s".repeat(8))])));
    assert_eq!(parts(&log), [(Filling::SystemPrompt, 100), (Filling::Tools, 25), (Filling::Replies, 2)]);
}

fn pod(n: u8, parent: Option<u8>, state: &str, asks: u32) -> PodRow {
    let session = |n: u8| -> SessionId {
        format!("01970000-0000-7000-8000-0000000000{n:02x}").parse().expect("it is an id")
    };
    PodRow {
        parent: parent.map(session),
        state: state.to_owned(),
        asks,
        ..PodRow::new(session(n), &format!("p{n}"))
    }
}

fn told(tree: &Tree) -> Vec<String> {
    let row = |row: &minke_view::TreeRow| {
        let needs = if row.needs_input { " !" } else { "" };
        format!("{}{}{needs}", "  ".repeat(row.depth), row.pod.name)
    };
    tree.rows().iter().map(row).collect()
}

#[test]
fn who_waits_for_an_answer_comes_first_and_children_stand_below_their_parents() {
    let tree = Tree::new(vec![
        pod(1, None, "idle", 0),
        pod(2, None, "running", 0),
        pod(3, Some(1), "running", 0),
        pod(4, Some(1), "waiting", 1),
        pod(5, None, "idle", 0),
        pod(6, Some(4), "idle", 0),
    ]);
    assert_eq!(told(&tree), ["p1 !", "  p4 !", "    p6", "  p3", "p2", "p5"]);
    assert_eq!(tree.asks(), 1);
    assert_eq!(tree.rows()[1].more, [true, true]);
    assert_eq!(tree.rows()[3].more, [true, false]);
}

proptest! {
    #[test]
    fn every_pod_is_in_the_tree_once(rows in proptest::collection::vec((0_u8..40, proptest::option::of(0_u8..60), 0_u32..2), 0..40)) {
        let pods: Vec<PodRow> = rows.iter().map(|(n, parent, asks)| pod(*n, *parent, "idle", *asks)).collect();
        let mut expected: Vec<SessionId> = pods.iter().map(|pod| pod.session).collect();
        expected.sort_unstable();
        expected.dedup();
        let tree = Tree::new(pods);
        let mut found: Vec<SessionId> = tree.rows().iter().map(|row| row.pod.session).collect();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
        for (at, row) in tree.rows().iter().enumerate() {
            prop_assert_eq!(row.more.len(), row.depth + 1);
            // A child stands right below its parent or a sibling's last.
            prop_assert!(at == 0 || row.depth <= tree.rows()[at - 1].depth + 1);
        }
    }
}
