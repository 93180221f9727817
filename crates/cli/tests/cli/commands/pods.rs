//! Live pods: attach, tail, leave, and a pod that hangs.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::world::CliWorld;

const ECHO_SCRIPT: &str = "loop = true\nchunk = 3\n[[turn]]\ntext = \"You said: {{prompt}}\"\n";
const SLOW_SCRIPT: &str =
    "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";

fn world_with_echo_pod(name: &str) -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", ECHO_SCRIPT);
    let done = world.run_minke(&["exec", "--name", name, "--model", "scripted:s.toml", "first"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world
}

#[test]
fn a_piped_conversation_is_answered_line_by_line_and_the_pod_goes_on() {
    let world = world_with_echo_pod("tale");
    let done = world.run_with_stdin("one\n\ntwo\n", &["attach", "tale"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let lines: Vec<&str> = done.out.lines().collect();
    for wanted in ["You said: first", "You said: one", "You said: two"] {
        assert_eq!(lines.iter().filter(|line| **line == wanted).count(), 1, "{}", done.out);
    }
    assert_eq!(world.only_live_pod()["state"], "idle", "leaving never stops a pod");
    world.verify_logs();
}

#[test]
fn tail_gives_the_entries_of_the_log_and_follows_until_the_pod_stops() {
    let world = world_with_echo_pod("tale");
    let log = world.run_minke(&["log", "export", "tale"]).out;
    let last = world.run_minke(&["tail", "tale", "--json", "-n", "3"]).out;
    assert!(log.ends_with(&last) && last.lines().count() == 3, "{last}");
    assert_eq!(world.run_minke(&["send", "tale", "second"]).code, Some(0));
    let mut tail = world.start_minke(&["tail", "tale", "--json"]);
    tail.wait_for_stdout("\"kind\":\"run_completed\"");
    tail.wait_for_stdout("You said: second");
    assert_eq!(world.run_minke(&["stop", "tale"]).code, Some(0));
    assert_eq!(tail.wait_for_exit().code, Some(0));
    world.verify_logs();
}

#[test]
fn the_second_ctrl_c_does_not_wait_for_a_pod_that_hangs() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    let pid = world.only_live_pod()["pid"].as_i64().unwrap();
    let pod = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pod, Signal::STOP).unwrap();
    going.send_signal(Signal::INT);
    going.wait_for_stderr("press Ctrl-C again to leave at once");
    going.send_signal(Signal::INT);
    let done = going.wait_for_exit();
    assert_eq!(done.code, Some(130), "{done:?}");
    kill_process(pod, Signal::CONT).unwrap();
    assert_eq!(world.run_minke(&["stop", "tale"]).code, Some(0), "the pod stops on its own, or now");
    world.verify_logs();
}

#[test]
fn a_pod_that_hangs_is_killed_and_nothing_is_lost() {
    let world = world_with_echo_pod("tale");
    assert_eq!(world.run_minke(&["send", "tale", "second"]).code, Some(0));
    let mut tail = world.start_minke(&["tail", "tale"]);
    tail.wait_for_stdout("You said: second");
    let pid = i32::try_from(world.only_live_pod()["pid"].as_i64().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::STOP).unwrap();
    let killed = world.run_minke(&["stop", "tale", "--kill"]);
    assert_eq!(killed.code, Some(0), "{killed:?}");
    assert_eq!(world.run_json(&["ps", "--json"]), Value::Array(Vec::new()));
    assert!(tail.wait_for_exit().err.contains("the pod has exited"));
    let next = world.run_minke(&["exec", "--resume", "tale", "third"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "You said: third\n"), "{}", next.err);
    world.verify_logs();
}

#[test]
fn a_second_pod_of_a_directory_gets_a_number() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut first = world.start_minke(&["exec", "--model", "scripted:s.toml", "go"]);
    first.wait_for_stdout("Half");
    let second = world.run_minke(&["exec", "--read-only", "--model", "scripted:demo", "go"]);
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(second.err.contains(" work-2 "), "{}", second.err);
    assert_eq!(world.run_minke(&["cancel", "work"]).code, Some(0));
    assert_eq!(first.wait_for_exit().code, Some(130));
}

#[test]
fn looking_makes_nothing_and_says_where_everything_lies() {
    let world = CliWorld::new();
    let paths = world.run_json(&["paths", "--json"]);
    assert_eq!(paths["sessions"].as_str().unwrap(), world.home_dir().join("data/sessions").to_str().unwrap());
    assert!(!world.home_dir().exists());
    let schema = world.run_json(&["schema"]);
    assert!(schema["$defs"].is_object() || schema["definitions"].is_object(), "a JSON Schema");
    assert!(world.run_minke(&["schema", "--typescript"]).out.contains("export"));
}

#[test]
fn a_pod_started_by_hand_takes_the_lease_itself() {
    let world = world_with_echo_pod("tale");
    let id = world.run_json(&["log", "verify", "--json"])["sessions"][0]["id"].as_str().unwrap().to_owned();
    let mut pod = world.minke_command().args(["pod", "--session", &id]).spawn().unwrap();
    // Sending waits until the pod accepts requests, or wakes the session.
    assert_eq!(world.run_minke(&["send", "tale", "hello"]).code, Some(0));
    assert_eq!(world.run_minke(&["stop", "tale"]).code, Some(0));
    pod.wait().unwrap();
    world.verify_logs();
}
