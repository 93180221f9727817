//! The tree: from SpawnPod to the child's first model request; how fast pods start; what 200 idle ones take together.
//!
//! Elsewhere: one pod alone (`start`, `idle`). The moments of a spawn are read from both logs: the parent's `child` entry
//! and the child's first `llm_call`, syncs included.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::figure::{Figure, Floor, Goal};
use super::home::{Built, Home, Pod};
use super::start::bare_process;

const SPAWNS: usize = 20;
const PODS: usize = 200;
/// Long enough for several heartbeats.
const WATCHED: Duration = Duration::from_secs(20);

pub(crate) fn tree(built: &Built) -> Result<Vec<Figure>, String> {
    let mut figures = vec![spawning(built)?];
    figures.extend(many(built)?);
    Ok(figures)
}

/// A parent that makes children and stops them, one after the other.
fn spawning(built: &Built) -> Result<Figure, String> {
    let home = Home::new(built)?;
    home.write("read.txt", "something to read")?;
    let target = home.work("").join("read.txt");
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
    let model = built.script("family.toml", &script)?;
    let boss = home.exec_named(&model, "boss")?;
    let children: Vec<Value> =
        home.log(&boss)?.into_iter().filter(|entry| entry["kind"] == "child").collect();
    let mut samples = Vec::new();
    for child in &children {
        let session = child["session"].as_str().ok_or("a `child` without a session")?;
        let log = home.log(session)?;
        let asked = log.iter().find(|entry| entry["kind"] == "llm_call");
        let asked = asked.and_then(|entry| entry["ts"].as_f64()).ok_or("a child that asked no model")?;
        samples.push(asked - child["ts"].as_f64().ok_or("a `child` without its time")?);
    }
    if samples.len() != SPAWNS {
        return Err(format!("{} of {SPAWNS} children were spawned", samples.len()));
    }
    let floor = (0..SPAWNS).map(|_| bare_process()).collect::<Result<_, _>>()?;
    Ok(Figure {
        name: "SpawnPod to the child's first model request, syncs included".into(),
        unit: "ms",
        samples,
        goal: Goal::AtMost(40.0),
        floor: Some(Floor { what: "start and end of `true`", samples: floor }),
        beside: Vec::new(),
    })
}

/// Many pods at once, each in its own directory.
fn many(built: &Built) -> Result<Vec<Figure>, String> {
    let home = Home::new(built)?;
    let model = built.script("many.toml", "loop = true\n[[turn]]\ntext = \"Idle.\"\n")?;
    let sessions: Vec<String> =
        (0..PODS).map(|number| home.exec_in(&number.to_string(), &model)).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let pods: Vec<Pod> = sessions.iter().map(|session| home.pod(session)).collect::<Result<_, _>>()?;
    let rate = PODS as f64 / began.elapsed().as_secs_f64();
    let bare = (0..SPAWNS).map(|_| bare_process().map(|ms| 1e3 / ms)).collect::<Result<_, _>>()?;
    // What a start leaves behind (a first heartbeat, a lazy sync) is not idling.
    std::thread::sleep(Duration::from_secs(2));
    let before: f64 = pods.iter().map(Pod::cpu).sum::<Result<f64, _>>()?;
    std::thread::sleep(WATCHED);
    let after: f64 = pods.iter().map(Pod::cpu).sum::<Result<f64, _>>()?;
    let memory: Vec<f64> = pods.iter().map(Pod::memory).collect::<Result<_, _>>()?;
    let total: f64 = memory.iter().sum();
    Ok(vec![
        Figure {
            name: format!("start rate of pods, one after the other, up to {PODS}"),
            unit: "pods/s",
            samples: vec![rate],
            goal: Goal::AtLeast(20.0),
            floor: Some(Floor { what: "start and end of `true`", samples: bare }),
            beside: Vec::new(),
        },
        Figure {
            name: format!("proportional memory of each of {PODS} idle pods"),
            unit: "MiB",
            samples: memory,
            goal: Goal::AtMost(6.0),
            floor: None,
            beside: vec![(format!("MiB for {PODS} pods"), total)],
        },
        Figure {
            name: format!("CPU of {PODS} idle pods together"),
            unit: "% of one CPU",
            samples: vec![(after - before) / WATCHED.as_secs_f64() * 100.0],
            goal: Goal::AtMost(1.0),
            floor: None,
            beside: vec![("seconds watched".into(), WATCHED.as_secs_f64())],
        },
    ])
}
