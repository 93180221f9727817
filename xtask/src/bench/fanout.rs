//! Fan-out: one long answer to many clients, and many short connections to one pod.
//!
//! Here: the pod's CPU time with one client and with many; the difference is the cost of a client. All
//! clients must get the same events. Elsewhere: slow clients (the driver's tests).

use std::time::Instant;

use super::figure::{BenchFigure, BenchGoal, sample_spread};
use super::home::{BenchBinaries, BenchHome, BenchPod};
use super::wire::{RunObservation, WireClient};

const DELTAS: usize = 20_000;
const CLIENTS: usize = 20;
/// A script produces output as fast as the pod accepts it, faster than any provider and than twenty clients
/// on one machine can read; with pauses between groups no client has to fall behind.
const GROUPS: usize = 100;
const PAUSE_MS: u64 = 5;
const RUNS: usize = 5;
const CYCLES: usize = 2_000;
const RUN: &str = r#"{"method":"run","params":{"input":"Speak"}}"#;

pub(crate) fn bench_fanout(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let group =
        format!("  {{ text = [\"word \"], repeat = {} }}, {{ delay_ms = {PAUSE_MS} }},\n", DELTAS / GROUPS);
    let script = format!("loop = true\n[[turn]]\nsteps = [\n{}]\n", group.repeat(GROUPS));
    let home = BenchHome::new(built)?;
    let session = home.run_exec(&built.write_script("fanout.toml", &script)?)?;
    let pod = home.start_pod(&session)?;
    let (mut alone, mut added, mut lags, mut dropped) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..RUNS {
        let (one, _) = watch_answer(&pod, 1)?;
        let (many, saw) = watch_answer(&pod, CLIENTS)?;
        alone.push(one * 1e3);
        added.push((many - one) * 1e6 / (DELTAS * (CLIENTS - 1)) as f64);
        let behind: usize = saw.iter().map(|saw| saw.lags).sum();
        lags += behind;
        dropped += saw.iter().map(|saw| DELTAS - saw.deltas.min(DELTAS)).sum::<usize>();
        // A client that falls behind misses live events by design and gets a lag event; no other client may
        // miss any.
        if behind == 0 && saw.iter().any(|one| one.deltas != DELTAS || one.digest != saw[0].digest) {
            let seen: Vec<usize> = saw.iter().map(|saw| saw.deltas).collect();
            return Err(format!("the {CLIENTS} clients did not get the same {DELTAS} deltas: {seen:?}"));
        }
    }
    Ok(vec![
        BenchFigure {
            name: "cost of a further client for each of 20,000 deltas".into(),
            unit: "µs",
            samples: added,
            goal: BenchGoal::AtMost(1.0),
            floor: None,
            related: vec![
                ("lag events, over all runs and clients".into(), lags as f64),
                ("deltas missed by lagging clients".into(), dropped as f64),
            ],
        },
        BenchFigure {
            name: "20,000 deltas through a run, CPU of the pod with one client".into(),
            unit: "ms",
            samples: alone,
            goal: BenchGoal::AtMost(60.0),
            floor: None,
            related: Vec::new(),
        },
        bench_connections(&pod)?,
    ])
}

/// One run watched by `clients` clients: the pod's CPU seconds and the events of each client.
fn watch_answer(pod: &BenchPod, clients: usize) -> Result<(f64, Vec<RunObservation>), String> {
    let mut wires =
        (0..clients).map(|_| WireClient::subscribe(&pod.socket)).collect::<Result<Vec<_>, _>>()?;
    let before = pod.cpu_seconds()?;
    wires[0].send(RUN)?;
    let saw = std::thread::scope(|scope| {
        let watching: Vec<_> = wires.iter_mut().map(|wire| scope.spawn(|| wire.watch_run())).collect();
        watching
            .into_iter()
            .map(|one| one.join().expect("a watcher does not panic"))
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok((pod.cpu_seconds()? - before, saw))
}

/// Connects, requests the status, disconnects.
fn bench_connections(pod: &BenchPod) -> Result<BenchFigure, String> {
    let mut samples = Vec::with_capacity(CYCLES);
    let start = Instant::now();
    for _ in 0..CYCLES {
        let begin = Instant::now();
        let mut wire = WireClient::connect(&pod.socket)?;
        wire.send(r#"{"method":"hello","params":{"protocol":2,"subscribe":"none"}}"#)?;
        wire.send(r#"{"method":"status","id":"1"}"#)?;
        wire.read_until("reply")?;
        samples.push(1.0 / begin.elapsed().as_secs_f64());
    }
    let all = CYCLES as f64 / start.elapsed().as_secs_f64();
    let slowest = sample_spread(&samples).minimum;
    Ok(BenchFigure {
        name: "connect, status, disconnect on one pod, one after another".into(),
        unit: "a second",
        samples,
        goal: BenchGoal::AtLeast(1_000.0),
        floor: None,
        related: vec![
            ("a second over the whole series".into(), all),
            ("a second, the slowest one".into(), slowest),
        ],
    })
}
