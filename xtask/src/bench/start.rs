//! Starting: from the start of `minke pod` to `ready`, and from the start of `minke exec` to the first model request.
//!
//! Elsewhere: how a request's moment is known (the timing shim writes down the sync of its `llm_call`; the request is
//! made when that returns).

use std::process::{Command, Stdio};
use std::time::Instant;

use super::figure::{Figure, Floor, Goal, spread};
use super::home::{Built, Home, What};
use super::wire::Wire;

const SAMPLES: usize = 40;
const SCRIPT: &str = "loop = true\n[[turn]]\ntext = \"Ready.\"\n";

pub(crate) fn ready(built: &Built) -> Result<Vec<Figure>, String> {
    let home = Home::new(built)?;
    let session = home.exec(&built.script("ready.toml", SCRIPT)?)?;
    let (mut samples, mut floor, mut syncs, mut barriers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // The first start warms the page cache; the goal is for warm ones.
    for round in 0..=SAMPLES {
        let (mut pod, [start, ready], timings) = home.timed_pod(&session)?;
        if round > 0 {
            let (inside, count) = timings.synced(start, ready);
            samples.push((ready - start - inside) as f64 / 1e6);
            syncs.push(inside as f64 / 1e6);
            barriers.push(count as f64);
            floor.push(bare_process()?);
        }
        let mut wire = Wire::connect(&pod.socket)?;
        wire.send(r#"{"method":"hello","params":{"protocol":2,"subscribe":"tail"}}"#)?;
        wire.send(r#"{"method":"shutdown"}"#)?;
        wire.until("shutdown")?;
        pod.ended()?;
    }
    Ok(vec![Figure {
        name: "start of `minke pod` to ready, warm, without syncs".into(),
        unit: "ms",
        samples,
        goal: Goal::AtMost(15.0),
        floor: Some(Floor { what: "start and end of `true`", samples: floor }),
        beside: beside(&syncs, &barriers),
    }])
}

fn beside(syncs: &[f64], barriers: &[f64]) -> Vec<(String, f64)> {
    vec![
        ("ms inside syncs (median)".into(), spread(syncs).median),
        ("syncs (median)".into(), spread(barriers).median),
    ]
}

/// Milliseconds for a process that does nothing.
pub(super) fn bare_process() -> Result<f64, String> {
    let start = Instant::now();
    let status = Command::new("true").stdin(Stdio::null()).status();
    status.map_err(|why| format!("cannot run `true`: {why}"))?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

pub(crate) fn first_request(built: &Built) -> Result<Vec<Figure>, String> {
    let home = Home::new(built)?;
    let model = built.script("first.toml", SCRIPT)?;
    home.exec(&model)?;
    let (mut samples, mut floor, mut syncs, mut barriers) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SAMPLES {
        let (start, timings) = home.timed_exec(&model)?;
        let asked = timings.0.iter().find(|timing| timing.what == What::Wrote { asks: true });
        let asked = asked.ok_or("no `llm_call` was written: what was measured?")?;
        let synced =
            timings.0.iter().find(|timing| timing.what == What::Synced && timing.start >= asked.start);
        let end =
            synced.ok_or("the `llm_call` was never synced: a request was made that is not on disk")?.end;
        let (inside, count) = timings.synced(start, end);
        samples.push((end - start - inside) as f64 / 1e6);
        syncs.push(inside as f64 / 1e6);
        barriers.push(count as f64);
        floor.push(bare_process()?);
    }
    Ok(vec![Figure {
        name: "start of `minke exec` to the first model request, new session, without syncs".into(),
        unit: "ms",
        samples,
        goal: Goal::AtMost(20.0),
        floor: Some(Floor { what: "start and end of `true`", samples: floor }),
        beside: beside(&syncs, &barriers),
    }])
}
