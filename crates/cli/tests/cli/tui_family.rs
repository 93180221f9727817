//! More of what a conversation holds, on a pseudo-terminal at three sizes: pods below it, one of which asks, a question in
//! words, a command that runs.

use std::path::Path;

use serde_json::json;

use crate::tui_screen::{ENTER, ESC, SIZES, Tui};
use crate::world::{UNFENCED, World};

/// Two children with a directory each; one of them asks before it writes.
fn family(lib: &Path, docs: &Path) -> String {
    let spawn = |name: &str, dir: &Path| {
        let scope = json!([{ "target": dir, "permission": "write" }]);
        // The first is done before the second begins, so that every picture of them is the same.
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
    let world = World::pictured();
    let (lib, docs) = (world.work().join("lib"), world.work().join("docs"));
    for dir in [&lib, &docs, &world.home().join("config")] {
        std::fs::create_dir_all(dir).unwrap();
    }
    std::fs::write(world.home().join("config/policy.toml"), "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n")
        .unwrap();
    world.write("s.toml", &family(&lib, &docs));
    let exec = ["exec", "--name", "tale", "--on-ask", "wait", "--model", "scripted:s.toml", "go"];
    let going = world.start(&exec);
    while world.json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    let mut tui = Tui::start(&world, &["attach", "tale"], SIZES[0]);
    tui.until("docs asks: may Write run?");
    tui.until("lib  finished");
    tui.pictures("family-asks");
    tui.press("\x10");
    tui.until("Pods");
    tui.pictures("family-pods");
    tui.press(ESC);
    tui.until_gone("esc close");
    tui.press("y");
    tui.until("docs  finished");
    tui.until("approved once");
    tui.until("Both are done.");
    assert_eq!(going.end().code, Some(0));
    assert_eq!(std::fs::read_to_string(docs.join("whale.md")).unwrap(), "# Whale\n");
    assert!(tui.leave().success());
}

const WHICH: &str = r#"
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
    let world = World::pictured().with("MINKE_MODEL", "scripted:s.toml");
    world.write("s.toml", WHICH);
    let mut tui = Tui::start(&world, &[], SIZES[0]);
    tui.until("what is to be done?");
    tui.write("go");
    tui.press(ENTER);
    tui.until("Which whale");
    tui.until("a question waits");
    tui.pictures("question-in-words");
    // A key right after a question has come up is not taken for an answer.
    let seen = std::time::Instant::now();
    while seen.elapsed() < std::time::Duration::from_millis(500) {
        tui.pty.hear();
    }
    tui.press("2");
    tui.until("As you wish.");
    tui.until("idle");
    tui.pictures("question-in-words-answered");
    assert!(tui.leave().success());
    let log = world.run(&["log", "show", "work"]).out;
    assert!(log.contains("the blue one"), "{log}");
}

const RUNS: &str = r#"
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
    let world = World::pictured();
    world.write("s.toml", RUNS);
    let exec = ["exec", "--name", "tale", "--model", "scripted:s.toml"];
    let going = world.start(&[&exec[..], &UNFENCED, &["go"]].concat());
    while world.json(&["ps", "--json"]).as_array().unwrap().is_empty() {}
    let mut tui = Tui::start(&world, &["attach", "tale"], SIZES[0]);
    tui.until("whale 5");
    world.write("enough", "");
    tui.until("Five of them.");
    assert_eq!(going.end().code, Some(0));
    tui.until("stopped");
    tui.press("\t");
    tui.until("▌");
    tui.press("\x1b[A");
    tui.press(ENTER);
    tui.until("whale 1");
    assert!(tui.leave().success());
}
