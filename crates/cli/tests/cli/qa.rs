//! What a person who has never met us tries first, and what must then be true.

use serde_json::Value;

use crate::world::{UNFENCED, World};

const EDITS: &str = r#"
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "note.txt", content = "from the first run\n" }

[[turn]]
text = "Written."

[[turn]]
text = "And on we go."
"#;

/// `exec` stops its pod; an `undo` that has to start one does so too, or the next `--resume` finds the session held.
#[test]
fn undo_leaves_no_pod_behind_and_the_session_goes_on() {
    let world = World::new();
    let script = world.write("script.toml", EDITS);
    let model = format!("scripted:{}", script.display());
    assert_eq!(world.run(&["exec", "--name", "tale", "--model", &model, "write"]).code, Some(0));

    let undone = world.run(&["undo", "tale"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert!(!world.work().join("note.txt").exists());
    let live = world.json(&["ps", "--json"]);
    assert_eq!(live, Value::Array(Vec::new()), "a pod was left behind");

    let more = world.run(&["exec", "--resume", "tale", "go on"]);
    assert_eq!((more.code, more.out.as_str()), (Some(0), "And on we go.\n"), "{more:?}");
    world.verify();
}

/// Paths go to stdout and what became of them as a whole to stderr, each once, whether all could be put back or not.
#[test]
fn undo_says_each_thing_once() {
    let world = World::new();
    let script = world.write("script.toml", EDITS);
    let model = format!("scripted:{}", script.display());
    assert_eq!(world.run(&["exec", "--name", "tale", "--model", &model, "write"]).code, Some(0));
    world.write("note.txt", "somebody else's\n");

    let undone = world.run(&["undo", "tale"]);
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.err.contains("left as"), "{undone:?}");
    let paths: Vec<&str> = undone.out.lines().collect();
    assert!(matches!(paths.as_slice(), [one] if one.contains("note.txt: left as it is")), "{undone:?}");
    assert_eq!(world.read("note.txt"), "somebody else's\n");
}

/// A question that ended its run is gone with it: the hint must be something that can be done.
#[test]
fn the_hint_after_an_unanswered_question_can_be_followed() {
    let world = World::new();
    let text = "[[turn]]\n[[turn.call]]\ntool = \"AskUser\"\nargs = { question = \"Which colour?\" }\n";
    let script = world.write("script.toml", &format!("{text}\n[[turn]]\ntext = \"Fine.\"\n"));
    let model = format!("scripted:{}", script.display());
    let args = ["exec", "--name", "asker", "--model", &model, "--on-ask", "fail", "ask"];
    let done = world.run(&[args.as_slice(), UNFENCED.as_slice()].concat());
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("why: Which colour?"), "{done:?}");
    assert!(done.err.contains("minke exec --resume s_"), "{done:?}");
    assert_eq!(world.json(&["asks", "--json"]), Value::Array(Vec::new()), "the question is still open");

    let more = world.run(&["exec", "--resume", "asker", "--on-ask", "wait", "go on"]);
    assert_eq!((more.code, more.out.as_str()), (Some(0), "Fine.\n"), "{more:?}");
}
