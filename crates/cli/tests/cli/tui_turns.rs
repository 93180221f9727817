//! Turns that a conversation takes, on a pseudo-terminal at three sizes: a provider that is asked again, a way back to an
//! earlier input, a shorter context, tables and code that stream in.

use std::sync::Arc;

use minke_pod::State;
use minke_record::{
    BeforeAfter, Draft, Durability, Facts, History, Item, Kind, Large, SegmentReason, SegmentStart,
};
use minke_session::{FileStore, RealDisk, Store};

use crate::tui_screen::{ENTER, ESC, SIZES, Tui, attached, told};
use crate::world::World;

const ECHO: &str =
    "loop = true\n[[turn]]\nusage = { input = 900, output = 70 }\ntext = \"You said: {{prompt}}\"\n";
const BUSY: &str = r#"
[[turn]]
usage = { input = 900, output = 70 }
text = "Here I am."
[[turn]]
usage = { input = 950, output = 80 }
error = { status = 503, message = "too many people", times = 1, retry_after_s = 8 }
text = "Now it went."
"#;

/// A table and a piece of code, the second half of which takes its time.
const STREAMS: &str = r###"
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
    let world = World::pictured();
    world.write("s.toml", STREAMS);
    let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("match whale");
    let mut tui = Tui::start(&world, &["attach", "tale"], SIZES[0]);
    tui.until("match whale");
    tui.pictures("streaming");
    tui.until("That is all.");
    tui.until("stopped");
    tui.pictures("streamed");
    assert_eq!(going.end().code, Some(0));
    assert!(tui.leave().success());
}

/// It says something and then waits for a file.
const COMMANDS: &str = r#"
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
    let world = World::pictured();
    world.write("s.toml", COMMANDS);
    let mut going =
        world.start(&["exec", "--posture", "full", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("I count.");
    let mut tui = Tui::start(&world, &["attach", "tale"], SIZES[0]);
    tui.until("three");
    tui.pictures("command-runs");
    world.write("over", "");
    tui.until("All counted.");
    tui.until("stopped");
    assert_eq!(going.end().code, Some(0));
    assert!(tui.leave().success());
}

#[test]
fn a_provider_that_is_asked_again_is_counted_down() {
    let world = told(BUSY);
    let mut tui = attached(&world, SIZES[0], "Here I am.");
    tui.write("second");
    tui.press(ENTER);
    tui.until("asked again in");
    tui.pictures("retry");
    tui.until("Now it went.");
    tui.until_gone("asked again in");
    assert!(tui.leave().success());
}

#[test]
fn a_way_back_leads_to_an_earlier_input() {
    let world = told(ECHO);
    let mut tui = attached(&world, SIZES[0], "You said: first");
    for said in ["second", "third"] {
        tui.write(said);
        tui.press(ENTER);
        tui.until(&format!("You said: {said}"));
        tui.until("idle");
    }
    tui.press(ESC);
    tui.until("Esc again");
    tui.press(ESC);
    tui.until("Back to");
    tui.pictures("way-back");
    // The newest stands first, and is chosen.
    tui.press(ENTER);
    tui.until_gone("Back to");
    tui.until_gone("You said: third");
    tui.until("You said: second");
    tui.until("back there");
    tui.until_gone("back there");
    tui.pictures("went-back");
    assert!(tui.leave().success());
    let said = world.run(&["log", "show", "tale", "--kind", "rewound"]).out;
    assert!(said.contains("rewound"), "{said}");
}

/// A compaction in the log of the one session, which sleeps: what a pod writes that makes its context shorter.
fn compact(world: &World) {
    let store = FileStore::new(Arc::new(RealDisk), world.home().join("data/sessions"));
    let id = store.list().unwrap()[0];
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
        history: History::Here(vec![Item::user("They said first and were answered.")]),
        carry: Large::Here(Box::new(Facts { segment, ..state.facts })),
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
    let world = told(ECHO);
    compact(&world);
    let mut tui = attached(&world, SIZES[0], "≡");
    tui.write("second");
    tui.press(ENTER);
    tui.until("You said: second");
    tui.until("idle");
    tui.pictures("compaction");
    assert!(tui.leave().success());
}
