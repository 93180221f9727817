//! The pod tree: the time from SpawnPod to the child's first model request, the start rate of pods, and the
//! cost of 200 idle ones.
//!
//! Elsewhere: a single pod (`start`, `idle`). The times of a spawn are read from both logs: the parent's
//! `child` entry and the child's first `llm_call`, syncs included.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::figure::{BenchFigure, BenchGoal, MachineFloor};
use super::home::{BenchBinaries, BenchHome, BenchPod};
use super::start::measure_bare_process;

const SPAWNS: usize = 20;
const PODS: usize = 200;
/// Long enough for several heartbeats.
const WATCH_TIME: Duration = Duration::from_secs(20);

pub(crate) fn bench_pod_tree(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let mut figures = vec![bench_spawn(built)?];
    figures.extend(bench_many_pods(built)?);
    Ok(figures)
}

/// A parent that spawns and stops children one after the other.
fn bench_spawn(built: &BenchBinaries) -> Result<BenchFigure, String> {
    let home = BenchHome::new(built)?;
    home.write_file("read.txt", "something to read")?;
    let target = home.work_dir("").join("read.txt");
    let mut script = String::new();
    for number in 1..=SPAWNS {
        let scope = serde_json::json!([{ "target": target, "permission": "read" }]);
        let spawn = serde_json::json!({ "name": format!("kid-{number}"), "task": "Say it", "scope": scope, "wait": true });
        let stop = serde_json::json!({ "name": format!("kid-{number}") });
        for (tool, args) in [("SpawnPod", spawn), ("StopPod", stop)] {
            script.push_str(&format!(
                "[[pod.boss.turn]]\n[[pod.boss.turn.call]]\ntool = \"{tool}\"\nraw = '''{args}'''\n"
            ));
        }
    }
    script.push_str("[[pod.boss.turn]]\ntext = \"done\"\n[[turn]]\ntext = \"said\"\n");
    let model = built.write_script("family.toml", &script)?;
    let boss = home.run_exec_named(&model, "boss")?;
    let children: Vec<Value> =
        home.read_log(&boss)?.into_iter().filter(|entry| entry["kind"] == "child").collect();
    let mut samples = Vec::new();
    for child in &children {
        let session = child["session"].as_str().ok_or("a `child` without a session")?;
        let log = home.read_log(session)?;
        let asked = log.iter().find(|entry| entry["kind"] == "llm_call");
        let asked = asked.and_then(|entry| entry["ts"].as_f64()).ok_or("a child that asked no model")?;
        samples.push(asked - child["ts"].as_f64().ok_or("a `child` without its time")?);
    }
    if samples.len() != SPAWNS {
        return Err(format!("{} of {SPAWNS} children were spawned", samples.len()));
    }
    let floor = (0..SPAWNS).map(|_| measure_bare_process()).collect::<Result<_, _>>()?;
    Ok(BenchFigure {
        name: "SpawnPod to the child's first model request, syncs included".into(),
        unit: "ms",
        samples,
        goal: BenchGoal::AtMost(40.0),
        floor: Some(MachineFloor { what: "start and end of `true`", samples: floor }),
        related: Vec::new(),
    })
}

/// Many pods at once, each in its own directory.
fn bench_many_pods(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let home = BenchHome::new(built)?;
    let model = built.write_script("many.toml", "loop = true\n[[turn]]\ntext = \"Idle.\"\n")?;
    let sessions: Vec<String> =
        (0..PODS).map(|number| home.run_exec_in(&number.to_string(), &model)).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let pods: Vec<BenchPod> =
        sessions.iter().map(|session| home.start_pod(session)).collect::<Result<_, _>>()?;
    let rate = PODS as f64 / began.elapsed().as_secs_f64();
    let bare = (0..SPAWNS).map(|_| measure_bare_process().map(|ms| 1e3 / ms)).collect::<Result<_, _>>()?;
    // Work left over from the start (a first heartbeat, a lazy sync) is not idling.
    std::thread::sleep(Duration::from_secs(2));
    let before: f64 = pods.iter().map(BenchPod::cpu_seconds).sum::<Result<f64, _>>()?;
    std::thread::sleep(WATCH_TIME);
    let after: f64 = pods.iter().map(BenchPod::cpu_seconds).sum::<Result<f64, _>>()?;
    let memory: Vec<f64> = pods.iter().map(BenchPod::memory_mib).collect::<Result<_, _>>()?;
    let total: f64 = memory.iter().sum();
    Ok(vec![
        BenchFigure {
            name: format!("start rate of pods, one after the other, up to {PODS}"),
            unit: "pods/s",
            samples: vec![rate],
            goal: BenchGoal::AtLeast(20.0),
            floor: Some(MachineFloor { what: "start and end of `true`", samples: bare }),
            related: Vec::new(),
        },
        BenchFigure {
            name: format!("proportional memory of each of {PODS} idle pods"),
            unit: "MiB",
            samples: memory,
            goal: BenchGoal::AtMost(6.0),
            floor: None,
            related: vec![(format!("MiB for {PODS} pods"), total)],
        },
        BenchFigure {
            name: format!("CPU of {PODS} idle pods together"),
            unit: "% of one CPU",
            samples: vec![(after - before) / WATCH_TIME.as_secs_f64() * 100.0],
            goal: BenchGoal::AtMost(1.0),
            floor: None,
            related: vec![("seconds watched".into(), WATCH_TIME.as_secs_f64())],
        },
    ])
}
