//! Sessions and a client of the version before the names changed.
//!
//! The fixture was recorded with the binary of commit 21b959b: one finished run, one process that was killed while
//! an approval request was open, and the requests of that version's command line.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::world::{CliWorld, can_sandbox_commands};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/before-plain-names")
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Checks hashes and invariants. A replay would differ: it renders the prompts of this version.
fn verify_chains(world: &CliWorld) {
    let verified = world.run_minke(&["log", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified:?}");
}

fn world_with_old_sessions() -> CliWorld {
    let world = CliWorld::new();
    copy_dir(&fixture().join("sessions"), &world.home_dir().join("data/sessions"));
    world
}

/// Sends the recorded lines of the older command line; returns the reply to its last request.
fn send_recorded(socket: &Path, lines: &[String]) -> Value {
    let mut stream = UnixStream::connect(socket).unwrap();
    for line in lines {
        writeln!(stream, "{line}").unwrap();
    }
    let mut replies =
        BufReader::new(stream).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    replies.find(|reply: &Value| reply["id"] == 1).expect("a reply to the request")
}

/// The recorded connection that sends `method`.
fn recorded_connection(method: &str) -> Vec<String> {
    let text = std::fs::read_to_string(fixture().join("client.jsonl")).unwrap();
    let wanted = format!("\"method\":\"{method}\"");
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains(&wanted)).expect("a recorded request");
    vec![lines[0].to_owned(), lines[at].to_owned()]
}

#[test]
fn sessions_of_the_version_before_are_read_verified_and_continued() {
    if !can_sandbox_commands("sessions_of_the_version_before_are_read_verified_and_continued") {
        return;
    }
    let world = world_with_old_sessions();
    verify_chains(&world);
    let listed = world.run_json(&["ps", "--all", "--json"]);
    let names: Vec<&str> = listed.as_array().unwrap().iter().filter_map(|row| row["name"].as_str()).collect();
    assert!(names.contains(&"old") && names.contains(&"asking"), "{listed}");
    let shown = world.run_minke(&["log", "show", "old"]);
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let read = world.run_minke(&["read", "old"]);
    assert!(read.out.contains("Everything you saw is in the session's log"), "{read:?}");
    let continued = world.run_minke(&["exec", "--resume", "old", "again"]);
    assert_eq!(continued.code, Some(0), "{continued:?}");
    verify_chains(&world);
}

#[test]
fn an_approval_request_of_the_version_before_is_answered_by_its_client() {
    if !can_sandbox_commands("an_approval_request_of_the_version_before_is_answered_by_its_client") {
        return;
    }
    let world = world_with_old_sessions();
    let resumed = world.run_minke(&["resume", "asking"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let asks = world.run_json(&["asks", "--json"]);
    let ask = asks[0]["id"].as_str().unwrap();
    let socket = world.home_dir().join("run/pods/asking/sock");
    let mut answer = recorded_connection("answer");
    answer[1] = answer[1].replace("ASK", ask);
    let reply = send_recorded(&socket, &answer);
    assert!(reply.get("error").is_none(), "{reply}");
    for method in ["pause", "run", "cancel", "shutdown"] {
        let reply = send_recorded(&socket, &recorded_connection(method));
        assert_eq!(reply["id"], 1, "{method}: {reply}");
        if matches!(method, "run" | "shutdown") {
            assert!(reply.get("error").is_none(), "{method}: {reply}");
        }
    }
    verify_chains(&world);
}
