//! Live pods: attaching, tailing, leaving, and a pod that hangs.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::world::World;

const ECHO: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const SLOW: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";

fn echo(name: &str) -> World {
    let world = World::new();
    world.write("s.toml", ECHO);
    let done = world.run(&["exec", "--name", name, "--model", "scripted:s.toml", "first"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world
}

#[test]
fn a_piped_conversation_is_answered_line_by_line_and_the_pod_goes_on() {
    let world = echo("tale");
    let done = world.pipe("one\n\ntwo\n", &["attach", "tale"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<&str> = done.out.lines().collect();
    for wanted in ["You said: first", "You said: one", "You said: two"] {
        assert_eq!(lines.iter().filter(|line| **line == wanted).count(), 1, "{}", done.out);
    }
    assert_eq!(world.only_pod()["state"], "idle", "leaving never stops a pod");
    world.verify();
}

#[test]
fn tail_gives_the_entries_of_the_log_and_follows_until_the_pod_stops() {
    let world = echo("tale");
    let log = world.run(&["log", "export", "tale"]).out;
    let last = world.run(&["tail", "tale", "--json", "-n", "3"]).out;
    assert!(log.ends_with(&last) && last.lines().count() == 3, "{last}");
    assert_eq!(world.run(&["send", "tale", "second"]).code, Some(0));
    let mut tail = world.start(&["tail", "tale", "--json"]);
    tail.until("\"kind\":\"run_completed\"");
    tail.until("You said: second");
    assert_eq!(world.run(&["stop", "tale"]).code, Some(0));
    assert_eq!(tail.end().code, Some(0));
    world.verify();
}

#[test]
fn the_second_ctrl_c_does_not_wait_for_a_pod_that_hangs() {
    let world = World::new();
    world.write("s.toml", SLOW);
    let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("Half");
    let pid = world.only_pod()["pid"].as_i64().unwrap();
    let pod = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pod, Signal::STOP).unwrap();
    going.signal(Signal::INT);
    going.until_said("once more to leave at once");
    going.signal(Signal::INT);
    let done = going.end();
    assert_eq!(done.code, Some(130), "{done:?}");
    kill_process(pod, Signal::CONT).unwrap();
    assert_eq!(world.run(&["stop", "tale"]).code, Some(0), "the pod stops by itself, or now");
    world.verify();
}

#[test]
fn a_pod_that_hangs_is_killed_and_nothing_is_lost() {
    let world = echo("tale");
    assert_eq!(world.run(&["send", "tale", "second"]).code, Some(0));
    let mut tail = world.start(&["tail", "tale"]);
    tail.until("You said: second");
    let pid = i32::try_from(world.only_pod()["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    let killed = world.run(&["stop", "tale", "--kill"]);
    assert_eq!(killed.code, Some(0), "{killed:?}");
    assert_eq!(world.json(&["ps", "--json"]), Value::Array(Vec::new()));
    assert!(tail.end().err.contains("the pod is gone"));
    let next = world.run(&["exec", "--resume", "tale", "third"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "You said: third\n"), "{}", next.err);
    world.verify();
}

#[test]
fn a_second_pod_of_a_directory_gets_a_number() {
    let world = World::new();
    world.write("s.toml", SLOW);
    let mut first = world.start(&["exec", "--model", "scripted:s.toml", "go"]);
    first.until("Half");
    let second = world.run(&["exec", "--read-only", "--model", "scripted:demo", "go"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.err.contains(" work-2 "), "{}", second.err);
    assert_eq!(world.run(&["cancel", "work"]).code, Some(0));
    assert_eq!(first.end().code, Some(130));
}

#[test]
fn looking_makes_nothing_and_says_where_everything_lies() {
    let world = World::new();
    let paths = world.json(&["paths", "--json"]);
    assert_eq!(paths["sessions"].as_str().unwrap(), world.home().join("data/sessions").to_str().unwrap());
    assert!(!world.home().exists());
    let schema = world.json(&["schema"]);
    assert!(schema["$defs"].is_object() || schema["definitions"].is_object(), "a JSON Schema");
    assert!(world.run(&["schema", "--typescript"]).out.contains("export"));
}

#[test]
fn a_pod_started_by_hand_takes_the_lease_itself() {
    let world = echo("tale");
    let id = world.json(&["log", "verify", "--json"])["sessions"][0]["id"].as_str().unwrap().to_owned();
    let mut pod = world.command().args(["pod", "--session", &id]).spawn().unwrap();
    // Sending waits until it takes methods, or wakes the session itself.
    assert_eq!(world.run(&["send", "tale", "hello"]).code, Some(0));
    assert_eq!(world.run(&["stop", "tale"]).code, Some(0));
    pod.wait().unwrap();
    world.verify();
}
