//! A directory that is already held: the idle one yields, the busy one is named, and there are other places to work.

use serde_json::Value;

use crate::pty::Pty;
use crate::tree_face::repository;
use crate::world::World;

const ECHO: &str = "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const SLOW: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";

fn names(world: &World) -> Vec<String> {
    let rows = world.json(&["ps", "--json"]);
    rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_busy_holder_is_named_and_an_idle_one_yields() {
    let world = World::new();
    world.write("s.toml", SLOW);
    world.write("echo.toml", ECHO);
    let mut busy = world.start(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.until("Half");
    let session = world.only_pod()["session"].as_str().unwrap().to_owned();
    let refused = world.run(&["exec", "--name", "other", "--model", "scripted:echo.toml", "hi"]);
    assert_eq!(refused.code, Some(75), "{refused:?}");
    for part in ["`busy` holds", session.as_str(), "minke attach busy", "--read-only", "--clone"] {
        assert!(refused.err.contains(part), "{part}: {}", refused.err);
    }
    let object = world.run(&["exec", "--json", "--name", "other", "--model", "scripted:echo.toml", "hi"]);
    let error: Value = serde_json::from_str(object.err.trim()).unwrap();
    assert_eq!((object.code, &error["error"]["code"]), (Some(75), &"held".into()), "{error}");
    assert_eq!(world.sessions(), 1, "nothing was made that nobody works on");
    assert_eq!(world.run(&["cancel", "busy"]).code, Some(0));
    busy.end();
    // A pod that lives and does nothing.
    let first = world.run(&["exec", "--name", "idle", "--model", "scripted:echo.toml", "one"]);
    assert_eq!(first.code, Some(0), "{first:?}");
    assert_eq!(world.run(&["send", "idle", "two"]).code, Some(0));
    assert_eq!(world.run(&["wait", "idle"]).code, Some(0));
    let next = world.run(&["exec", "--name", "next", "--model", "scripted:echo.toml", "hi"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "You said: hi\n"), "{}", next.err);
    assert_eq!(names(&world), ["idle"], "it lives on without the right to write");
    // Its next run has it again.
    assert_eq!(world.run(&["send", "idle", "three"]).code, Some(0));
    assert_eq!(world.run(&["wait", "idle"]).code, Some(0));
    assert_eq!(world.run(&["read", "idle"]).out, "You said: three\n");
    let scope = &world.only_pod()["scope"];
    assert_eq!(scope["allow"][0]["permission"], "write", "{scope}");
    world.verify();
}

#[test]
fn one_that_yielded_is_refused_its_next_run_while_the_other_works() {
    let world = World::new();
    world.write("s.toml", SLOW);
    world.write("echo.toml", ECHO);
    assert_eq!(world.run(&["exec", "--name", "idle", "--model", "scripted:echo.toml", "one"]).code, Some(0));
    assert_eq!(world.run(&["send", "idle", "two"]).code, Some(0));
    assert_eq!(world.run(&["wait", "idle"]).code, Some(0));
    let mut busy = world.start(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.until("Half");
    let told = world.run(&["send", "idle", "three"]);
    assert_ne!(told.code, Some(0), "{told:?}");
    assert!(told.err.contains("`busy`"), "the holder is named: {told:?}");
    assert_eq!(world.run(&["read", "idle"]).out, "You said: two\n");
    assert_eq!(world.run(&["cancel", "busy"]).code, Some(0));
    busy.end();
}

#[test]
fn read_only_and_clone_need_no_room() {
    let Some(world) = repository("a held directory") else { return };
    world.write("s.toml", SLOW);
    world.write("w.toml", "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"new.txt\", content = \"new\\n\" }\n[[turn]]\ntext = \"Tried.\"\n");
    let mut busy = world.start(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.until("Half");
    let looks = world.run(&["exec", "--read-only", "--name", "looks", "--model", "scripted:w.toml", "go"]);
    assert_eq!((looks.code, looks.out.as_str()), (Some(0), "Tried.\n"), "{}", looks.err);
    assert!(!world.work().join("new.txt").exists(), "{looks:?}");
    let works = world.run(&["exec", "--clone", "--name", "works", "--model", "scripted:w.toml", "go"]);
    assert_eq!(works.code, Some(0), "{works:?}");
    assert!(!world.work().join("new.txt").exists());
    assert_eq!(names(&world), ["busy"]);
    assert_eq!(world.run(&["cancel", "busy"]).code, Some(0));
    busy.end();
    world.verify();
}

#[test]
fn on_a_terminal_there_is_a_choice() {
    let world = World::new();
    world.write("s.toml", SLOW);
    world.write("echo.toml", ECHO);
    let mut busy = world.start(&["exec", "--name", "busy", "--model", "scripted:s.toml", "go"]);
    busy.until("Half");
    let open = || {
        let mut command = world.command();
        command.args(["exec", "--name", "other", "--model", "scripted:echo.toml", "hi there"]);
        let mut pty = Pty::start(command);
        pty.until("holds");
        pty.until("(q)uit?");
        pty
    };
    let mut quits = open();
    quits.press("what\n");
    quits.until("(q)uit?");
    quits.press("q\n");
    assert_eq!(quits.end().code(), Some(75), "{}", quits.text());
    let mut looks = open();
    looks.press("r\n");
    looks.until("You said: hi there");
    assert!(looks.end().success(), "{}", looks.text());
    let mut joins = open();
    joins.press("a\n");
    joins.until("Ctrl-C leaves");
    joins.press("\x03");
    drop(joins);
    let log = world.run(&["log", "show", "busy"]).out;
    assert!(log.contains("hi there"), "what was to be done was said to the holder: {log}");
    assert_eq!(names(&world), ["busy"]);
    assert_eq!(world.run(&["stop", "busy"]).code, Some(0));
    busy.end();
}
