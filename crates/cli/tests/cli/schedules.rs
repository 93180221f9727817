//! Jobs with a schedule, with a real host and real pods: every firing is made once, whoever is killed meanwhile.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::http::Host;
use crate::world::{World, kill};

const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(40);

const QUICK: &str = "loop = true\n[[turn]]\ntext = [\"done.\"]\n";
/// Long enough to be at work at the next firing.
const LONG: &str = r#"
loop = true
[[turn]]
pace_ms = 1500
text = ["one ", "two ", "three ", "four."]
"#;

fn world(script: &str) -> World {
    let world = World::new();
    world.write("s.toml", script);
    world
}

fn begin(world: &World, more: &[&str]) -> String {
    let dir = world.work().to_str().unwrap().to_owned();
    let args =
        ["job", "run", "look around", "--json", "--cwd", &dir, "--name", "t", "--model", "scripted:s.toml"];
    let done = world.run(&[&args[..], more].concat());
    let answer: Value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done:?}"));
    answer["thread_id"].as_str().unwrap().to_owned()
}

fn job(world: &World, id: &str) -> Value {
    world.json(&["job", "show", id, "--json"])["data"]["job"].clone()
}

/// Looks at a job until it is as wanted.
fn until(world: &World, id: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let job = job(world, id);
        if wanted(&job) {
            return job;
        }
        assert!(begun.elapsed() < PATIENCE, "{id} is not {what}: {job}");
        std::thread::sleep(LOOK);
    }
}

fn fired(world: &World, id: &str, times: u64) -> Value {
    until(world, id, &format!("fired {times} times"), |job| job["schedule"]["fired"].as_u64() >= Some(times))
}

fn log(world: &World, id: &str) -> PathBuf {
    world.home().join("data/sessions").join(id.trim_start_matches("s_")).join("log.jsonl")
}

fn lines(world: &World, id: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log(world, id)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the log says of firings: the session and whether it stands.
fn firings(world: &World, id: &str) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for line in lines(world, id) {
        if let Some(session) = line["firing"]["session"].as_str() {
            let made = line["firing"]["made"] == true;
            assert!(made || !found.contains_key(session), "{session} was named twice");
            found.insert(session.to_owned(), made);
        }
    }
    found
}

/// The sessions that name this job as the one that they were made by.
fn made_by(world: &World, id: &str) -> Vec<String> {
    let mut made = Vec::new();
    for dir in std::fs::read_dir(world.home().join("data/sessions")).unwrap() {
        let name = dir.unwrap().file_name().into_string().unwrap();
        let first = lines(world, &name).into_iter().next();
        if first.is_some_and(|start| start["mandate"]["of"] == id) {
            made.push(name);
        }
    }
    made.sort();
    made
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn an_interval_fires_again_and_again_and_is_paused_resumed_and_cancelled() {
    let world = world(QUICK);
    let host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, &["--every", "1s", "--retries", "2"]);
    let begun = job(&world, &id);
    assert_eq!((&begun["status"], &begun["schedule"]["every_s"]), (&json!("waiting"), &json!(1)));
    let after = fired(&world, &id, 3);
    assert_eq!(after["status"], "waiting");
    let last = after["schedule"]["last"].as_str().unwrap().to_owned();
    let one = until(&world, &last, "over", |job| job["status"] == "completed");
    assert_eq!((&one["of"], one.get("schedule")), (&json!(id), None));
    assert_eq!(
        lines(&world, &last)[0]["mandate"],
        json!({"objective": "look around", "retry": {"max": 2}, "of": id})
    );
    let shown = world.run(&["job", "show", &id]).out;
    assert!(shown.contains("every 1 s") && shown.contains("fires next at"), "{shown}");
    assert!(world.run(&["job", "list"]).out.contains("fires next at"));
    assert!(world.run(&["job", "show", &last]).out.contains(&id));

    assert_eq!(world.run(&["job", "pause", &id]).code, Some(0));
    let paused = job(&world, &id);
    assert_eq!((&paused["status"], paused["schedule"].get("next_at")), (&json!("paused"), None));
    let count = paused["schedule"]["fired"].as_u64().unwrap();
    let resumed = world.json(&["job", "resume", &id, "--json"])["data"]["job"].clone();
    assert_eq!(resumed["status"], "waiting", "{resumed}");
    fired(&world, &id, count + 1);
    assert_eq!(world.run(&["job", "cancel", &id]).code, Some(0));
    let over = job(&world, &id);
    assert_eq!(over["status"], "cancelled");
    assert!(world.run(&["job", "resume", &id]).err.contains("cancelled"));
    drop(host);
    let all = firings(&world, &id);
    assert!(all.values().all(|made| *made), "{all:?}");
    assert_eq!(made_by(&world, &id), all.into_keys().collect::<Vec<_>>());
    world.verify();
}

#[test]
fn every_firing_is_made_once_whoever_is_killed() {
    let world = world(QUICK);
    let mut host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, &["--every", "1s"]);
    for round in 1..=5 {
        // At another moment of its second each time.
        fired(&world, &id, round);
        std::thread::sleep(Duration::from_millis(170 * round));
        kill(&host.door.pid);
        host = Host::start(&world, &["--idle", "0"]);
    }
    fired(&world, &id, 7);
    world.run(&["job", "cancel", &id]);
    let all = firings(&world, &id);
    assert!(all.values().all(|made| *made), "{all:?}");
    assert_eq!(made_by(&world, &id), all.into_keys().collect::<Vec<_>>());
    drop(host);
    world.verify();
}

#[test]
fn a_firing_that_was_written_and_not_made_is_made_with_its_id() {
    let world = world(QUICK);
    let host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, &["--every", "2s"]);
    let first = fired(&world, &id, 1)["schedule"]["last"].as_str().unwrap().to_owned();
    until(&world, &first, "over", |job| job["status"] == "completed");
    kill(&host.door.pid);
    drop(host);
    // As it was when the id stood in the log and nothing else: no session, and nobody had written that it stands.
    let all = lines(&world, &id);
    let named = all.iter().position(|line| line["firing"]["session"].is_string()).unwrap();
    let session = all[named]["firing"]["session"].as_str().unwrap().to_owned();
    assert_eq!(all[named]["firing"].get("made"), None);
    let text = std::fs::read_to_string(log(&world, &id)).unwrap();
    let kept: Vec<&str> = text.lines().take(named + 1).collect();
    std::fs::write(log(&world, &id), kept.join("\n") + "\n").unwrap();
    let begun = Instant::now();
    while std::fs::read_dir(world.home().join("run/pods")).unwrap().next().is_some() {
        assert!(begun.elapsed() < PATIENCE);
        std::thread::sleep(LOOK);
    }
    std::fs::remove_dir_all(world.home().join("data/sessions").join(&session)).unwrap();
    for other in firings(&world, &id).keys().filter(|other| **other != session) {
        std::fs::remove_dir_all(world.home().join("data/sessions").join(other)).unwrap();
    }

    let host = Host::start(&world, &["--idle", "0"]);
    until(&world, &session, "completed", |job| job["status"] == "completed");
    world.run(&["job", "cancel", &id]);
    drop(host);
    let all = firings(&world, &id);
    assert_eq!(all.get(&session), Some(&true));
    world.verify();
}

#[test]
fn missed_firings_are_named_and_run_once() {
    let world = world(QUICK);
    let host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, &["--every", "1s"]);
    let first = fired(&world, &id, 1)["schedule"]["last"].as_str().unwrap().to_owned();
    until(&world, &first, "over", |job| job["status"] == "completed");
    kill(&host.door.pid);
    drop(host);
    // From the log: the next command would start another host.
    let due =
        lines(&world, &id).iter().rev().find_map(|line| line["until"].as_u64()).unwrap().div_ceil(1_000);
    // Time passes, and nobody is there.
    while now_s() < due + 4 {
        std::thread::sleep(LOOK);
    }
    let before = firings(&world, &id).len();
    let host = Host::start(&world, &["--idle", "0"]);
    let told = |job: &Value| {
        let history = job["history"].as_array().unwrap();
        history
            .iter()
            .any(|item| item["detail"].as_str().is_some_and(|detail| detail.contains("were missed")))
    };
    until(&world, &id, "told of what it missed", told);
    world.run(&["job", "cancel", &id]);
    drop(host);
    let missed: Vec<Value> =
        lines(&world, &id).into_iter().filter(|line| line["firing"]["missed"].is_object()).collect();
    let first = missed.first().unwrap();
    assert!(first["firing"]["missed"]["count"].as_u64().unwrap() >= 3, "{first}");
    assert_eq!(first["firing"]["missed"]["first"].as_u64().unwrap().div_ceil(1_000), due);
    assert!(firings(&world, &id).len() > before);
    assert_eq!(
        made_by(&world, &id).len(),
        firings(&world, &id).len(),
        "each that was named was made, and no more"
    );
    world.verify();
}

#[test]
fn one_that_is_due_while_the_last_goes_on_is_skipped_and_that_is_said() {
    let world = world(LONG);
    let host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, &["--every", "1s"]);
    let first = fired(&world, &id, 1)["schedule"]["last"].as_str().unwrap().to_owned();
    let skipped =
        until(&world, &id, "skipped", |job| job["detail"].as_str().is_some_and(|d| d.contains("skipped")));
    assert!(skipped["detail"].as_str().unwrap().contains(&first), "{skipped}");
    assert_eq!(skipped["schedule"]["fired"], 1);
    // As soon as it is over the next one is made.
    until(&world, &first, "over", |job| job["status"] == "completed");
    fired(&world, &id, 2);
    world.run(&["job", "cancel", &id]);
    drop(host);
    world.verify();
}

#[test]
fn a_schedule_at_the_command_line_is_understood_or_refused() {
    let world = world(QUICK);
    let id = begin(&world, &["--cron", "30 3 * * 1-5", "--tz", "Europe/Berlin"]);
    let shown = job(&world, &id);
    assert_eq!(shown["schedule"]["tz"], "Europe/Berlin");
    assert!(shown["schedule"]["next_at"].as_u64().unwrap() > now_s());
    let ours = begin(&world, &["--cron", "@daily"]);
    assert!(job(&world, &ours)["schedule"]["tz"].is_string(), "the zone is written down");
    let dir = world.work().to_str().unwrap().to_owned();
    let refused = |more: &[&str]| {
        let args = ["job", "run", "x", "--cwd", &dir, "--model", "scripted:s.toml"];
        let done = world.run(&[&args[..], more].concat());
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
        assert_eq!(world.run(&["job", "cancel", &id]).code, Some(0));
    }
}
