//! Bad input, bad homes, full disks: clear errors, the right exit code, no files left behind.

use std::path::PathBuf;

use serde_json::Value;

use crate::support::world::{CliWorld, CommandResult, UNSANDBOXED};

/// An error fits on one screen: message, reason or hint, and no debug output.
#[track_caller]
fn check_clear_error(done: &CommandResult, code: i32, words: &[&str]) {
    assert_eq!(done.code, Some(code), "{done:?}");
    assert!(done.err.starts_with("error: "), "{}", done.err);
    assert!(done.err.lines().count() <= 24, "{}", done.err);
    for word in words {
        assert!(done.err.contains(word), "`{word}` is missing: {}", done.err);
    }
    for debug in ["Err(", "Some(", "Os {", "panicked", "RUST_BACKTRACE"] {
        assert!(!done.err.contains(debug), "{}", done.err);
    }
}

#[test]
fn bad_input_is_refused_before_a_session_is_made() {
    let world = CliWorld::new();
    world.write_file("bad.toml", "[[turn]]\ntxet = \"hi\"\n");
    world.write_file("broken.toml", "[[turn\n");
    let exec = |args: &[&str]| world.run_minke(&[&["exec"], args].concat());
    check_clear_error(&exec(&["go"]), 2, &["no model", "scripted:demo"]);
    check_clear_error(&exec(&["--model", "gpt-9", "go"]), 2, &["gpt-9", "scripted:FILE"]);
    check_clear_error(&exec(&["--model", "scripted:", "go"]), 2, &["scripted:"]);
    check_clear_error(&exec(&["--model", "scripted:none.toml", "go"]), 2, &["none.toml"]);
    check_clear_error(&exec(&["--model", "scripted:bad.toml", "go"]), 2, &["bad.toml", "txet", "text"]);
    check_clear_error(&exec(&["--model", "scripted:broken.toml", "go"]), 2, &["broken.toml"]);
    check_clear_error(&exec(&["--model", "scripted:demo", "--name", "no/name", "go"]), 2, &["no/name"]);
    check_clear_error(
        &exec(&["--model", "scripted:demo", "--cwd", "nowhere", "go"]),
        2,
        &["nowhere", "--cwd"],
    );
    check_clear_error(&exec(&["--model", "scripted:demo", "--posture", "yolo", "go"]), 2, &["yolo", "auto"]);
    check_clear_error(
        &exec(&["--model", "scripted:demo", "--set", "worker.max_turn=1", "go"]),
        2,
        &["worker.max_turns"],
    );
    check_clear_error(
        &exec(&["--model", "scripted:demo", "--set", "worker.max_turns=many", "go"]),
        2,
        &["--set"],
    );
    check_clear_error(&exec(&["--model", "scripted:demo", "--set", "nothing", "go"]), 2, &["="]);
    check_clear_error(&exec(&["--model", "scripted:demo", " "]), 2, &["no prompt"]);
    check_clear_error(&exec(&["--resume", "missing", "go"]), 2, &["missing", "minke ps"]);
    check_clear_error(&exec(&["--last", "go"]), 2, &["no session"]);
    assert_eq!(exec(&["--no-such-flag", "go"]).code, Some(2));
    assert_eq!(world.session_count(), 0);
}

#[test]
fn every_command_says_who_is_not_there() {
    let world = CliWorld::new();
    let unknown = "s_01a1de7b-f886-78cf-b77c-324ae01b1278";
    for command in ["attach", "tail", "pause", "resume", "cancel", "stop", "fork"] {
        for name in ["missing", "No Body", unknown] {
            check_clear_error(&world.run_minke(&[command, name]), 2, &[name, "minke ps"]);
        }
    }
    check_clear_error(&world.run_minke(&["send", "missing", "hi"]), 2, &["missing"]);
    check_clear_error(&world.run_minke(&["log", "show", "missing"]), 2, &["missing"]);
    check_clear_error(&world.run_minke(&["log", "show"]), 2, &["no session exists"]);
    check_clear_error(&world.run_minke(&["log", "repair", "missing"]), 2, &["missing"]);
    check_clear_error(&world.run_minke(&["answer", "what", "approved"]), 2, &["what", "minke asks"]);
    let ask = "01a1de7b-f886-78cf-b77c-324ae01b1278";
    check_clear_error(&world.run_minke(&["answer", ask, "perhaps"]), 2, &["perhaps", "approved"]);
    check_clear_error(&world.run_minke(&["answer", ask, "approved"]), 2, &[ask]);
    check_clear_error(&world.run_minke(&["pod", "--session", "x"]), 2, &["x"]);
}

#[test]
fn with_json_every_error_is_an_object() {
    let world = CliWorld::new();
    for args in [
        &["stop", "missing", "--json"][..],
        &["exec", "--json", "--model", "gpt-9", "go"],
        &["exec", "--json", "--no-such-flag"],
        &["fork", "--json", "missing"],
    ] {
        let done = world.run_minke(args);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{args:?}");
        let object: Value = serde_json::from_str(&done.err).unwrap_or_else(|e| panic!("{e}: {}", done.err));
        assert!(object["error"]["code"].is_string() && object["error"]["message"].is_string(), "{object}");
    }
}

#[test]
fn a_home_that_cannot_be_written_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let world = CliWorld::with_home(dir, file.join("home"));
    check_clear_error(
        &world.run_minke(&["exec", "--model", "scripted:demo", "go"]),
        74,
        &["file/home", "MINKE_HOME"],
    );
    // A file system that is read-only even for root.
    let world = CliWorld::with_home(tempfile::tempdir().unwrap(), PathBuf::from("/proc/minke"));
    check_clear_error(&world.run_minke(&["ps"]), 74, &["/proc/minke", "MINKE_HOME"]);
    let world = CliWorld::with_home(tempfile::tempdir().unwrap(), PathBuf::from("relative"));
    check_clear_error(&world.run_minke(&["ps"]), 2, &["relative", "absolute"]);
    assert_eq!(world.run_minke(&["--help"]).code, Some(0));
}

#[test]
fn a_home_on_a_path_too_long_for_a_socket_just_works() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("a-directory-with-quite-a-long-name".repeat(4)).join("home");
    assert!(home.as_os_str().len() > 107);
    let world = CliWorld::with_home(dir, home);
    let done = world.run_minke(&["exec", "--model", "scripted:demo", "go"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world.verify_logs();
}

/// Runs with a file size limit of `blocks` half KiB, which acts like a full disk.
fn run_with_file_limit(world: &CliWorld, blocks: u32, args: &[&str]) -> CommandResult {
    // The signal for this limit is ignored, so that the write fails instead.
    world.run_through_shell(&format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), args)
}

#[test]
fn a_disk_that_fills_up_ends_the_run_and_loses_nothing() {
    // With the smaller limit not even the end of the run can be written.
    for blocks in [320, 256] {
        check_full_disk(blocks);
    }
}

fn check_full_disk(blocks: u32) {
    let world = CliWorld::new();
    let text = format!("[[turn]]\nrepeat = 50\ntext = \"{}\"\n", "word ".repeat(2_000));
    let turn =
        format!("{text}[[turn.call]]\ntool = \"Bash\"\nargs = {{ command = \"echo again >> NOTES.md\" }}\n");
    world.write_file("s.toml", &turn);
    let exec = ["exec", "--name", "tale", "--model", "scripted:s.toml", "go"];
    let done = run_with_file_limit(&world, blocks, &[&exec[..], &UNSANDBOXED].concat());
    assert_eq!(done.code, Some(74), "{blocks}: {}", done.err);
    assert!(done.err.contains("error: "), "{}", done.err);
    world.verify_logs();
    let log = world.run_minke(&["log", "show", "tale", "--json"]).out;
    let noted = log.lines().filter(|line| line.contains("\"kind\":\"tool_dispatch\"")).count();
    assert_eq!(world.read_file("NOTES.md").lines().count(), noted, "every command was logged before it ran");
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"There is room again.\"\n");
    let next = world.run_minke(&["exec", "--resume", "tale", "continue"]);
    assert_eq!((next.code, next.out.as_str()), (Some(0), "There is room again.\n"), "{}", next.err);
    world.verify_logs();
}

#[test]
fn no_room_for_a_session_at_all_is_told_and_leaves_none() {
    let world = CliWorld::new();
    let done = run_with_file_limit(&world, 1, &["exec", "--model", "scripted:demo", "go"]);
    check_clear_error(&done, 74, &[]);
    assert_eq!(world.session_count(), 0);
}

#[test]
fn damage_is_found_shown_and_gone_on_after_in_a_fork() {
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n");
    for said in ["one", "two"] {
        let args: &[&str] = if said == "one" {
            &["exec", "--name", "tale", "--model", "scripted:s.toml", said]
        } else {
            &["exec", "--resume", "tale", said]
        };
        assert_eq!(world.run_minke(args).code, Some(0));
    }
    let id = world.run_json(&["log", "verify", "--json"])["sessions"][0]["id"].as_str().unwrap().to_owned();
    let log = world.home_dir().join("data/sessions").join(id.trim_start_matches("s_")).join("log.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let at = text.find("You said: one").unwrap();
    let mut bytes = text.into_bytes();
    bytes[at] = b'y';
    std::fs::write(&log, &bytes).unwrap();
    let verify = world.run_minke(&["log", "verify", "tale", "--json"]);
    assert_eq!(verify.code, Some(1));
    assert!(verify.out.contains("log.jsonl"), "{}", verify.out);
    let shown = world.run_minke(&["log", "show", "tale"]);
    check_clear_error(&shown, 1, &["log.jsonl", "log repair"]);
    let going_on = world.run_minke(&["exec", "--resume", "tale", "three"]);
    check_clear_error(&going_on, 1, &["minke fork"]);
    let repair = world.run_minke(&["log", "repair", "tale", "--salvage", "saved.jsonl"]);
    assert_eq!(repair.code, Some(0), "{repair:?}");
    assert!(world.read_file("saved.jsonl").contains("You said: two"));
    assert_eq!(std::fs::read(&log).unwrap(), bytes, "a damaged log is never changed");
    let fork = world.run_json(&["fork", "tale", "--json"]);
    let done = world.run_minke(&["exec", "--resume", fork["session"].as_str().unwrap(), "three"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "You said: three\n"), "{}", done.err);
}

/// Creates a session of two runs. Returns the path and content of its log.
fn session_of_two_runs(world: &CliWorld) -> (std::path::PathBuf, Vec<u8>) {
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"You said: {{prompt}}\"\n");
    assert_eq!(
        world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "one"]).code,
        Some(0)
    );
    assert_eq!(world.run_minke(&["exec", "--resume", "tale", "two"]).code, Some(0));
    let id = world.run_json(&["log", "verify", "--json"])["sessions"][0]["id"].as_str().unwrap().to_owned();
    let log = world.home_dir().join("data/sessions").join(id.trim_start_matches("s_")).join("log.jsonl");
    let bytes = std::fs::read(&log).unwrap();
    (log, bytes)
}

/// Flips one bit in the middle of a line, counted from 1.
fn flip_bit(log: &[u8], line: usize) -> Vec<u8> {
    let from: usize = log.split_inclusive(|b| *b == b'\n').take(line - 1).map(<[u8]>::len).sum();
    let length = log.split_inclusive(|b| *b == b'\n').nth(line - 1).unwrap().len();
    let mut damaged = log.to_vec();
    damaged[from + length / 2] ^= 1;
    damaged
}

#[test]
fn verify_repair_show_and_whoever_would_go_on_agree_on_a_damaged_log() {
    let world = CliWorld::new();
    let (log, bytes) = session_of_two_runs(&world);
    let lines = bytes.iter().filter(|b| **b == b'\n').count();
    // Every part of it: before, at and after its segment, the end of the first run, the second run.
    for line in [4, 5, 6, lines / 2, lines - 1] {
        let damaged = flip_bit(&bytes, line);
        std::fs::write(&log, &damaged).unwrap();
        let verify = world.run_minke(&["log", "verify", "tale"]);
        let said = verify.out.lines().find(|said| said.contains("is damaged at line")).unwrap_or_default();
        let verdict = said.trim_start().split_once(": ").map(|(_, why)| why).unwrap_or_default();
        assert!(verdict.starts_with(&format!("log.jsonl is damaged at line {line} (byte ")), "{verify:?}");
        assert_eq!(verify.code, Some(1));
        let before = verdict.split("before entry ").nth(1).unwrap().split(' ').next().unwrap();
        let hint = format!("--at {}`", before.parse::<u64>().unwrap() - 1);
        let all: [(&[&str], i32); 11] = [
            (&["log", "repair", "tale"], 0),
            (&["log", "show", "tale"], 1),
            (&["log", "show", "tale", "--from", "9"], 1),
            (&["exec", "--resume", "tale", "three"], 1),
            (&["exec", "--resume", "tale"], 1),
            (&["send", "tale", "three"], 1),
            (&["resume", "tale"], 1),
            (&["attach", "tale"], 1),
            (&["undo", "tale"], 1),
            (&["read", "tale"], 1),
            (&["fork", "tale", "--at", before], 1),
        ];
        for (args, code) in all {
            let started = std::time::Instant::now();
            let done = world.run_minke(args);
            assert_eq!(done.code, Some(code), "{args:?} at line {line}: {done:?}");
            assert!(format!("{}{}", done.out, done.err).contains(verdict), "{args:?}: {done:?}");
            assert!(code == 0 || done.err.contains(&hint), "{args:?} has no {hint}: {done:?}");
            // Within milliseconds; an earlier version waited forever.
            assert!(started.elapsed() < std::time::Duration::from_secs(20), "{args:?} was too slow");
        }
        let list = world.run_minke(&["thread", "list"]);
        assert!(list.out.starts_with("damaged "), "{list:?}");
        assert_eq!(std::fs::read(&log).unwrap(), damaged, "nothing is written after the damage");
        let fork = world.run_json(&["fork", "tale", "--json"]);
        let fork = fork["session"].as_str().unwrap();
        let verified = world.run_minke(&["log", "verify", fork]);
        assert_eq!(verified.code, Some(0), "{verified:?}");
        assert_eq!(world.run_minke(&["thread", "delete", fork]).code, Some(0));
        std::fs::write(&log, &bytes).unwrap();
        assert!(world.run_minke(&["thread", "list"]).out.starts_with("idle "));
    }
    let done = world.run_minke(&["exec", "--resume", "tale", "three"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "You said: three\n"), "{}", done.err);
}

#[test]
fn a_client_that_cannot_follow_a_live_pod_says_why_and_the_pod_writes_no_more() {
    let world = CliWorld::new();
    let (log, _) = session_of_two_runs(&world);
    assert_eq!(world.run_minke(&["send", "tale", "three"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", "tale"]).code, Some(0));
    let bytes = std::fs::read(&log).unwrap();
    std::fs::write(&log, flip_bit(&bytes, 9)).unwrap();
    let started = std::time::Instant::now();
    let done = world.run_minke(&["attach", "tale"]);
    assert_ne!(done.code, Some(0), "{done:?}");
    assert!(done.err.contains("log.jsonl is damaged at line 9"), "{done:?}");
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "it was too slow");
    // The pod reported it, too.
    while !world.run_json(&["ps", "--json"]).as_array().unwrap().is_empty() {}
    assert_eq!(world.run_minke(&["exec", "--resume", "tale", "four"]).code, Some(1));
    assert_eq!(std::fs::read(&log).unwrap(), flip_bit(&bytes, 9), "nothing was written after it");
}

#[test]
fn a_pod_that_cannot_start_says_why_and_leaves_nothing() {
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"hi\"\n");
    assert_eq!(
        world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]).code,
        Some(0)
    );
    // A file in place of the pod's directory.
    let place = world.home_dir().join("run/pods/tale");
    std::fs::write(&place, "").unwrap();
    let done = world.run_minke(&["exec", "--resume", "tale", "continue"]);
    check_clear_error(&done, 1, &["could not start", "pods/tale", "  try: "]);
    assert_eq!(done.err.matches("could not start").count(), 1, "{}", done.err);
    let starting = std::fs::read_dir(world.home_dir().join("run/starting")).unwrap();
    assert_eq!(starting.count(), 0, "its stderr file is removed");
    std::fs::remove_file(&place).unwrap();
    assert_eq!(world.run_json(&["ps", "--json"]), Value::Array(Vec::new()));
    // No process owns the lease any more, and the input is in the queue.
    let done = world.run_minke(&["exec", "--resume", "tale", "continue"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world.verify_logs();
}
