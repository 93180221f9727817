//! The wire's manners: first lines, refusals, over-long lines, older clients, reading, and those who close early.

use std::io::Write;
use std::net::Shutdown;

use minke_driver::Ending;
use minke_protocol::Event;
use minke_protocol::limits::{FRAME_BYTES, TOO_LONG_CLOSES};
use serde_json::{Value, json};

use crate::support::{Home, names, run_end};

const AGAIN: &str = "loop = true\n[[turn]]\ntext = \"again\"\n";

#[test]
fn the_first_line_decides_what_a_client_gets() {
    let home = Home::new();
    let pod = home.start(home.session(AGAIN));
    // Silence means everything.
    let mut silent = pod.connect();
    assert_eq!(silent.next().unwrap().event.name(), "snapshot");
    // So does any other method, and the snapshot comes before its answer.
    let mut early = pod.connect();
    let id = early.send("status", json!({}));
    assert_eq!(early.next().unwrap().event.name(), "snapshot");
    assert_eq!(early.reply(id).unwrap()["status"], "idle");
    // `hello` is answered, and a later one is refused.
    let mut polite = pod.connect();
    polite.say(json!({"method": "hello", "params": {"protocol": 2, "subscribe": "tail"}, "id": 7}));
    assert_eq!(polite.next().unwrap().event.name(), "hello");
    assert_eq!(polite.reply(7).unwrap(), json!({}));
    assert_eq!(polite.ask("hello", json!({})).unwrap_err()["code"], "invalid_request");
    // The end of file means nothing.
    let mut nobody = pod.connect();
    nobody.socket.shutdown(Shutdown::Write).unwrap();
    assert_eq!(nobody.rest(), []);
    // Whoever wants no events gets none, not even the last one; whoever reads along does.
    let mut deaf = pod.sender();
    let mut sender = pod.sender();
    sender.ask("run", json!({"input": "x"})).unwrap();
    assert_eq!(run_end(polite.until("run_end").last().unwrap()).as_deref(), Some("finished"));
    assert_eq!(pod.stop(), Ending::Stopped);
    assert_eq!(deaf.rest(), []);
    assert_eq!(names(&polite.rest()).last().copied(), Some("shutdown"));
    assert_eq!(names(&silent.rest()).last().copied(), Some("shutdown"));
}

#[test]
fn a_refusal_reaches_the_asker_alone() {
    let home = Home::new();
    let pod =
        home.start(home.session(
            "[[turn]]\nsteps = [{ text = \"one\" }, { delay_ms = 600000 }]\n[[turn]]\ntext = \"x\"\n",
        ));
    let mut first = pod.attach();
    first.say(json!({"method": "run", "params": {"input": "go"}}));
    let mut second = pod.attach();
    first.until("text_done");
    second.say(json!({"method": "run", "params": {"input": "me too"}}));
    let seen = second.until("error");
    let Event::Error(refusal) = &seen.last().unwrap().event else { unreachable!() };
    assert_eq!(refusal.code.as_str(), "already_running");
    second.say(json!({"method": "cancel"}));
    let seen = first.until("run_end");
    assert!(!names(&seen).contains(&"error"), "{:?}", names(&seen));
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn bad_lines_are_refused_and_the_connection_stays() {
    let home = Home::new();
    let pod = home.start(home.session(AGAIN));
    let mut client = pod.sender();
    for (line, why) in [
        ("nonsense", "not a JSON object"),
        ("{\"method\":\"dance\"}", "dance"),
        ("{\"method\":\"run\",\"params\":{\"input\":3}}", "params.input"),
        ("{\"method\":\"dequeue\",\"params\":{\"id\":\"x\"}}", "params.id"),
        ("{\"params\":{}}", "method"),
    ] {
        client.socket.write_all(format!("{line}\n\n").as_bytes()).unwrap();
        let Some(Event::Error(refusal)) = client.next().map(|frame| frame.event) else { panic!("{line}") };
        assert_eq!(refusal.code.as_str(), "invalid_request");
        assert!(refusal.message.contains(why), "{line}: {}", refusal.message);
    }
    client.socket.write_all(b"\xff\xfe\n").unwrap();
    assert_eq!(client.next().unwrap().event.name(), "error");
    for (segment, why) in [
        (json!({"kind": "file_ref", "path": "nowhere.txt"}), "nowhere.txt"),
        (json!({"kind": "workflow_invoke", "slug": "deploy"}), "deploy"),
        (json!({"kind": "image", "data": "%%%", "media_type": "image/png"}), "base64"),
    ] {
        let refused = client.ask("run", json!({"input": [segment]})).unwrap_err();
        assert_eq!(refused["code"], "invalid_request");
        assert!(refused["message"].as_str().unwrap().contains(why), "{refused}");
    }
    assert_eq!(client.ask("status", json!({})).unwrap()["status"], "idle");
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn over_long_lines_are_skipped_and_the_eighth_closes() {
    let home = Home::new();
    let pod = home.start(home.session(AGAIN));
    let mut client = pod.sender();
    let long = vec![b'x'; FRAME_BYTES + 1];
    for count in 1..=TOO_LONG_CLOSES {
        client.socket.write_all(&long).unwrap();
        client.socket.write_all(b"\n").unwrap();
        let Some(Event::Error(refusal)) = client.next().map(|frame| frame.event) else { panic!("{count}") };
        assert_eq!(refusal.code.as_str(), "invalid_request");
        if count < TOO_LONG_CLOSES {
            assert_eq!(client.ask("status", json!({})).unwrap()["status"], "idle");
        }
    }
    assert_eq!(client.rest(), []);
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn an_older_strict_client_runs_pauses_resumes_and_shuts_down() {
    let home = Home::new();
    let session = home
        .session("[[turn]]\nsteps = [{ text = \"one\" }, { delay_ms = 600000 }]\n[[turn]]\ntext = \"two\"\n");
    let mut pod = home.start(session);
    let mut client = pod.connect();
    let mut next = move || {
        let line = client.next_line()?;
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(value["event"].is_string(), "{line}");
        Some((client_line(&value), value))
    };
    // It knows nothing of `hello`, ids and most events; it reads what it knows and ignores the rest.
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
    speaker.say(json!({"method": "run", "params": {"input": "hi"}}));
    assert_eq!(wait("invoke_start")["kind"], "user_send");
    assert_eq!(wait("user_message")["segments"][0]["content"], "hi");
    assert_eq!(wait("status")["status"], "running");
    wait("turn_start");
    assert_eq!(wait("text_done")["text"], "one");
    speaker.say(json!({"method": "pause"}));
    assert_eq!(wait("run_end")["result"], "paused");
    assert_eq!(wait("status")["status"], "paused");
    speaker.say(json!({"method": "resume"}));
    assert_eq!(wait("text_done")["text"], "two");
    assert_eq!(wait("run_end")["result"], "finished");
    speaker.say(json!({"method": "get_history"}));
    let seen = speaker.until("history");
    assert!(matches!(&seen.last().unwrap().event, Event::History(history) if history.items.len() >= 3));
    speaker.say(json!({"method": "shutdown"}));
    wait("shutdown");
    assert_eq!(pod.ended(), Ending::Stopped);
}

fn client_line(value: &Value) -> String {
    value["event"].as_str().unwrap().to_owned()
}

#[test]
fn lines_that_were_received_are_acted_on_though_the_peer_has_closed() {
    let home = Home::new();
    let session = home.session(AGAIN);
    let pod = home.start(session);
    const COUNT: usize = 200;
    let mut client = pod.connect();
    for number in 0..COUNT {
        client.say(json!({"method": "checkpoint", "params": {"id": format!("c{number}"), "state": number}}));
    }
    drop(client);
    let mut watcher = pod.attach();
    watcher.ask("wait", json!({"until": {"seq": COUNT + 1}, "timeout_ms": 60000})).unwrap();
    let kept = home.kinds(session).iter().filter(|kind| *kind == "checkpoint").count();
    assert_eq!(kept, COUNT);
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn a_large_snapshot_does_not_block_a_client_that_writes_and_closes() {
    let home = Home::new();
    let session = home.session(AGAIN);
    let pod = home.start(session);
    let mut sender = pod.sender();
    let long = "x".repeat(200_000);
    for _ in 0..12 {
        sender.ask("run", json!({"input": long})).unwrap();
        sender.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    }
    let mut hasty = pod.connect();
    hasty.say(json!({"method": "checkpoint", "params": {"id": "hasty", "state": 1}}));
    drop(hasty);
    let mut reader = pod.connect();
    let line = reader.next_line().unwrap();
    assert!(line.starts_with("{\"event\":\"snapshot\"") && line.len() > 2_000_000, "{} bytes", line.len());
    let head = sender.ask("status", json!({})).unwrap()["head"]["seq"].as_u64().unwrap();
    let page = sender.ask("read", json!({"from_seq": head, "limit": 10, "kinds": ["checkpoint"]})).unwrap();
    if page["entries"] == json!([]) {
        sender.ask("wait", json!({"until": {"seq": head + 1}, "timeout_ms": 60000})).unwrap();
    }
    assert!(home.kinds(session).contains(&"checkpoint".to_owned()));
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn a_session_is_read_in_pages_and_its_blobs_in_pieces() {
    let home = Home::new();
    let pod = home.start(home.session(AGAIN));
    let mut client = pod.sender();
    let long = "y".repeat(300_000);
    client.ask("run", json!({"input": [{"kind": "text", "content": long}]})).unwrap();
    client.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    let mut seen = Vec::new();
    let mut from = Some(0);
    while let Some(seq) = from {
        let page = client.ask("read", json!({"from_seq": seq, "limit": 3})).unwrap();
        let entries = page["entries"].as_array().unwrap();
        assert!(entries.len() <= 3);
        seen.extend(entries.iter().map(|entry| entry["seq"].as_u64().unwrap()));
        from = page["next_seq"].as_u64();
    }
    let head = client.ask("status", json!({})).unwrap()["head"]["seq"].as_u64().unwrap();
    assert_eq!(seen, (0..=head).collect::<Vec<_>>());
    let inputs = client.ask("read", json!({"from_seq": 0, "kinds": ["user_input"]})).unwrap();
    let content = &inputs["entries"][0]["segments"][0]["content"];
    assert_eq!(content["bytes"], 300_000);
    let mut got = 0;
    let mut offset = Some(0);
    while let Some(at) = offset {
        let piece = client
            .ask("read_blob", json!({"blob": content["blob"], "offset": at, "limit": 100_000}))
            .unwrap();
        assert_eq!(piece["bytes"], 300_000);
        got += piece["data"].as_str().unwrap().len() * 3 / 4;
        offset = piece["next_offset"].as_u64();
    }
    assert!((300_000..300_010).contains(&got), "{got}");
    assert_eq!(client.ask("read_blob", json!({"blob": "00"})).unwrap_err()["code"], "not_found");
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn an_image_becomes_a_blob_before_it_is_logged() {
    let home = Home::new();
    let session = home.session(AGAIN);
    let pod = home.start(session);
    let mut client = pod.sender();
    let image = json!({"kind": "image", "data": "aGVsbG8=", "media_type": "image/png"});
    client.ask("run", json!({"input": [image]})).unwrap();
    let page = client.ask("read", json!({"from_seq": 0, "kinds": ["user_input"]})).unwrap();
    let segment = &page["entries"][0]["segments"][0];
    let blob = client.ask("read_blob", json!({"blob": segment["blob"]})).unwrap();
    assert_eq!(blob["data"], "aGVsbG8=");
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn files_complete_inside_the_working_directory() {
    let home = Home::new();
    for name in ["alpha.txt", "also", ".hidden"] {
        std::fs::write(home.cwd().join(name), "").unwrap();
    }
    std::fs::create_dir(home.cwd().join("alps")).unwrap();
    let pod = home.start(home.session(AGAIN));
    let mut client = pod.sender();
    let list = client.ask("list_completions", json!({"kind": "file", "prefix": "al"})).unwrap();
    let values: Vec<&str> =
        list["entries"].as_array().unwrap().iter().map(|entry| entry["value"].as_str().unwrap()).collect();
    assert_eq!(values, ["alpha.txt", "alps/", "also"]);
    for prefix in ["../", "/", "al/../../"] {
        let list = client.ask("list_completions", json!({"kind": "file", "prefix": prefix})).unwrap();
        assert_eq!(list["entries"], json!([]), "{prefix}");
    }
    // Without an id the answer is an event.
    client.say(json!({"method": "list_completions", "params": {"kind": "file", "prefix": ".h"}}));
    let Some(Event::Completions(list)) = client.next().map(|frame| frame.event) else { panic!() };
    assert_eq!(list.entries[0].value, ".hidden");
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn a_thousand_clients_come_ask_and_go() {
    let home = Home::new();
    let pod = home.start(home.session(AGAIN));
    let begun = std::time::Instant::now();
    for _ in 0..1_000 {
        let mut client = pod.connect();
        client.say(json!({"method": "hello", "params": {"subscribe": "none"}}));
        assert_eq!(client.ask("status", json!({})).unwrap()["status"], "idle");
    }
    println!("1,000 times connect, status, disconnect: {:?}", begun.elapsed());
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn a_client_that_asks_and_never_reads_is_not_read_either() {
    let home = Home::new();
    let session = home.session(AGAIN);
    let pod = home.start(session);
    let mut greedy = pod.sender();
    greedy.socket.set_nonblocking(true).unwrap();
    let line = b"{\"method\":\"get_history\",\"id\":1}\n".repeat(1_000);
    let mut sent = 0;
    // Until the pod takes no more: it reads no further than the methods that may wait, and the kernel holds the rest.
    while let Ok(got) = greedy.socket.write(&line) {
        sent += got;
        assert!(sent < 64 * 1024 * 1024, "the pod swallows everything");
        if sent > 8 * 1024 * 1024 {
            break;
        }
    }
    let mut other = pod.sender();
    assert_eq!(other.ask("status", json!({})).unwrap()["status"], "idle");
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn a_client_that_will_say_nothing_more_still_gets_its_answers() {
    let home = Home::new();
    let pod = home.start(home.session(AGAIN));
    let mut client = pod.connect();
    let first = client.send("run", json!({"input": "x"}));
    let second = client.send("wait", json!({"until": "idle", "timeout_ms": 60000}));
    client.socket.shutdown(Shutdown::Write).unwrap();
    assert!(client.reply(first).is_ok());
    assert_eq!(client.reply(second).unwrap()["holds"], true);
    assert!(!names(&client.rest()).contains(&"error"));
    let pods = pod.sender().ask("list_pods", json!({})).unwrap();
    assert_eq!(pods, json!({"pods": []}));
    assert_eq!(pod.sender().ask("restore_pod", json!({"name": "child"})).unwrap_err()["code"], "not_found");
    assert_eq!(pod.stop(), Ending::Stopped);
}
