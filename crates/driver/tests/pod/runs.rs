//! Runs: start, queue, steer, pause, resume, cancel, and recovery in a new process.

use minke_driver::PodExit;
use minke_protocol::{Event, EventPosition};
use minke_record::{Kind, SessionId};
use minke_session::SessionStore;
use serde_json::json;

use crate::support::{DriverHome, entry_numbers, event_names, run_end};

/// One turn with a delay longer than any test in the middle of its text; then further turns.
const STUCK_SCRIPT: &str = r#"
[[turn]]
steps = [{ text = "half an " }, { delay_ms = 600000 }, { text = "answer" }]
[[turn]]
text = "the rest"
[[turn]]
text = "more"
"#;

#[test]
fn a_run_is_started_streams_and_ends() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\ntext = [\"Hel\", \"lo.\"]\n");
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_line(json!({"method": "run", "params": {"input": "hi"}}));
    let mut seen = client.read_until("run_end");
    seen.extend(client.read_until("status"));
    let order: Vec<&str> = event_names(&seen).into_iter().filter(|name| *name != "entry").collect();
    let expected = [
        "invoke_start",
        "segment_rotated",
        "user_message",
        "status",
        "turn_start",
        "llm_call_start",
        "status",
        "text_delta",
        "text_delta",
        "text_done",
        "usage",
        "llm_call_end",
        "turn_end",
        "run_end",
        "status",
    ];
    assert_eq!(order, expected);
    let numbers = entry_numbers(&seen);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
    let run = seen.iter().find_map(|frame| frame.run).unwrap();
    let of_run = ["text_delta", "text_done", "run_end", "user_message"];
    assert!(seen.iter().filter(|f| of_run.contains(&f.event.name())).all(|f| f.run == Some(run)));
    let mut last = 0;
    for frame in &seen {
        match frame.position {
            EventPosition::Logged { seq } => last = seq,
            EventPosition::Live { after_seq } => assert!(after_seq >= last, "{frame:?}"),
            EventPosition::Direct { .. } => panic!("{frame:?}"),
        }
    }
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.run_results(session), ["finished"]);
}

#[test]
fn a_reply_comes_when_what_it_acknowledges_is_in_the_log() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\ntext = \"yes\"\n");
    let pod = home.start_pod(session);
    let mut client = pod.reply_only_client();
    let given = client.send_and_wait("run", json!({"input": "hi", "op_id": "op-1"})).unwrap();
    let run = given["run"].as_str().unwrap().to_owned();
    let logged = home.read_log(session);
    let output = logged.iter().find(|entry| entry.kind.name() == "user_input").unwrap();
    assert_eq!(output.run.unwrap().to_string(), run);
    // Repeating the operation returns the first result, and `wait` returns the end.
    assert_eq!(
        client.send_and_wait("run", json!({"input": "hi", "op_id": "op-1"})).unwrap()["run"],
        run.as_str()
    );
    let waited = client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!((waited["holds"].as_bool(), waited["status"].as_str()), (Some(true), Some("idle")));
    assert_eq!(home.run_results(session), ["finished"]);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_tool_is_called_and_its_result_comes_back() {
    let home = DriverHome::new();
    let session = home.new_session(
        r#"
        [[turn]]
        [[turn.call]]
        tool = "Write"
        args = { file_path = "NOTES.md", content = "remember\n" }
        [[turn]]
        [[turn.call]]
        tool = "Read"
        args = { file_path = "{{cwd}}/NOTES.md" }
        [[turn]]
        expect = "remember"
        text = "It is there."
        "#,
    );
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "note it"}));
    let seen = client.read_until("run_end");
    assert_eq!(run_end(seen.last().unwrap()).as_deref(), Some("finished"), "{:?}", event_names(&seen));
    assert_eq!(event_names(&seen).iter().filter(|name| **name == "tool_result").count(), 2);
    assert_eq!(std::fs::read_to_string(home.cwd().join("NOTES.md")).unwrap(), "remember\n");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_second_run_is_refused_queued_or_steered() {
    let home = DriverHome::new();
    let session = home.new_session(STUCK_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "one"}));
    client.read_until("text_delta");
    let refused = client.send_and_wait("run", json!({"input": "two"})).unwrap_err();
    assert_eq!(refused["code"], "already_running");
    let queued = client.send_and_wait("run", json!({"input": "three", "mode": "queue"})).unwrap();
    let id = queued["queued"].as_str().unwrap().to_owned();
    assert_eq!(
        client.send_and_wait("status", json!({})).unwrap()["queue"],
        json!({"length": 1, "held": false})
    );
    let taken = client.send_and_wait("dequeue", json!({"id": id})).unwrap();
    assert_eq!(taken["segments"], json!([{"kind": "text", "content": "three"}]));
    assert_eq!(client.send_and_wait("dequeue", json!({"id": id})).unwrap_err()["code"], "not_found");
    client.send_and_wait("run", json!({"input": "four", "mode": "queue"})).unwrap();
    let given = client.send_and_wait("run", json!({"input": "five", "mode": "interrupt"})).unwrap();
    assert!(given["run"].is_string() || given["queued"].is_string(), "{given}");
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    let results = home.run_results(session);
    assert_eq!(results.first().map(String::as_str), Some("cancelled"), "{results:?}");
    assert!(results.contains(&"finished".to_owned()), "{results:?}");
}

#[test]
fn a_run_is_paused_and_resumed() {
    let home = DriverHome::new();
    let session = home.new_session(STUCK_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    client.read_until("text_delta");
    let pause = client.send_method("pause", json!({"detail": "lunch"}));
    let seen = client.read_until("run_end");
    assert_eq!(run_end(seen.last().unwrap()).as_deref(), Some("paused"));
    client.wait_reply(pause).unwrap();
    assert_eq!(client.send_and_wait("status", json!({})).unwrap()["status"], "paused");
    assert_eq!(client.send_and_wait("resume", json!({})).map(|given| given["run"].is_string()), Ok(true));
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    assert_eq!(client.send_and_wait("resume", json!({})).unwrap_err()["code"], "not_paused");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.run_results(session), ["paused", "finished"]);
    // The model's output from before the pause stays.
    let text = home.read_log(session).iter().map(|entry| format!("{:?}", entry.kind)).collect::<String>();
    assert!(text.contains("half an "));
}

#[test]
fn a_run_is_cancelled() {
    let home = DriverHome::new();
    let session = home.new_session(STUCK_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    assert_eq!(client.send_and_wait("cancel", json!({})).unwrap_err()["code"], "not_running");
    client.send_method("run", json!({"input": "go"}));
    client.read_until("text_delta");
    client.send_method("cancel", json!({}));
    assert_eq!(run_end(client.read_until("run_end").last().unwrap()).as_deref(), Some("cancelled"));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.run_results(session), ["cancelled"]);
}

#[test]
fn a_stopped_run_is_cancelled_and_the_session_comes_back() {
    let home = DriverHome::new();
    let session = home.new_session(STUCK_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    client.read_until("text_delta");
    client.send_method("shutdown", json!({}));
    let seen = client.read_rest();
    assert_eq!(event_names(&seen).last().copied(), Some("shutdown"), "{:?}", event_names(&seen));
    assert_eq!(seen.iter().filter_map(run_end).collect::<Vec<_>>(), ["cancelled"]);
    assert!(seen.iter().any(|frame| matches!(&frame.event, Event::Reply(_))), "{:?}", event_names(&seen));
    let mut pod = pod;
    assert_eq!(pod.wait_exit(), PodExit::Stopped);
    assert!(!pod.socket.exists() && !pod.socket.parent().unwrap().exists());
    // The same session in a new process: nothing is lost, and the run continues.
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "again"}));
    assert_eq!(run_end(client.read_until("run_end").last().unwrap()).as_deref(), Some("finished"));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(home.entry_kinds(session).iter().filter(|kind| *kind == "opened").count(), 2);
}

#[test]
fn shutdown_after_the_run_waits_for_it() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\ntext = \"slow\"\npace_ms = 1\nchunk = 1\n");
    let mut pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    client.read_until("turn_start");
    client.send_method("shutdown", json!({"mode": "after_run"}));
    let seen = client.read_rest();
    assert_eq!(seen.iter().filter_map(run_end).collect::<Vec<_>>(), ["finished"]);
    assert_eq!(event_names(&seen).last().copied(), Some("shutdown"));
    assert_eq!(pod.wait_exit(), PodExit::Stopped);
}

#[test]
fn a_pod_with_nothing_to_do_and_nobody_to_talk_to_goes_to_sleep() {
    let home = DriverHome::new();
    let session = home.new_session_with("[[turn]]\ntext = \"x\"\n", json!({"pod": {"idle_exit": 1}}));
    let mut pod = home.start_pod(session);
    drop(pod.attach_client());
    assert_eq!(pod.wait_exit(), PodExit::Stopped);
    assert_eq!(home.run_results(session), Vec::<String>::new());
}

#[test]
fn a_broken_stream_is_continued() {
    let home = DriverHome::new();
    let session = home.new_session(
        "[[turn]]\ntext = \"This is lost in the mid\"\ncut_after = 9\n[[turn]]\ntext = \"dle.\"\n",
    );
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    let seen = client.read_until("run_end");
    assert_eq!(run_end(seen.last().unwrap()).as_deref(), Some("finished"));
    assert!(event_names(&seen).contains(&"llm_continuation"), "{:?}", event_names(&seen));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_missing_model_is_a_refusal_of_the_run_and_not_of_the_pod() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\ntext = \"x\"\n");
    std::fs::remove_file(home.dir.path().join(format!("{session}.toml"))).unwrap();
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    let refused = client.send_and_wait("run", json!({"input": "hi"})).unwrap_err();
    assert_eq!(refused["code"], "invalid_request");
    assert!(refused["message"].as_str().unwrap().contains("no model"), "{refused}");
    let set = client.send_and_wait("set", json!({"model": "scripted:demo"})).unwrap();
    assert_eq!(set, json!({}));
    assert!(client.send_and_wait("run", json!({"input": "hi"})).is_ok());
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_fork_is_made_of_a_live_session() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\ntext = \"one\"\n[[turn]]\ntext = \"two\"\n");
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "first"}));
    client.read_until("run_end");
    let forked = client.send_and_wait("fork", json!({"name": "branch"})).unwrap();
    assert_eq!(forked["name"], "branch");
    let fork = forked["session"].as_str().unwrap().parse().unwrap();
    // Both use the same directory: one pod at a time.
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    let other = home.start_pod(fork);
    let mut second = other.attach_client();
    second.send_method("run", json!({"input": "second"}));
    assert_eq!(run_end(second.read_until("run_end").last().unwrap()).as_deref(), Some("finished"));
    assert_eq!(other.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_rewind_brings_the_input_back() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\ntext = \"one\"\n[[turn]]\ntext = \"two\"\n");
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "first"}));
    client.read_until("run_end");
    let list = client.send_and_wait("rewind_targets", json!({})).unwrap();
    let target = &list["targets"][0];
    assert_eq!(target["preview"], "first");
    let stale = json!({"seq": 0, "h": list["head"]["h"]});
    let conflict =
        client.send_and_wait("rewind", json!({"to_seq": target["seq"], "expected_head": stale})).unwrap_err();
    assert_eq!(conflict["code"], "conflict");
    let back = client
        .send_and_wait("rewind", json!({"to_seq": target["seq"], "expected_head": list["head"]}))
        .unwrap();
    assert_eq!(back["input"], json!([{"kind": "text", "content": "first"}]));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

/// The contents of the recordings that the log names, in order.
fn read_recordings(home: &DriverHome, session: SessionId) -> Vec<Vec<String>> {
    let reader = home.store().open_reader(session).unwrap();
    let ends = home.read_log(session).into_iter().filter_map(|entry| match entry.kind {
        Kind::LlmEnd(end) => Some(end),
        _ => None,
    });
    ends.map(|end| {
        let (name, bytes) = (end.stream_blob.unwrap(), end.stream_bytes.unwrap());
        let blob = reader.read_blob(&name, 0, usize::try_from(bytes).unwrap()).unwrap();
        let recording = minke_llm::Recording::parse(&blob).unwrap();
        recording
            .attempts
            .iter()
            .map(|attempt| String::from_utf8_lossy(&attempt.bytes).into_owned())
            .collect()
    })
    .collect()
}

#[test]
fn a_request_leaves_its_recording_with_all_attempts() {
    let home = DriverHome::new();
    let session = home.new_session(
        r#"
        [[turn]]
        error = { status = 529, message = "busy", retry_after_s = 0 }
        text = "Here I am."
        "#,
    );
    let pod = home.start_pod(session);
    let mut watcher = pod.attach_client();
    pod.reply_only_client().send_and_wait("run", json!({"input": "one"})).unwrap();
    watcher.read_until("run_end");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    let recordings = read_recordings(&home, session);
    let [attempts] = &recordings[..] else { panic!("{recordings:?}") };
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    assert!(attempts[1].contains("Here I am."), "{attempts:?}");
}

#[test]
fn without_recordings_none_is_kept() {
    let home = DriverHome::new();
    let script = "[[turn]]\ntext = \"Here I am.\"\n";
    let session = home.new_session_with(script, json!({"session": {"record_streams": false}}));
    let pod = home.start_pod(session);
    let mut watcher = pod.attach_client();
    pod.reply_only_client().send_and_wait("run", json!({"input": "one"})).unwrap();
    watcher.read_until("run_end");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    let ended = home.read_log(session).into_iter().find_map(|entry| match entry.kind {
        Kind::LlmEnd(end) => Some(end),
        _ => None,
    });
    assert_eq!(ended.unwrap().stream_blob, None);
}

#[test]
fn recordings_end_at_their_limit_with_one_word() {
    let home = DriverHome::new();
    let script = "loop = true\n[[turn]]\ntext = \"Here I am.\"\n";
    let session = home.new_session_with(script, json!({"session": {"record_max_bytes": 10}}));
    let pod = home.start_pod(session);
    let mut watcher = pod.attach_client();
    let mut client = pod.reply_only_client();
    for _ in 0..3 {
        client.send_and_wait("run", json!({"input": "again"})).unwrap();
        watcher.read_until("run_end");
    }
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    let reported = home.read_log(session).into_iter().filter(|entry| match &entry.kind {
        Kind::Alert(alert) => alert.message.contains("session.record_max_bytes"),
        _ => false,
    });
    assert_eq!(reported.count(), 1);
}
