//! The wire protocol: first lines, refusals, over-long lines, older clients, reading, early close.

use std::io::Write;
use std::net::Shutdown;

use minke_driver::PodExit;
use minke_protocol::Event;
use minke_protocol::limits::{MAX_FRAME_BYTES, MAX_LONG_LINES};
use serde_json::{Value, json};

use crate::support::{DriverHome, event_names, run_end};

const LOOP_SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"again\"\n";

#[test]
fn the_first_line_decides_what_a_client_gets() {
    let home = DriverHome::new();
    let pod = home.start_pod(home.new_session(LOOP_SCRIPT));
    // A silent client gets everything.
    let mut silent = pod.connect();
    assert_eq!(silent.next_frame().unwrap().event.name(), "snapshot");
    // So does any other method, and the snapshot comes before its reply.
    let mut early = pod.connect();
    let id = early.send_method("status", json!({}));
    assert_eq!(early.next_frame().unwrap().event.name(), "snapshot");
    assert_eq!(early.wait_reply(id).unwrap()["status"], "idle");
    // `hello` is answered, and a later one is refused.
    let mut polite = pod.connect();
    polite.send_line(json!({"method": "hello", "params": {"protocol": 2, "subscribe": "tail"}, "id": 7}));
    assert_eq!(polite.next_frame().unwrap().event.name(), "hello");
    assert_eq!(polite.wait_reply(7).unwrap(), json!({}));
    assert_eq!(polite.send_and_wait("hello", json!({})).unwrap_err()["code"], "invalid_request");
    // End of file has no effect.
    let mut silent_client = pod.connect();
    silent_client.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(silent_client.read_rest(), []);
    // A client without a subscription gets no events, not even the last one; a subscriber does.
    let mut deaf = pod.reply_only_client();
    let mut sender = pod.reply_only_client();
    sender.send_and_wait("run", json!({"input": "x"})).unwrap();
    assert_eq!(run_end(polite.read_until("run_end").last().unwrap()).as_deref(), Some("finished"));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(deaf.read_rest(), []);
    assert_eq!(event_names(&polite.read_rest()).last().copied(), Some("shutdown"));
    assert_eq!(event_names(&silent.read_rest()).last().copied(), Some("shutdown"));
}

#[test]
fn a_refusal_reaches_the_asker_alone() {
    let home = DriverHome::new();
    let pod = home.start_pod(home.new_session(
        "[[turn]]\nsteps = [{ text = \"one\" }, { delay_ms = 600000 }]\n[[turn]]\ntext = \"x\"\n",
    ));
    let mut first = pod.attach_client();
    first.send_line(json!({"method": "run", "params": {"input": "go"}}));
    let mut second = pod.attach_client();
    first.read_until("text_done");
    second.send_line(json!({"method": "run", "params": {"input": "me too"}}));
    let seen = second.read_until("error");
    let Event::Error(refusal) = &seen.last().unwrap().event else { unreachable!() };
    assert_eq!(refusal.code.as_str(), "already_running");
    second.send_line(json!({"method": "cancel"}));
    let seen = first.read_until("run_end");
    assert!(!event_names(&seen).contains(&"error"), "{:?}", event_names(&seen));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn bad_lines_are_refused_and_the_connection_stays() {
    let home = DriverHome::new();
    let pod = home.start_pod(home.new_session(LOOP_SCRIPT));
    let mut client = pod.reply_only_client();
    for (line, why) in [
        ("nonsense", "not a JSON object"),
        ("{\"method\":\"dance\"}", "dance"),
        ("{\"method\":\"run\",\"params\":{\"input\":3}}", "params.input"),
        ("{\"method\":\"dequeue\",\"params\":{\"id\":\"x\"}}", "params.id"),
        ("{\"params\":{}}", "method"),
    ] {
        client.socket.write_all(format!("{line}\n\n").as_bytes()).unwrap();
        let Some(Event::Error(refusal)) = client.next_frame().map(|frame| frame.event) else {
            panic!("{line}")
        };
        assert_eq!(refusal.code.as_str(), "invalid_request");
        assert!(refusal.message.contains(why), "{line}: {}", refusal.message);
    }
    client.socket.write_all(b"\xff\xfe\n").unwrap();
    assert_eq!(client.next_frame().unwrap().event.name(), "error");
    for (segment, why) in [
        (json!({"kind": "file_ref", "path": "nowhere.txt"}), "nowhere.txt"),
        (json!({"kind": "workflow_invoke", "slug": "deploy"}), "deploy"),
        (json!({"kind": "image", "data": "%%%", "media_type": "image/png"}), "base64"),
    ] {
        let refused = client.send_and_wait("run", json!({"input": [segment]})).unwrap_err();
        assert_eq!(refused["code"], "invalid_request");
        assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    }
    assert_eq!(client.send_and_wait("status", json!({})).unwrap()["status"], "idle");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn over_long_lines_are_skipped_and_the_eighth_closes() {
    let home = DriverHome::new();
    let pod = home.start_pod(home.new_session(LOOP_SCRIPT));
    let mut client = pod.reply_only_client();
    let long = vec![b'x'; MAX_FRAME_BYTES + 1];
    for count in 1..=MAX_LONG_LINES {
        client.socket.write_all(&long).unwrap();
        client.socket.write_all(b"\n").unwrap();
        let Some(Event::Error(refusal)) = client.next_frame().map(|frame| frame.event) else {
            panic!("{count}")
        };
        assert_eq!(refusal.code.as_str(), "invalid_request");
        if count < MAX_LONG_LINES {
            assert_eq!(client.send_and_wait("status", json!({})).unwrap()["status"], "idle");
        }
    }
    assert_eq!(client.read_rest(), []);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn an_older_strict_client_runs_pauses_resumes_and_shuts_down() {
    let home = DriverHome::new();
    let session = home.new_session(
        "[[turn]]\nsteps = [{ text = \"one\" }, { delay_ms = 600000 }]\n[[turn]]\ntext = \"two\"\n",
    );
    let mut pod = home.start_pod(session);
    let mut client = pod.connect();
    let mut next = move || {
        let line = client.next_line()?;
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(value["event"].is_string(), "{line}");
        Some((client_line(&value), value))
    };
    // An old client without `hello`, ids and most events: it reads the events that it knows and ignores the
    // rest.
    let mut wait = |wanted: &str| loop {
        let (name, value) = next().unwrap_or_else(|| panic!("closed before {wanted}"));
        if name == wanted {
            return value["data"].clone();
        }
    };
    let snapshot = wait("snapshot");
    assert_eq!(snapshot["status"], "idle");
    assert!(snapshot["greeting"]["tools"].is_array());
    let mut speaker = pod.connect();
    speaker.send_line(json!({"method": "run", "params": {"input": "hi"}}));
    assert_eq!(wait("invoke_start")["kind"], "user_send");
    assert_eq!(wait("user_message")["segments"][0]["content"], "hi");
    assert_eq!(wait("status")["status"], "running");
    wait("turn_start");
    assert_eq!(wait("text_done")["text"], "one");
    speaker.send_line(json!({"method": "pause"}));
    assert_eq!(wait("run_end")["result"], "paused");
    assert_eq!(wait("status")["status"], "paused");
    speaker.send_line(json!({"method": "resume"}));
    assert_eq!(wait("text_done")["text"], "two");
    assert_eq!(wait("run_end")["result"], "finished");
    speaker.send_line(json!({"method": "get_history"}));
    let seen = speaker.read_until("history");
    assert!(matches!(&seen.last().unwrap().event, Event::History(history) if history.items.len() >= 3));
    speaker.send_line(json!({"method": "shutdown"}));
    wait("shutdown");
    assert_eq!(pod.wait_exit(), PodExit::Stopped);
}

fn client_line(value: &Value) -> String {
    value["event"].as_str().unwrap().to_owned()
}

#[test]
fn lines_that_were_received_are_acted_on_though_the_peer_has_closed() {
    let home = DriverHome::new();
    let session = home.new_session(LOOP_SCRIPT);
    let pod = home.start_pod(session);
    const COUNT: usize = 200;
    let mut client = pod.connect();
    for number in 0..COUNT {
        client.send_line(
            json!({"method": "checkpoint", "params": {"id": format!("c{number}"), "state": number}}),
        );
    }
    drop(client);
    let mut watcher = pod.attach_client();
    watcher.send_and_wait("wait", json!({"until": {"seq": COUNT + 1}, "timeout_ms": 60000})).unwrap();
    let kept = home.entry_kinds(session).iter().filter(|kind| *kind == "checkpoint").count();
    assert_eq!(kept, COUNT);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_large_snapshot_does_not_block_a_client_that_writes_and_closes() {
    let home = DriverHome::new();
    let session = home.new_session(LOOP_SCRIPT);
    let pod = home.start_pod(session);
    let mut sender = pod.reply_only_client();
    let long = "x".repeat(200_000);
    for _ in 0..12 {
        sender.send_and_wait("run", json!({"input": long})).unwrap();
        sender.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    }
    let mut hasty = pod.connect();
    hasty.send_line(json!({"method": "checkpoint", "params": {"id": "hasty", "state": 1}}));
    drop(hasty);
    let mut reader = pod.connect();
    let line = reader.next_line().unwrap();
    assert!(line.starts_with("{\"event\":\"snapshot\"") && line.len() > 2_000_000, "{} bytes", line.len());
    let head = sender.send_and_wait("status", json!({})).unwrap()["head"]["seq"].as_u64().unwrap();
    let page = sender
        .send_and_wait("read", json!({"from_seq": head, "limit": 10, "kinds": ["checkpoint"]}))
        .unwrap();
    if page["entries"] == json!([]) {
        sender.send_and_wait("wait", json!({"until": {"seq": head + 1}, "timeout_ms": 60000})).unwrap();
    }
    assert!(home.entry_kinds(session).contains(&"checkpoint".to_owned()));
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_session_is_read_in_pages_and_its_blobs_in_pieces() {
    let home = DriverHome::new();
    let pod = home.start_pod(home.new_session(LOOP_SCRIPT));
    let mut client = pod.reply_only_client();
    let long = "y".repeat(300_000);
    client.send_and_wait("run", json!({"input": [{"kind": "text", "content": long}]})).unwrap();
    client.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    let mut seen = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        let page = client.send_and_wait("read", json!({"from_seq": seq, "limit": 3})).unwrap();
        let entries = page["entries"].as_array().unwrap();
        assert!(entries.len() <= 3);
        seen.extend(entries.iter().map(|entry| entry["seq"].as_u64().unwrap()));
        from = page["next_seq"].as_u64();
    }
    let head = client.send_and_wait("status", json!({})).unwrap()["head"]["seq"].as_u64().unwrap();
    assert_eq!(seen, (0..=head).collect::<Vec<_>>());
    let inputs = client.send_and_wait("read", json!({"from_seq": 0, "kinds": ["user_input"]})).unwrap();
    let content = &inputs["entries"][0]["segments"][0]["content"];
    assert_eq!(content["bytes"], 300_000);
    let mut got = 0;
    let mut offset = Some(0);
    while let Some(at) = offset {
        let piece = client
            .send_and_wait("read_blob", json!({"blob": content["blob"], "offset": at, "limit": 100_000}))
            .unwrap();
        assert_eq!(piece["bytes"], 300_000);
        got += piece["data"].as_str().unwrap().len() * 3 / 4;
        offset = piece["next_offset"].as_u64();
    }
    assert!((300_000..300_010).contains(&got), "{got}");
    assert_eq!(client.send_and_wait("read_blob", json!({"blob": "00"})).unwrap_err()["code"], "not_found");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn an_image_becomes_a_blob_before_it_is_logged() {
    let home = DriverHome::new();
    let session = home.new_session(LOOP_SCRIPT);
    let pod = home.start_pod(session);
    let mut client = pod.reply_only_client();
    let image = json!({"kind": "image", "data": "aGVsbG8=", "media_type": "image/png"});
    client.send_and_wait("run", json!({"input": [image]})).unwrap();
    let page = client.send_and_wait("read", json!({"from_seq": 0, "kinds": ["user_input"]})).unwrap();
    let segment = &page["entries"][0]["segments"][0];
    let blob = client.send_and_wait("read_blob", json!({"blob": segment["blob"]})).unwrap();
    assert_eq!(blob["data"], "aGVsbG8=");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn files_complete_inside_the_working_directory() {
    let home = DriverHome::new();
    for name in ["alpha.txt", "also", ".hidden"] {
        std::fs::write(home.cwd().join(name), "").unwrap();
    }
    std::fs::create_dir(home.cwd().join("alps")).unwrap();
    let pod = home.start_pod(home.new_session(LOOP_SCRIPT));
    let mut client = pod.reply_only_client();
    let list = client.send_and_wait("list_completions", json!({"kind": "file", "prefix": "al"})).unwrap();
    let values: Vec<&str> =
        list["entries"].as_array().unwrap().iter().map(|entry| entry["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["alpha.txt", "alps/", "also"]);
    for prefix in ["../", "/", "al/../../"] {
        let list =
            client.send_and_wait("list_completions", json!({"kind": "file", "prefix": prefix})).unwrap();
        assert_eq!(list["entries"], json!([]), "{prefix}");
    }
    // Without an id the reply is an event.
    client.send_line(json!({"method": "list_completions", "params": {"kind": "file", "prefix": ".h"}}));
    let Some(Event::Completions(list)) = client.next_frame().map(|frame| frame.event) else { panic!() };
    assert_eq!(list.entries[0].value, ".hidden");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_thousand_clients_come_ask_and_go() {
    let home = DriverHome::new();
    let pod = home.start_pod(home.new_session(LOOP_SCRIPT));
    let begun = std::time::Instant::now();
    for _ in 0..1_000 {
        let mut client = pod.connect();
        client.send_line(json!({"method": "hello", "params": {"subscribe": "none"}}));
        assert_eq!(client.send_and_wait("status", json!({})).unwrap()["status"], "idle");
    }
    println!("1,000 times connect, status, disconnect: {:?}", begun.elapsed());
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_client_that_asks_and_never_reads_is_not_read_either() {
    let home = DriverHome::new();
    let session = home.new_session(LOOP_SCRIPT);
    let pod = home.start_pod(session);
    let mut greedy = pod.reply_only_client();
    greedy.socket.set_nonblocking(true).unwrap();
    let line = b"{\"method\":\"get_history\",\"id\":1}\n".repeat(1_000);
    let mut sent = 0;
    // Fills the socket: the pod stops reading at the limit of pending methods, and the kernel buffers the
    // rest.
    while let Ok(got) = greedy.socket.write(&line) {
        sent += got;
        assert!(sent < 64 * 1024 * 1024, "the pod accepts unlimited input");
        if sent > 8 * 1024 * 1024 {
            break;
        }
    }
    let mut other = pod.reply_only_client();
    assert_eq!(other.send_and_wait("status", json!({})).unwrap()["status"], "idle");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_client_that_will_say_nothing_more_still_gets_its_answers() {
    let home = DriverHome::new();
    let pod = home.start_pod(home.new_session(LOOP_SCRIPT));
    let mut client = pod.connect();
    let first = client.send_method("run", json!({"input": "x"}));
    let second = client.send_method("wait", json!({"until": "idle", "timeout_ms": 60000}));
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert!(client.wait_reply(first).is_ok());
    assert_eq!(client.wait_reply(second).unwrap()["holds"], true);
    assert!(!event_names(&client.read_rest()).contains(&"error"));
    let pods = pod.reply_only_client().send_and_wait("list_pods", json!({})).unwrap();
    assert_eq!(pods, json!({"pods": []}));
    assert_eq!(
        pod.reply_only_client().send_and_wait("restore_pod", json!({"name": "child"})).unwrap_err()["code"],
        "not_found"
    );
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}
