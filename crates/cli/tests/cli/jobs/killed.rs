//! A job whose host, pod, or both are killed after each entry of its log: it continues automatically and
//! completes once. `MINKE_LONG=1` tests every entry, the default only some.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::jobs::BROKEN_PROVIDER;
use crate::support::http::{HostClient, TestHost};
use crate::support::world::{CliWorld, can_sandbox_commands, kill_by_pid};

const JOB_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// The first attempt always fails, the second succeeds.
const JOB_MANDATE: &str = r#"{"retry":{"max":2,"base_ms":20,"jitter":false},
    "acceptance":"echo tried >> tries; test $(wc -l < tries) -ge 2"}"#;
/// Entries between two kills of the ordinary version.
const KILL_STRIDE: usize = 6;

#[derive(Debug, Clone, Copy)]
enum KillVictim {
    Pod,
    Host,
    Both,
}

#[test]
fn a_job_is_done_once_whoever_dies_after_whichever_entry() {
    if !can_sandbox_commands("a_job_is_done_once_whoever_dies_after_whichever_entry") {
        return;
    }
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let mut host = TestHost::start_host(&world, &["--idle", "0"]);
    let whole = start_job(&world, "whole");
    let job = wait_completed(&world, &whole, "without a kill");
    assert_eq!(job["retry"]["attempt"], 1, "{job}");
    let entries = log_entries(&world, &whole).len();
    assert!(entries > 12, "{entries} entries are too few for this job");
    let stride = if std::env::var_os("MINKE_LONG").is_some() { 1 } else { KILL_STRIDE };
    let mut killed = 0;
    for (number, at) in (1..entries).step_by(stride).enumerate() {
        for victim in [KillVictim::Pod, KillVictim::Host, KillVictim::Both] {
            let what = format!("{victim:?} after {at} entries");
            let id = start_job(&world, &format!("{victim:?}{number}").to_lowercase());
            wait_for_entries(&world, &id, at, &what);
            if matches!(victim, KillVictim::Pod | KillVictim::Both) {
                killed += usize::from(kill_job_pod(&world, &id));
            }
            if matches!(victim, KillVictim::Host | KillVictim::Both) {
                kill_by_pid(&host.client.pid);
                host = TestHost::start_host(&world, &["--idle", "0"]);
            }
            let job = wait_completed(&world, &id, &what);
            let phases =
                job["history"].as_array().unwrap().iter().filter(|item| item["phase"] == "completed");
            assert_eq!(phases.count(), 1, "{what}: {job}");
            // A kill during the command leaves its line, so that the next attempt succeeds.
            assert!(
                job["retry"]["attempt"].as_u64().unwrap() <= 1,
                "{what}: a crash uses up no retry: {job}"
            );
        }
    }
    assert!(killed >= 3, "only {killed} pods could be killed");
    world.verify_logs();
}

#[test]
fn whoever_dies_a_job_goes_on_when_it_is_due() {
    let world = CliWorld::new();
    world.write_file("s.toml", BROKEN_PROVIDER);
    let mut host = TestHost::start_host(&world, &["--idle", "0"]);
    let dir = world.work_dir().to_str().unwrap().to_owned();
    let mandate = r#"{"retry":{"max":1,"base_ms":2000,"jitter":false}}"#;
    let args = ["job", "run", "do it", "--json", "--cwd", &dir, "--model", "scripted:s.toml"];
    let id = world.run_json(&[&args[..], &["--mandate", mandate]].concat())["thread_id"].clone();
    let id = id.as_str().unwrap();
    let due =
        |entry: &Value| entry["kind"] == "state" && entry["state"] == "waiting" && entry["on"] == "time";
    let begun = Instant::now();
    while !log_entries(&world, id).iter().any(due) {
        assert!(begun.elapsed() < JOB_TIMEOUT, "{:?}", log_entries(&world, id).last());
        std::thread::sleep(POLL_INTERVAL);
    }
    assert!(kill_job_pod(&world, id), "the pod keeps the time while it is live");
    kill_by_pid(&host.client.pid);
    host = TestHost::start_host(&world, &["--idle", "0"]);
    // The script has no more turns, so the second attempt fails.
    wait_for_status(&world, id, "failed", "killed while it waited");
    let log = log_entries(&world, id);
    let until = log.iter().find(|entry| due(entry)).unwrap()["until"].as_u64().unwrap();
    let again = log.iter().rev().find(|entry| entry["kind"] == "invoke").unwrap()["ts"].as_u64().unwrap();
    assert!((until..until + 1_000).contains(&again), "due at {until}, resumed at {again}");
    drop(host);
}

#[test]
fn the_next_command_starts_a_host_for_what_is_owed() {
    let world = CliWorld::new();
    world.write_file("s.toml", BROKEN_PROVIDER);
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let dir = world.work_dir().to_str().unwrap().to_owned();
    let mandate = r#"{"retry":{"max":1,"base_ms":3000,"jitter":false}}"#;
    let args =
        ["job", "run", "do it", "--json", "--name", "due", "--cwd", &dir, "--model", "scripted:s.toml"];
    let id = world.run_json(&[&args[..], &["--mandate", mandate]].concat())["thread_id"].clone();
    let id = id.as_str().unwrap();
    assert_eq!(world.run_json(&["doctor", "--json"])["jobs_due"], json!([]), "a host runs");
    wait_for_status(&world, id, "waiting", "it is tried again later");
    let mark = world.home_dir().join("data/jobs.owed");
    assert!(mark.exists());
    assert!(kill_job_pod(&world, id));
    let pid = host.client.pid.clone();
    drop(host);
    // It only reads, and starts no host.
    let begun = Instant::now();
    let due = loop {
        let due = world.run_json(&["doctor", "--json"])["jobs_due"].clone();
        if due != json!([]) {
            break due;
        }
        assert!(begun.elapsed() < JOB_TIMEOUT);
        std::thread::sleep(POLL_INTERVAL * 20);
    };
    assert_eq!((&due[0]["name"], &due[0]["id"]), (&json!("due"), &json!(id)), "{due}");
    wait_for_status(&world, id, "failed", "the next command started a host");
    let next = HostClient::from_host_file(&world).pid;
    assert_ne!(next, pid);
    let begun = Instant::now();
    while mark.exists() {
        assert!(begun.elapsed() < JOB_TIMEOUT, "no job is due any more");
        std::thread::sleep(POLL_INTERVAL);
    }
    kill_by_pid(&next);
}

fn start_job(world: &CliWorld, name: &str) -> String {
    let dir = world.work_dir().join(name);
    std::fs::create_dir(&dir).unwrap();
    let args = ["job", "run", "do it", "--json", "--name", name, "--model", "scripted:s.toml"];
    let more = ["--cwd", dir.to_str().unwrap(), "--mandate", JOB_MANDATE];
    world.run_json(&[&args[..], &more].concat())["thread_id"].as_str().unwrap().to_owned()
}

fn log_entries(world: &CliWorld, id: &str) -> Vec<Value> {
    let dir = world.home_dir().join("data/sessions").join(id.trim_start_matches("s_"));
    let text = std::fs::read_to_string(Path::new(&dir).join("log.jsonl")).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn wait_for_entries(world: &CliWorld, id: &str, entries: usize, what: &str) {
    let begun = Instant::now();
    while log_entries(world, id).len() < entries {
        assert!(begun.elapsed() < JOB_TIMEOUT, "{what}: it does not get that far");
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Returns true if there was one.
fn kill_job_pod(world: &CliWorld, id: &str) -> bool {
    let log = log_entries(world, id);
    let mut newest = log.iter().rev();
    let opened = newest.find(|entry| entry["kind"] == "opened" && entry["as"] == "pod");
    let pid = opened.map(|opened| opened["pid"].clone());
    let lives = |pid: &Value| Path::new(&format!("/proc/{pid}")).exists();
    pid.filter(lives).is_some_and(|pid| {
        kill_by_pid(&pid);
        true
    })
}

fn wait_completed(world: &CliWorld, id: &str, what: &str) -> Value {
    wait_for_status(world, id, "completed", what)
}

fn wait_for_status(world: &CliWorld, id: &str, wanted: &str, what: &str) -> Value {
    let begun = Instant::now();
    loop {
        let job = world.run_json(&["job", "show", id, "--json"])["data"]["job"].clone();
        if job["status"] == wanted {
            return job;
        }
        assert!(begun.elapsed() < JOB_TIMEOUT, "{what}: {job}");
        std::thread::sleep(POLL_INTERVAL * 20);
    }
}
