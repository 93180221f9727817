//! File changes, context usage and the tree of pods.

use minke_record::SessionId;
use minke_view::{ContextPart, ContextUsage, PodRow, PodTree, SessionChanges};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::log_builder::*;

fn edit_action(id: &str, path: &str, diff: &str) -> Value {
    let mut started = dispatch_json(id, "Edit", &json!({ "writes": [path] }));
    started["preview"] = json!({ "path": path, "before": "1", "after": "2", "diff": diff });
    started
}

fn fold_changes(log: &LogBuilder) -> SessionChanges {
    let mut changes = SessionChanges::new();
    log.entries.iter().for_each(|entry| changes.apply_entry(entry));
    changes
}

#[test]
fn what_was_changed_is_told_file_by_file() {
    let mut log = LogBuilder::with_session_start();
    let diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-old\n+new\n+-- more\n same\n";
    log.add_entry(edit_action("c1", "/w/src/x.rs", diff)).add_entry(result_json("c1", "1 edit", "", "done"));
    log.add_entry(edit_action("c2", "/w/y", "@@ @@\n-gone\n"))
        .add_entry(result_json("c2", "1 edit", "", "done"));
    log.add_entry(edit_action("c3", "/w/src/x.rs", "+again\n"))
        .add_entry(result_json("c3", "1 edit", "", "done"));
    // Neither of these calls took effect.
    log.add_entry(edit_action("c4", "/w/z", "+no\n")).add_entry(result_json("c4", "refused", "", "refused"));
    log.add_entry(edit_action("c5", "/w/z", "+no\n"));
    let file = json!({ "path": "/w/target/out", "mode": 420, "hash": "h" });
    log.add_entry(json!({ "kind": "snapshot", "when": "before", "files": [file] }));
    log.add_entry(json!({ "kind": "snapshot", "when": "after", "files": [file] }));
    let changes = fold_changes(&log);
    let lines: Vec<String> = changes
        .changed_files()
        .iter()
        .map(|file| {
            let each: Vec<String> = file
                .changes
                .iter()
                .map(|change| format!("{} +{} -{}", change.caller, change.added, change.removed))
                .collect();
            format!("{}: {}", file.path, each.join(", "))
        })
        .collect();
    assert_eq!(lines, ["src/x.rs: Edit +2 -1, Edit +1 -0", "y: Edit +0 -1", "target/out: a command +0 -0"]);
    assert_eq!(changes.line_totals(), (3, 2));
    assert_eq!(changes.changed_files()[0].changes[0].diff.as_deref(), Some(diff));
}

#[test]
fn changes_are_bounded() {
    let mut log = LogBuilder::with_session_start();
    let diff = format!("+{}\n", "x".repeat(200_000));
    for _ in 0..120 {
        log.add_entry(edit_action("c", "/w/x", &diff)).add_entry(result_json("c", "1 edit", "", "done"));
    }
    let changes = fold_changes(&log);
    let held =
        changes.changed_files()[0].changes.iter().filter_map(|change| change.diff.as_ref()).map(String::len);
    assert!(held.sum::<usize>() <= SessionChanges::MAX_BYTES);
    assert_eq!(changes.line_totals(), (120, 0));
}

fn segment_json(reason: &str, history: &Value) -> Value {
    json!({
        "kind": "segment_start", "segment": 0, "reason": reason, "system_prompt": "p".repeat(400),
        "tools": [{ "name": "Bash", "description": "d".repeat(94), "schema": {} }], "config": {},
        "history": history, "carry": { "blob": "b", "bytes": 1 },
    })
}

fn context_parts(log: &LogBuilder) -> Vec<(ContextPart, u64)> {
    let mut context = ContextUsage::new();
    log.entries.iter().for_each(|entry| context.apply_entry(entry));
    context.token_parts().into_iter().filter(|(_, tokens)| *tokens > 0).collect()
}

#[test]
fn the_window_is_told_by_what_fills_it() {
    let mut log = LogBuilder::with_session_start();
    log.add_entry(segment_json("initial", &json!([])));
    log.add_input(&"i".repeat(40))
        .add_llm_call(0)
        .add_item(0, thinking_json(&"t".repeat(80)))
        .add_reply(0, &"r".repeat(120));
    log.add_item(0, tool_call_json("c1", "Bash", &json!({ "command": "c".repeat(22) }))).add_llm_end(0);
    log.add_entry(result_json("c1", "short", &"o".repeat(400), "done"));
    log.add_entry(
        json!({ "kind": "system_item", "item": { "kind": "notification", "body": "n".repeat(44) } }),
    );
    let lines = context_parts(&log);
    let expected = [
        (ContextPart::SystemPrompt, 100),
        (ContextPart::Tools, 25),
        (ContextPart::Inputs, 10),
        (ContextPart::Replies, 30),
        (ContextPart::Thinking, 20),
        (ContextPart::Calls, 10),
        (ContextPart::Results, 100),
        (ContextPart::Notes, 11),
    ];
    assert_eq!(lines, expected);
    let mut context = ContextUsage::new();
    log.entries.iter().for_each(|entry| context.apply_entry(entry));
    assert_eq!(
        (context.estimated_tokens(), context.measured_tokens(), context.free_tokens(1_000)),
        (306, Some(115), 885)
    );
    assert!(!context.is_partial());
    let mut later = ContextUsage::new();
    log.entries[6..].iter().for_each(|entry| later.apply_entry(entry));
    assert!(later.is_partial());
}

#[test]
fn what_left_the_context_fills_nothing() {
    let mut log = LogBuilder::with_session_start();
    log.add_entry(segment_json("initial", &json!([])));
    log.add_input(&"i".repeat(40)).add_llm_call(0);
    log.add_item(0, tool_call_json("c1", "Bash", &json!({}))).add_entry(result_json(
        "c1",
        "shor",
        &"o".repeat(400),
        "done",
    ));
    let pruned_to = log.entries.len() - 1;
    log.add_entry(json!({ "kind": "pruned", "to_seq": pruned_to, "saved": 99 }));
    let at = |lines: &[(ContextPart, u64)], wanted| {
        lines.iter().find(|(filling, _)| *filling == wanted).map(|(_, tokens)| *tokens)
    };
    assert_eq!(at(&context_parts(&log), ContextPart::Results), Some(1));
    log.end_run("finished").add_input(&"j".repeat(400));
    assert_eq!(at(&context_parts(&log), ContextPart::Inputs), Some(110));
    log.end_run("rolled_back");
    assert_eq!(at(&context_parts(&log), ContextPart::Inputs), Some(10));
    log.add_entry(segment_json("compaction", &json!([message_json(&"s".repeat(8))])));
    assert_eq!(
        context_parts(&log),
        [(ContextPart::SystemPrompt, 100), (ContextPart::Tools, 25), (ContextPart::Replies, 2)]
    );
}

fn pod_row(n: u8, parent: Option<u8>, state: &str, asks: u32) -> PodRow {
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

fn tree_lines(tree: &PodTree) -> Vec<String> {
    let row = |row: &minke_view::TreeRow| {
        let needs = if row.subtree_needs_input { " !" } else { "" };
        format!("{}{}{needs}", "  ".repeat(row.depth), row.pod.name)
    };
    tree.tree_rows().iter().map(row).collect()
}

#[test]
fn who_waits_for_an_answer_comes_first_and_children_stand_below_their_parents() {
    let tree = PodTree::new(vec![
        pod_row(1, None, "idle", 0),
        pod_row(2, None, "running", 0),
        pod_row(3, Some(1), "running", 0),
        pod_row(4, Some(1), "waiting", 1),
        pod_row(5, None, "idle", 0),
        pod_row(6, Some(4), "idle", 0),
    ]);
    assert_eq!(tree_lines(&tree), ["p1 !", "  p4 !", "    p6", "  p3", "p2", "p5"]);
    assert_eq!(tree.open_ask_count(), 1);
    assert_eq!(tree.tree_rows()[1].has_next_sibling, [true, true]);
    assert_eq!(tree.tree_rows()[3].has_next_sibling, [true, false]);
}

proptest! {
    #[test]
    fn every_pod_is_in_the_tree_once(rows in proptest::collection::vec((0_u8..40, proptest::option::of(0_u8..60), 0_u32..2), 0..40)) {
        let pods: Vec<PodRow> = rows.iter().map(|(n, parent, asks)| pod_row(*n, *parent, "idle", *asks)).collect();
        let mut expected: Vec<SessionId> = pods.iter().map(|pod| pod.session).collect();
        expected.sort_unstable();
        expected.dedup();
        let tree = PodTree::new(pods);
        let mut found: Vec<SessionId> = tree.tree_rows().iter().map(|row| row.pod.session).collect();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
        for (at, row) in tree.tree_rows().iter().enumerate() {
            prop_assert_eq!(row.has_next_sibling.len(), row.depth + 1);
            // A child directly follows its parent or the last descendant of a sibling.
            prop_assert!(at == 0 || row.depth <= tree.tree_rows()[at - 1].depth + 1);
        }
    }
}
