//! `minke host` with real pods: frames over HTTP, reconnects, and at most one host.

pub(crate) mod exchange;
pub(crate) mod http_document;
pub(crate) mod requests;
pub(crate) mod started_programs;
pub(crate) mod threads;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::{FrameEvent, HostClient, SseStream, TestHost};
use crate::support::world::{CliWorld, UNSANDBOXED, kill_by_pid};

/// A pod that thinks, runs a command, writes a file and streams text slowly enough for reconnects.
const HOST_SCRIPT: &str = r#"
loop = true
[[turn]]
pace_ms = 5
thinking = ["Let ", "me ", "see."]
text = ["I ", "will ", "look."]
[[turn.call]]
tool = "Bash"
args = { command = "echo out; exit 3" }
[[turn.call]]
tool = "Write"
args = { file_path = "{{cwd}}/made.txt", content = "x" }

[[turn]]
pace_ms = 25
text = ["This ", "is ", "a ", "long ", "answer ", "in ", "many ", "pieces, ", "so ", "that ", "a client ", "can ", "go ",
  "away ", "in ", "the ", "middle ", "of ", "it."]
"#;

fn world_with_thread(script: &str) -> (CliWorld, String) {
    let world = CliWorld::new();
    world.write_file("s.toml", script);
    let args =
        [&["exec", "--name", "t", "--model", "scripted:s.toml"], &UNSANDBOXED[..], &["begin"]].concat();
    let done = world.run_minke(&args);
    assert_eq!(done.code, Some(0), "{done:?}");
    let listed = world.run_json(&["thread", "list", "--json"]);
    let id = listed["threads"][0]["id"].as_str().unwrap().to_owned();
    (world, id)
}

fn event_ids(seen: &[FrameEvent]) -> Vec<String> {
    seen.iter().filter_map(|seen| seen.id.clone()).collect()
}

/// Returns frames made from entries; live ones depend on timing.
fn logged_frames(seen: &[FrameEvent]) -> Vec<&Value> {
    seen.iter().filter(|seen| seen.id.is_some()).map(|seen| &seen.frame).collect()
}

/// Folds a stream as a client does: a delta extends the open channel, a complete frame replaces it, and one
/// from the log closes it.
fn fold_stream(seen: &[FrameEvent]) -> (String, Vec<String>) {
    let (mut open, mut closed) = (String::new(), Vec::new());
    for FrameEvent { id, frame } in seen {
        if frame["event"] != "response_delta" || frame["channel"] != "text" {
            continue;
        }
        if frame["whole"] == true {
            open.clear();
        }
        open.push_str(frame["delta"].as_str().unwrap());
        if id.is_some() {
            closed.push(std::mem::take(&mut open));
        }
    }
    (open, closed)
}

/// Reads a stream until N runs have ended.
fn wait_for_runs(events: &mut SseStream, runs: usize) -> Vec<FrameEvent> {
    let mut all = Vec::new();
    for _ in 0..runs {
        all.extend(events.read_until("response_end"));
    }
    all
}

#[test]
fn a_client_that_comes_back_sees_each_frame_once() {
    let (world, thread) = world_with_thread(HOST_SCRIPT);
    let host = TestHost::start_host(&world, &[]);
    let mut steady = host.client.open_events(&thread, None);
    let mut restless = host.client.open_events(&thread, None);
    let before = wait_for_runs(&mut steady, 1);
    let mut seen = wait_for_runs(&mut restless, 1);
    assert_eq!(before, seen, "both read the same log");
    // Both wait now; waking the pod sends events to both.
    assert_eq!(world.run_minke(&["send", "t", "more"]).code, Some(0));
    let mut comings = 0;
    let last = loop {
        // Disconnect after every few frames, in the middle of a block too, and reconnect with the last id.
        let mut ended = false;
        for _ in 0..4 {
            let next = restless.next_frame().unwrap();
            ended = next.event_name() == "response_end";
            seen.push(next);
            if ended {
                break;
            }
        }
        if ended {
            break event_ids(&seen).pop().unwrap();
        }
        let last = event_ids(&seen).pop().unwrap();
        drop(restless);
        comings += 1;
        restless = host.client.open_events(&thread, Some(&last));
    };
    let after = wait_for_runs(&mut steady, 1);
    let steady_saw = [before, after].concat();
    assert!(comings > 3, "it reconnected only {comings} times");
    assert_eq!(event_ids(&seen), event_ids(&steady_saw), "each frame once, in the same order");
    assert_eq!(logged_frames(&seen), logged_frames(&steady_saw));
    assert_eq!(fold_stream(&seen), fold_stream(&steady_saw), "and both show the same text");
    let (open, closed) = fold_stream(&steady_saw);
    assert_eq!(open, "");
    assert_eq!(closed.len(), 4, "{closed:?}");
    // One client received it in pieces.
    assert!(
        steady_saw.iter().filter(|seen| seen.id.is_none() && seen.event_name() == "response_delta").count()
            > 5
    );
    // Old and new clients get nothing after the last frame.
    let wake = world.run_minke(&["send", "t", "once more"]);
    assert_eq!(wake.code, Some(0), "{wake:?}");
    let mut late = host.client.open_events(&thread, Some(&last));
    assert_eq!(late.next_frame().unwrap().event_name(), "response_start");
    assert_eq!(steady.next_frame().unwrap().event_name(), "response_start");
}

#[test]
fn what_is_read_is_what_was_heard() {
    let (world, thread) = world_with_thread(HOST_SCRIPT);
    let host = TestHost::start_host(&world, &[]);
    let mut listener = host.client.open_events(&thread, None);
    let mut heard = wait_for_runs(&mut listener, 1);
    for said in ["one", "two", "three"] {
        assert_eq!(world.run_minke(&["send", "t", said]).code, Some(0));
        heard.extend(wait_for_runs(&mut listener, 1));
    }
    // The pod is gone: only the log is left.
    assert_eq!(world.run_minke(&["stop", "t"]).code, Some(0));
    let read = wait_for_runs(&mut host.client.open_events(&thread, None), 4);
    assert!(read.iter().all(|seen| seen.id.is_some()), "a log has no live frames");
    assert_eq!(logged_frames(&read), logged_frames(&heard));
    let events: Vec<&str> = read.iter().map(FrameEvent::event_name).collect();
    for event in [
        "turn_started",
        "turn_complete",
        "tool_call_start",
        "tool_call_result",
        "exec_command_begin",
        "exec_command_end",
        "patch_apply_begin",
        "patch_apply_end",
        "response_delta",
    ] {
        assert!(events.contains(&event), "no {event} in {events:?}");
    }
    let end = read.iter().find(|seen| seen.event_name() == "exec_command_end").unwrap();
    assert_eq!(end.frame["exit_code"], 3, "{end:?}");
    // The remaining frames are the same from every position.
    for (at, seen) in read.iter().enumerate().step_by(5) {
        let mut rest = host.client.open_events(&thread, seen.id.as_deref());
        let rest: Vec<FrameEvent> = (at + 1..read.len()).map(|_| rest.next_frame().unwrap()).collect();
        assert_eq!(rest, read[at + 1..]);
    }
}

#[test]
fn a_place_that_never_was_is_a_conflict() {
    let (world, thread) = world_with_thread(HOST_SCRIPT);
    let host = TestHost::start_host(&world, &[]);
    for since in ["3.0.00000000000000000000000000000000", "999999.0.00000000000000000000000000000000"] {
        let mut events = host.client.open_events(&thread, Some(since));
        let first = events.next_frame().unwrap();
        assert_eq!((first.event_name(), &first.frame["code"]), ("error", &"conflict".into()), "{first:?}");
        assert_eq!(world.run_minke(&["send", "t", "more"]).code, Some(0));
        assert_eq!(events.next_frame().unwrap().event_name(), "response_start", "the next events arrive");
        wait_for_runs(&mut events, 1);
    }
}

#[test]
fn a_killed_pod_is_heard_to_the_end_and_again_when_it_is_back() {
    let slow = "loop = true\n[[turn]]\nwhen = \"begin\"\ntext = \"first\"\n[[turn]]\nwhen = \"slow\"\npace_ms = 100\nchunk = 1\n\
                text = \"a text that takes its time and is cut off before it has come to its end, however long that is\"\n";
    let (world, thread) = world_with_thread(slow);
    let host = TestHost::start_host(&world, &[]);
    let mut events = host.client.open_events(&thread, None);
    let mut heard = wait_for_runs(&mut events, 1);
    assert_eq!(world.run_minke(&["send", "t", "slow"]).code, Some(0));
    heard.extend(events.read_until("response_delta"));
    kill_by_pid(&world.only_live_pod()["pid"]);
    assert_eq!(world.run_minke(&["cancel", "t"]).code, Some(0));
    heard.extend(wait_for_runs(&mut events, 1));
    let read = wait_for_runs(&mut host.client.open_events(&thread, None), 2);
    assert_eq!(logged_frames(&read), logged_frames(&heard));
}

#[test]
fn a_second_host_says_who_is_there() {
    let world = CliWorld::new();
    let host = TestHost::start_host(&world, &[]);
    let second = world.run_minke(&["host"]);
    assert_eq!(second.code, Some(75), "{second:?}");
    assert!(second.err.contains(&host.client.pid.to_string()), "{second:?}");
    assert!(second.err.contains(&host.client.address), "{second:?}");
    assert_eq!(HostClient::from_host_file(&world).pid, host.client.pid);
}

#[test]
fn a_killed_hosts_place_is_taken() {
    let world = CliWorld::new();
    let first = TestHost::start_host(&world, &[]);
    let old = first.client.clone();
    kill_by_pid(&old.pid);
    drop(first);
    assert_eq!(HostClient::from_host_file(&world).pid, old.pid, "its file is still there");
    let second = TestHost::start_host(&world, &[]);
    assert_ne!(second.client.pid, old.pid);
    assert_eq!(second.client.call_json("GET", "/healthz", &Value::Null), (200, json!({ "status": "ok" })));
    let mode = std::fs::metadata(world.home_dir().join("run/host.json")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
}

#[test]
fn a_host_that_ends_leaves_pods_alone() {
    let (world, thread) = world_with_thread("loop = true\n[[turn]]\ntext = \"x\"\n");
    let mut host = TestHost::start_host(&world, &[]);
    assert_eq!(world.run_minke(&["send", "t", "wake"]).code, Some(0));
    let mut events = host.client.open_events(&thread, None);
    wait_for_runs(&mut events, 2);
    let pod = world.only_live_pod()["pid"].clone();
    let begun = Instant::now();
    host.process.send_signal(rustix::process::Signal::TERM);
    let ended = host.process.child.wait().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "it took {:?}", begun.elapsed());
    assert_eq!(ended.code(), Some(0));
    assert_eq!(world.only_live_pod()["pid"], pod);
    assert!(!world.home_dir().join("run/host.json").exists());
    // The client was disconnected, and continues with the next host.
    assert_eq!(events.next_frame(), None);
    let next = TestHost::start_host(&world, &[]);
    assert_eq!(world.run_minke(&["send", "t", "again"]).code, Some(0));
    wait_for_runs(&mut next.client.open_events(&thread, None), 3);
}

#[test]
fn nobody_needs_it_and_it_ends() {
    let world = CliWorld::new();
    let mut host = TestHost::start_host(&world, &["--idle", "3"]);
    assert_eq!(host.client.call_json("GET", "/healthz", &Value::Null).0, 200);
    let ended = host.process.child.wait().unwrap();
    assert_eq!(ended.code(), Some(0));
    assert!(!world.home_dir().join("run/host.json").exists());
}

#[test]
fn a_host_that_nobody_can_find_ends() {
    let world = CliWorld::new();
    let mut host = TestHost::start_host(&world, &["--idle", "0"]);
    std::fs::remove_file(world.home_dir().join("run/host.json")).unwrap();
    assert_eq!(host.process.child.wait().unwrap().code(), Some(0));
}

#[test]
fn who_needs_a_host_while_one_ends_gets_the_next() {
    let (world, thread) = world_with_thread("loop = true\n[[turn]]\ntext = \"x\"\n");
    let mut host = TestHost::start_host(&world, &[]);
    // A client still watches, so the host keeps running.
    let mut events = host.client.open_events(&thread, None);
    wait_for_runs(&mut events, 1);
    host.process.send_signal(rustix::process::Signal::TERM);
    while world.home_dir().join("run/host.json").exists() {
        std::thread::yield_now();
    }
    let told = world.run_json(&["host", "--ensure", "--json"]);
    assert_ne!(told["pid"], host.client.pid);
    assert_eq!(told["pid"], HostClient::from_host_file(&world).pid);
    assert_eq!(host.process.child.wait().unwrap().code(), Some(0));
    assert_eq!(HostClient::from_host_file(&world).call_json("GET", "/healthz", &Value::Null).0, 200);
}

#[test]
fn whoever_needs_a_host_has_one() {
    let world = CliWorld::new();
    let asking: Vec<_> = (0..5).map(|_| world.start_minke(&["host", "--ensure", "--json"])).collect();
    let told: Vec<Value> = asking
        .into_iter()
        .map(|going| {
            let done = going.wait_for_exit();
            assert_eq!(done.code, Some(0), "{done:?}");
            serde_json::from_str(&done.out).unwrap()
        })
        .collect();
    let door = HostClient::from_host_file(&world);
    for info in &told {
        assert_eq!(info["pid"], door.pid, "two hosts: {told:?}");
        assert!(info.get("token").is_none(), "the token is printed");
    }
    assert_eq!(door.call_json("GET", "/v1/pods", &Value::Null).0, 200);
    kill_by_pid(&door.pid);
}

#[test]
fn other_machines_are_let_in_only_on_purpose() {
    let world = CliWorld::new();
    let token = world.write_file("token", &"t".repeat(40));
    let short = world.write_file("short", "secret");
    let (token, short) = (token.to_str().unwrap(), short.to_str().unwrap());
    for args in [
        &["host", "--listen", "0.0.0.0:0"][..],
        &["host", "--listen", "[::]:0", "--token-file", token],
        &["host", "--listen", "0.0.0.0:0", "--behind-proxy", "minke.example"],
        &["host", "--token-file", short],
        &["host", "--token-file", "/nowhere"],
        &["host", "--listen", "localhost"],
    ] {
        let done = world.run_minke(args);
        assert_eq!(done.code, Some(2), "{args:?}: {done:?}");
        assert!(!world.home_dir().join("run/host.json").exists());
    }
}

#[test]
fn a_unit_is_written_and_not_started() {
    let world = CliWorld::new();
    let mut command = world.minke_command();
    command.args(["host", "--install", "--json"]).env("HOME", world.work_dir());
    let done = world.run_command(command);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told: Value = serde_json::from_str(&done.out).unwrap();
    let unit = std::fs::read_to_string(told["unit"].as_str().unwrap()).unwrap();
    assert!(
        unit.contains(&format!("ExecStart=\"{}\" host --idle 0\n", env!("CARGO_BIN_EXE_minke"))),
        "{unit}"
    );
    assert!(!world.home_dir().join("run/host.json").exists());
    assert_eq!(
        world.run_minke(&["host", "--install"]).code,
        Some(2),
        "without a home there is no directory for it"
    );
}

/// The same requests and frames on stdin and stdout.
#[test]
fn stdio_speaks_to_the_same_engine() {
    let (world, thread) = world_with_thread("loop = true\n[[turn]]\ntext = \"x\"\n");
    let lines = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "thread/read", "params": { "thread_id": thread } }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "events/subscribe", "params": { "thread": thread } }),
    ];
    let mut command = world.minke_command();
    command.args(["host", "--stdio"]);
    let mut child =
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    for line in lines {
        std::io::Write::write_all(&mut stdin, format!("{line}\n").as_bytes()).unwrap();
    }
    let mut answers = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let (mut read, mut told) = (None, Vec::new());
    while told.last() != Some(&"response_end".to_owned()) || read.is_none() {
        let answer: Value = serde_json::from_str(&answers.next().unwrap().unwrap()).unwrap();
        if answer["id"] == 1 {
            read = Some(answer["result"]["thread"]["id"].as_str().unwrap().to_owned());
        } else if answer["method"] == "event" {
            told.push(answer["params"]["event"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(read.as_deref(), Some(thread.as_str()));
    assert_eq!(told, ["response_start", "turn_started", "response_delta", "turn_complete", "response_end"]);
    // Without more requests it ends.
    drop(stdin);
    assert!(answers.next().is_none());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!world.home_dir().join("run/host.json").exists(), "no host listens");
}

/// An accepted request is carried out even if its client disconnects.
#[test]
fn a_message_whose_sender_is_gone_is_run() {
    let (world, thread) = world_with_thread("loop = true\n[[turn]]\ntext = \"x\"\n");
    let host = TestHost::start_host(&world, &[]);
    let mut events = host.client.open_events(&thread, None);
    wait_for_runs(&mut events, 1);
    let message = json!({ "kind": "message", "thread_id": thread, "input": "are you there?" });
    let gone = host.client.send_request("POST", "/v1/thread", "", &message.to_string());
    drop(gone);
    // Its pod slept: the message is written and the pod started, without a waiting client.
    wait_for_runs(&mut events, 1);
}

/// The same for many clients that close their connections at once, so that the server reads the end with the
/// request.
#[test]
fn requests_of_clients_that_leave_at_once_are_carried_out() {
    const CLIENT_COUNT: usize = 40;
    let (world, thread) = world_with_thread("loop = true\n[[turn]]\ntext = \"x\"\n");
    let host = TestHost::start_host(&world, &[]);
    let mut events = host.client.open_events(&thread, None);
    wait_for_runs(&mut events, 1);
    for number in 0..CLIENT_COUNT {
        let save =
            json!({ "kind": "checkpoint_save", "thread_id": thread, "checkpoint_id": format!("c{number}") });
        drop(host.client.send_request("POST", "/v1/thread", "", &save.to_string()));
    }
    let list = json!({ "kind": "checkpoint_list", "thread_id": thread });
    let begin = std::time::Instant::now();
    let saved = loop {
        let answer = host.client.post_ok("/v1/thread", &list);
        let saved = answer["data"]["checkpoints"].as_array().map_or(0, Vec::len);
        if saved >= CLIENT_COUNT || begin.elapsed() > std::time::Duration::from_secs(30) {
            break saved;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert_eq!(saved, CLIENT_COUNT);
}

/// A thread is found on the command line by the name that its user gave.
#[test]
fn a_thread_has_a_name_in_any_language() {
    let (world, thread) = world_with_thread("loop = true\n[[turn]]\ntext = \"x\"\n");
    let host = TestHost::start_host(&world, &[]);
    for name in
        ["My Thread", "\u{dc}ber die Br\u{fc}cke", "\u{9879}\u{76ee}", "\u{645}\u{634}\u{631}\u{648}\u{639}"]
    {
        let set = json!({ "kind": "set_name", "thread_id": thread, "name": name });
        let answer = host.client.post_ok("/v1/thread", &set);
        assert_eq!(
            (&answer["status"], &answer["thread"]["name"]),
            (&"ok".into(), &name.into()),
            "{answer:#}"
        );
        let read = world.run_json(&["thread", "read", name, "--json"]);
        assert_eq!(read["thread"]["name"], name, "{read:#}");
    }
    for bad in ["a\u{202e}b", "a\nb", "", "\u{200f}x"] {
        let set = json!({ "kind": "set_name", "thread_id": thread, "name": bad });
        let (status, answer) = host.client.call_json("POST", "/v1/thread", &set);
        assert_eq!((status, &answer["error"]["code"]), (400, &"invalid_request".into()), "{answer:#}");
    }
    // Its pod runs under the last of them.
    let last = "\u{645}\u{634}\u{631}\u{648}\u{639}";
    assert_eq!(world.run_minke(&["send", last, "continue"]).code, Some(0));
    assert_eq!(world.run_minke(&["wait", last]).code, Some(0));
    assert_eq!(world.run_minke(&["stop", last]).code, Some(0));
}

#[test]
fn a_job_is_told_as_it_goes() {
    let world = CliWorld::new();
    let script = world.write_file("s.toml", "loop = true\n[[turn]]\ntext = \"done\"\n");
    let host = TestHost::start_host(&world, &[]);
    let job = host.client.post_ok(
        "/v1/jobs",
        &json!({
            "mandate": { "objective": "be done" }, "cwd": world.work_dir(), "name": "j",
            "model": format!("scripted/{}", script.display()),
        }),
    );
    let id =
        job["thread_id"].as_str().or(job["id"].as_str()).or(job["job"]["id"].as_str()).unwrap().to_owned();
    let mut events = host.client.open_events(&id, None);
    let mut states = Vec::new();
    while states.last() != Some(&"completed".to_owned()) {
        let seen = events.next_frame().unwrap();
        if seen.event_name() == "job_updated" {
            assert_eq!(seen.frame["job_id"], id.as_str());
            states.push(seen.frame["item"]["status"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!((states.first().unwrap().as_str(), states.len()), ("queued", 3), "{states:?}");
    let (status, figures) = host.client.call_json("GET", "/metrics", &Value::Null);
    let figures = figures.as_str().unwrap();
    assert_eq!(status, 200);
    for line in [
        "minke_jobs{state=\"completed\"} 1\n",
        "minke_jobs{state=\"queued\"} 0\n",
        "minke_threads 1\n",
        "minke_event_streams 1\n",
        "minke_http_requests_total{route=\"/v1/jobs\",status=\"200\"} 1\n",
        "# TYPE minke_http_requests_total counter\n",
    ] {
        assert!(figures.contains(line), "no {line} in {figures}");
    }
}
