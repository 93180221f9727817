//! `minke replay` of sessions of the real binary: without script, server and network the result equals the
//! log; differences are named.

use std::process::Command;

use minke_record::{ChainHash, Draft, Durability, Kind, line};
use serde_json::Value;

use crate::support::mock_world::{MockWorld, WIRE_MODELS};
use crate::support::world::{CliWorld, CommandResult, kill_by_pid};

const REPLAY_SCRIPT: &str = r#"
chunk = 4
[[turn]]
thinking = "Look first."
text = "I will note it."
[[turn.call]]
tool = "Write"
args = { file_path = "NOTES.md", content = "once\n" }
[[turn.call]]
tool = "Read"
args = { file_path = "{{cwd}}/plan.txt" }
[[turn.call]]
tool = "Read"
args = { file_path = "/etc/passwd" }
[[turn.call]]
tool = "Song"
raw = "{"
[[turn]]
text = "Half of it"
error = { status = 529, message = "overloaded", retry_after_s = 0, times = 2 }
cut = true
[[turn]]
text = "And the rest."
[[turn]]
text = "Second answer."
"#;

/// Replays in a namespace without a network, where the system allows one.
fn replay_offline(world: &CliWorld, args: &[&str]) -> CommandResult {
    let can = Command::new("unshare").args(["-r", "-n", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        eprintln!("cannot create a network namespace here: replayed without one");
        return world.run_minke(args);
    }
    world.run_through_shell("exec unshare -r -n \"$@\"", args)
}

fn check_identical(world: &CliWorld, session: &str) -> Value {
    let done = replay_offline(world, &["replay", session, "--json"]);
    let report: Value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    assert_eq!((done.code, &report["identical"]), (Some(0), &Value::Bool(true)), "{report:#}");
    let log = world.run_minke(&["log", "show", session, "--json"]).out;
    assert_eq!(report["entries"], log.lines().count(), "every entry was compared: {report:#}");
    report
}

#[test]
fn a_session_replays_without_its_script_and_without_a_network() {
    let world = CliWorld::new();
    let script = world.write_file("tale.toml", REPLAY_SCRIPT);
    world.write_file("plan.txt", "a plan\n");
    let exec = world.run_minke(&["exec", "--name", "tale", "--model", "scripted:tale.toml", "go"]);
    assert_eq!(exec.code, Some(0), "{exec:?}");
    let again = world.run_minke(&["exec", "--resume", "tale", "and then?"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    let fork = world.run_minke(&["fork", "tale", "--name", "fork"]);
    assert_eq!(fork.code, Some(0), "{fork:?}");
    std::fs::remove_file(script).unwrap();
    std::fs::remove_file(world.work_dir().join("plan.txt")).unwrap();
    let before = all_files(&world);
    let report = check_identical(&world, "tale");
    assert_eq!((&report["requests"], &report["from_log"]), (&Value::from(4), &Value::from(0)), "{report:#}");
    check_identical(&world, "fork");
    let plain = world.run_minke(&["replay", "tale"]);
    assert_eq!(plain.out, format!("{} entries, 4 requests, identical\n", report["entries"]), "{plain:?}");
    let part = world.run_minke(&["replay", "tale", "--until", "9"]);
    assert_eq!(part.out, "10 entries, 1 request, identical\n", "{part:?}");
    assert_eq!(all_files(&world), before, "a replay writes no files and runs no tools");
}

/// Returns every file of a world with its content.
fn all_files(world: &CliWorld) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut places = vec![world.work_dir(), world.home_dir().join("data")];
    while let Some(place) = places.pop() {
        for found in std::fs::read_dir(&place).unwrap() {
            let path = found.unwrap().path();
            if path.is_dir() {
                places.push(path);
            } else {
                files.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

#[test]
fn a_session_whose_pod_was_killed_replays() {
    let world = CliWorld::new();
    let slow = "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 60000 }, { text = \" and half.\" }]\n";
    world.write_file("s.toml", slow);
    let mut going =
        world.start_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    kill_by_pid(&world.only_live_pod()["pid"]);
    going.wait_for_exit();
    world.write_file("s.toml", &slow.replace("60000", "1"));
    let resumed = world.run_minke(&["exec", "--resume", "tale", "continue"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let report = check_identical(&world, "tale");
    assert_eq!(report["from_log"], 1, "the killed reply has no recording: {report:#}");
    let told = world.run_minke(&["replay", "tale"]);
    assert!(told.err.contains("1 of 2 replies was taken from the log: it has no recording"), "{told:?}");
}

#[test]
fn a_session_of_each_wire_replays_when_its_server_is_gone() {
    for model in WIRE_MODELS {
        let wired = MockWorld::with_script(REPLAY_SCRIPT);
        wired.world.write_file("plan.txt", "a plan\n");
        let exec = wired.run_exec(model, &["--name", "tale", "go"]);
        assert_eq!(exec.code, Some(0), "{model}: {exec:?}");
        let world = wired.stop_mock();
        let report = check_identical(&world, "tale");
        // The request now equals the one sent then, byte for byte.
        assert_eq!(report["rebuilt"], report["requests"], "{model}: {report:#}");
        assert!(report["requests"].as_u64().unwrap() >= 2, "{model}: {report:#}");
        assert_eq!(report["from_log"], 0, "{model}: {report:#}");
    }
}

#[test]
fn the_first_difference_is_named() {
    let world = CliWorld::new();
    world.write_file("s.toml", "[[turn]]\ntext = \"Hello.\"\n");
    assert_eq!(
        world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]).code,
        Some(0)
    );
    rewrite_log(&world, |kind| {
        if let Kind::SegmentStart(segment) = kind {
            let prompt = segment.system_prompt.display_text().replace("coding agent", "poet");
            segment.system_prompt = prompt.into();
        }
    });
    let done = world.run_minke(&["replay", "tale"]);
    assert_eq!(done.code, Some(1), "{done:?}");
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines[0].ends_with("(segment_start) differs: system_prompt"), "{}", done.out);
    assert!(lines[1].contains("poet") && lines[2].contains("coding agent"), "{}", done.out);
    let json = world.run_minke(&["replay", "tale", "--json"]);
    let report: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &report["difference"]["field"]), (Some(1), &Value::from("system_prompt")));
}

/// Sessions without recordings, without space for them, or ended at a limit replay all the same.
#[test]
fn a_session_replays_whatever_its_settings() {
    for (setting, code, from_log) in [
        ("session.record_streams=false", 0, 2),
        ("session.record_max_bytes=10", 0, 2),
        ("worker.max_turns=1", 4, 0),
        ("worker.max_tokens=100", 0, 0),
    ] {
        let world = CliWorld::new();
        world.write_file("s.toml", "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"x\", content = \"x\" }\n[[turn]]\ntext = \"Hello.\"\n");
        let exec = ["exec", "--name", "tale", "--set", setting, "--model", "scripted:s.toml", "go"];
        assert_eq!(world.run_minke(&exec).code, Some(code), "{setting}");
        assert_eq!(check_identical(&world, "tale")["from_log"], from_log, "{setting}");
    }
}

/// A missing or damaged recording is reported, and the reply is taken from the log.
#[test]
fn a_recording_that_cannot_be_used_is_told() {
    let world = CliWorld::new();
    world.write_file("s.toml", "[[turn]]\ntext = \"Hello.\"\n");
    assert_eq!(
        world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]).code,
        Some(0)
    );
    let blobs = session_directory(&world).join("blobs");
    let [recording] = &std::fs::read_dir(&blobs).unwrap().map(|e| e.unwrap().path()).collect::<Vec<_>>()[..]
    else {
        panic!("one recording")
    };
    let mut bytes = std::fs::read(recording).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(recording, &bytes).unwrap();
    for what in ["damaged", "gone"] {
        let done = world.run_minke(&["replay", "tale"]);
        assert_eq!(done.code, Some(0), "{what}: {done:?}");
        assert!(done.err.contains("1 of 1 reply was taken from the log"), "{what}: {done:?}");
        assert!(done.err.contains("could not use"), "{what}: {done:?}");
        if what == "damaged" {
            std::fs::remove_file(recording).unwrap();
        }
    }
}

fn session_directory(world: &CliWorld) -> std::path::PathBuf {
    let sessions = std::fs::read_dir(world.home_dir().join("data/sessions")).unwrap();
    let all: Vec<std::path::PathBuf> = sessions.map(|entry| entry.unwrap().path()).collect();
    let [session] = &all[..] else { panic!("expected one session: {all:?}") };
    session.clone()
}

/// Writes a changed log with valid hashes.
fn rewrite_log(world: &CliWorld, mut change: impl FnMut(&mut Kind)) {
    let path = session_directory(world).join("log.jsonl");
    let log = std::fs::read_to_string(&path).unwrap();
    let mut out = Vec::new();
    let mut chain = ChainHash::ZERO;
    for text in log.lines() {
        let mut entry = line::parse_entry(text).unwrap();
        change(&mut entry.kind);
        let (seq, ts, run, more) = (entry.seq, entry.ts, entry.run, entry.more);
        let draft = Draft { seq, ts, run, kind: entry.kind, durability: Durability::Lazy };
        chain = line::seal_entry(chain, &draft, more, &mut out);
    }
    std::fs::write(path, out).unwrap();
}
