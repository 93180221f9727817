//! Fan-out: one long answer to many clients, and many short visits to one pod.
//!
//! Here: the pod's CPU with one client and with many; the difference is what a client adds. All clients must have seen
//! the same. Elsewhere: that nothing is lost when they are slow (the driver's tests).

use std::time::Instant;

use super::figure::{Figure, Goal, spread};
use super::home::{Built, Home, Pod};
use super::wire::{Saw, Wire};

const DELTAS: usize = 20_000;
const CLIENTS: usize = 20;
/// A script speaks as fast as the pod can listen, faster than any provider and than twenty clients on one machine can
/// read; with a breath between groups nobody has to fall behind.
const GROUPS: usize = 100;
const PAUSE_MS: u64 = 5;
const RUNS: usize = 5;
const CYCLES: usize = 2_000;
const RUN: &str = r#"{"method":"run","params":{"input":"Speak"}}"#;

pub(crate) fn fanout(built: &Built) -> Result<Vec<Figure>, String> {
    let group =
        format!("  {{ text = [\"word \"], repeat = {} }}, {{ delay_ms = {PAUSE_MS} }},\n", DELTAS / GROUPS);
    let script = format!("loop = true\n[[turn]]\nsteps = [\n{}]\n", group.repeat(GROUPS));
    let home = Home::new(built)?;
    let session = home.exec(&built.script("fanout.toml", &script)?)?;
    let pod = home.pod(&session)?;
    let (mut alone, mut added, mut lags, mut dropped) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..RUNS {
        let (one, _) = speak(&pod, 1)?;
        let (many, saw) = speak(&pod, CLIENTS)?;
        alone.push(one * 1e3);
        added.push((many - one) * 1e6 / (DELTAS * (CLIENTS - 1)) as f64);
        let behind: usize = saw.iter().map(|saw| saw.lags).sum();
        lags += behind;
        dropped += saw.iter().map(|saw| DELTAS - saw.deltas.min(DELTAS)).sum::<usize>();
        // Who falls behind misses live events by design, and is told; nobody else may miss any.
        if behind == 0 && saw.iter().any(|one| one.deltas != DELTAS || one.digest != saw[0].digest) {
            let seen: Vec<usize> = saw.iter().map(|saw| saw.deltas).collect();
            return Err(format!("the {CLIENTS} clients did not see the same {DELTAS} deltas: {seen:?}"));
        }
    }
    Ok(vec![
        Figure {
            name: "what a further client adds to each of 20,000 deltas".into(),
            unit: "µs",
            samples: added,
            goal: Goal::AtMost(1.0),
            floor: None,
            beside: vec![
                ("times a client fell behind and was told, over all runs and clients".into(), lags as f64),
                ("deltas that those missed".into(), dropped as f64),
            ],
        },
        Figure {
            name: "20,000 deltas through a run, CPU of the pod with one client".into(),
            unit: "ms",
            samples: alone,
            goal: Goal::AtMost(60.0),
            floor: None,
            beside: Vec::new(),
        },
        visits(&pod)?,
    ])
}

/// One run watched by so many clients: the pod's CPU seconds and what each saw.
fn speak(pod: &Pod, clients: usize) -> Result<(f64, Vec<Saw>), String> {
    let mut wires = (0..clients).map(|_| Wire::subscribe(&pod.socket)).collect::<Result<Vec<_>, _>>()?;
    let before = pod.cpu()?;
    wires[0].send(RUN)?;
    let saw = std::thread::scope(|scope| {
        let watching: Vec<_> = wires.iter_mut().map(|wire| scope.spawn(|| wire.watch())).collect();
        watching
            .into_iter()
            .map(|one| one.join().expect("a watcher does not panic"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok((pod.cpu()? - before, saw))
}

/// Connect, ask for the status, leave.
fn visits(pod: &Pod) -> Result<Figure, String> {
    let mut samples = Vec::with_capacity(CYCLES);
    let start = Instant::now();
    for _ in 0..CYCLES {
        let begin = Instant::now();
        let mut wire = Wire::connect(&pod.socket)?;
        wire.send(r#"{"method":"hello","params":{"protocol":2,"subscribe":"none"}}"#)?;
        wire.send(r#"{"method":"status","id":"1"}"#)?;
        wire.until("reply")?;
        samples.push(1.0 / begin.elapsed().as_secs_f64());
    }
    let all = CYCLES as f64 / start.elapsed().as_secs_f64();
    let slowest = spread(&samples).least;
    Ok(Figure {
        name: "connect, status, disconnect on one pod, one after another".into(),
        unit: "a second",
        samples,
        goal: Goal::AtLeast(1_000.0),
        floor: None,
        beside: vec![
            ("a second over the whole series".into(), all),
            ("a second, the slowest one".into(), slowest),
        ],
    })
}
