//! Scope conflicts: an idle pod yields, a busy one is named, and there are alternatives.

use serde_json::Value;

use crate::support::pty::PtyProcess;
use crate::support::world::CliWorld;
use crate::trees::tree_commands::world_with_repository;

const ECHO_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const SLOW_SCRIPT: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";

fn live_pod_names(world: &CliWorld) -> Vec<String> {
    let rows = world.run_json(&["ps", "--json"]);
    rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_busy_holder_is_named_and_an_idle_one_yields() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    world.write_file("echo.toml", ECHO_SCRIPT);
    let mut busy = world.start_minke(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.wait_for_stdout("Half");
    let session = world.only_live_pod()["session"].as_str().unwrap().to_owned();
    let refused = world.run_minke(&["exec", "--name", "other", "--model", "scripted:echo.toml", "hi"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    for part in ["`busy` holds", session.as_str(), "minke attach busy", "--read-only", "--clone"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    let object =
        world.run_minke(&["exec", "--json", "--name", "other", "--model", "scripted:echo.toml", "hi"]);
    let error: Value = serde_json::from_str(object.err.trim()).unwrap();
    assert_eq!((object.code, &error["error"]["code"]), (Some(75), &"held".into()), "{error}");
    assert_eq!(world.session_count(), 1, "no session was created without a pod");
    assert_eq!(world.run_minke(&["cancel", "busy"]).code, Some(0));
    busy.wait_for_exit();
    // An idle live pod.
    let first = world.run_minke(&["exec", "--name", "idle", "--model", "scripted:echo.toml", "one"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(world.run_minke(&["send", "idle", "two"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", "idle"]).code, Some(0));
    let next = world.run_minke(&["exec", "--name", "next", "--model", "scripted:echo.toml", "hi"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "You said: hi\n"), "{}", next.err);
    assert_eq!(live_pod_names(&world), ["idle"], "it stays live without write access");
    // Its next run gets the scope back.
    assert_eq!(world.run_minke(&["send", "idle", "three"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", "idle"]).code, Some(0));
    assert_eq!(world.run_minke(&["read", "idle"]).out, "You said: three\n");
    let scope = &world.only_live_pod()["scope"];
    assert_eq!(scope["allow"][0]["permission"], "write", "{scope}");
    world.verify_logs();
}

#[test]
fn one_that_yielded_is_refused_its_next_run_while_the_other_works() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    world.write_file("echo.toml", ECHO_SCRIPT);
    assert_eq!(
        world.run_minke(&["exec", "--name", "idle", "--model", "scripted:echo.toml", "one"]).code,
        Some(0)
    );
    assert_eq!(world.run_minke(&["send", "idle", "two"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", "idle"]).code, Some(0));
    let mut busy = world.start_minke(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.wait_for_stdout("Half");
    let told = world.run_minke(&["send", "idle", "three"]);
    assert_ne!(told.code, Some(0), "{told:?}");
    assert!(told.err.contains("`busy`"), "the owner of the scope is named: {told:?}");
    assert_eq!(world.run_minke(&["read", "idle"]).out, "You said: two\n");
    assert_eq!(world.run_minke(&["cancel", "busy"]).code, Some(0));
    busy.wait_for_exit();
}

#[test]
fn read_only_and_clone_need_no_room() {
    let Some(world) = world_with_repository("a held directory") else { return };
    world.write_file("s.toml", SLOW_SCRIPT);
    world.write_file("w.toml", "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"new.txt\", content = \"new\\n\" }\n[[turn]]\ntext = \"Tried.\"\n");
    let mut busy = world.start_minke(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.wait_for_stdout("Half");
    let looks =
        world.run_minke(&["exec", "--read-only", "--name", "looks", "--model", "scripted:w.toml", "go"]);
    assert_eq!((looks.code, looks.out.as_str()), (Some(0), "Tried.\n"), "{}", looks.err);
    assert!(!world.work_dir().join("new.txt").exists(), "{looks:?}");
    let works = world.run_minke(&["exec", "--clone", "--name", "works", "--model", "scripted:w.toml", "go"]);
    assert_eq!(works.code, Some(0), "{works:?}");
    assert!(!world.work_dir().join("new.txt").exists());
    assert_eq!(live_pod_names(&world), ["busy"]);
    assert_eq!(world.run_minke(&["cancel", "busy"]).code, Some(0));
    busy.wait_for_exit();
    world.verify_logs();
}

#[test]
fn on_a_terminal_there_is_a_choice() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    world.write_file("echo.toml", ECHO_SCRIPT);
    let mut busy = world.start_minke(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.wait_for_stdout("Half");
    let open = || {
        let mut command = world.minke_command();
        command.args(["exec", "--name", "other", "--model", "scripted:echo.toml", "hi there"]);
        let mut pty = PtyProcess::start_process(command);
        pty.wait_for("holds");
        pty.wait_for("(q)uit?");
        pty
    };
    let mut quits = open();
    quits.send_keys("what\n");
    quits.wait_for("(q)uit?");
    quits.send_keys("q\n");
    assert_eq!(quits.wait_for_exit().code(), Some(75), "{}", quits.output_text());
    let mut looks = open();
    looks.send_keys("r\n");
    looks.wait_for("You said: hi there");
    assert!(looks.wait_for_exit().success(), "{}", looks.output_text());
    let mut joins = open();
    joins.send_keys("a\n");
    joins.wait_for("Ctrl-C leaves");
    joins.send_keys("\x03");
    drop(joins);
    let log = world.run_minke(&["log", "show", "busy"]).out;
    assert!(log.contains("hi there"), "the prompt was sent to the owner of the scope: {log}");
    assert_eq!(live_pod_names(&world), ["busy"]);
    assert_eq!(world.run_minke(&["stop", "busy"]).code, Some(0));
    busy.wait_for_exit();
}
