//! `kill -9`, and the remains of a dead pod.

use serde_json::Value;

use crate::support::world::{CliWorld, UNSANDBOXED, kill_by_pid};

const SLOW_SCRIPT: &str = r#"
[[turn]]
text = "First."
[[turn.call]]
tool = "Bash"
args = { command = "echo once >> NOTES.md" }
[[turn]]
steps = [{ text = "Half" }, { delay_ms = 60000 }, { text = " and half." }]
[[turn]]
text = "Later."
"#;

/// Starts a run and kills its pod in the middle of the second turn.
fn world_with_killed_pod() -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let exec = ["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"];
    let mut going = world.start_minke(&[&exec[..], &UNSANDBOXED].concat());
    going.wait_for_stdout("Half");
    kill_by_pid(&world.only_live_pod()["pid"]);
    let done = going.wait_for_exit();
    assert_eq!(done.code, Some(75), "{done:?}");
    assert!(done.err.contains("--resume s_"), "the hint names the command to resume: {}", done.err);
    world.write_file("s.toml", &SLOW_SCRIPT.replace("60000", "1"));
    world
}

fn entry_kinds(world: &CliWorld, session: &str) -> Vec<String> {
    let log = world.run_minke(&["log", "show", session, "--json"]).out;
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_killed_pod_comes_back_paused_and_goes_on_when_told() {
    let world = world_with_killed_pod();
    assert_eq!(world.run_json(&["ps", "--json"]), Value::Array(Vec::new()), "its lease is released at once");
    // Attaching starts the pod again, paused, because its run was interrupted.
    let attached = world.run_with_stdin("", &["attach", "tale"]);
    assert_eq!(attached.code, Some(0), "{attached:?}");
    assert!(attached.out.contains("run interrupted"), "{}", attached.out);
    assert_eq!(world.only_live_pod()["state"], "paused");
    let resumed = world.run_minke(&["resume", "tale"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let followed = world.run_minke(&["stop", "tale", "--after-run"]);
    assert_eq!(followed.code, Some(0), "{followed:?}");
    let tail = world.run_minke(&["tail", "tale"]);
    assert_eq!(tail.code, Some(0), "{tail:?}");
    assert_eq!(world.read_file("NOTES.md"), "once\n", "no call is run twice");
    world.verify_logs();
    let kinds = entry_kinds(&world, "tale");
    assert_eq!(kinds.iter().filter(|kind| *kind == "invoke").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "run_completed").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "tool_result").count(), 1);
}

#[test]
fn a_signal_interrupts_the_run_and_leaves_nothing_behind() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let world = CliWorld::new();
        world.write_file("s.toml", SLOW_SCRIPT);
        let mut going =
            world.start_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
        going.wait_for_stdout("Half");
        let pid = i32::try_from(world.only_live_pod()["pid"].as_i64().unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        let done = going.wait_for_exit();
        assert_eq!(done.code, Some(75), "{done:?}");
        let log = world.run_minke(&["log", "show", "tale"]).out;
        assert!(log.lines().last().unwrap().contains("interrupted stopped by a signal"), "{log}");
        let pods = std::fs::read_dir(world.home_dir().join("run/pods")).unwrap().count();
        assert_eq!(pods, 0, "the runtime directory is gone");
        world.verify_logs();
        world.write_file("s.toml", &SLOW_SCRIPT.replace("60000", "1"));
        let resumed = world.run_minke(&["exec", "--resume", "tale"]);
        assert_eq!(resumed.code, Some(0), "{resumed:?}");
        assert_eq!(world.read_file("NOTES.md"), "once\n", "no call is run twice");
    }
}

#[test]
fn words_that_break_off_end_their_line() {
    let world = CliWorld::new();
    let script = "[[turn]]\npace_ms = 50\nsteps = [{ text = \"tick \", repeat = 10000 }]\n";
    world.write_file("s.toml", script);
    let mut going = world.start_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("tick");
    kill_by_pid(&world.only_live_pod()["pid"]);
    let done = going.wait_for_exit();
    assert!(done.out.ends_with('\n'), "output after the text starts on a new line: {done:?}");
    assert_eq!(done.code, Some(75), "{done:?}");
}

#[test]
fn exec_resume_without_a_prompt_goes_on_with_the_killed_run() {
    let world = world_with_killed_pod();
    let done = world.run_minke(&["exec", "--resume", "tale"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.out, "Half\n and half.\n", "the blocks of the lost turn, once");
    assert_eq!(world.read_file("NOTES.md"), "once\n");
    world.verify_logs();
}

#[test]
fn a_message_to_a_sleeping_session_is_run_once() {
    let world = world_with_killed_pod();
    let sent = world.run_minke(&["send", "tale", "more", "--op-id", "op-1"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(world.run_minke(&["stop", "tale", "--after-run"]).code, Some(0));
    assert_eq!(world.run_minke(&["tail", "tale"]).code, Some(0));
    // A repeated request has the same effect, with or without a live pod.
    assert_eq!(world.run_minke(&["send", "tale", "more", "--op-id", "op-1"]).code, Some(0));
    let stopped = world.run_minke(&["stop", "tale"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let kinds = entry_kinds(&world, "tale");
    assert_eq!(kinds.iter().filter(|kind| *kind == "user_input").count(), 2, "go and more: {kinds:?}");
    assert_eq!(world.read_file("NOTES.md"), "once\n");
    world.verify_logs();
}

#[test]
fn a_killed_run_is_given_up_without_waking_anybody() {
    let world = world_with_killed_pod();
    let done = world.run_minke(&["cancel", "tale"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run_json(&["ps", "--json"]), Value::Array(Vec::new()));
    let again = world.run_minke(&["cancel", "tale"]);
    assert_eq!(again.code, Some(1), "no run is left to cancel: {again:?}");
    let resumed = world.run_minke(&["resume", "tale"]);
    assert_eq!(resumed.code, Some(1), "{resumed:?}");
    assert!(resumed.err.contains("error: "), "{}", resumed.err);
    world.verify_logs();
}

#[test]
fn what_a_dead_pod_left_stops_nobody() {
    let world = world_with_killed_pod();
    let pods = world.home_dir().join("run/pods");
    assert!(pods.join("tale/sock").exists() || !pods.join("tale").exists());
    // A directory without a lease, with a socket that no process listens on.
    std::fs::create_dir_all(pods.join("work")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(pods.join("work/sock")).unwrap());
    for name in ["tale", "work"] {
        let done = world.run_minke(&["exec", "--name", name, "--model", "scripted:demo", "go"]);
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
    }
    world.verify_logs();
}

#[test]
fn a_second_writer_is_told_who_holds_the_session() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut going =
        world.start_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    let pid = world.only_live_pod()["pid"].to_string();
    let second = world.run_minke(&["exec", "--resume", "tale", "me too"]);
    assert_eq!(second.code, Some(75), "{second:?}");
    assert!(second.err.contains("`tale`") && second.err.contains(&pid), "{}", second.err);
    let named = world.run_minke(&["exec", "--name", "tale", "--model", "scripted:demo", "go"]);
    assert_eq!(named.code, Some(75), "{named:?}");
    assert!(named.err.contains(&pid) && named.err.contains("minke attach tale"), "{}", named.err);
    let stopped = world.run_minke(&["stop", "tale"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(going.wait_for_exit().code, Some(130), "the pod was stopped");
    world.verify_logs();
}

#[test]
fn a_live_pod_is_paused_resumed_told_and_watched() {
    let world = CliWorld::new();
    world.write_file("s.toml", SLOW_SCRIPT);
    let mut going =
        world.start_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    assert_eq!(world.only_live_pod()["state"], "running");
    assert_eq!(world.only_live_pod()["activity"], "model");
    let queued = world.run_json(&["send", "tale", "later", "--json"]);
    assert!(queued["result"]["queued"].is_string(), "{queued}");
    // Longer than one frame: it is sent as a blob.
    let long = world.run_with_stdin(&"long ".repeat(1_200_000), &["send", "tale", "-", "--json"]);
    assert_eq!(long.code, Some(0), "{}", long.err);
    let refused = world.run_minke(&["send", "tale", "now", "--mode", "reject"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let refused = world.run_minke(&["resume", "tale"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(world.run_minke(&["pause", "tale", "--detail", "lunch"]).code, Some(0));
    let done = going.wait_for_exit();
    assert_eq!(done.code, Some(75), "{done:?}");
    assert!(done.err.contains("lunch"), "{}", done.err);
    world.verify_logs();
}

#[test]
fn two_sessions_of_one_name_can_be_awake_at_once() {
    let world = CliWorld::new();
    for _ in 0..2 {
        let done = world.run_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:demo", "go"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let rows = world.run_json(&["ps", "--all", "--json"]);
    for row in rows.as_array().unwrap() {
        let woken = world.run_with_stdin("", &["attach", row["session"].as_str().unwrap()]);
        assert_eq!(woken.code, Some(0), "{woken:?}");
    }
    let rows = world.run_json(&["ps", "--json"]);
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tale", "tale-2"]);
}

/// Waits until no pod is live; a remaining pod would keep the test from ending.
fn wait_until_no_pods(world: &CliWorld) {
    let started = std::time::Instant::now();
    while world.run_json(&["ps", "--json"]) != Value::Array(Vec::new()) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "a pod is still live");
    }
}

#[test]
fn the_pod_of_a_killed_exec_finishes_its_run_and_ends() {
    let world = CliWorld::new();
    world.write_file(
        "s.toml",
        "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 700 }, { text = \" and half.\" }]\n",
    );
    let mut going =
        world.start_minke(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.wait_for_stdout("Half");
    going.child.kill().unwrap();
    going.wait_for_exit();
    wait_until_no_pods(&world);
    let shown = world.run_minke(&["log", "show", "tale", "--kind", "run_completed"]).out;
    assert!(shown.trim_end().ends_with("run_completed   finished"), "it was not cut short: {shown}");
    world.verify_logs();
    // The next run meets no conflict.
    let next = world.run_minke(&["exec", "--resume", "tale", "--model", "scripted:demo", "continue"]);
    assert_eq!(next.code, Some(0), "{next:?}");
}

#[test]
fn the_pod_of_a_killed_exec_that_waits_for_an_answer_ends_and_its_question_stays() {
    let world = CliWorld::new();
    std::fs::create_dir_all(world.home_dir().join("config")).unwrap();
    std::fs::write(
        world.home_dir().join("config/policy.toml"),
        "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n",
    )
    .unwrap();
    world.write_file(
        "s.toml",
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n\
         [[turn]]\ntext = \"Done.\"\n",
    );
    let exec = ["exec", "--on-ask", "wait", "--name", "tale", "--model", "scripted:s.toml", "go"];
    let mut going = world.start_minke(&exec);
    while world.run_json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    going.child.kill().unwrap();
    going.wait_for_exit();
    wait_until_no_pods(&world);
    let asks = world.run_json(&["asks", "--json"]);
    assert_eq!(asks.as_array().unwrap().len(), 1, "{asks}");
    world.verify_logs();
}
