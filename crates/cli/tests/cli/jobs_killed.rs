//! A job whose host, pod, or both are killed after each entry of its log: it goes on by itself and completes once.
//! `MINKE_LONG=1` takes every entry, without it some are.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Door, Host};
use crate::jobs::BROKEN;
use crate::world::{World, commands_are_held, kill};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);
/// The first try is never good enough, the second is.
const MANDATE: &str = r#"{"retry":{"max":2,"base_ms":20,"jitter":false},
    "acceptance":"echo tried >> tries; test $(wc -l < tries) -ge 2"}"#;
/// Entries between two kills of the ordinary version.
const STRIDE: usize = 6;

#[derive(Debug, Clone, Copy)]
enum Who {
    Pod,
    Host,
    Both,
}

#[test]
fn a_job_is_done_once_whoever_dies_after_whichever_entry() {
    if !commands_are_held("a_job_is_done_once_whoever_dies_after_whichever_entry") {
        return;
    }
    let world = World::new();
    world.write("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let mut host = Host::start(&world, &["--idle", "0"]);
    let whole = begin(&world, "whole");
    let job = completed(&world, &whole, "nobody died");
    assert_eq!(job["retry"]["attempt"], 1, "{job}");
    let entries = log(&world, &whole).len();
    assert!(entries > 12, "{entries} entries are not what such a job writes");
    let stride = if std::env::var_os("MINKE_LONG").is_some() { 1 } else { STRIDE };
    let mut killed = 0;
    for (number, at) in (1..entries).step_by(stride).enumerate() {
        for who in [Who::Pod, Who::Host, Who::Both] {
            let what = format!("{who:?} after {at} entries");
            let id = begin(&world, &format!("{who:?}{number}").to_lowercase());
            until_written(&world, &id, at, &what);
            if matches!(who, Who::Pod | Who::Both) {
                killed += usize::from(kill_pod(&world, &id));
            }
            if matches!(who, Who::Host | Who::Both) {
                kill(&host.door.pid);
                host = Host::start(&world, &["--idle", "0"]);
            }
            let job = completed(&world, &id, &what);
            let phases =
                job["history"].as_array().unwrap().iter().filter(|item| item["phase"] == "completed");
            assert_eq!(phases.count(), 1, "{what}: {job}");
            // A kill while the command ran leaves its line: then the next try is good enough.
            assert!(
                job["retry"]["attempt"].as_u64().unwrap() <= 1,
                "{what}: a crash uses up no retry: {job}"
            );
        }
    }
    assert!(killed >= 3, "only {killed} pods were there to be killed");
    world.verify();
}

#[test]
fn whoever_dies_a_job_goes_on_when_it_is_due() {
    let world = World::new();
    world.write("s.toml", BROKEN);
    let mut host = Host::start(&world, &["--idle", "0"]);
    let dir = world.work().to_str().unwrap().to_owned();
    let mandate = r#"{"retry":{"max":1,"base_ms":2000,"jitter":false}}"#;
    let args = ["job", "run", "do it", "--json", "--cwd", &dir, "--model", "scripted:s.toml"];
    let id = world.json(&[&args[..], &["--mandate", mandate]].concat())["thread_id"].clone();
    let id = id.as_str().unwrap();
    let due =
        |entry: &Value| entry["kind"] == "state" && entry["state"] == "waiting" && entry["on"] == "time";
    let begun = Instant::now();
    while !log(&world, id).iter().any(due) {
        assert!(begun.elapsed() < PATIENCE, "{:?}", log(&world, id).last());
        std::thread::sleep(LOOK);
    }
    assert!(kill_pod(&world, id), "it keeps its own time while it lives");
    kill(&host.door.pid);
    host = Host::start(&world, &["--idle", "0"]);
    // The script has no more to say, which is the end of the second attempt.
    ended(&world, id, "failed", "killed while it waited");
    let log = log(&world, id);
    let until = log.iter().find(|entry| due(entry)).unwrap()["until"].as_u64().unwrap();
    let again = log.iter().rev().find(|entry| entry["kind"] == "invoke").unwrap()["ts"].as_u64().unwrap();
    assert!((until..until + 1_000).contains(&again), "due at {until}, went on at {again}");
    drop(host);
}

#[test]
fn the_next_command_starts_a_host_for_what_is_owed() {
    let world = World::new();
    world.write("s.toml", BROKEN);
    let host = Host::start(&world, &["--idle", "0"]);
    let dir = world.work().to_str().unwrap().to_owned();
    let mandate = r#"{"retry":{"max":1,"base_ms":3000,"jitter":false}}"#;
    let args =
        ["job", "run", "do it", "--json", "--name", "due", "--cwd", &dir, "--model", "scripted:s.toml"];
    let id = world.json(&[&args[..], &["--mandate", mandate]].concat())["thread_id"].clone();
    let id = id.as_str().unwrap();
    assert_eq!(world.json(&["doctor", "--json"])["jobs_due"], json!([]), "a host runs");
    ended(&world, id, "waiting", "it is tried again later");
    let mark = world.home().join("data/jobs.owed");
    assert!(mark.exists());
    assert!(kill_pod(&world, id));
    let pid = host.door.pid.clone();
    drop(host);
    // It looks, and starts nobody.
    let begun = Instant::now();
    let due = loop {
        let due = world.json(&["doctor", "--json"])["jobs_due"].clone();
        if due != json!([]) {
            break due;
        }
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(LOOK * 20);
    };
    assert_eq!((&due[0]["name"], &due[0]["id"]), (&json!("due"), &json!(id)), "{due}");
    ended(&world, id, "failed", "whoever asked started a host");
    let next = Door::of(&world).pid;
    assert_ne!(next, pid);
    let begun = Instant::now();
    while mark.exists() {
        assert!(begun.elapsed() < PATIENCE, "nothing is owed any more");
        std::thread::sleep(LOOK);
    }
    kill(&next);
}

fn begin(world: &World, name: &str) -> String {
    let dir = world.work().join(name);
    std::fs::create_dir(&dir).unwrap();
    let args = ["job", "run", "do it", "--json", "--name", name, "--model", "scripted:s.toml"];
    let more = ["--cwd", dir.to_str().unwrap(), "--mandate", MANDATE];
    world.json(&[&args[..], &more].concat())["thread_id"].as_str().unwrap().to_owned()
}

fn log(world: &World, id: &str) -> Vec<Value> {
    let dir = world.home().join("data/sessions").join(id.trim_start_matches("s_"));
    let text = std::fs::read_to_string(Path::new(&dir).join("log.jsonl")).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn until_written(world: &World, id: &str, entries: usize, what: &str) {
    let begun = Instant::now();
    while log(world, id).len() < entries {
        assert!(begun.elapsed() < PATIENCE, "{what}: it does not get that far");
        std::thread::sleep(LOOK);
    }
}

/// Whether there was one.
fn kill_pod(world: &World, id: &str) -> bool {
    let log = log(world, id);
    let mut newest = log.iter().rev();
    let opened = newest.find(|entry| entry["kind"] == "opened" && entry["as"] == "pod");
    let pid = opened.map(|opened| opened["pid"].clone());
    let lives = |pid: &Value| Path::new(&format!("/proc/{pid}")).exists();
    pid.filter(lives).is_some_and(|pid| {
        kill(&pid);
        true
    })
}

fn completed(world: &World, id: &str, what: &str) -> Value {
    ended(world, id, "completed", what)
}

fn ended(world: &World, id: &str, wanted: &str, what: &str) -> Value {
    let begun = Instant::now();
    loop {
        let job = world.json(&["job", "show", id, "--json"])["data"]["job"].clone();
        if job["status"] == wanted {
            return job;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {job}");
        std::thread::sleep(LOOK * 20);
    }
}
