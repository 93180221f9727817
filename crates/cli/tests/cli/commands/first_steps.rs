//! First steps of a new user, and their results.

use serde_json::Value;

use crate::support::world::{CliWorld, UNSANDBOXED};

const EDIT_SCRIPT: &str = r#"
[[turn]]
[[turn.call]]
tool = "Write"
args = { file_path = "note.txt", content = "from the first run\n" }

[[turn]]
text = "Written."

[[turn]]
text = "And on we go."
"#;

/// `exec` stops its pod; so does an `undo` that had to start one, so that the next `--resume` meets no
/// conflict.
#[test]
fn undo_leaves_no_pod_behind_and_the_session_goes_on() {
    let world = CliWorld::new();
    let script = world.write_file("script.toml", EDIT_SCRIPT);
    let model = format!("scripted:{}", script.display());
    assert_eq!(world.run_minke(&["exec", "--name", "tale", "--model", &model, "write"]).code, Some(0));

    let undone = world.run_minke(&["undo", "tale"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert!(!world.work_dir().join("note.txt").exists());
    let live = world.run_json(&["ps", "--json"]);
    assert_eq!(live, Value::Array(Vec::new()), "a pod is still live");

    let more = world.run_minke(&["exec", "--resume", "tale", "continue"]);
    assert_eq!((more.code, more.out.as_str()), (Some(0), "And on we go.\n"), "{more:?}");
    world.verify_logs();
}

/// Paths go to stdout and the summary to stderr, each once, in full and partial undos.
#[test]
fn undo_says_each_thing_once() {
    let world = CliWorld::new();
    let script = world.write_file("script.toml", EDIT_SCRIPT);
    let model = format!("scripted:{}", script.display());
    assert_eq!(world.run_minke(&["exec", "--name", "tale", "--model", &model, "write"]).code, Some(0));
    world.write_file("note.txt", "edited by the user\n");

    let undone = world.run_minke(&["undo", "tale"]);
    assert_eq!(undone.code, Some(1), "{undone:?}");
    assert!(undone.err.contains("1 path not restored"), "{undone:?}");
    let paths: Vec<&str> = undone.out.lines().collect();
    assert!(matches!(paths.as_slice(), [one] if one.contains("note.txt: not restored")), "{undone:?}");
    assert_eq!(world.read_file("note.txt"), "edited by the user\n");
}

/// An ask that ended its run cannot be answered: the hint must name a command that works.
#[test]
fn the_hint_after_an_unanswered_question_can_be_followed() {
    let world = CliWorld::new();
    let text = "[[turn]]\n[[turn.call]]\ntool = \"AskUser\"\nargs = { question = \"Which colour?\" }\n";
    let script = world.write_file("script.toml", &format!("{text}\n[[turn]]\ntext = \"Fine.\"\n"));
    let model = format!("scripted:{}", script.display());
    let args = ["exec", "--name", "asker", "--model", &model, "--on-ask", "fail", "ask"];
    let done = world.run_minke(&[args.as_slice(), UNSANDBOXED.as_slice()].concat());
    assert_eq!(done.code, Some(3), "{done:?}");
    assert!(done.err.contains("why: Which colour?"), "{done:?}");
    assert!(done.err.contains("minke exec --resume s_"), "{done:?}");
    assert_eq!(world.run_json(&["asks", "--json"]), Value::Array(Vec::new()), "the ask is still open");

    let more = world.run_minke(&["exec", "--resume", "asker", "--on-ask", "wait", "continue"]);
    assert_eq!((more.code, more.out.as_str()), (Some(0), "Fine.\n"), "{more:?}");
}
