//! The disk: what is acknowledged survives a power cut, a full disk costs a run and nothing else, and a disk that lies
//! ends the process.

use std::io::Write;
use std::sync::Arc;

use minke_driver::Ending;
use minke_protocol::Event;
use minke_record::Kind;
use minke_testkit::disk::{Fault, Operation, Plan, SimDisk};
use serde_json::json;

use crate::held::HeldDisk;
use crate::support::{Client, Home, Running, names, run_end};

const AGAIN: &str = "loop = true\n[[turn]]\ntext = \"again\"\n";
/// A turn that hangs, for whoever says `go`; others are answered. A request that never ended gets its turn again.
const STUCK: &str = r#"
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
        let home = Home::on(Arc::new(disk.clone()));
        let session = home.session(AGAIN);
        let mut pod = home.start(session);
        let mut client = pod.sender();
        let mut acknowledged = Vec::new();
        for number in 0..count {
            let params = json!({"id": format!("c{number}"), "state": number});
            client.ask("checkpoint", params).unwrap();
            acknowledged.push(format!("c{number}"));
        }
        let run = client.ask("run", json!({"input": "hi"})).unwrap()["run"].as_str().unwrap().to_owned();
        disk.cut_power(None);
        let home_after = Home { disk: Arc::new(disk.process()), ..home };
        let log = home_after.log(session);
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
        // The process that lost its disk ends by itself, at the latest when it is to write again.
        drop(client.socket.set_read_timeout(Some(std::time::Duration::from_secs(20))));
        let late = json!({"method": "checkpoint", "params": {"id": "late", "state": 0}, "id": 99});
        // It may have gone already.
        drop(client.socket.write_all(format!("{late}\n").as_bytes()));
        assert_eq!(pod.ended(), Ending::StorageLost);
    }
}

#[test]
fn a_killed_pod_comes_back_paused_and_goes_on() {
    let disk = SimDisk::new();
    let home = Home::on(Arc::new(disk.clone()));
    let session = home.session(STUCK);
    let mut pod = home.start(session);
    let mut client = pod.attach();
    client.send("run", json!({"input": "go"}));
    client.until("text_done");
    disk.kill();
    client.send("checkpoint", json!({"id": "late", "state": 0}));
    assert_eq!(pod.ended(), Ending::StorageLost);
    let home = Home { disk: Arc::new(disk.process()), ..home };
    let pod = home.start(session);
    let mut client = pod.attach();
    assert_eq!(client.ask("status", json!({})).unwrap()["status"], "paused");
    client.ask("resume", json!({})).unwrap();
    client.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(pod.stop(), Ending::Stopped);
    assert_eq!(home.run_results(session), ["interrupted", "finished"]);
}

#[test]
fn a_full_disk_ends_the_run_and_the_next_one_works() {
    let disk = SimDisk::new();
    let home = Home::on(Arc::new(disk.clone()));
    let session = home.session(STUCK);
    let pod = home.start(session);
    let mut client = pod.attach();
    client.send("run", json!({"input": "go"}));
    client.until("text_done");
    disk.set_capacity(Some(disk.used()));
    let id = client.send("checkpoint", json!({"id": "big", "state": "x".repeat(100_000)}));
    let mut replied = None;
    let seen = client.until("run_end");
    for frame in &seen {
        if let Event::Reply(minke_protocol::ReplyData::Refused(refusal)) = &frame.event {
            replied = Some(refusal.code.to_string());
        }
    }
    assert_eq!(run_end(seen.last().unwrap()).as_deref(), Some("error"), "{:?}", names(&seen));
    let refused =
        replied.unwrap_or_else(|| client.reply(id).unwrap_err()["code"].as_str().unwrap().to_owned());
    assert_eq!(refused, "storage_failed");
    // Reading goes on, new runs are refused until there is space.
    assert_eq!(client.ask("status", json!({})).unwrap()["status"], "idle");
    assert!(client.ask("read", json!({"from_seq": 0})).is_ok());
    assert_eq!(client.ask("run", json!({"input": "again"})).unwrap_err()["code"], "storage_failed");
    disk.set_capacity(None);
    client.ask("run", json!({"input": "again"})).unwrap();
    client.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(pod.stop(), Ending::Stopped);
    assert_eq!(home.run_results(session), ["storage_failed", "finished"]);
}

#[test]
fn a_disk_that_takes_not_even_the_end_of_the_run_stops_nobody_from_reading() {
    let disk = SimDisk::new();
    let home = Home::on(Arc::new(disk.clone()));
    let session = home.session(STUCK);
    let pod = home.start(session);
    let mut client = pod.attach();
    client.send("run", json!({"input": "go"}));
    client.until("text_done");
    let mut watcher = pod.attach();
    let waits = watcher.send("wait", json!({"until": "idle", "timeout_ms": 600_000}));
    // Asked after it: the wait is taken.
    watcher.ask("status", json!({})).unwrap();
    // Whatever is written fails, however much is given up for it.
    disk.plan(Some(Plan { at: 0, fault: Fault::Full, lasting: true, only: Some(Operation::Write) }));
    let refused = client.ask("checkpoint", json!({"id": "c", "state": 0})).unwrap_err();
    assert_eq!(refused["code"], "storage_failed");
    // No entry says that the run is over, so whoever watches or waits is told, and not left waiting.
    assert_eq!(watcher.reply(waits).unwrap_err()["code"], "storage_failed");
    let told = watcher.until("error");
    assert!(told.last().is_some_and(|frame| frame.run.is_some()), "{:?}", names(&told));
    assert!(client.ask("read", json!({"from_seq": 0})).is_ok());
    assert_eq!(
        client.ask("checkpoint", json!({"id": "c", "state": 0})).unwrap_err()["code"],
        "storage_failed"
    );
    assert_eq!(client.ask("run", json!({"input": "x"})).unwrap_err()["code"], "storage_failed");
    disk.plan(None);
    client.ask("run", json!({"input": "again"})).unwrap();
    client.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(pod.stop(), Ending::Stopped);
    assert_eq!(home.run_results(session), ["storage_failed", "finished"]);
}

#[test]
fn a_disk_that_does_not_sync_ends_the_process() {
    let disk = SimDisk::new();
    let home = Home::on(Arc::new(disk.clone()));
    let session = home.session(AGAIN);
    let mut pod = home.start(session);
    let mut client = pod.attach();
    disk.plan(Some(Plan { at: 0, fault: Fault::Io, lasting: true, only: Some(Operation::Sync) }));
    let id = client.send("run", json!({"input": "go"}));
    let seen = client.rest();
    assert_eq!(pod.ended(), Ending::StorageLost);
    assert_eq!(Ending::StorageLost.code(), 74);
    // Nothing of it was acknowledged, and no request was made.
    assert!(!names(&seen).contains(&"reply"), "{id}: {:?}", names(&seen));
    assert!(!names(&seen).contains(&"text_delta"), "{:?}", names(&seen));
}

/// Asks for entries of a kind until there is one.
fn wait_for_entry(client: &mut Client, kind: &str) {
    loop {
        let page = client.ask("read", json!({"from_seq": 0, "kinds": [kind]})).unwrap();
        if page["entries"] != json!([]) {
            return;
        }
    }
}

#[test]
fn nothing_is_shown_acknowledged_or_done_before_it_is_synced() {
    let disk = HeldDisk::default();
    let home = Home::on(Arc::new(disk.clone()));
    let session = home.session(
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"NOTES.md\", content = \"x\" }\n[[turn]]\ntext = \"y\"\n",
    );
    let pod = home.start(session);
    let mut watcher = pod.attach();
    let mut client = pod.sender();
    disk.hold();
    let run = client.send("run", json!({"input": "go"}));
    wait_for_entry_beside(&pod, "user_input");
    // It is written; it may be read; nobody was told, and the model was not asked.
    assert!(!home.kinds(session).contains(&"llm_end".to_owned()));
    let seen = watcher.until("invoke_start");
    assert!(!names(&seen).contains(&"user_message"), "{:?}", names(&seen));
    disk.let_go();
    client.reply(run).unwrap();
    let seen = watcher.until("run_end");
    assert!(names(&seen).contains(&"user_message"));
    assert_eq!(run_end(seen.last().unwrap()).as_deref(), Some("finished"));
    assert_eq!(pod.stop(), Ending::Stopped);
}

fn wait_for_entry_beside(pod: &Running, kind: &str) {
    wait_for_entry(&mut pod.sender(), kind);
}

#[test]
fn a_call_that_is_stopped_before_it_was_started_never_starts() {
    let disk = HeldDisk::default();
    let home = Home::on(Arc::new(disk.clone()));
    let session = home.session(
        r#"
        [[turn]]
        steps = [{ text = "wait" }, { delay_ms = 500 }, { call = { tool = "Write", args = { file_path = "NOTES.md", content = "x" } } }]
        "#,
    );
    let pod = home.start(session);
    let mut watcher = pod.attach();
    let mut client = pod.sender();
    client.ask("run", json!({"input": "go"})).unwrap();
    watcher.until("text_done");
    disk.hold();
    // The call is dispatched and waits for the disk; then it is cancelled; then the disk takes both.
    wait_for_entry(&mut client, "tool_dispatch");
    assert!(!home.cwd().join("NOTES.md").exists(), "a call ran before its dispatch was synced");
    let cancel = client.send("cancel", json!({}));
    wait_for_entry_beside(&pod, "run_completed");
    disk.let_go();
    client.reply(cancel).unwrap();
    watcher.until("run_end");
    assert_eq!(pod.stop(), Ending::Stopped);
    assert_eq!(home.run_results(session), ["cancelled"]);
    assert!(!home.cwd().join("NOTES.md").exists(), "a cancelled call took effect");
}
