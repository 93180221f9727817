//! Cost and shutdown of many idle pods. `MINKE_LONG=1` tests the promised size, 1,000 pods, with a table of
//! figures and goals; the default is 100, and compares work instead of time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::support::http::TestHost;
use crate::support::world::CliWorld;

/// Time limit for the stop of all pods, on any machine.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
/// How long idle pods are observed: several heartbeats.
const IDLE_OBSERVATION: Duration = Duration::from_secs(45);

fn is_long_run() -> bool {
    std::env::var_os("MINKE_LONG").is_some()
}

/// Measured figures and their goals, for users.
#[derive(Default)]
struct CrowdFigures(Vec<(String, f64, f64, &'static str)>);

impl CrowdFigures {
    fn record_figure(&mut self, what: &str, seen: f64, goal: f64, unit: &'static str) {
        self.0.push((what.to_owned(), seen, goal, unit));
    }

    fn print_table(&self, pods: usize) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        eprintln!("\n{pods} idle pods; load {}", load.trim());
        for (what, seen, goal, unit) in &self.0 {
            let word = if seen <= goal { "HELD" } else { "MISSED" };
            eprintln!("{what:<46} {seen:>9.3} {unit:<12} goal {goal:>6} {word}");
        }
    }
}

/// Returns live pods by name, with their pids.
fn live_pods(world: &CliWorld) -> BTreeMap<String, i32> {
    let rows = world.run_json(&["ps", "--json"]);
    let row = |row: &Value| (row["name"].as_str().unwrap().to_owned(), row["pid"].as_i64().unwrap());
    rows.as_array().unwrap().iter().map(row).map(|(name, pid)| (name, i32::try_from(pid).unwrap())).collect()
}

/// Returns the processor time of a process in seconds.
fn cpu_seconds(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let ticks = |at: usize| fields.as_ref()?.get(at)?.parse::<f64>().ok();
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

fn time_it(run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64()
}

fn mean_value(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// Starts pods through the host's API and through `minke` alternately, each in its own directory.
fn start_pods(world: &CliWorld, host: &TestHost, count: usize, model: &str) -> Vec<f64> {
    let mut times = Vec::new();
    for number in 0..count {
        let (cwd, name) = (world.work_dir().join(format!("d{number}")), format!("p{number}"));
        std::fs::create_dir(&cwd).unwrap();
        if number % 2 == 0 {
            times.push(time_it(|| {
                let made = json!({ "kind": "create", "cwd": cwd, "model": model, "name": name });
                let made = host.client.post_ok("/v1/thread", &made);
                let said = json!({ "kind": "message", "thread_id": made["thread_id"], "input": "hi" });
                host.client.post_ok("/v1/thread", &said);
            }));
        } else {
            let begin = ["exec", "--name", &name, "--cwd", cwd.to_str().unwrap(), "--model", model, "begin"];
            times.push(time_it(|| {
                for args in [&begin[..], &["send", &name, "live"]] {
                    let done = world.run_minke(args);
                    assert_eq!(done.code, Some(0), "{done:?}");
                }
            }));
        }
    }
    times
}

/// Returns true if every idle pod has a tally for the current length of its log, so that no log must be read.
fn all_have_tallies(world: &CliWorld) -> bool {
    let rows = world.home_dir().join("run/pods");
    std::fs::read_dir(rows).unwrap().all(|dir| {
        let Ok(text) = std::fs::read_to_string(dir.unwrap().path().join("status.json")) else { return false };
        let status: Value = serde_json::from_str(&text).unwrap();
        let session = status["session"].as_str().unwrap();
        let log: PathBuf = world.home_dir().join("data/sessions").join(session).join("log.jsonl");
        status["tally"]["bytes"] == json!(std::fs::metadata(log).unwrap().len())
    })
}

fn wait_until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) -> f64 {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    begun.elapsed().as_secs_f64()
}

#[test]
fn a_crowd_of_idle_pods_costs_nobody_much() {
    let count = if is_long_run() { 1_000 } else { 100 };
    let world = CliWorld::new();
    let config = world.home_dir().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[pod.limits]\npods_per_user = 2000\n").unwrap();
    let script = world.write_file("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let model = format!("scripted:{}", script.display());
    let host = TestHost::start_host(&world, &["--idle", "0"]);
    let times = start_pods(&world, &host, count, &model);
    wait_until("every pod has a tally", STOP_TIMEOUT, || all_have_tallies(&world));
    let living = live_pods(&world);
    assert_eq!(living.len(), count);
    let mut figures = CrowdFigures::default();
    let by = |odd: usize| times.iter().skip(odd).step_by(2).copied().collect::<Vec<f64>>();
    for (what, times) in [("through the host", by(0)), ("through minke", by(1))] {
        let (first, last) = (mean_value(&times[..20]), mean_value(&times[times.len() - 20..]));
        figures.record_figure(&format!("start {what}, last 20 by first 20"), last / first, 1.5, "×");
        figures.record_figure(&format!("start {what}, last 20"), last, 0.15, "s");
    }
    let exec = ["exec", "--read-only", "--name", "one", "--model", &model, "hi"];
    let commands: [(&str, &[&str]); 5] = [
        ("ps", &["ps", "--json"]),
        ("asks", &["asks", "--json"]),
        ("exec of a script", &exec),
        ("send", &["send", "p1", "again"]),
        ("stop of one", &["stop", "p0"]),
    ];
    for (what, args) in commands {
        let took = time_it(|| {
            let done = world.run_minke(args);
            assert_eq!(done.code, Some(0), "{what}: {done:?}");
        });
        figures.record_figure(what, took, 0.15, "s");
    }
    if is_long_run() {
        wait_until("every pod is idle", STOP_TIMEOUT, || all_have_tallies(&world));
        let used = || living.values().map(|pid| cpu_seconds(*pid)).sum::<f64>();
        let before = used();
        std::thread::sleep(IDLE_OBSERVATION);
        figures.record_figure(
            "CPU of all",
            (used() - before) / IDLE_OBSERVATION.as_secs_f64() * 100.0,
            1.0,
            "% of a core",
        );
    }
    let left: Vec<Pid> = live_pods(&world).into_values().filter_map(Pid::from_raw).collect();
    left.iter().for_each(|pid| kill_process(*pid, Signal::TERM).unwrap());
    let gone = wait_until("all pods are gone", STOP_TIMEOUT, || {
        // The host reaps its own pods.
        left.iter().all(|pid| test_kill_process(*pid).is_err() || has_exited(*pid))
    });
    figures.record_figure("all gone after SIGTERM to each", gone, 5.0, "s");
    figures.print_table(count);
    assert!(live_pods(&world).is_empty());
    let empty = |dir: &str| std::fs::read_dir(world.home_dir().join("run").join(dir)).unwrap().count() == 0;
    assert!(empty("pods") && empty("leaving"), "files of pods are left");
}

/// Returns true if the process has exited, without reaping it.
fn has_exited(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

#[test]
fn what_ps_shows_comes_from_the_log_when_the_pod_says_less() {
    let world = CliWorld::new();
    world.write_file("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let done = world.run_minke(&["exec", "--name", "one", "--model", "scripted:s.toml", "begin"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run_minke(&["send", "one", "live"]).code, Some(0));
    wait_until("the pod has a tally", STOP_TIMEOUT, || all_have_tallies(&world));
    let path = world.home_dir().join("run/pods/one/status.json");
    let mut status: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let input = |world: &CliWorld| world.run_json(&["ps", "--json"])[0]["usage"]["input"].as_u64().unwrap();
    let (told, truth) = (1_234_567, input(&world));
    status["tally"]["usage"]["input"] = json!(told);
    std::fs::write(&path, status.to_string()).unwrap();
    assert_eq!(input(&world), told, "the log of an idle pod is not read");
    status["tally"]["bytes"] = json!(status["tally"]["bytes"].as_u64().unwrap() - 1);
    std::fs::write(&path, status.to_string()).unwrap();
    assert_eq!(input(&world), truth, "a log that has grown since is read");
}
