//! The one ordered stream: many clients, late ones, slow ones, and ones that stop reading.

use std::io::Write;

use minke_driver::Ending;
use minke_protocol::{Block, Event, Frame};
use serde_json::{Value, json};

use crate::support::{Client, Home, entries, names, run_end};

const CLIENTS: usize = 20;
const DELTAS: usize = 20_000;

/// What a client's screen shows of the reply.
#[derive(Debug, Default, PartialEq)]
struct View {
    open: String,
    done: Vec<String>,
    entries: Vec<u64>,
    /// How often it was told that it had missed something.
    dropped: usize,
}

impl View {
    fn see(&mut self, frame: &Frame) {
        match &frame.event {
            Event::TextDelta(delta) => self.open.push_str(&delta.text),
            Event::InFlight(now) => {
                self.dropped += 1;
                self.open = open_text(&now.blocks);
            }
            Event::TextDone(done) => {
                self.done.push(done.text.here().unwrap().to_owned());
                self.open.clear();
            }
            Event::Entry(event) => self.entries.push(event.entry.seq),
            _ => {}
        }
    }
}

fn open_text(blocks: &[Block]) -> String {
    let text = |block: &Block| match block {
        Block::Text { text } => text.clone(),
        _ => String::new(),
    };
    blocks.iter().map(text).collect()
}

fn ticks(count: usize) -> String {
    format!("[[turn]]\nsteps = [{{ text = \"tick \", repeat = {count} }}]\n")
}

/// The same in bursts, as a fast provider sends them.
fn bursts(count: usize) -> String {
    let burst = "{ text = \"tick \", repeat = 500 }, { delay_ms = 20 }, ";
    format!("[[turn]]\nsteps = [{}]\n", burst.repeat(count / 500))
}

/// Reads lines, without looking into them, until the pod is idle again after a run.
fn lines_to_the_end(client: &mut Client) -> Vec<String> {
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
    let home = Home::new();
    let session = home.session(&bursts(DELTAS));
    let pod = home.start(session);
    let watchers: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = pod.attach();
            std::thread::spawn(move || lines_to_the_end(&mut client))
        })
        .collect();
    pod.sender().ask("run", json!({"input": "count"})).unwrap();
    let seen: Vec<Vec<String>> = watchers.into_iter().map(|watcher| watcher.join().unwrap()).collect();
    let views: Vec<View> = seen
        .iter()
        .map(|lines| {
            let mut view = View::default();
            lines.iter().for_each(|line| view.see(&Frame::parse(line).unwrap()));
            view
        })
        .collect();
    let whole = "tick ".repeat(DELTAS);
    for view in &views {
        assert_eq!(view.done.concat(), whole);
        assert_eq!(view.entries, views[0].entries);
        assert!(view.entries.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {:?}", view.entries);
    }
    // Those who were never behind got the very same lines.
    let never_behind: Vec<&Vec<String>> =
        seen.iter().zip(&views).filter(|(_, view)| view.dropped == 0).map(|(lines, _)| lines).collect();
    println!("{} of {CLIENTS} clients were never behind", never_behind.len());
    assert!(!never_behind.is_empty(), "everybody fell behind: there is nothing to compare");
    for lines in &never_behind {
        assert!(lines.len() > DELTAS);
        assert_eq!(lines, &never_behind[0]);
    }
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn a_client_that_stops_reading_disturbs_nobody_and_costs_little() {
    let home = Home::new();
    let session = home.session(&ticks(DELTAS));
    let pod = home.start(session);
    let mut stalled = pod.attach();
    let mut reader = pod.attach();
    let before = resident_bytes();
    reader.send("run", json!({"input": "count"}));
    let lines = lines_to_the_end(&mut reader);
    assert!(lines.len() > CLIENTS);
    let growth = resident_bytes().saturating_sub(before).saturating_sub(lines.iter().map(String::len).sum());
    println!("{growth} bytes for a stalled client and a run of {DELTAS} deltas");
    assert!(growth <= 8 * 1024 * 1024, "{growth}");
    // When it reads again it has missed live events, and no entry.
    let seen = stalled.until("in_flight");
    let mut view = View::default();
    seen.iter().for_each(|frame| view.see(frame));
    assert_eq!(seen.iter().filter_map(run_end).collect::<Vec<_>>(), ["finished"]);
    assert!(view.entries.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {:?}", view.entries);
    assert_eq!(view.done, ["tick ".repeat(DELTAS)]);
    assert_eq!(stalled.next().unwrap().event.name(), "status");
    assert_eq!(pod.stop(), Ending::Stopped);
}

/// What this process has in memory.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_slow_client_catches_up_from_the_log() {
    let home = Home::new();
    // Together more than a client's queue and the kernel's buffers hold.
    const RUNS: usize = 24;
    let session = home.session("loop = true\n[[turn]]\ntext = \"again\"\n");
    let pod = home.start(session);
    let mut slow = pod.attach();
    let mut sender = pod.sender();
    let long = "x".repeat(200_000);
    for _ in 0..RUNS {
        sender.ask("run", json!({"input": long, "mode": "queue"})).unwrap();
        sender.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    }
    let head = sender.ask("status", json!({})).unwrap()["head"]["seq"].as_u64().unwrap();
    let seen = slow.until_that("the last entry", |frame| entries(std::slice::from_ref(frame)) == [head]);
    let numbers = entries(&seen);
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap: {numbers:?}");
    let lag =
        seen.iter().position(|frame| matches!(frame.event, Event::Lag(_))).expect("it was never behind");
    let Event::Lag(told) = &seen[lag].event else { unreachable!() };
    assert_eq!(told.from_seq, entries(&seen[..lag]).last().unwrap() + 1);
    assert_eq!(entries(&seen[lag..])[0], told.from_seq);
    // Every event of an entry comes once, also of those that were missed.
    assert_eq!(names(&seen).iter().filter(|name| **name == "user_message").count(), RUNS);
    assert_eq!(pod.stop(), Ending::Stopped);
    assert_eq!(names(&slow.rest()).last().copied(), Some("shutdown"));
}

#[test]
fn a_client_that_attaches_in_mid_turn_sees_what_the_others_see() {
    let home = Home::new();
    let session = home.session("[[turn]]\nsteps = [{ text = \"tick \", repeat = 50000 }]\npace_ms = 1\n");
    let pod = home.start(session);
    let mut first = pod.attach();
    first.send("run", json!({"input": "go"}));
    first.until("text_delta");
    let mut late = pod.connect();
    late.say(json!({"method": "hello", "params": {"protocol": 2}}));
    let seen = late.until("snapshot");
    let Event::Snapshot(snapshot) = &seen.last().unwrap().event else { panic!("{seen:?}") };
    assert_eq!(snapshot.status.to_string(), "running");
    assert_eq!(snapshot.entries.last().map(|entry| entry.seq), Some(snapshot.head.seq));
    let mut shown = open_text(&snapshot.in_flight.blocks);
    assert!(shown.starts_with("tick "), "nothing was in flight");
    late.until("text_delta");
    first.send("cancel", json!({}));
    let of_first = first.until("run_end");
    let of_late = late.until("run_end");
    for frame in &of_late {
        match &frame.event {
            Event::TextDelta(delta) => shown.push_str(&delta.text),
            // One delta was read above, to see that the stream goes on.
            Event::TextDone(done) => assert_eq!(format!("{shown}tick "), done.text.here().unwrap()),
            _ => {}
        }
    }
    // From the snapshot on both get the same.
    let lines = |frames: &[Frame]| {
        frames.iter().filter(|f| !matches!(f.event, Event::Reply(_))).map(Frame::line).collect::<Vec<_>>()
    };
    let (of_first, of_late_lines) = (lines(&of_first), lines(&of_late));
    let same = of_first.len().min(of_late_lines.len());
    assert_eq!(of_first[of_first.len() - same..], of_late_lines[of_late_lines.len() - same..]);
    assert_eq!(entries(&of_late)[0], snapshot.head.seq + 1);
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn a_client_that_comes_back_gets_only_what_it_missed() {
    let home = Home::new();
    let session = home.session("loop = true\n[[turn]]\ntext = \"again\"\n");
    let pod = home.start(session);
    let mut client = pod.attach();
    client.send("run", json!({"input": "one"}));
    let seen = client.until_that(
        "the last entry",
        |frame| matches!(&frame.event, Event::Entry(event) if event.entry.kind.name() == "run_completed"),
    );
    let Event::Entry(last) = &seen.last().unwrap().event else { unreachable!() };
    let since = json!({"seq": last.entry.seq, "h": last.entry.h});
    drop(client);
    let mut other = pod.sender();
    other.ask("run", json!({"input": "two"})).unwrap();
    other.ask("wait", json!({"until": "idle", "timeout_ms": 60000})).unwrap();
    let back = |since: Value| {
        let mut client = pod.connect();
        client.say(json!({"method": "hello", "params": {"protocol": 2, "since": since}}));
        let seen = client.until("snapshot");
        match seen.into_iter().next_back().unwrap().event {
            Event::Snapshot(snapshot) => *snapshot,
            other => panic!("{other:?}"),
        }
    };
    let snapshot = back(since);
    assert_eq!(snapshot.entries[0].seq, last.entry.seq + 1);
    assert!(!snapshot.older);
    assert_eq!(snapshot.entries.last().unwrap().seq, snapshot.head.seq);
    // Another history under the same number: the whole segment.
    let other = back(json!({"seq": last.entry.seq, "h": "00000000000000000000000000000000"}));
    assert!(other.entries[0].seq < last.entry.seq);
    assert_eq!(pod.stop(), Ending::Stopped);
}

#[test]
fn method_lines_split_at_every_byte_all_arrive() {
    let home = Home::new();
    let session = home.session("[[turn]]\nsteps = [{ text = \"tick \", repeat = 100000 }]\npace_ms = 1\n");
    let pod = home.start(session);
    let mut client = pod.attach();
    client.send("run", json!({"input": "go"}));
    client.until("text_delta");
    let line = "{\"method\":\"status\",\"id\":\"a-status\"}\n";
    for at in 1..line.len() {
        let (first, second) = line.split_at(at);
        client.socket.write_all(first.as_bytes()).unwrap();
        // Between the two halves an event has come, so the pod was busy with this client.
        client.until("text_delta");
        client.socket.write_all(second.as_bytes()).unwrap();
        let seen = client.until("reply");
        assert!(matches!(&seen.last().unwrap().event, Event::Reply(minke_protocol::ReplyData::Ok(_))));
    }
    client.send("cancel", json!({}));
    assert!(run_end(client.until("run_end").last().unwrap()).is_some());
    assert_eq!(pod.stop(), Ending::Stopped);
}
