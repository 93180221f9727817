//! Idle pods: their memory and CPU time.
//!
//! Elsewhere: a thousand of them at once (here the cost of one is measured on several).

use std::process::{Command, Stdio};
use std::time::Duration;

use super::figure::{BenchFigure, BenchGoal, MachineFloor, sample_spread};
use super::home::{BenchBinaries, BenchHome, BenchPod};

const PODS: usize = 10;
/// Long enough for several heartbeats.
const WATCH_TIME: Duration = Duration::from_secs(20);
/// The goal is for this many pods together.
const GOAL_PODS: f64 = 1_000.0;

pub(crate) fn bench_idle(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let home = BenchHome::new(built)?;
    let model = built.write_script("idle.toml", "loop = true\n[[turn]]\ntext = \"Idle.\"\n")?;
    let pods: Vec<BenchPod> = (0..PODS)
        .map(|number| {
            home.run_exec_in(&number.to_string(), &model).and_then(|session| home.start_pod(&session))
        })
        .collect::<Result<_, _>>()?;
    // Work left over from the start (a first heartbeat, a lazy sync) is not idling.
    std::thread::sleep(Duration::from_secs(2));
    let before: Vec<f64> = pods.iter().map(BenchPod::cpu_seconds).collect::<Result<_, _>>()?;
    std::thread::sleep(WATCH_TIME);
    let after: Vec<f64> = pods.iter().map(BenchPod::cpu_seconds).collect::<Result<_, _>>()?;
    let memory: Vec<f64> = pods.iter().map(BenchPod::memory_mib).collect::<Result<_, _>>()?;
    let share = |used: f64| used / WATCH_TIME.as_secs_f64() * GOAL_PODS * 100.0;
    let cpu: Vec<f64> = before.iter().zip(&after).map(|(before, after)| share(after - before)).collect();
    let total = sample_spread(&memory).median * PODS as f64;
    Ok(vec![
        BenchFigure {
            name: "proportional memory of an idle pod".into(),
            unit: "MiB",
            samples: memory,
            goal: BenchGoal::AtMost(6.0),
            floor: Some(MachineFloor {
                what: "proportional memory of `sleep`",
                samples: vec![measure_sleeper()?],
            }),
            related: vec![(format!("MiB for {PODS} pods"), total)],
        },
        BenchFigure {
            name: "CPU of an idle pod, times a thousand".into(),
            unit: "% of one CPU",
            samples: cpu,
            goal: BenchGoal::AtMost(1.0),
            floor: None,
            related: vec![("seconds watched".into(), WATCH_TIME.as_secs_f64())],
        },
    ])
}

/// Proportional memory of a process that does nothing, in MiB.
fn measure_sleeper() -> Result<f64, String> {
    let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
    let pod = BenchPod::from_child(child.map_err(|why| format!("could not run `sleep`: {why}"))?);
    // Its pages are loaded while it starts.
    std::thread::sleep(Duration::from_millis(100));
    pod.memory_mib()
}
