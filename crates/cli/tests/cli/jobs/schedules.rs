//! Jobs with a schedule, with a real host and real pods: every firing creates one job, even if processes are
//! killed.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::support::http::TestHost;
use crate::support::world::{CliWorld, kill_by_pid};

const JOB_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(40);

const QUICK_SCRIPT: &str = "loop = true\n[[turn]]\ntext = [\"done.\"]\n";
/// Long enough to still run at the next firing.
const LONG_SCRIPT: &str = r#"
loop = true
[[turn]]
pace_ms = 1500
text = ["one ", "two ", "three ", "four."]
"#;

fn world_with_script(script: &str) -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", script);
    world
}

fn start_job(world: &CliWorld, more: &[&str]) -> String {
    let dir = world.work_dir().to_str().unwrap().to_owned();
    let args =
        ["job", "run", "look around", "--json", "--cwd", &dir, "--name", "t", "--model", "scripted:s.toml"];
    let done = world.run_minke(&[&args[..], more].concat());
    let answer: Value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    answer["thread_id"].as_str().unwrap().to_owned()
}

fn job_json(world: &CliWorld, id: &str) -> Value {
    world.run_json(&["job", "show", id, "--json"])["data"]["job"].clone()
}

/// Polls a job until it matches.
fn wait_for_job(world: &CliWorld, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let job = job_json(world, id);
        if wanted(&job) {
            return job;
        }
        assert!(begun.elapsed() < JOB_TIMEOUT, "{id} is not {what}: {job}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn wait_for_firings(world: &CliWorld, id: &str, times: u64) -> Value {
    wait_for_job(world, id, &format!("fired {times} times"), |job| {
        job["schedule"]["fired"].as_u64() >= Some(times)
    })
}

fn log_path(world: &CliWorld, id: &str) -> PathBuf {
    world.home_dir().join("data/sessions").join(id.trim_start_matches("s_")).join("log.jsonl")
}

fn log_lines(world: &CliWorld, id: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log_path(world, id)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the firings in the log: the session and whether it was created.
fn logged_firings(world: &CliWorld, id: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for line in log_lines(world, id) {
        if let Some(session) = line["firing"]["session"].as_str() {
            let made = line["firing"]["made"] == true;
            assert!(made || !found.contains_key(session), "{session} was logged twice");
            found.insert(session.to_owned(), made);
        }
    }
    found
}

/// Returns the sessions whose creator is this job.
fn sessions_made_by(world: &CliWorld, id: &str) -> Vec<String> {
    let mut made = Vec::new();
    for dir in std::fs::read_dir(world.home_dir().join("data/sessions")).unwrap() {
        let name = dir.unwrap().file_name().into_string().unwrap();
        let first = log_lines(world, &name).into_iter().next();
        if first.is_some_and(|start| start["mandate"]["of"] == id) {
            made.push(name);
        }
    }
    made.sort();
    made
}

fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn an_interval_fires_again_and_again_and_is_paused_resumed_and_cancelled() {
    let world = world_with_script(QUICK_SCRIPT);
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, &["--every", "1s", "--retries", "2"]);
    let begun = job_json(&world, &id);
    assert_eq!((&begun["status"], &begun["schedule"]["every_s"]), (&json!("waiting"), &json!(1)));
    let after = wait_for_firings(&world, &id, 3);
    assert_eq!(after["status"], "waiting");
    let last = after["schedule"]["last"].as_str().unwrap().to_owned();
    let one = wait_for_job(&world, &last, "over", |job| job["status"] == "completed");
    assert_eq!((&one["of"], one.get("schedule")), (&json!(id), None));
    assert_eq!(
        log_lines(&world, &last)[0]["mandate"],
        json!({"objective": "look around", "retry": {"max": 2}, "of": id})
    );
    let shown = world.run_minke(&["job", "show", &id]).out;
    assert!(shown.contains("every 1 s") && shown.contains("fires next at"), "{shown}");
    assert!(world.run_minke(&["job", "list"]).out.contains("fires next at"));
    assert!(world.run_minke(&["job", "show", &last]).out.contains(&id));

    assert_eq!(world.run_minke(&["job", "pause", &id]).code, Some(0));
    let paused = job_json(&world, &id);
    assert_eq!((&paused["status"], paused["schedule"].get("next_at")), (&json!("paused"), None));
    let count = paused["schedule"]["fired"].as_u64().unwrap();
    let resumed = world.run_json(&["job", "resume", &id, "--json"])["data"]["job"].clone();
    assert_eq!(resumed["status"], "waiting", "{resumed}");
    wait_for_firings(&world, &id, count + 1);
    assert_eq!(world.run_minke(&["job", "cancel", &id]).code, Some(0));
    let over = job_json(&world, &id);
    assert_eq!(over["status"], "cancelled");
    assert!(world.run_minke(&["job", "resume", &id]).err.contains("cancelled"));
    drop(host);
    let all = logged_firings(&world, &id);
    assert!(all.values().all(|made| *made), "{all:?}");
    assert_eq!(sessions_made_by(&world, &id), all.into_keys().collect::<Vec<_>>());
    world.verify_logs();
}

#[test]
fn every_firing_is_made_once_whoever_is_killed() {
    let world = world_with_script(QUICK_SCRIPT);
    let mut host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, &["--every", "1s"]);
    for round in 1..=5 {
        // At another time within the second in each round.
        wait_for_firings(&world, &id, round);
        std::thread::sleep(Duration::from_millis(170 * round));
        kill_by_pid(&host.client.pid);
        host = TestHost::start_host(&world, &["--idle", "0"]);
    }
    wait_for_firings(&world, &id, 7);
    world.run_minke(&["job", "cancel", &id]);
    let all = logged_firings(&world, &id);
    assert!(all.values().all(|made| *made), "{all:?}");
    assert_eq!(sessions_made_by(&world, &id), all.into_keys().collect::<Vec<_>>());
    drop(host);
    world.verify_logs();
}

#[test]
fn a_firing_that_was_written_and_not_made_is_made_with_its_id() {
    let world = world_with_script(QUICK_SCRIPT);
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, &["--every", "2s"]);
    let first = wait_for_firings(&world, &id, 1)["schedule"]["last"].as_str().unwrap().to_owned();
    wait_for_job(&world, &first, "over", |job| job["status"] == "completed");
    kill_by_pid(&host.client.pid);
    drop(host);
    // The state after only the id was logged: no session yet, and no confirmation.
    let all = log_lines(&world, &id);
    let named = all.iter().position(|line| line["firing"]["session"].is_string()).unwrap();
    let session = all[named]["firing"]["session"].as_str().unwrap().to_owned();
    assert_eq!(all[named]["firing"].get("made"), None);
    let text = std::fs::read_to_string(log_path(&world, &id)).unwrap();
    let kept: Vec<&str> = text.lines().take(named + 1).collect();
    std::fs::write(log_path(&world, &id), kept.join("\n") + "\n").unwrap();
    let begun = Instant::now();
    while std::fs::read_dir(world.home_dir().join("run/pods")).unwrap().next().is_some() {
        assert!(begun.elapsed() < JOB_TIMEOUT);
        std::thread::sleep(POLL_INTERVAL);
    }
    std::fs::remove_dir_all(world.home_dir().join("data/sessions").join(&session)).unwrap();
    for other in logged_firings(&world, &id).keys().filter(|other| **other != session) {
        std::fs::remove_dir_all(world.home_dir().join("data/sessions").join(other)).unwrap();
    }

    let host = TestHost::start_host(&world, &["--idle", "0"]);
    wait_for_job(&world, &session, "completed", |job| job["status"] == "completed");
    world.run_minke(&["job", "cancel", &id]);
    drop(host);
    let all = logged_firings(&world, &id);
    assert_eq!(all.get(&session), Some(&true));
    world.verify_logs();
}

#[test]
fn missed_firings_are_named_and_run_once() {
    let world = world_with_script(QUICK_SCRIPT);
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, &["--every", "1s"]);
    let first = wait_for_firings(&world, &id, 1)["schedule"]["last"].as_str().unwrap().to_owned();
    wait_for_job(&world, &first, "over", |job| job["status"] == "completed");
    kill_by_pid(&host.client.pid);
    drop(host);
    // From the log, because another command would start a host.
    let due =
        log_lines(&world, &id).iter().rev().find_map(|line| line["until"].as_u64()).unwrap().div_ceil(1_000);
    // Time passes without a host.
    while now_seconds() < due + 4 {
        std::thread::sleep(POLL_INTERVAL);
    }
    let before = logged_firings(&world, &id).len();
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let told = |job: &Value| {
        let history = job["history"].as_array().unwrap();
        history
            .iter()
            .any(|item| item["detail"].as_str().is_some_and(|detail| detail.contains("were missed")))
    };
    wait_for_job(&world, &id, "a report of the missed firing", told);
    world.run_minke(&["job", "cancel", &id]);
    drop(host);
    let missed: Vec<Value> =
        log_lines(&world, &id).into_iter().filter(|line| line["firing"]["missed"].is_object()).collect();
    let first = missed.first().unwrap();
    assert!(first["firing"]["missed"]["count"].as_u64().unwrap() >= 3, "{first}");
    assert_eq!(first["firing"]["missed"]["first"].as_u64().unwrap().div_ceil(1_000), due);
    assert!(logged_firings(&world, &id).len() > before);
    assert_eq!(
        sessions_made_by(&world, &id).len(),
        logged_firings(&world, &id).len(),
        "exactly the logged sessions were created"
    );
    world.verify_logs();
}

#[test]
fn one_that_is_due_while_the_last_goes_on_is_skipped_and_that_is_said() {
    let world = world_with_script(LONG_SCRIPT);
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, &["--every", "1s"]);
    let first = wait_for_firings(&world, &id, 1)["schedule"]["last"].as_str().unwrap().to_owned();
    let skipped = wait_for_job(&world, &id, "skipped", |job| {
        job["detail"].as_str().is_some_and(|d| d.contains("skipped"))
    });
    assert!(skipped["detail"].as_str().unwrap().contains(&first), "{skipped}");
    assert_eq!(skipped["schedule"]["fired"], 1);
    // The next one starts when it ends.
    wait_for_job(&world, &first, "over", |job| job["status"] == "completed");
    wait_for_firings(&world, &id, 2);
    world.run_minke(&["job", "cancel", &id]);
    drop(host);
    world.verify_logs();
}

#[test]
fn a_schedule_at_the_command_line_is_understood_or_refused() {
    let world = world_with_script(QUICK_SCRIPT);
    let id = start_job(&world, &["--cron", "30 3 * * 1-5", "--tz", "Europe/Berlin"]);
    let shown = job_json(&world, &id);
    assert_eq!(shown["schedule"]["tz"], "Europe/Berlin");
    assert!(shown["schedule"]["next_at"].as_u64().unwrap() > now_seconds());
    let ours = start_job(&world, &["--cron", "@daily"]);
    assert!(job_json(&world, &ours)["schedule"]["tz"].is_string(), "the zone is stored");
    let dir = world.work_dir().to_str().unwrap().to_owned();
    let refused = |more: &[&str]| {
        let args = ["job", "run", "x", "--cwd", &dir, "--model", "scripted:s.toml"];
        let done = world.run_minke(&[&args[..], more].concat());
        assert_ne!(done.code, Some(0), "{done:?}");
        done.err
    };
    assert!(refused(&["--cron", "30 3 * *"]).contains("schedule.cron"));
    assert!(refused(&["--cron", "0 0 30 2 *"]).contains("no such time"));
    assert!(refused(&["--cron", "30 3 * * *", "--tz", "Mars/Olympus"]).contains("schedule.tz"));
    assert!(refused(&["--every", "soon"]).contains("10m"));
    assert!(refused(&["--every", "0s"]).contains("schedule.every_s"));
    assert!(refused(&["--every", "10m", "--wait"]).contains("--wait"));
    for id in [id, ours] {
        assert_eq!(world.run_minke(&["job", "cancel", &id]).code, Some(0));
    }
}
