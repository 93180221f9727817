//! `minke job` and the host that looks after jobs, with real pods: each is done once, whoever is killed meanwhile.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{Door, Host};
use crate::world::{World, kill};

/// How long jobs may take that are killed again and again.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);

/// A pod that speaks slowly enough to be killed.
const SLOW: &str = r#"
loop = true
[[turn]]
pace_ms = 50
text = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten."]
"#;

/// A provider that is busy for the first run, with all its attempts, and answers then.
const BUSY: &str = r#"
[[turn]]
error = { status = 400, message = "no", times = 1 }
"#;

/// A provider whose reply breaks off again and again, until the run has failed; it asks for no wait.
pub(crate) const BROKEN: &str = r#"
[[turn]]
steps = [{ text = "a " }, { error = { status = 500, message = "busy" } }]
[[turn]]
steps = [{ text = "b " }, { error = { status = 500, message = "busy" } }]
[[turn]]
steps = [{ text = "c " }, { error = { status = 500, message = "busy" } }]
[[turn]]
steps = [{ text = "d " }, { error = { status = 500, message = "busy" } }]
"#;

fn world(script: &str) -> World {
    let world = World::new();
    world.write("s.toml", script);
    world
}

/// A directory of its own for each job: none is in another's way.
fn begin(world: &World, number: usize, more: &[&str]) -> String {
    let dir = world.work().join(format!("w{number}"));
    std::fs::create_dir_all(&dir).unwrap();
    let (dir, name) = (dir.to_str().unwrap().to_owned(), format!("j{number}"));
    let args =
        ["job", "run", "do it", "--json", "--cwd", &dir, "--name", &name, "--model", "scripted:s.toml"];
    let answer = world.json(&[&args[..], more].concat());
    answer["thread_id"].as_str().unwrap().to_owned()
}

fn job(world: &World, id: &str) -> Value {
    world.json(&["job", "show", id, "--json"])["data"]["job"].clone()
}

fn until(world: &World, id: &str, wanted: &str) -> Value {
    let begun = Instant::now();
    loop {
        let job = job(world, id);
        if job["status"] == wanted {
            return job;
        }
        assert!(begun.elapsed() < PATIENCE, "{id} is not {wanted}: {job}");
        std::thread::sleep(LOOK);
    }
}

fn phases(job: &Value) -> Vec<&str> {
    job["history"].as_array().unwrap().iter().map(|item| item["phase"].as_str().unwrap()).collect()
}

#[test]
fn a_job_runs_to_its_end_and_is_told_alike_everywhere() {
    let world = world(SLOW);
    let host = Host::start(&world, &["--idle", "0"]);
    let dir = world.work().to_str().unwrap().to_owned();
    let done =
        world.run(&["job", "run", "do it", "--wait", "--json", "--cwd", &dir, "--model", "scripted:s.toml"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told: Value = serde_json::from_str(&done.out).unwrap();
    let job = &told["data"]["job"];
    assert_eq!(phases(job), ["created", "running", "completed"]);
    assert_eq!((&job["progress"], &job["retry"]["attempt"]), (&json!(100), &json!(0)));
    let id = job["id"].as_str().unwrap();
    let (code, status) = host.door.call("GET", "/v1/status", &Value::Null);
    assert_eq!((code, &status["ok"]), (200, &json!(true)));
    assert_eq!(status["data"]["jobs"][0], *job);
    assert_eq!(host.door.call("GET", &format!("/v1/jobs/{id}"), &Value::Null).1, told);
    assert_eq!(world.json(&["job", "list", "--json"]), status);
    // Its thread is one like any other.
    let thread = world.json(&["thread", "show", id, "--json"]);
    assert_eq!(thread["thread"]["source"], "job");
    assert_eq!(thread["thread"]["preview"], "do it");
    world.verify();
}

#[test]
fn hosts_and_pods_are_killed_and_each_job_completes_once() {
    let world = world(SLOW);
    let mut host = Host::start(&world, &["--idle", "0"]);
    let ids: Vec<String> =
        (0..5).map(|number| begin(&world, number, &["--mandate", r#"{"retry":{"max":1}}"#])).collect();
    let (begun, mut killed) = (Instant::now(), 0);
    while killed < 6 {
        assert!(begun.elapsed() < PATIENCE, "only {killed} were there to be killed");
        let pods = world.json(&["ps", "--json"]);
        let live = pods.as_array().unwrap();
        let Some(pod) = live.get(killed % live.len().max(1)) else { continue };
        kill(&pod["pid"]);
        killed += 1;
        if killed % 2 == 1 {
            kill(&host.door.pid);
            host = Host::start(&world, &["--idle", "0"]);
        }
    }
    for id in &ids {
        let job = until(&world, id, "completed");
        let completed = phases(&job).iter().filter(|phase| **phase == "completed").count();
        assert_eq!((completed, &job["retry"]["attempt"]), (1, &json!(0)), "a crash uses up no retry: {job}");
    }
    world.verify();
    drop(host);
}

#[test]
fn a_failed_job_says_why_and_is_begun_again_as_a_fork() {
    let world = world(BUSY);
    let _host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, 0, &[]);
    let failed = until(&world, &id, "failed");
    assert!(failed["detail"].as_str().unwrap().contains("no"), "{failed}");
    let refused = world.run(&["job", "resume", &id]);
    assert!(refused.err.contains("failed") && refused.code != Some(0), "{refused:?}");
    let again = world.json(&["job", "retry", &id, "--json"])["data"]["job"].clone();
    let fork = again["id"].as_str().unwrap();
    assert_ne!(fork, id);
    until(&world, fork, "failed");
    assert_eq!(world.json(&["thread", "show", fork, "--json"])["thread"]["source"], "fork");
    assert_eq!(job(&world, &id), failed, "what is over stays as it is");
}

#[test]
fn wishes_are_answered_by_the_table_of_states() {
    let world = world(SLOW);
    // Nobody looks after jobs yet: one that is begun waits.
    let dir = world.work().to_str().unwrap().to_owned();
    let start = json!({ "jsonrpc": "2.0", "id": 1, "method": "jobs/start",
        "params": { "cwd": dir, "model": "scripted:s.toml", "mandate": { "objective": "do it" } } });
    let said = world.pipe(&format!("{start}\n"), &["host", "--stdio"]);
    let answer: Value = serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let id = answer["result"]["thread_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let wish = |verb: &str| world.run(&["job", verb, &id, "--json"]);
    let state = || job(&world, &id)["status"].as_str().unwrap().to_owned();
    assert_eq!(state(), "queued");
    assert!(wish("retry").err.contains("queued"), "it is not over yet");
    assert_eq!((wish("pause").code, state().as_str()), (Some(0), "paused"));
    assert_eq!((wish("pause").code, state().as_str()), (Some(0), "paused"), "it is so already");
    let host = Host::start(&world, &["--idle", "0"]);
    assert_eq!(state(), "paused", "nobody begins what is paused");
    assert_eq!(wish("resume").code, Some(0));
    until(&world, &id, "running");
    assert_eq!(wish("cancel").code, Some(0));
    until(&world, &id, "cancelled");
    for verb in ["pause", "resume", "cancel"] {
        let refused = wish(verb);
        assert!(refused.code != Some(0) && refused.err.contains("cancelled"), "{verb}: {refused:?}");
    }
    drop(host);
    world.verify();
}

#[test]
fn a_job_that_cannot_start_keeps_nobody_waiting() {
    let world = world(SLOW);
    let _host = Host::start(&world, &["--idle", "0"]);
    // Somebody works where the first job wants to write.
    std::fs::create_dir(world.work().join("w0")).unwrap();
    world.write("long.toml", "[[turn]]\npace_ms = 400\ntext = [\"a \", \"b \", \"c \", \"d \", \"e.\"]\n");
    let there = world.work().join("w0").to_str().unwrap().to_owned();
    let mut busy =
        world.start(&["exec", "--cwd", &there, "--name", "busy", "--model", "scripted:long.toml", "work"]);
    busy.until("a ");
    let (first, second) = (begin(&world, 0, &[]), begin(&world, 1, &[]));
    until(&world, &second, "completed");
    assert_eq!(job(&world, &first)["status"], "queued", "its place is taken");
    drop(busy.end());
    until(&world, &first, "completed");
}

#[test]
fn a_host_with_jobs_to_do_does_not_end() {
    let world = world(SLOW);
    let mut host = Host::start(&world, &["--idle", "1"]);
    let wait = r#"{"retry":{"max":3,"base_ms":3000,"jitter":false}}"#;
    world.write("s.toml", BROKEN);
    let id = begin(&world, 0, &["--mandate", wait]);
    until(&world, &id, "waiting");
    let pod = world.only_pod()["pid"].clone();
    kill(&pod);
    // Nobody has the job now; the host stays for it and goes on with it.
    let job = until_attempt(&world, &id, 1);
    assert_eq!(job["retry"]["max_attempts"], 3);
    assert_eq!(Door::of(&world).pid, host.door.pid, "the same host");
    // The script has no more to say, which cannot be mended by trying again.
    until(&world, &id, "failed");
    let begun = Instant::now();
    while host.going.child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "it has nothing to do and does not end");
        std::thread::sleep(LOOK);
    }
}

fn until_attempt(world: &World, id: &str, attempt: u64) -> Value {
    let begun = Instant::now();
    loop {
        let job = job(world, id);
        if job["retry"]["attempt"] == attempt {
            return job;
        }
        assert!(begun.elapsed() < PATIENCE, "{job}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn a_wait_that_the_provider_asks_for_is_the_jobs() {
    let world = world("[[turn]]\nerror = { status = 429, message = 'slow down', retry_after_s = 7200 }\n");
    let _host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, 0, &["--mandate", r#"{"retry":{"max":3,"base_ms":10,"jitter":false}}"#]);
    let waits = until(&world, &id, "waiting");
    let (at, begun) =
        (waits["retry"]["next_retry_at"].as_u64().unwrap(), waits["created_at"].as_u64().unwrap());
    assert!((7_200..7_300).contains(&(at - begun)), "{waits}");
}

#[test]
fn a_job_that_is_always_begun_again_is_a_fork_after_every_end() {
    let world = world(SLOW);
    let mut host = Host::start(&world, &["--idle", "0"]);
    let id = begin(&world, 0, &["--restart", "always"]);
    let mut chain = vec![id];
    // Each end has one that follows it, also when the host is killed around it.
    while chain.len() < 4 {
        let last = chain.last().unwrap().clone();
        until(&world, &last, "completed");
        kill(&host.door.pid);
        host = Host::start(&world, &["--idle", "0"]);
        chain.push(follows(&world, &last));
    }
    // The third end within a minute: the next one waits for somebody to look.
    let rests = until(&world, chain.last().unwrap(), "paused");
    assert!(rests["detail"].as_str().unwrap().contains("needs attention"), "{rests}");
    assert_eq!(world.run(&["job", "resume", chain.last().unwrap()]).code, Some(0));
    until(&world, chain.last().unwrap(), "completed");
    let all = world.json(&["job", "list", "--json"])["data"]["jobs"].as_array().unwrap().len();
    assert!((chain.len()..=chain.len() + 1).contains(&all), "{all} jobs: one for each end");
    world.verify();
    drop(host);
}

/// The job that was begun again from one that is over.
fn follows(world: &World, id: &str) -> String {
    let begun = Instant::now();
    loop {
        let jobs = world.json(&["thread", "list", "--json"]);
        let from = |thread: &&Value| {
            thread["from"]["session"].as_str().map(|from| format!("s_{from}")).as_deref() == Some(id)
                || thread["from"]["session"] == id
        };
        if let Some(next) = jobs["threads"].as_array().unwrap().iter().find(from) {
            return next["id"].as_str().unwrap().to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "nothing follows {id}: {jobs}");
        std::thread::sleep(LOOK);
    }
}

#[test]
fn there_is_as_much_room_as_the_person_says() {
    let world = world(SLOW);
    assert_eq!(world.run(&["config", "set", "host.jobs.running", "1"]).code, Some(0));
    let _host = Host::start(&world, &["--idle", "0"]);
    let ids: Vec<String> = (0..3).map(|number| begin(&world, number, &[])).collect();
    for id in &ids {
        until(&world, id, "completed");
    }
    // The runs of jobs, by the times in their logs: none begins before the one before it has ended.
    let mut runs: Vec<(u64, u64)> = ids
        .iter()
        .map(|id| {
            let read = world.json(&["thread", "show", id, "--json"]);
            let log = std::path::PathBuf::from(read["thread"]["path"].as_str().unwrap()).join("log.jsonl");
            let text = std::fs::read_to_string(log).unwrap();
            let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let at = |kind: &str| {
                entries.iter().find(|entry| entry["kind"] == kind).unwrap()["ts"].as_u64().unwrap()
            };
            (at("invoke"), at("run_completed"))
        })
        .collect();
    runs.sort_unstable();
    assert!(runs.windows(2).all(|two| two[0].1 <= two[1].0), "{runs:?}");
}

#[test]
fn a_job_whose_log_is_damaged_needs_attention_and_is_never_begun() {
    let world = world(SLOW);
    let first = begin_unseen(&world, 0);
    let second = begin_unseen(&world, 1);
    // They are known before they are damaged, as on any machine.
    assert_eq!(job(&world, &first)["status"], "queued");
    for args in [["job", "pause", &first].as_slice(), &["thread", "name", &first, "other"]] {
        assert_eq!(world.run(args).code, Some(0));
    }
    world.json(&["job", "list", "--json"]);
    let path = |id: &str| {
        let shown = world.json(&["thread", "show", id, "--json"]);
        std::path::PathBuf::from(shown["thread"]["path"].as_str().unwrap()).join("log.jsonl")
    };
    // After its first step, and in it.
    for (id, line) in [(&first, 2), (&second, 0)] {
        let path = path(id);
        let text = std::fs::read_to_string(&path).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        assert!(lines.len() > line + 1, "{text}");
        lines[line] = lines[line].replacen("\"ts\":1", "\"ts\":2", 1);
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    let _host = Host::start(&world, &["--idle", "0"]);
    let third = begin(&world, 2, &[]);
    until(&world, &third, "completed");
    let listed = world.json(&["job", "list", "--json"]);
    for id in [&first, &second] {
        let jobs = listed["data"]["jobs"].as_array().unwrap();
        let job = jobs.iter().find(|job| job["id"] == **id).unwrap_or_else(|| panic!("{id}: {listed}"));
        assert_eq!(job["status"], "paused", "{job}");
        let detail = job["detail"].as_str().unwrap();
        assert!(detail.starts_with("needs attention: its log is damaged"), "{detail}");
        let log = std::fs::read_to_string(
            world.home().join("data/sessions").join(id.trim_start_matches("s_")).join("log.jsonl"),
        );
        assert!(!log.unwrap().contains("\"holder\":\"pod\""), "nobody had a pod");
    }
    assert_eq!(job(&world, &first)["status"], "paused");
    let shown = world.run(&["job", "show", &second]);
    assert!(shown.code != Some(0) && shown.err.contains("log verify"), "{shown:?}");
}

/// A job that is begun while nobody looks after jobs.
fn begin_unseen(world: &World, number: usize) -> String {
    let dir = world.work().join(format!("w{number}"));
    std::fs::create_dir_all(&dir).unwrap();
    let start = json!({ "jsonrpc": "2.0", "id": 1, "method": "jobs/start",
        "params": { "cwd": dir, "model": "scripted:s.toml", "mandate": { "objective": "do it" } } });
    let said = world.pipe(&format!("{start}\n"), &["host", "--stdio"]);
    let answer: Value = serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    answer["result"]["thread_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}
