//! Idle pods: what they take of memory and of the CPU while nobody wants anything.
//!
//! Elsewhere: a thousand of them at once (a later issue; here the cost of one is measured on several).

use std::process::{Command, Stdio};
use std::time::Duration;

use super::figure::{Figure, Floor, Goal, spread};
use super::home::{Built, Home, Pod};

const PODS: usize = 10;
/// Long enough for several heartbeats.
const WATCHED: Duration = Duration::from_secs(20);
/// The goal is for so many pods together.
const TOGETHER: f64 = 1_000.0;

pub(crate) fn idle(built: &Built) -> Result<Vec<Figure>, String> {
    let home = Home::new(built)?;
    let model = built.script("idle.toml", "loop = true\n[[turn]]\ntext = \"Idle.\"\n")?;
    let pods: Vec<Pod> = (0..PODS)
        .map(|number| home.exec_in(&number.to_string(), &model).and_then(|session| home.pod(&session)))
        .collect::<Result<_, _>>()?;
    // What a start leaves behind (a first heartbeat, a lazy sync) is not idling.
    std::thread::sleep(Duration::from_secs(2));
    let before: Vec<f64> = pods.iter().map(Pod::cpu).collect::<Result<_, _>>()?;
    std::thread::sleep(WATCHED);
    let after: Vec<f64> = pods.iter().map(Pod::cpu).collect::<Result<_, _>>()?;
    let memory: Vec<f64> = pods.iter().map(Pod::memory).collect::<Result<_, _>>()?;
    let share = |used: f64| used / WATCHED.as_secs_f64() * TOGETHER * 100.0;
    let cpu: Vec<f64> = before.iter().zip(&after).map(|(before, after)| share(after - before)).collect();
    let total = spread(&memory).median * PODS as f64;
    Ok(vec![
        Figure {
            name: "proportional memory of an idle pod".into(),
            unit: "MiB",
            samples: memory,
            goal: Goal::AtMost(6.0),
            floor: Some(Floor { what: "proportional memory of `sleep`", samples: vec![sleeper()?] }),
            beside: vec![(format!("MiB for {PODS} pods"), total)],
        },
        Figure {
            name: "CPU of an idle pod, times a thousand".into(),
            unit: "% of one CPU",
            samples: cpu,
            goal: Goal::AtMost(1.0),
            floor: None,
            beside: vec![("seconds watched".into(), WATCHED.as_secs_f64())],
        },
    ])
}

/// Proportional memory of a process that does nothing, in MiB.
fn sleeper() -> Result<f64, String> {
    let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
    let pod = Pod::of(child.map_err(|why| format!("cannot run `sleep`: {why}"))?);
    // Its pages come in while it starts.
    std::thread::sleep(Duration::from_millis(100));
    pod.memory()
}
