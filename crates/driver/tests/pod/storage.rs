//! Disk errors: acknowledged data survives a power cut, a full disk only fails a run, and a failed sync ends
//! the process.

use std::io::Write;
use std::sync::Arc;

use minke_driver::PodExit;
use minke_protocol::Event;
use minke_record::Kind;
use minke_testkit::disk::{DiskFault, DiskOperation, FaultPlan, SimDisk};
use serde_json::json;

use crate::held_disk::HeldDisk;
use crate::support::{DriverHome, RunningPod, TestClient, event_names, run_end};

const LOOP_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"again\"\n";
/// A turn that hangs for the input `go`; others get a reply. An unfinished request uses its turn again.
const STUCK_SCRIPT: &str = r#"
[[turn]]
when = "go"
steps = [{ text = "half" }, { delay_ms = 600000 }]
[[turn]]
text = "rest"
"#;

#[test]
fn what_is_acknowledged_survives_a_power_cut() {
    for count in 1..6 {
        let disk = SimDisk::new();
        let home = DriverHome::with_disk(Arc::new(disk.clone()));
        let session = home.new_session(LOOP_SCRIPT);
        let mut pod = home.start_pod(session);
        let mut client = pod.reply_only_client();
        let mut acknowledged = Vec::new();
        for number in 0..count {
            let params = json!({"id": format!("c{number}"), "state": number});
            client.send_and_wait("checkpoint", params).unwrap();
            acknowledged.push(format!("c{number}"));
        }
        let run =
            client.send_and_wait("run", json!({"input": "hi"})).unwrap()["run"].as_str().unwrap().to_owned();
        disk.cut_power(None);
        let home_after = DriverHome { disk: Arc::new(disk.new_process()), ..home };
        let log = home_after.read_log(session);
        let kept: Vec<String> = log
            .iter()
            .filter_map(|entry| match &entry.kind {
                Kind::Checkpoint(e) => Some(e.id.clone()),
                _ => None,
            })
            .collect();
        assert_eq!(kept, acknowledged);
        assert!(
            log.iter().any(|e| matches!(e.kind, Kind::UserInput(_)) && e.run.unwrap().to_string() == run)
        );
        // The process that lost its disk exits, at the latest with its next write.
        drop(client.socket.set_read_timeout(Some(std::time::Duration::from_secs(20))));
        let late = json!({"method": "checkpoint", "params": {"id": "late", "state": 0}, "id": 99});
        // It may have exited already.
        drop(client.socket.write_all(format!("{late}\n").as_bytes()));
        assert_eq!(pod.wait_exit(), PodExit::StorageLost);
    }
}

#[test]
fn a_killed_pod_comes_back_paused_and_goes_on() {
    let disk = SimDisk::new();
    let home = DriverHome::with_disk(Arc::new(disk.clone()));
    let session = home.new_session(STUCK_SCRIPT);
    let mut pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    client.read_until("text_done");
    disk.kill();
    client.send_method("checkpoint", json!({"id": "late", "state": 0}));
    assert_eq!(pod.wait_exit(), PodExit::StorageLost);
    let home = DriverHome { disk: Arc::new(disk.new_process()), ..home };
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    assert_eq!(client.send_and_wait("status", json!({})).unwrap()["status"], "paused");
    client.send_and_wait("resume", json!({})).unwrap();
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.run_results(session), ["interrupted", "finished"]);
}

#[test]
fn a_full_disk_ends_the_run_and_the_next_one_works() {
    let disk = SimDisk::new();
    let home = DriverHome::with_disk(Arc::new(disk.clone()));
    let session = home.new_session(STUCK_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    client.read_until("text_done");
    disk.set_capacity(Some(disk.used_bytes()));
    let id = client.send_method("checkpoint", json!({"id": "big", "state": "x".repeat(100_000)}));
    let mut replied = None;
    let seen = client.read_until("run_end");
    for frame in &seen {
        if let Event::Reply(minke_protocol::ReplyData::Refused(refusal)) = &frame.event {
            replied = Some(refusal.code.to_string());
        }
    }
    assert_eq!(run_end(seen.last().unwrap()).as_deref(), Some("error"), "{:?}", event_names(&seen));
    let refused =
        replied.unwrap_or_else(|| client.wait_reply(id).unwrap_err()["code"].as_str().unwrap().to_owned());
    assert_eq!(refused, "storage_failed");
    // Reads still work; new runs are refused until there is space.
    assert_eq!(client.send_and_wait("status", json!({})).unwrap()["status"], "idle");
    assert!(client.send_and_wait("read", json!({"from_seq": 0})).is_ok());
    assert_eq!(client.send_and_wait("run", json!({"input": "again"})).unwrap_err()["code"], "storage_failed");
    disk.set_capacity(None);
    client.send_and_wait("run", json!({"input": "again"})).unwrap();
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.run_results(session), ["storage_failed", "finished"]);
}

#[test]
fn a_disk_that_takes_not_even_the_end_of_the_run_stops_nobody_from_reading() {
    let disk = SimDisk::new();
    let home = DriverHome::with_disk(Arc::new(disk.clone()));
    let session = home.new_session(STUCK_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    client.read_until("text_done");
    let mut watcher = pod.attach_client();
    let waits = watcher.send_method("wait", json!({"until": "idle", "timeout_ms": 600_000}));
    // Sent afterwards: the `wait` is accepted.
    watcher.send_and_wait("status", json!({})).unwrap();
    // All writes fail, even with the ballast removed.
    disk.set_fault_plan(Some(FaultPlan {
        at: 0,
        fault: DiskFault::Full,
        lasting: true,
        only: Some(DiskOperation::Write),
    }));
    let refused = client.send_and_wait("checkpoint", json!({"id": "c", "state": 0})).unwrap_err();
    assert_eq!(refused["code"], "storage_failed");
    // No entry ends the run, so clients that watch or wait get a live event.
    assert_eq!(watcher.wait_reply(waits).unwrap_err()["code"], "storage_failed");
    let reported = watcher.read_until("error");
    assert!(reported.last().is_some_and(|frame| frame.run.is_some()), "{:?}", event_names(&reported));
    assert!(client.send_and_wait("read", json!({"from_seq": 0})).is_ok());
    assert_eq!(
        client.send_and_wait("checkpoint", json!({"id": "c", "state": 0})).unwrap_err()["code"],
        "storage_failed"
    );
    assert_eq!(client.send_and_wait("run", json!({"input": "x"})).unwrap_err()["code"], "storage_failed");
    disk.set_fault_plan(None);
    client.send_and_wait("run", json!({"input": "again"})).unwrap();
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.run_results(session), ["storage_failed", "finished"]);
}

#[test]
fn a_disk_that_does_not_sync_ends_the_process() {
    let disk = SimDisk::new();
    let home = DriverHome::with_disk(Arc::new(disk.clone()));
    let session = home.new_session(LOOP_SCRIPT);
    let mut pod = home.start_pod(session);
    let mut client = pod.attach_client();
    disk.set_fault_plan(Some(FaultPlan {
        at: 0,
        fault: DiskFault::Io,
        lasting: true,
        only: Some(DiskOperation::Sync),
    }));
    let id = client.send_method("run", json!({"input": "go"}));
    let seen = client.read_rest();
    assert_eq!(pod.wait_exit(), PodExit::StorageLost);
    assert_eq!(PodExit::StorageLost.exit_code(), 74);
    // Nothing was acknowledged, and no request was made.
    assert!(!event_names(&seen).contains(&"reply"), "{id}: {:?}", event_names(&seen));
    assert!(!event_names(&seen).contains(&"text_delta"), "{:?}", event_names(&seen));
}

/// Polls until there is an entry of a kind.
fn wait_for_entry(client: &mut TestClient, kind: &str) {
    loop {
        let page = client.send_and_wait("read", json!({"from_seq": 0, "kinds": [kind]})).unwrap();
        if page["entries"] != json!([]) {
            return;
        }
    }
}

#[test]
fn nothing_is_shown_acknowledged_or_done_before_it_is_synced() {
    let disk = HeldDisk::default();
    let home = DriverHome::with_disk(Arc::new(disk.clone()));
    let session = home.new_session(
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"NOTES.md\", content = \"x\" }\n[[turn]]\ntext = \"y\"\n",
    );
    let pod = home.start_pod(session);
    let mut watcher = pod.attach_client();
    let mut client = pod.reply_only_client();
    disk.hold_syncs();
    let run = client.send_method("run", json!({"input": "go"}));
    wait_for_entry_of(&pod, "user_input");
    // It is written and may be read; no client was notified, and no request was sent to the model.
    assert!(!home.entry_kinds(session).contains(&"llm_end".to_owned()));
    let seen = watcher.read_until("invoke_start");
    assert!(!event_names(&seen).contains(&"user_message"), "{:?}", event_names(&seen));
    disk.release_syncs();
    client.wait_reply(run).unwrap();
    let seen = watcher.read_until("run_end");
    assert!(event_names(&seen).contains(&"user_message"));
    assert_eq!(run_end(seen.last().unwrap()).as_deref(), Some("finished"));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

fn wait_for_entry_of(pod: &RunningPod, kind: &str) {
    wait_for_entry(&mut pod.reply_only_client(), kind);
}

#[test]
fn a_call_that_is_stopped_before_it_was_started_never_starts() {
    let disk = HeldDisk::default();
    let home = DriverHome::with_disk(Arc::new(disk.clone()));
    let session = home.new_session(
        r#"
        [[turn]]
        steps = [{ text = "wait" }, { delay_ms = 500 }, { call = { tool = "Write", args = { file_path = "NOTES.md", content = "x" } } }]
        "#,
    );
    let pod = home.start_pod(session);
    let mut watcher = pod.attach_client();
    let mut client = pod.reply_only_client();
    client.send_and_wait("run", json!({"input": "go"})).unwrap();
    watcher.read_until("text_done");
    disk.hold_syncs();
    // The call is dispatched and waits for the sync; then it is cancelled; then the sync succeeds.
    wait_for_entry(&mut client, "tool_dispatch");
    assert!(!home.cwd().join("NOTES.md").exists(), "a call ran before its dispatch was synced");
    let cancel = client.send_method("cancel", json!({}));
    wait_for_entry_of(&pod, "run_completed");
    disk.release_syncs();
    client.wait_reply(cancel).unwrap();
    watcher.read_until("run_end");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.run_results(session), ["cancelled"]);
    assert!(!home.cwd().join("NOTES.md").exists(), "a cancelled call took effect");
}
