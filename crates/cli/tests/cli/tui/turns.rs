//! Variants of turns, on a pseudo-terminal at three sizes: a retried request, a rewind to an earlier input, a
//! compaction, streamed tables and code.

use std::sync::Arc;

use minke_pod::State;
use minke_record::{
    BeforeAfter, Draft, Durability, History, Item, Kind, Large, SegmentReason, SegmentStart, SessionFacts,
};
use minke_session::{FileStore, RealDisk, SessionStore};

use crate::support::world::CliWorld;
use crate::tui::screen::{ENTER, ESC, SCREEN_SIZES, TuiTerminal, attach_tui, world_with_finished_run};

const ECHO_SCRIPT: &str =
    "loop = true\n[[turn]]\nusage = { input = 900, output = 70 }\ntext = \"You said: {{prompt}}\"\n";
const BUSY_SCRIPT: &str = r#"
[[turn]]
usage = { input = 900, output = 70 }
text = "Here I am."
[[turn]]
usage = { input = 950, output = 80 }
error = { status = 503, message = "too many people", times = 1, retry_after_s = 8 }
text = "Now it went."
"#;

/// A table and code, the second half of which is slow.
const STREAM_SCRIPT: &str = r###"
[[turn]]
usage = { input = 900, output = 70 }
pace_ms = 5000
text = [
  "## Whales\n\n| name | length |\n|---|---:|\n| minke | 8 m |\n| blue | 30 m |\n\n```rust\nfn length(whale: &str) -> u32 {\n    match whale {",
  "\n        \"minke\" => 8,\n        _ => 30,\n    }\n}\n```\n\nThat is all.",
]
"###;

#[test]
fn tables_and_code_are_drawn_while_they_stream_at_any_size() {
    let world = CliWorld::with_fixed_paths();
    world.write_file("s.toml", STREAM_SCRIPT);
    let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("match whale");
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], SCREEN_SIZES[0]);
    tui.wait_for_text("match whale");
    tui.check_snapshots("streaming");
    tui.wait_for_text("That is all.");
    tui.wait_for_text("stopped");
    tui.check_snapshots("streamed");
    assert_eq!(going.wait_for_exit().code, Some(0));
    assert!(tui.leave_tui().success());
}

/// It prints a line and then waits for a file.
const COMMAND_SCRIPT: &str = r#"
[[turn]]
usage = { input = 900, output = 70 }
text = "I count."
[[turn.call]]
tool = "Bash"
args = { command = "for word in one two three; do echo $word; done; until [ -e over ]; do sleep 0.05; done; echo four" }
[[turn]]
text = "All counted."
"#;

#[test]
fn what_a_command_prints_is_seen_while_it_runs() {
    let world = CliWorld::with_fixed_paths();
    world.write_file("s.toml", COMMAND_SCRIPT);
    let mut going = world.start_minke(&[
        "exec",
        "--posture",
        "full",
        "--name",
        "tale",
        "--model",
        "scripted:s.toml",
        "go",
    ]);
    going.wait_for_stdout("I count.");
    // A client that joins before the call starts also learns the command.
    while world.only_live_pod()["activity"] != "tool" {}
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], SCREEN_SIZES[0]);
    tui.wait_for_text("three");
    tui.check_snapshots("command-runs");
    world.write_file("over", "");
    tui.wait_for_text("All counted.");
    tui.wait_for_text("stopped");
    assert_eq!(going.wait_for_exit().code, Some(0));
    assert!(tui.leave_tui().success());
}

#[test]
fn a_provider_that_is_asked_again_is_counted_down() {
    let world = world_with_finished_run(BUSY_SCRIPT);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "Here I am.");
    tui.type_text("second");
    tui.send_keys(ENTER);
    tui.wait_for_text("retry in");
    tui.check_snapshots("retry");
    tui.wait_for_text("Now it went.");
    tui.wait_until_gone("retry in");
    assert!(tui.leave_tui().success());
}

#[test]
fn a_way_back_leads_to_an_earlier_input() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "You said: first");
    for said in ["second", "third"] {
        tui.type_text(said);
        tui.send_keys(ENTER);
        tui.wait_for_text(&format!("You said: {said}"));
        tui.wait_for_text("idle");
    }
    tui.send_keys(ESC);
    tui.wait_for_text("Esc again");
    tui.send_keys(ESC);
    tui.wait_for_text("Rewind to");
    tui.check_snapshots("way-back");
    // The newest is first, and selected.
    tui.send_keys(ENTER);
    tui.wait_until_gone("Rewind to");
    tui.wait_until_gone("You said: third");
    tui.wait_for_text("You said: second");
    tui.wait_for_text("rewound; your input");
    tui.wait_until_gone("rewound; your input");
    tui.check_snapshots("went-back");
    assert!(tui.leave_tui().success());
    let said = world.run_minke(&["log", "show", "tale", "--kind", "rewound"]).out;
    assert!(said.contains("rewound"), "{said}");
}

/// Appends a compaction to the log of the one sleeping session, as a pod writes it.
fn append_compaction(world: &CliWorld) {
    let store = FileStore::new(Arc::new(RealDisk), world.home_dir().join("data/sessions"));
    let id = store.list_sessions().unwrap()[0];
    let mut log = store.open(id).unwrap();
    let entries: Vec<_> = log.replay.iter().map(|sealed| &sealed.entry).collect();
    let state = State::replay(entries.iter().copied());
    let started = entries.iter().rev().find_map(|entry| match &entry.kind {
        Kind::SegmentStart(started) => Some(started.clone()),
        _ => None,
    });
    let (started, last) = (started.unwrap(), entries[entries.len() - 1]);
    let segment = started.segment + 1;
    let kind = Kind::SegmentStart(SegmentStart {
        segment,
        reason: SegmentReason::Compaction,
        history: History::Here(vec![Item::user_message("They said first and were answered.")]),
        carry: Large::Here(Box::new(SessionFacts { segment, ..state.facts })),
        compacted_to_seq: Some(last.seq),
        tokens: Some(BeforeAfter { before: 12_400, after: 310 }),
        ..started
    });
    let (seq, ts) = (log.writer.next_seq(), last.ts);
    let draft = Draft { seq, ts, run: None, kind, durability: Durability::Barrier };
    log.writer.append(vec![draft], Vec::new()).unwrap();
}

#[test]
fn a_shorter_context_is_told_where_it_came_about() {
    let world = world_with_finished_run(ECHO_SCRIPT);
    append_compaction(&world);
    let mut tui = attach_tui(&world, SCREEN_SIZES[0], "≡");
    tui.type_text("second");
    tui.send_keys(ENTER);
    tui.wait_for_text("You said: second");
    tui.wait_for_text("idle");
    tui.check_snapshots("compaction");
    assert!(tui.leave_tui().success());
}
