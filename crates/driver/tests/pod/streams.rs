//! The event stream: many clients, late ones, slow ones, and ones that stop reading.

use std::io::Write;

use minke_driver::PodExit;
use minke_protocol::{Event, Frame, StreamingBlock};
use serde_json::{Value, json};

use crate::support::{DriverHome, TestClient, entry_numbers, event_names, run_end};

const CLIENTS: usize = 20;
const DELTAS: usize = 20_000;

/// The client's view of the reply.
#[derive(Debug, Default, PartialEq)]
struct ClientView {
    open: String,
    done: Vec<String>,
    entries: Vec<u64>,
    /// How often the client got a lag event.
    dropped: usize,
}

impl ClientView {
    fn apply_frame(&mut self, frame: &Frame) {
        match &frame.event {
            Event::TextDelta(delta) => self.open.push_str(&delta.text),
            Event::InFlight(now) => {
                self.dropped += 1;
                self.open = open_text(&now.blocks);
            }
            Event::TextDone(done) => {
                self.done.push(done.text.inline().unwrap().to_owned());
                self.open.clear();
            }
            Event::Entry(event) => self.entries.push(event.entry.seq),
            _ => {}
        }
    }
}

fn open_text(blocks: &[StreamingBlock]) -> String {
    let text = |block: &StreamingBlock| match block {
        StreamingBlock::Text { text } => text.clone(),
        _ => String::new(),
    };
    blocks.iter().map(text).collect()
}

fn tick_script(count: usize) -> String {
    format!("[[turn]]\nsteps = [{{ text = \"tick \", repeat = {count} }}]\n")
}

/// The same text in bursts, like a fast provider.
fn burst_script(count: usize) -> String {
    let burst = "{ text = \"tick \", repeat = 500 }, { delay_ms = 20 }, ";
    format!("[[turn]]\nsteps = [{}]\n", burst.repeat(count / 500))
}

/// Reads lines without parsing them until the pod is idle after a run.
fn read_until_idle(client: &mut TestClient) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = client.next_line().expect("the pod closed");
        let idle = line.starts_with("{\"event\":\"status\",\"data\":{\"status\":\"idle\"");
        lines.push(line);
        if idle {
            return lines;
        }
    }
}

#[test]
fn twenty_clients_see_the_same_while_twenty_thousand_deltas_stream() {
    let home = DriverHome::new();
    let session = home.new_session(&burst_script(DELTAS));
    let pod = home.start_pod(session);
    let watchers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = pod.attach_client();
            std::thread::spawn(move || read_until_idle(&mut client))
        })
        .collect();
    pod.reply_only_client().send_and_wait("run", json!({"input": "count"})).unwrap();
    let seen: Vec<Vec<String>> = watchers.into_iter().map(|watcher| watcher.join().unwrap()).collect();
    let views: Vec<ClientView> = seen
        .iter()
        .map(|lines| {
            let mut view = ClientView::default();
            lines.iter().for_each(|line| view.apply_frame(&Frame::parse(line).unwrap()));
            view
        })
        .collect();
    let whole = "tick ".repeat(DELTAS);
    for view in &views {
        assert_eq!(view.done.concat(), whole);
        assert_eq!(view.entries, views[0].entries);
        assert!(view.entries.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {:?}", view.entries);
    }
    // Clients that never fell behind got identical lines.
    let never_behind: Vec<&Vec<String>> =
        seen.iter().zip(&views).filter(|(_, view)| view.dropped == 0).map(|(lines, _)| lines).collect();
    println!("{} of {CLIENTS} clients were never behind", never_behind.len());
    assert!(!never_behind.is_empty(), "all clients fell behind: there is nothing to compare");
    for lines in &never_behind {
        assert!(lines.len() > DELTAS);
        assert_eq!(lines, &never_behind[0]);
    }
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_client_that_stops_reading_disturbs_nobody_and_costs_little() {
    let home = DriverHome::new();
    let session = home.new_session(&tick_script(DELTAS));
    let pod = home.start_pod(session);
    let mut stalled = pod.attach_client();
    let mut reader = pod.attach_client();
    let before = resident_bytes();
    reader.send_method("run", json!({"input": "count"}));
    let lines = read_until_idle(&mut reader);
    assert!(lines.len() > CLIENTS);
    let growth = resident_bytes().saturating_sub(before).saturating_sub(lines.iter().map(String::len).sum());
    println!("{growth} bytes for a stalled client and a run of {DELTAS} deltas");
    assert!(growth <= 8 * 1024 * 1024, "{growth}");
    // When it reads again it has missed live events, but no entry.
    let seen = stalled.read_until("in_flight");
    let mut view = ClientView::default();
    seen.iter().for_each(|frame| view.apply_frame(frame));
    assert_eq!(seen.iter().filter_map(run_end).collect::<Vec<_>>(), ["finished"]);
    assert!(view.entries.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {:?}", view.entries);
    assert_eq!(view.done, ["tick ".repeat(DELTAS)]);
    assert_eq!(stalled.next_frame().unwrap().event.name(), "status");
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

/// The resident memory of this process.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_slow_client_catches_up_from_the_log() {
    let home = DriverHome::new();
    // Together larger than a client's queue and the kernel's buffers.
    const RUNS: usize = 24;
    let session = home.new_session("loop = true\n[[turn]]\ntext = \"again\"\n");
    let pod = home.start_pod(session);
    let mut slow = pod.attach_client();
    let mut sender = pod.reply_only_client();
    let long = "x".repeat(200_000);
    for _ in 0..RUNS {
        sender.send_and_wait("run", json!({"input": long, "mode": "queue"})).unwrap();
        sender.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    }
    let head = sender.send_and_wait("status", json!({})).unwrap()["head"]["seq"].as_u64().unwrap();
    let seen =
        slow.read_until_match("the last entry", |frame| entry_numbers(std::slice::from_ref(frame)) == [head]);
    let numbers = entry_numbers(&seen);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {numbers:?}");
    let lag =
        seen.iter().position(|frame| matches!(frame.event, Event::Lag(_))).expect("it was never behind");
    let Event::Lag(reported) = &seen[lag].event else { unreachable!() };
    assert_eq!(reported.from_seq, entry_numbers(&seen[..lag]).last().unwrap() + 1);
    assert_eq!(entry_numbers(&seen[lag..])[0], reported.from_seq);
    // Every event of an entry arrives once, including the missed ones.
    assert_eq!(event_names(&seen).iter().filter(|name| **name == "user_message").count(), RUNS);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
    assert_eq!(event_names(&slow.read_rest()).last().copied(), Some("shutdown"));
}

#[test]
fn a_client_that_attaches_in_mid_turn_sees_what_the_others_see() {
    let home = DriverHome::new();
    let session = home.new_session("[[turn]]\nsteps = [{ text = \"tick \", repeat = 50000 }]\npace_ms = 1\n");
    let pod = home.start_pod(session);
    let mut first = pod.attach_client();
    first.send_method("run", json!({"input": "go"}));
    first.read_until("text_delta");
    let mut late = pod.connect();
    late.send_line(json!({"method": "hello", "params": {"protocol": 2}}));
    let seen = late.read_until("snapshot");
    let Event::Snapshot(snapshot) = &seen.last().unwrap().event else { panic!("{seen:?}") };
    assert_eq!(snapshot.status.to_string(), "running");
    assert_eq!(snapshot.entries.last().map(|entry| entry.seq), Some(snapshot.head.seq));
    let mut shown = open_text(&snapshot.in_flight.blocks);
    assert!(shown.starts_with("tick "), "nothing was in flight");
    late.read_until("text_delta");
    first.send_method("cancel", json!({}));
    let of_first = first.read_until("run_end");
    let of_late = late.read_until("run_end");
    for frame in &of_late {
        match &frame.event {
            Event::TextDelta(delta) => shown.push_str(&delta.text),
            // One delta was read above, to check that the stream continues.
            Event::TextDone(done) => assert_eq!(format!("{shown}tick "), done.text.inline().unwrap()),
            _ => {}
        }
    }
    // After the snapshot both clients get the same events.
    let lines = |frames: &[Frame]| {
        frames.iter().filter(|f| !matches!(f.event, Event::Reply(_))).map(Frame::to_line).collect::<Vec<_>>()
    };
    let (of_first, of_late_lines) = (lines(&of_first), lines(&of_late));
    let same = of_first.len().min(of_late_lines.len());
    assert_eq!(of_first[of_first.len() - same..], of_late_lines[of_late_lines.len() - same..]);
    assert_eq!(entry_numbers(&of_late)[0], snapshot.head.seq + 1);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn a_client_that_comes_back_gets_only_what_it_missed() {
    let home = DriverHome::new();
    let session = home.new_session("loop = true\n[[turn]]\ntext = \"again\"\n");
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "one"}));
    let seen = client.read_until_match(
        "the last entry",
        |frame| matches!(&frame.event, Event::Entry(event) if event.entry.kind.name() == "run_completed"),
    );
    let Event::Entry(last) = &seen.last().unwrap().event else { unreachable!() };
    let since = json!({"seq": last.entry.seq, "h": last.entry.h});
    drop(client);
    let mut other = pod.reply_only_client();
    other.send_and_wait("run", json!({"input": "two"})).unwrap();
    other.send_and_wait("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    let back = |since: Value| {
        let mut client = pod.connect();
        client.send_line(json!({"method": "hello", "params": {"protocol": 2, "since": since}}));
        let seen = client.read_until("snapshot");
        match seen.into_iter().next_back().unwrap().event {
            Event::Snapshot(snapshot) => *snapshot,
            other => panic!("{other:?}"),
        }
    };
    let snapshot = back(since);
    assert_eq!(snapshot.entries[0].seq, last.entry.seq + 1);
    assert!(!snapshot.older);
    assert_eq!(snapshot.entries.last().unwrap().seq, snapshot.head.seq);
    // Another history under the same number: sends the whole segment.
    let other = back(json!({"seq": last.entry.seq, "h": "00000000000000000000000000000000"}));
    assert!(other.entries[0].seq < last.entry.seq);
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}

#[test]
fn method_lines_split_at_every_byte_all_arrive() {
    let home = DriverHome::new();
    let session =
        home.new_session("[[turn]]\nsteps = [{ text = \"tick \", repeat = 100000 }]\npace_ms = 1\n");
    let pod = home.start_pod(session);
    let mut client = pod.attach_client();
    client.send_method("run", json!({"input": "go"}));
    client.read_until("text_delta");
    let line = "{\"method\":\"status\",\"id\":\"a-status\"}\n";
    for at in 1..line.len() {
        let (first, second) = line.split_at(at);
        client.socket.write_all(first.as_bytes()).unwrap();
        // An event arrived between the two halves, so the pod has handled this client.
        client.read_until("text_delta");
        client.socket.write_all(second.as_bytes()).unwrap();
        let seen = client.read_until("reply");
        assert!(matches!(&seen.last().unwrap().event, Event::Reply(minke_protocol::ReplyData::Ok(_))));
    }
    client.send_method("cancel", json!({}));
    assert!(run_end(client.read_until("run_end").last().unwrap()).is_some());
    assert_eq!(pod.stop_pod(), PodExit::Stopped);
}
