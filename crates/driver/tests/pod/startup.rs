//! Startup: requirements of a pod, its error messages, and the cleanup after a failure.

use minke_driver::PodExit;
use minke_protocol::Event;
use minke_session::SessionStore;
use serde_json::json;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use crate::support::{DriverHome, event_names};

const LOOP_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"again\"\n";

fn list_runtime_dirs(home: &DriverHome) -> Vec<String> {
    match std::fs::read_dir(home.paths.runtime.join("pods")) {
        Ok(found) => found.map(|item| item.unwrap().file_name().into_string().unwrap()).collect(),
        Err(_) => Vec::new(),
    }
}

#[test]
fn a_pod_that_cannot_start_leaves_nothing_behind() {
    let home = DriverHome::new();
    let session = home.new_session(LOOP_SCRIPT);
    let held = home.store().open(session).unwrap();
    let failed = home.try_start(session).err().unwrap();
    assert!(failed.contains("is held by"), "{failed}");
    assert_eq!(list_runtime_dirs(&home), Vec::<String>::new());
    drop(held);
    let unknown = "01890000-0000-7000-8000-000000000000".parse().unwrap();
    let failed = home.try_start(unknown).err().unwrap();
    assert!(failed.contains("there is no session"), "{failed}");
    assert_eq!(list_runtime_dirs(&home), Vec::<String>::new());
    // A file is in place of the pods directory.
    std::fs::write(home.paths.runtime.join("pods"), "in the way").unwrap();
    assert!(home.try_start(session).is_err());
    std::fs::remove_file(home.paths.runtime.join("pods")).unwrap();
    let pod = home.start_pod(session);
    assert_eq!(list_runtime_dirs(&home).len(), 1);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(list_runtime_dirs(&home), Vec::<String>::new());
}

#[test]
fn two_pods_do_not_hold_one_session() {
    let home = DriverHome::new();
    let session = home.new_session(LOOP_SCRIPT);
    let pod = home.start_pod(session);
    let failed = home.try_start(session).err().unwrap();
    assert!(failed.contains("is held by pod `pod-"), "{failed}");
    assert_eq!(pod.attach_client().send_and_wait("status", json!({})).unwrap()["status"], "idle");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_live_pod_shows_its_state_and_keeps_its_socket_private() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\nsteps = [{ text = \"x\" }, { delay_ms = 600000 }]\n");
    let pod = home.start_pod(session);
    let dir = pod.socket.parent().unwrap().to_owned();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&pod.socket), mode(&dir)), (0o600, 0o700));
    let status = || -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(dir.join("status.json")).unwrap()).unwrap()
    };
    assert_eq!(status()["state"], "idle");
    let manifest = std::fs::read_to_string(dir.join("manifest.toml")).unwrap();
    assert!(manifest.contains("[model]"), "{manifest}");
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    // The status was rewritten before the event.
    client.read_until("status");
    assert_eq!(status()["state"], "running");
    client.read_until("text_done");
    client.send_method("pause", json!({}));
    client.read_until_match(
        "paused",
        |frame| matches!(&frame.event, Event::Status(status) if status.status.as_str() == "paused"),
    );
    assert_eq!(status()["state"], "paused");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn what_was_cut_off_is_told_to_everybody_who_comes_later() {
    let home = DriverHome::new();
    let session = home.new_session(LOOP_SCRIPT);
    let log = home.store().session_dir(session).join("log.jsonl");
    let mut file = std::fs::OpenOptions::new().append(true).open(log).unwrap();
    file.write_all(b"{\"seq\":1,\"ts\":17").unwrap();
    drop(file);
    let pod = home.start_pod(session);
    let mut first = pod.connect();
    first.send_line(json!({"method": "run", "params": {"input": "x"}}));
    first.read_until("run_end");
    // The run has started a segment, so the alert is older than the snapshot: it comes before it, once.
    let mut late = pod.connect();
    let seen = late.read_until("snapshot");
    assert_eq!(event_names(&seen), ["alert", "snapshot"]);
    let Event::Alert(alert) = &seen[0].event else { unreachable!() };
    assert!(alert.message.contains("cut"), "{}", alert.message);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}
