//! `kill -9`, and everything that a dead pod leaves.

use serde_json::Value;

use crate::world::{UNFENCED, World, kill};

const SLOW: &str = r#"
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

/// A run whose pod was killed in the middle of its second turn.
fn killed() -> World {
    let world = World::new();
    world.write("s.toml", SLOW);
    let exec = ["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"];
    let mut going = world.start(&[&exec[..], &UNFENCED].concat());
    going.until("Half");
    kill(&world.only_pod()["pid"]);
    let done = going.end();
    assert_eq!(done.code, Some(75), "{done:?}");
    assert!(done.err.contains("--resume s_"), "it says how to go on: {}", done.err);
    world.write("s.toml", &SLOW.replace("60000", "1"));
    world
}

fn kinds(world: &World, session: &str) -> Vec<String> {
    let log = world.run(&["log", "show", session, "--json"]).out;
    log.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["kind"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_killed_pod_comes_back_paused_and_goes_on_when_told() {
    let world = killed();
    assert_eq!(world.json(&["ps", "--json"]), Value::Array(Vec::new()), "its lease is free at once");
    // Attaching brings it back, Paused: a crash is a pause nobody asked for.
    let attached = world.pipe("", &["attach", "tale"]);
    assert_eq!(attached.code, Some(0), "{attached:?}");
    assert!(attached.out.contains("run interrupted"), "{}", attached.out);
    assert_eq!(world.only_pod()["state"], "paused");
    let resumed = world.run(&["resume", "tale"]);
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    let followed = world.run(&["stop", "tale", "--after-run"]);
    assert_eq!(followed.code, Some(0), "{followed:?}");
    let tail = world.run(&["tail", "tale"]);
    assert_eq!(tail.code, Some(0), "{tail:?}");
    assert_eq!(world.read("NOTES.md"), "once\n", "no call is run twice");
    world.verify();
    let kinds = kinds(&world, "tale");
    assert_eq!(kinds.iter().filter(|kind| *kind == "invoke").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "run_completed").count(), 2);
    assert_eq!(kinds.iter().filter(|kind| *kind == "tool_result").count(), 1);
}

#[test]
fn a_signal_interrupts_the_run_and_leaves_nothing_behind() {
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let world = World::new();
        world.write("s.toml", SLOW);
        let mut going =
            world.start(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
        going.until("Half");
        let pid = i32::try_from(world.only_pod()["pid"].as_i64().unwrap()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
        let done = going.end();
        assert_eq!(done.code, Some(75), "{done:?}");
        let log = world.run(&["log", "show", "tale"]).out;
        assert!(log.lines().last().unwrap().contains("interrupted stopped by a signal"), "{log}");
        let pods = std::fs::read_dir(world.home().join("run/pods")).unwrap().count();
        assert_eq!(pods, 0, "the runtime directory is gone");
        world.verify();
        world.write("s.toml", &SLOW.replace("60000", "1"));
        let resumed = world.run(&["exec", "--resume", "tale"]);
        assert_eq!(resumed.code, Some(0), "{resumed:?}");
        assert_eq!(world.read("NOTES.md"), "once\n", "no call is run twice");
    }
}

#[test]
fn words_that_break_off_end_their_line() {
    let world = World::new();
    let script = "[[turn]]\npace_ms = 50\nsteps = [{ text = \"tick \", repeat = 10000 }]\n";
    world.write("s.toml", script);
    let mut going = world.start(&["exec", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("tick");
    kill(&world.only_pod()["pid"]);
    let done = going.end();
    assert!(done.out.ends_with('\n'), "what comes after the words begins a line of its own: {done:?}");
    assert_eq!(done.code, Some(75), "{done:?}");
}

#[test]
fn exec_resume_without_a_prompt_goes_on_with_the_killed_run() {
    let world = killed();
    let done = world.run(&["exec", "--resume", "tale"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(done.out, "Half\n and half.\n", "the blocks of the turn that was lost, once");
    assert_eq!(world.read("NOTES.md"), "once\n");
    world.verify();
}

#[test]
fn a_message_to_a_sleeping_session_is_run_once() {
    let world = killed();
    let sent = world.run(&["send", "tale", "more", "--op-id", "op-1"]);
    assert_eq!(sent.code, Some(0), "{sent:?}");
    assert_eq!(world.run(&["stop", "tale", "--after-run"]).code, Some(0));
    assert_eq!(world.run(&["tail", "tale"]).code, Some(0));
    // The same again, whether a pod lives or not, is the same operation.
    assert_eq!(world.run(&["send", "tale", "more", "--op-id", "op-1"]).code, Some(0));
    let stopped = world.run(&["stop", "tale"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let kinds = kinds(&world, "tale");
    assert_eq!(kinds.iter().filter(|kind| *kind == "user_input").count(), 2, "go and more: {kinds:?}");
    assert_eq!(world.read("NOTES.md"), "once\n");
    world.verify();
}

#[test]
fn a_killed_run_is_given_up_without_waking_anybody() {
    let world = killed();
    let done = world.run(&["cancel", "tale"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.json(&["ps", "--json"]), Value::Array(Vec::new()));
    let again = world.run(&["cancel", "tale"]);
    assert_eq!(again.code, Some(1), "nothing is left to give up: {again:?}");
    let resumed = world.run(&["resume", "tale"]);
    assert_eq!(resumed.code, Some(1), "{resumed:?}");
    assert!(resumed.err.contains("error: "), "{}", resumed.err);
    world.verify();
}

#[test]
fn what_a_dead_pod_left_stops_nobody() {
    let world = killed();
    let pods = world.home().join("run/pods");
    assert!(pods.join("tale/sock").exists() || !pods.join("tale").exists());
    // A directory without a lease, with a socket that nobody listens at.
    std::fs::create_dir_all(pods.join("work")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(pods.join("work/sock")).unwrap());
    for name in ["tale", "work"] {
        let done = world.run(&["exec", "--name", name, "--model", "scripted:demo", "go"]);
        assert_eq!(done.code, Some(0), "{name}: {done:?}");
    }
    world.verify();
}

#[test]
fn a_second_writer_is_told_who_holds_the_session() {
    let world = World::new();
    world.write("s.toml", SLOW);
    let mut going = world.start(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("Half");
    let pid = world.only_pod()["pid"].to_string();
    let second = world.run(&["exec", "--resume", "tale", "me too"]);
    assert_eq!(second.code, Some(75), "{second:?}");
    assert!(second.err.contains("`tale`") && second.err.contains(&pid), "{}", second.err);
    let named = world.run(&["exec", "--name", "tale", "--model", "scripted:demo", "go"]);
    assert_eq!(named.code, Some(75), "{named:?}");
    assert!(named.err.contains(&pid) && named.err.contains("minke attach tale"), "{}", named.err);
    let stopped = world.run(&["stop", "tale"]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert_eq!(going.end().code, Some(130), "somebody has stopped the pod");
    world.verify();
}

#[test]
fn a_live_pod_is_paused_resumed_told_and_watched() {
    let world = World::new();
    world.write("s.toml", SLOW);
    let mut going = world.start(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("Half");
    assert_eq!(world.only_pod()["state"], "running");
    assert_eq!(world.only_pod()["activity"], "model");
    let queued = world.json(&["send", "tale", "later", "--json"]);
    assert!(queued["result"]["queued"].is_string(), "{queued}");
    // Longer than one frame: it travels as a blob.
    let long = world.pipe(&"long ".repeat(1_200_000), &["send", "tale", "-", "--json"]);
    assert_eq!(long.code, Some(0), "{}", long.err);
    let refused = world.run(&["send", "tale", "now", "--mode", "reject"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let refused = world.run(&["resume", "tale"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(world.run(&["pause", "tale", "--detail", "lunch"]).code, Some(0));
    let done = going.end();
    assert_eq!(done.code, Some(75), "{done:?}");
    assert!(done.err.contains("lunch"), "{}", done.err);
    world.verify();
}

#[test]
fn two_sessions_of_one_name_can_be_awake_at_once() {
    let world = World::new();
    for _ in 0..2 {
        let done = world.run(&["exec", "--json", "--name", "tale", "--model", "scripted:demo", "go"]);
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let rows = world.json(&["ps", "--all", "--json"]);
    for row in rows.as_array().unwrap() {
        let woken = world.pipe("", &["attach", row["session"].as_str().unwrap()]);
        assert_eq!(woken.code, Some(0), "{woken:?}");
    }
    let rows = world.json(&["ps", "--json"]);
    let names: Vec<&str> = rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["tale", "tale-2"]);
}

/// Until nobody lives any more; a pod that stays keeps the test from its end.
fn until_nobody_lives(world: &World) {
    let started = std::time::Instant::now();
    while world.json(&["ps", "--json"]) != Value::Array(Vec::new()) {
        assert!(started.elapsed() < std::time::Duration::from_secs(60), "a pod stays behind");
    }
}

#[test]
fn the_pod_of_a_killed_exec_finishes_its_run_and_ends() {
    let world = World::new();
    world.write(
        "s.toml",
        "[[turn]]\nsteps = [{ text = \"Half\" }, { delay_ms = 700 }, { text = \" and half.\" }]\n",
    );
    let mut going = world.start(&["exec", "--json", "--name", "tale", "--model", "scripted:s.toml", "go"]);
    going.until("Half");
    going.child.kill().unwrap();
    going.end();
    until_nobody_lives(&world);
    let shown = world.run(&["log", "show", "tale", "--kind", "run_completed"]).out;
    assert!(shown.trim_end().ends_with("run_completed   finished"), "it was not cut short: {shown}");
    world.verify();
    // The next one finds nobody in its way.
    let next = world.run(&["exec", "--resume", "tale", "--model", "scripted:demo", "go on"]);
    assert_eq!(next.code, Some(0), "{next:?}");
}

#[test]
fn the_pod_of_a_killed_exec_that_waits_for_an_answer_ends_and_its_question_stays() {
    let world = World::new();
    std::fs::create_dir_all(world.home().join("config")).unwrap();
    std::fs::write(world.home().join("config/policy.toml"), "[[rule]]\naction = \"ask\"\ntool = \"Write\"\n")
        .unwrap();
    world.write(
        "s.toml",
        "[[turn]]\n[[turn.call]]\ntool = \"Write\"\nargs = { file_path = \"a.txt\", content = \"a\\n\" }\n\
         [[turn]]\ntext = \"Done.\"\n",
    );
    let exec = ["exec", "--on-ask", "wait", "--name", "tale", "--model", "scripted:s.toml", "go"];
    let mut going = world.start(&exec);
    while world.json(&["asks", "--json"]).as_array().unwrap().is_empty() {}
    going.child.kill().unwrap();
    going.end();
    until_nobody_lives(&world);
    let asks = world.json(&["asks", "--json"]);
    assert_eq!(asks.as_array().unwrap().len(), 1, "{asks}");
    world.verify();
}
