//! More content of a conversation, on a pseudo-terminal at three sizes: child pods with an ask, a free-text
//! question, a running command.

use std::path::Path;

use serde_json::json;

use crate::support::world::{CliWorld, UNSANDBOXED};
use crate::tui::screen::{ENTER, ESC, SCREEN_SIZES, TuiTerminal};

/// Two children with a directory each; one of them asks before it writes.
fn two_children_script(lib: &Path, docs: &Path) -> String {
    let spawn = |name: &str, dir: &Path| {
        let scope = json!([{ "target": dir, "permission": "write" }]);
        // The first ends before the second starts, so that all snapshots are the same.
        let wait = name == "lib";
        let args = json!({ "name": name, "task": format!("see to {name}"), "scope": scope, "wait": wait });
        format!(
            "[[turn]]\nusage = {{ input = 900, output = 70 }}\n[[turn.call]]\ntool = \"SpawnPod\"\nraw = '''{args}'''\n"
        )
    };
    let ask = json!({ "file_path": docs.join("whale.md"), "content": "# Whale\n" });
    format!(
        r#"{}{}
[[turn]]
usage = {{ input = 950, output = 80 }}
text = "Both are on their way."
[[turn]]
repeat = 4
usage = {{ input = 990, output = 90 }}
text = "Both are done."

[[pod.lib.turn]]
usage = {{ input = 400, output = 20 }}
text = "The library is fine."

[[pod.docs.turn]]
delay_ms = 1500
usage = {{ input = 400, output = 20 }}
[[pod.docs.turn.call]]
tool = "Write"
raw = '''{ask}'''
[[pod.docs.turn]]
usage = {{ input = 420, output = 30 }}
text = "It is written down."
"#,
        spawn("lib", lib),
        spawn("docs", docs)
    )
}

#[test]
fn three_pods_work_at_once_and_the_one_that_asks_is_answered_from_above() {
    let world = CliWorld::with_fixed_paths();
    let (lib, docs) = (world.work_dir().join("lib"), world.work_dir().join("docs"));
    for dir in [&lib, &docs, &world.home_dir().join("config")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(
        world.home_dir().join("config/policy.toml"),
        "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n",
    )
    .unwrap();
    world.write_file("s.toml", &two_children_script(&lib, &docs));
    let exec = ["exec", "--name", "tale", "--on-ask", "wait", "--model", "scripted:s.toml", "go"];
    let going = world.start_minke(&exec);
    while world.run_json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], SCREEN_SIZES[0]);
    tui.wait_for_text("docs asks: allow Write to run?");
    tui.wait_for_text("lib  finished");
    tui.check_snapshots("family-asks");
    tui.send_keys("\x10");
    tui.wait_for_text("Pods");
    tui.check_snapshots("family-pods");
    tui.send_keys(ESC);
    tui.wait_until_gone("esc close");
    tui.send_keys("y");
    tui.wait_for_text("docs  finished");
    tui.wait_for_text("approved once");
    tui.wait_for_text("Both are done.");
    assert_eq!(going.wait_for_exit().code, Some(0));
    assert_eq!(std::fs::read_to_string(docs.join("whale.md")).unwrap(), "# Whale\n");
    assert!(tui.leave_tui().success());
}

const QUESTION_SCRIPT: &str = r#"
[[turn]]
usage = { input = 900, output = 70 }
[[turn.call]]
tool = "AskUser"
args = { question = "Which whale shall sing first?", options = ["the minke", "the blue one"] }
[[turn]]
usage = { input = 950, output = 80 }
text = "As you wish."
"#;

#[test]
fn a_question_in_words_is_answered_by_a_number() {
    let world = CliWorld::with_fixed_paths().with_env("MINKE_MODEL", "scripted:s.toml");
    world.write_file("s.toml", QUESTION_SCRIPT);
    let mut tui = TuiTerminal::start_tui(&world, &[], SCREEN_SIZES[0]);
    tui.wait_for_text("describe a task");
    tui.type_text("go");
    tui.send_keys(ENTER);
    tui.wait_for_text("Which whale");
    tui.wait_for_text("1 open question");
    tui.check_snapshots("question-in-words");
    // A key right after an ask has appeared does not answer it.
    let seen = std::time::Instant::now();
    while seen.elapsed() < std::time::Duration::from_millis(500) {
        tui.pty.read_output();
    }
    tui.send_keys("2");
    tui.wait_for_text("As you wish.");
    tui.wait_for_text("idle");
    tui.check_snapshots("question-in-words-answered");
    assert!(tui.leave_tui().success());
    let log = world.run_minke(&["log", "show", "work"]).out;
    assert!(log.contains("the blue one"), "{log}");
}

const COMMAND_SCRIPT: &str = r#"
[[turn]]
usage = { input = 900, output = 70 }
text = "I count the whales."
[[turn.call]]
tool = "Bash"
args = { command = "for n in 1 2 3 4 5; do echo whale $n; done; echo; while ! test -e enough; do sleep 0.1; done; echo enough" }
[[turn]]
usage = { input = 950, output = 80 }
text = "Five of them."
"#;

#[test]
fn what_a_command_prints_is_seen_while_it_runs() {
    let world = CliWorld::with_fixed_paths();
    world.write_file("s.toml", COMMAND_SCRIPT);
    let exec = ["exec", "--name", "tale", "--model", "scripted:s.toml"];
    let going = world.start_minke(&[&exec[..], &UNSANDBOXED, &["go"]].concat());
    while world.run_json(&["ps", "--json"]).as_array().unwrap().is_empty() {}
    let mut tui = TuiTerminal::start_tui(&world, &["attach", "tale"], SCREEN_SIZES[0]);
    tui.wait_for_text("whale 5");
    world.write_file("enough", "");
    tui.wait_for_text("Five of them.");
    assert_eq!(going.wait_for_exit().code, Some(0));
    tui.wait_for_text("stopped");
    tui.send_keys("\t");
    tui.wait_for_text("▌");
    tui.send_keys("\x1b[A");
    tui.send_keys(ENTER);
    tui.wait_for_text("whale 1");
    assert!(tui.leave_tui().success());
}
