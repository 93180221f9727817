//! What many idle pods cost those beside them, and how they end. `MINKE_LONG=1` is the size that is promised, 1,000 pods, with
//! a table of the figures against their goals; without it the same with 100, where work is compared and not time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

use crate::http::Host;
use crate::world::World;

/// All that are stopped are gone by then, on any machine.
const GONE: Duration = Duration::from_secs(60);
/// Looks at what is idle: several beats of every heart.
const WATCHED: Duration = Duration::from_secs(45);

fn long() -> bool {
    std::env::var_os("MINKE_LONG").is_some()
}

/// The figures, for people: what was seen, and what was promised.
#[derive(Default)]
struct Figures(Vec<(String, f64, f64, &'static str)>);

impl Figures {
    fn note(&mut self, what: &str, seen: f64, goal: f64, unit: &'static str) {
        self.0.push((what.to_owned(), seen, goal, unit));
    }

    fn print(&self, pods: usize) {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        eprintln!("\n{pods} idle pods; load {}", load.trim());
        for (what, seen, goal, unit) in &self.0 {
            let word = if seen <= goal { "HELD" } else { "MISSED" };
            eprintln!("{what:<46} {seen:>9.3} {unit:<12} goal {goal:>6} {word}");
        }
    }
}

/// Live pods by name, with their processes.
fn pods(world: &World) -> BTreeMap<String, i32> {
    let rows = world.json(&["ps", "--json"]);
    let row = |row: &Value| (row["name"].as_str().unwrap().to_owned(), row["pid"].as_i64().unwrap());
    rows.as_array().unwrap().iter().map(row).map(|(name, pid)| (name, i32::try_from(pid).unwrap())).collect()
}

/// Processor time of a process in seconds.
fn processor(pid: i32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let ticks = |at: usize| fields.as_ref()?.get(at)?.parse::<f64>().ok();
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}

fn timed(run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64()
}

fn mean(times: &[f64]) -> f64 {
    times.iter().sum::<f64>() / times.len() as f64
}

/// Starts pods through the host's API and through `minke`, by turns, each in its own directory.
fn start(world: &World, host: &Host, count: usize, model: &str) -> Vec<f64> {
    let mut times = Vec::new();
    for number in 0..count {
        let (cwd, name) = (world.work().join(format!("d{number}")), format!("p{number}"));
        std::fs::create_dir(&cwd).unwrap();
        if number % 2 == 0 {
            times.push(timed(|| {
                let made = json!({ "kind": "create", "cwd": cwd, "model": model, "name": name });
                let made = host.door.post("/v1/thread", &made);
                let said = json!({ "kind": "message", "thread_id": made["thread_id"], "input": "hi" });
                host.door.post("/v1/thread", &said);
            }));
        } else {
            let begin = ["exec", "--name", &name, "--cwd", cwd.to_str().unwrap(), "--model", model, "begin"];
            times.push(timed(|| {
                for args in [&begin[..], &["send", &name, "live"]] {
                    let done = world.run(args);
                    assert_eq!(done.code, Some(0), "{done:?}");
                }
            }));
        }
    }
    times
}

/// Every idle pod says what its log comes to, and of a log of just that length: so nobody has to read it.
fn all_are_tallied(world: &World) -> bool {
    let rows = world.home().join("run/pods");
    std::fs::read_dir(rows).unwrap().all(|dir| {
        let Ok(text) = std::fs::read_to_string(dir.unwrap().path().join("status.json")) else { return false };
        let status: Value = serde_json::from_str(&text).unwrap();
        let session = status["session"].as_str().unwrap();
        let log: PathBuf = world.home().join("data/sessions").join(session).join("log.jsonl");
        status["tally"]["bytes"] == json!(std::fs::metadata(log).unwrap().len())
    })
}

fn until(what: &str, patience: Duration, mut holds: impl FnMut() -> bool) -> f64 {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < patience, "{what}: not within {patience:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    begun.elapsed().as_secs_f64()
}

#[test]
fn a_crowd_of_idle_pods_costs_nobody_much() {
    let count = if long() { 1_000 } else { 100 };
    let world = World::new();
    let config = world.home().join("config");
    std::fs::create_dir_all(&config).unwrap();
    std::fs::write(config.join("config.toml"), "[pod.limits]\npods_per_user = 2000\n").unwrap();
    let script = world.write("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let model = format!("scripted:{}", script.display());
    let host = Host::start(&world, &["--idle", "0"]);
    let times = start(&world, &host, count, &model);
    until("every pod says what its log comes to", GONE, || all_are_tallied(&world));
    let living = pods(&world);
    assert_eq!(living.len(), count);
    let mut figures = Figures::default();
    let by = |odd: usize| times.iter().skip(odd).step_by(2).copied().collect::<Vec<f64>>();
    for (what, times) in [("through the host", by(0)), ("through minke", by(1))] {
        let (first, last) = (mean(&times[..20]), mean(&times[times.len() - 20..]));
        figures.note(&format!("start {what}, last 20 by first 20"), last / first, 1.5, "×");
        figures.note(&format!("start {what}, last 20"), last, 0.15, "s");
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
        let took = timed(|| {
            let done = world.run(args);
            assert_eq!(done.code, Some(0), "{what}: {done:?}");
        });
        figures.note(what, took, 0.15, "s");
    }
    if long() {
        until("every pod rests", GONE, || all_are_tallied(&world));
        let used = || living.values().map(|pid| processor(*pid)).sum::<f64>();
        let before = used();
        std::thread::sleep(WATCHED);
        figures.note("CPU of all", (used() - before) / WATCHED.as_secs_f64() * 100.0, 1.0, "% of a core");
    }
    let left: Vec<Pid> = pods(&world).into_values().filter_map(Pid::from_raw).collect();
    left.iter().for_each(|pid| kill_process(*pid, Signal::TERM).unwrap());
    let gone = until("all pods are gone", GONE, || {
        // Those that the host has started are reaped by it.
        left.iter().all(|pid| test_kill_process(*pid).is_err() || is_over(*pid))
    });
    figures.note("all gone after SIGTERM to each", gone, 5.0, "s");
    figures.print(count);
    assert!(pods(&world).is_empty());
    let empty = |dir: &str| std::fs::read_dir(world.home().join("run").join(dir)).unwrap().count() == 0;
    assert!(empty("pods") && empty("leaving"), "something is left of them");
}

/// It has ended, and nobody has asked how yet.
fn is_over(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z')))
}

#[test]
fn what_ps_shows_comes_from_the_log_when_the_pod_says_less() {
    let world = World::new();
    world.write("s.toml", "loop = true\n[[turn]]\ntext = [\"done\"]\n");
    let done = world.run(&["exec", "--name", "one", "--model", "scripted:s.toml", "begin"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(world.run(&["send", "one", "live"]).code, Some(0));
    until("the pod says what its log comes to", GONE, || all_are_tallied(&world));
    let path = world.home().join("run/pods/one/status.json");
    let mut status: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let input = |world: &World| world.json(&["ps", "--json"])[0]["usage"]["input"].as_u64().unwrap();
    let (told, truth) = (1_234_567, input(&world));
    status["tally"]["usage"]["input"] = json!(told);
    std::fs::write(&path, status.to_string()).unwrap();
    assert_eq!(input(&world), told, "nobody reads the log of an idle pod");
    status["tally"]["bytes"] = json!(status["tally"]["bytes"].as_u64().unwrap() - 1);
    std::fs::write(&path, status.to_string()).unwrap();
    assert_eq!(input(&world), truth, "a log that has grown since is read");
}
