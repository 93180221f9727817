//! Startup: from the start of `minke pod` to `ready`, and from the start of `minke exec` to the first model
//! request.
//!
//! Elsewhere: the time of a request (the timing shim records the sync of its `llm_call`; the request is sent
//! when that returns).

use std::process::{Command, Stdio};
use std::time::Instant;

use super::figure::{BenchFigure, BenchGoal, MachineFloor, sample_spread};
use super::home::{BenchBinaries, BenchHome, TimingKind};
use super::wire::WireClient;

const SAMPLES: usize = 40;
const SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"Ready.\"\n";

pub(crate) fn bench_ready(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let home = BenchHome::new(built)?;
    let session = home.run_exec(&built.write_script("ready.toml", SCRIPT)?)?;
    let (mut samples, mut floor, mut syncs, mut barriers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The first start warms the page cache; the goal is for warm starts.
    for round in 0..=SAMPLES {
        let (mut pod, [start, ready], timings) = home.start_timed_pod(&session)?;
        if round > 0 {
            let (inside, count) = timings.time_in_sync(start, ready);
            samples.push((ready - start - inside) as f64 / 1e6);
            syncs.push(inside as f64 / 1e6);
            barriers.push(count as f64);
            floor.push(measure_bare_process()?);
        }
        let mut wire = WireClient::connect(&pod.socket)?;
        wire.send(r#"{"method":"hello","params":{"protocol":2,"subscribe":"tail"}}"#)?;
        wire.send(r#"{"method":"shutdown"}"#)?;
        wire.read_until("shutdown")?;
        pod.wait_exit()?;
    }
    Ok(vec![BenchFigure {
        name: "start of `minke pod` to ready, warm, without syncs".into(),
        unit: "ms",
        samples,
        goal: BenchGoal::AtMost(15.0),
        floor: Some(MachineFloor { what: "start and end of `true`", samples: floor }),
        related: related_figures(&syncs, &barriers),
    }])
}

fn related_figures(syncs: &[f64], barriers: &[f64]) -> Vec<(String, f64)> {
    vec![
        ("ms inside syncs (median)".into(), sample_spread(syncs).median),
        ("syncs (median)".into(), sample_spread(barriers).median),
    ]
}

/// Milliseconds for a process that does nothing.
pub(super) fn measure_bare_process() -> Result<f64, String> {
    let start = Instant::now();
    let status = Command::new("true").stdin(Stdio::null()).status();
    status.map_err(|why| format!("could not run `true`: {why}"))?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

pub(crate) fn bench_first_request(built: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let home = BenchHome::new(built)?;
    let model = built.write_script("first.toml", SCRIPT)?;
    home.run_exec(&model)?;
    let (mut samples, mut floor, mut syncs, mut barriers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let (start, timings) = home.run_timed_exec(&model)?;
        let asked = timings.0.iter().find(|timing| timing.kind == TimingKind::Write { asks: true });
        let asked = asked.ok_or("no `llm_call` was written")?;
        let synced =
            timings.0.iter().find(|timing| timing.kind == TimingKind::Sync && timing.start >= asked.start);
        let end = synced
            .ok_or("the `llm_call` was never synced: a request was sent before its entry was on disk")?
            .end;
        let (inside, count) = timings.time_in_sync(start, end);
        samples.push((end - start - inside) as f64 / 1e6);
        syncs.push(inside as f64 / 1e6);
        barriers.push(count as f64);
        floor.push(measure_bare_process()?);
    }
    Ok(vec![BenchFigure {
        name: "start of `minke exec` to the first model request, new session, without syncs".into(),
        unit: "ms",
        samples,
        goal: BenchGoal::AtMost(20.0),
        floor: Some(MachineFloor { what: "start and end of `true`", samples: floor }),
        related: related_figures(&syncs, &barriers),
    }])
}
