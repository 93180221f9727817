//! `minke job` and the scheduler, with real pods: each job runs once, even if processes are killed.

pub(crate) mod killed;
pub(crate) mod notify;
pub(crate) mod queue;
pub(crate) mod schedules;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::{HostClient, TestHost};
use crate::support::world::{CliWorld, kill_by_pid};

/// Time limit of jobs that are killed repeatedly.
const JOB_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A pod that replies slowly enough to be killed.
const SLOW_SCRIPT: &str = r#"
loop = true
[[turn]]
pace_ms = 50
text = ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten."]
"#;

/// A provider that is busy for all attempts of the first run, and then answers.
const BUSY_PROVIDER: &str = r#"
[[turn]]
error = { status = 400, message = "no", times = 1 }
"#;

/// A provider whose replies break off until the run has failed; it requests no delay.
pub(crate) const BROKEN_PROVIDER: &str = r#"
[[turn]]
steps = [{ text = "a " }, { error = { status = 500, message = "busy" } }]
[[turn]]
steps = [{ text = "b " }, { error = { status = 500, message = "busy" } }]
[[turn]]
steps = [{ text = "c " }, { error = { status = 500, message = "busy" } }]
[[turn]]
steps = [{ text = "d " }, { error = { status = 500, message = "busy" } }]
"#;

fn world_with_script(script: &str) -> CliWorld {
    let world = CliWorld::new();
    world.write_file("s.toml", script);
    world
}

/// Uses a separate directory for each job, so that their scopes do not conflict.
fn start_job(world: &CliWorld, number: usize, more: &[&str]) -> String {
    let dir = world.work_dir().join(format!("w{number}"));
    std::fs::create_dir_all(&dir).unwrap();
    let (dir, name) = (dir.to_str().unwrap().to_owned(), format!("j{number}"));
    let args =
        ["job", "run", "do it", "--json", "--cwd", &dir, "--name", &name, "--model", "scripted:s.toml"];
    let answer = world.run_json(&[&args[..], more].concat());
    answer["thread_id"].as_str().unwrap().to_owned()
}

fn job_json(world: &CliWorld, id: &str) -> Value {
    world.run_json(&["job", "show", id, "--json"])["data"]["job"].clone()
}

fn wait_for_status(world: &CliWorld, id: &str, wanted: &str) -> Value {
    let begun = Instant::now();
    loop {
        let job = job_json(world, id);
        if job["status"] == wanted {
            return job;
        }
        assert!(begun.elapsed() < JOB_TIMEOUT, "{id} is not {wanted}: {job}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn history_phases(job: &Value) -> Vec<&str> {
    job["history"].as_array().unwrap().iter().map(|item| item["phase"].as_str().unwrap()).collect()
}

#[test]
fn a_job_runs_to_its_end_and_is_told_alike_everywhere() {
    let world = world_with_script(SLOW_SCRIPT);
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let dir = world.work_dir().to_str().unwrap().to_owned();
    let done = world.run_minke(&[
        "job",
        "run",
        "do it",
        "--wait",
        "--json",
        "--cwd",
        &dir,
        "--model",
        "scripted:s.toml",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    let told: Value = serde_json::from_str(&done.out).unwrap();
    let job = &told["data"]["job"];
    assert_eq!(history_phases(job), ["created", "running", "completed"]);
    assert_eq!((&job["progress"], &job["retry"]["attempt"]), (&json!(100), &json!(0)));
    let id = job["id"].as_str().unwrap();
    let (code, status) = host.client.call_json("GET", "/v1/status", &Value::Null);
    assert_eq!((code, &status["ok"]), (200, &json!(true)));
    assert_eq!(status["data"]["jobs"][0], *job);
    assert_eq!(host.client.call_json("GET", &format!("/v1/jobs/{id}"), &Value::Null).1, told);
    assert_eq!(world.run_json(&["job", "list", "--json"]), status);
    // Its thread is an ordinary one.
    let thread = world.run_json(&["thread", "show", id, "--json"]);
    assert_eq!(thread["thread"]["source"], "job");
    assert_eq!(thread["thread"]["preview"], "do it");
    world.verify_logs();
}

#[test]
fn hosts_and_pods_are_killed_and_each_job_completes_once() {
    let world = world_with_script(SLOW_SCRIPT);
    let mut host = TestHost::start_host(&world, &["--idle", "0"]);
    let ids: Vec<String> =
        (0..5).map(|number| start_job(&world, number, &["--mandate", r#"{"retry":{"max":1}}"#])).collect();
    let (begun, mut killed) = (Instant::now(), 0);
    while killed < 6 {
        assert!(begun.elapsed() < JOB_TIMEOUT, "only {killed} could be killed");
        let pods = world.run_json(&["ps", "--json"]);
        let live = pods.as_array().unwrap();
        let Some(pod) = live.get(killed % live.len().max(1)) else { continue };
        kill_by_pid(&pod["pid"]);
        killed += 1;
        if killed % 2 == 1 {
            kill_by_pid(&host.client.pid);
            host = TestHost::start_host(&world, &["--idle", "0"]);
        }
    }
    for id in &ids {
        let job = wait_for_status(&world, id, "completed");
        let completed = history_phases(&job).iter().filter(|phase| **phase == "completed").count();
        assert_eq!((completed, &job["retry"]["attempt"]), (1, &json!(0)), "a crash uses up no retry: {job}");
    }
    world.verify_logs();
    drop(host);
}

#[test]
fn a_failed_job_says_why_and_is_begun_again_as_a_fork() {
    let world = world_with_script(BUSY_PROVIDER);
    let _host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, 0, &[]);
    let failed = wait_for_status(&world, &id, "failed");
    assert!(failed["detail"].as_str().unwrap().contains("no"), "{failed}");
    let refused = world.run_minke(&["job", "resume", &id]);
    assert!(refused.err.contains("failed") && refused.code != Some(0), "{refused:?}");
    let again = world.run_json(&["job", "retry", &id, "--json"])["data"]["job"].clone();
    let fork = again["id"].as_str().unwrap();
    assert_ne!(fork, id);
    wait_for_status(&world, fork, "failed");
    assert_eq!(world.run_json(&["thread", "show", fork, "--json"])["thread"]["source"], "fork");
    assert_eq!(job_json(&world, &id), failed, "an ended job does not change");
}

#[test]
fn wishes_are_answered_by_the_table_of_states() {
    let world = world_with_script(SLOW_SCRIPT);
    // Without a host, a started job waits.
    let dir = world.work_dir().to_str().unwrap().to_owned();
    let start = json!({ "jsonrpc": "2.0", "id": 1, "method": "jobs/start",
        "params": { "cwd": dir, "model": "scripted:s.toml", "mandate": { "objective": "do it" } } });
    let said = world.run_with_stdin(&format!("{start}\n"), &["host", "--stdio"]);
    let answer: Value = serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    let id = answer["result"]["thread_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let wish = |verb: &str| world.run_minke(&["job", verb, &id, "--json"]);
    let state = || job_json(&world, &id)["status"].as_str().unwrap().to_owned();
    assert_eq!(state(), "queued");
    assert!(wish("retry").err.contains("queued"), "it has not ended yet");
    assert_eq!((wish("pause").code, state().as_str()), (Some(0), "paused"));
    assert_eq!((wish("pause").code, state().as_str()), (Some(0), "paused"), "it is paused already");
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    assert_eq!(state(), "paused", "a paused job is not started");
    assert_eq!(wish("resume").code, Some(0));
    wait_for_status(&world, &id, "running");
    assert_eq!(wish("cancel").code, Some(0));
    wait_for_status(&world, &id, "cancelled");
    for verb in ["pause", "resume", "cancel"] {
        let refused = wish(verb);
        assert!(refused.code != Some(0) && refused.err.contains("cancelled"), "{verb}: {refused:?}");
    }
    drop(host);
    world.verify_logs();
}

#[test]
fn a_job_that_cannot_start_keeps_nobody_waiting() {
    let world = world_with_script(SLOW_SCRIPT);
    let _host = TestHost::start_host(&world, &["--idle", "0"]);
    // Another pod owns the directory of the first job.
    std::fs::create_dir(world.work_dir().join("w0")).unwrap();
    world.write_file(
        "long.toml",
        "[[turn]]\npace_ms = 400\ntext = [\"a \", \"b \", \"c \", \"d \", \"e.\"]\n",
    );
    let there = world.work_dir().join("w0").to_str().unwrap().to_owned();
    let mut busy = world.start_minke(&[
        "exec",
        "--cwd",
        &there,
        "--name",
        "busy",
        "--model",
        "scripted:long.toml",
        "work",
    ]);
    busy.wait_for_stdout("a ");
    let (first, second) = (start_job(&world, 0, &[]), start_job(&world, 1, &[]));
    wait_for_status(&world, &second, "completed");
    assert_eq!(job_json(&world, &first)["status"], "queued", "its directory is in use");
    drop(busy.wait_for_exit());
    wait_for_status(&world, &first, "completed");
}

#[test]
fn a_host_with_jobs_to_do_does_not_end() {
    let world = world_with_script(SLOW_SCRIPT);
    let mut host = TestHost::start_host(&world, &["--idle", "1"]);
    let wait = r#"{"retry":{"max":3,"base_ms":3000,"jitter":false}}"#;
    world.write_file("s.toml", BROKEN_PROVIDER);
    let id = start_job(&world, 0, &["--mandate", wait]);
    wait_for_status(&world, &id, "waiting");
    let pod = world.only_live_pod()["pid"].clone();
    kill_by_pid(&pod);
    // No process has the job now; the host keeps running for it and continues it.
    let job = wait_for_attempt(&world, &id, 1);
    assert_eq!(job["retry"]["max_attempts"], 3);
    assert_eq!(HostClient::from_host_file(&world).pid, host.client.pid, "the same host");
    // The script has no more turns, so a retry cannot succeed.
    wait_for_status(&world, &id, "failed");
    let begun = Instant::now();
    while host.process.child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < JOB_TIMEOUT, "it is idle and does not end");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn wait_for_attempt(world: &CliWorld, id: &str, attempt: u64) -> Value {
    let begun = Instant::now();
    loop {
        let job = job_json(world, id);
        if job["retry"]["attempt"] == attempt {
            return job;
        }
        assert!(begun.elapsed() < JOB_TIMEOUT, "{job}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn a_wait_that_the_provider_asks_for_is_the_jobs() {
    let world = world_with_script(
        "[[turn]]\nerror = { status = 429, message = 'slow down', retry_after_s = 7200 }\n",
    );
    let _host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, 0, &["--mandate", r#"{"retry":{"max":3,"base_ms":10,"jitter":false}}"#]);
    let waits = wait_for_status(&world, &id, "waiting");
    let (at, begun) =
        (waits["retry"]["next_retry_at"].as_u64().unwrap(), waits["created_at"].as_u64().unwrap());
    assert!((7_200..7_300).contains(&(at - begun)), "{waits}");
}

#[test]
fn a_job_that_is_always_begun_again_is_a_fork_after_every_end() {
    let world = world_with_script(SLOW_SCRIPT);
    let mut host = TestHost::start_host(&world, &["--idle", "0"]);
    let id = start_job(&world, 0, &["--restart", "always"]);
    let mut chain = vec![id];
    // Each end has a successor, even if the host is killed around it.
    while chain.len() < 4 {
        let last = chain.last().unwrap().clone();
        wait_for_status(&world, &last, "completed");
        kill_by_pid(&host.client.pid);
        host = TestHost::start_host(&world, &["--idle", "0"]);
        chain.push(retried_job(&world, &last));
    }
    // The third end within a minute: the next one waits for the user.
    let rests = wait_for_status(&world, chain.last().unwrap(), "paused");
    assert!(rests["detail"].as_str().unwrap().contains("needs attention"), "{rests}");
    assert_eq!(world.run_minke(&["job", "resume", chain.last().unwrap()]).code, Some(0));
    wait_for_status(&world, chain.last().unwrap(), "completed");
    let all = world.run_json(&["job", "list", "--json"])["data"]["jobs"].as_array().unwrap().len();
    assert!((chain.len()..=chain.len() + 1).contains(&all), "{all} jobs, expected one for each end");
    world.verify_logs();
    drop(host);
}

/// Returns the job that retries an ended one.
fn retried_job(world: &CliWorld, id: &str) -> String {
    let begun = Instant::now();
    loop {
        let jobs = world.run_json(&["thread", "list", "--json"]);
        let from = |thread: &&Value| {
            thread["from"]["session"].as_str().map(|from| format!("s_{from}")).as_deref() == Some(id)
                || thread["from"]["session"] == id
        };
        if let Some(next) = jobs["threads"].as_array().unwrap().iter().find(from) {
            return next["id"].as_str().unwrap().to_owned();
        }
        assert!(begun.elapsed() < JOB_TIMEOUT, "no job retries {id}: {jobs}");
        std::thread::sleep(POLL_INTERVAL);
    }
}

#[test]
fn there_is_as_much_room_as_the_person_says() {
    let world = world_with_script(SLOW_SCRIPT);
    assert_eq!(world.run_minke(&["config", "set", "host.jobs.running", "1"]).code, Some(0));
    let _host = TestHost::start_host(&world, &["--idle", "0"]);
    let ids: Vec<String> = (0..3).map(|number| start_job(&world, number, &[])).collect();
    for id in &ids {
        wait_for_status(&world, id, "completed");
    }
    // Runs of jobs by the times in their logs: none starts before the previous one has ended.
    let mut runs: Vec<(u64, u64)> = ids
        .iter()
        .map(|id| {
            let read = world.run_json(&["thread", "show", id, "--json"]);
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
    let world = world_with_script(SLOW_SCRIPT);
    let first = start_job_without_host(&world, 0);
    let second = start_job_without_host(&world, 1);
    // The host reads them before they are damaged.
    assert_eq!(job_json(&world, &first)["status"], "queued");
    for args in [["job", "pause", &first].as_slice(), &["thread", "name", &first, "other"]] {
        assert_eq!(world.run_minke(args).code, Some(0));
    }
    world.run_json(&["job", "list", "--json"]);
    let path = |id: &str| {
        let shown = world.run_json(&["thread", "show", id, "--json"]);
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
    let _host = TestHost::start_host(&world, &["--idle", "0"]);
    let third = start_job(&world, 2, &[]);
    wait_for_status(&world, &third, "completed");
    let listed = world.run_json(&["job", "list", "--json"]);
    for id in [&first, &second] {
        let jobs = listed["data"]["jobs"].as_array().unwrap();
        let job = jobs.iter().find(|job| job["id"] == **id).unwrap_or_else(|| panic!("{id}: {listed}"));
        assert_eq!(job["status"], "paused", "{job}");
        let detail = job["detail"].as_str().unwrap();
        assert!(detail.starts_with("needs attention: its log is damaged"), "{detail}");
        let log = std::fs::read_to_string(
            world.home_dir().join("data/sessions").join(id.trim_start_matches("s_")).join("log.jsonl"),
        );
        assert!(!log.unwrap().contains("\"holder\":\"pod\""), "no pod was started");
    }
    assert_eq!(job_json(&world, &first)["status"], "paused");
    let shown = world.run_minke(&["job", "show", &second]);
    assert!(shown.code != Some(0) && shown.err.contains("log verify"), "{shown:?}");
}

/// Starts a job while no host runs.
fn start_job_without_host(world: &CliWorld, number: usize) -> String {
    let dir = world.work_dir().join(format!("w{number}"));
    std::fs::create_dir_all(&dir).unwrap();
    let start = json!({ "jsonrpc": "2.0", "id": 1, "method": "jobs/start",
        "params": { "cwd": dir, "model": "scripted:s.toml", "mandate": { "objective": "do it" } } });
    let said = world.run_with_stdin(&format!("{start}\n"), &["host", "--stdio"]);
    let answer: Value = serde_json::from_str(said.out.trim()).unwrap_or_else(|e| panic!("{e}: {said:?}"));
    answer["result"]["thread_id"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}
