//! Benchmarks of single crates: `session`, folding and the wire formats; stores their samples and adds
//! baselines for the log.
//!
//! Elsewhere: the measurements (`crates/session/benches/log.rs`, `crates/testkit/benches/fold.rs`).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::figure::{BenchFigure, BenchGoal, MachineFloor};
use super::home::BenchBinaries;
use crate::run::{cargo_command, run_command};

const SAMPLES: usize = 9;
/// The number of entries in one step of the append benchmark.
const ENTRIES_PER_STEP: usize = 16;
const ENTRY_BYTES: usize = 1_024;
const STEPS: usize = 2_500;
/// The approximate size of the log in the read benchmark.
const LOG_BYTES: usize = 100_000_000;

pub(crate) fn bench_log(_: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let folder = TempDir::new().map_err(|why| format!("could not create a temporary directory: {why}"))?;
    let kept = folder.path().join("samples");
    let mut figures = run_benches(&kept, &[("minke-session", "log"), ("minke-testkit", "fold")])?;
    for figure in &mut figures {
        figure.floor = match figure.name.split(' ').next() {
            Some("append") => Some(MachineFloor {
                what: "raw appends of as many bytes",
                samples: measure_raw_appends(&folder)?,
            }),
            Some("read") => Some(MachineFloor {
                what: "reading as many cached bytes",
                samples: measure_raw_reads(&folder)?,
            }),
            _ => None,
        };
    }
    Ok(figures)
}

/// Decoding and building of the four wire formats alone.
pub(crate) fn bench_wire(_: &BenchBinaries) -> Result<Vec<BenchFigure>, String> {
    let folder = TempDir::new().map_err(|why| format!("could not create a temporary directory: {why}"))?;
    run_benches(&folder.path().join("samples"), &[("minke-llm", "wire")])
}

/// Runs benchmarks of crates and returns the figures that they stored.
fn run_benches(kept: &std::path::Path, benches: &[(&str, &str)]) -> Result<Vec<BenchFigure>, String> {
    for (package, bench) in benches {
        run_command(
            cargo_command(&["bench", "-q", "-p", package, "--bench", bench]).env("MINKE_BENCH_SAMPLES", kept),
        )?;
    }
    let text =
        fs::read_to_string(kept).map_err(|why| format!("could not read the benchmark's samples: {why}"))?;
    text.lines().map(parse_figure).collect()
}

/// One line of the benchmark's samples.
fn parse_figure(line: &str) -> Result<BenchFigure, String> {
    let bad = |why: &str| format!("invalid sample line `{line}`: {why}");
    let said: Value = serde_json::from_str(line).map_err(|why| bad(&why.to_string()))?;
    let name = said["name"].as_str().ok_or_else(|| bad("without a name"))?.to_owned();
    let samples: Vec<f64> =
        said["samples"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    if samples.is_empty() {
        return Err(bad("without samples"));
    }
    let (sign, number) = said["goal"].as_str().and_then(|goal| goal.split_once(' ')).unwrap_or_default();
    let number: f64 = number.parse().map_err(|_| bad("without a goal"))?;
    let goal = match sign {
        "<=" => BenchGoal::AtMost(number),
        ">=" => BenchGoal::AtLeast(number),
        _ => return Err(bad("with a goal that has no direction")),
    };
    Ok(BenchFigure { name, unit: "", samples, goal, floor: None, related: Vec::new() })
}

/// Entries per second for plain writes of the same bytes, one step at a time.
fn measure_raw_appends(folder: &TempDir) -> Result<Vec<f64>, String> {
    let step = vec![b'x'; ENTRIES_PER_STEP * ENTRY_BYTES];
    (0..SAMPLES)
        .map(|_| {
            let mut file = File::create(folder.path().join("raw"))
                .map_err(|why| format!("could not create a file: {why}"))?;
            let start = Instant::now();
            for _ in 0..STEPS {
                file.write_all(&step).map_err(|why| format!("could not append to a file: {why}"))?;
            }
            Ok((STEPS * ENTRIES_PER_STEP) as f64 / start.elapsed().as_secs_f64())
        })
        .collect()
}

/// Milliseconds to read a cached file of the log's size.
fn measure_raw_reads(folder: &TempDir) -> Result<Vec<f64>, String> {
    let path = folder.path().join("large");
    fs::write(&path, vec![b'x'; LOG_BYTES]).map_err(|why| format!("could not write a large file: {why}"))?;
    let mut piece = vec![0; 1024 * 1024];
    (0..SAMPLES)
        .map(|_| {
            let mut file = File::open(&path).map_err(|why| format!("could not open a large file: {why}"))?;
            let start = Instant::now();
            while file.read(&mut piece).map_err(|why| format!("could not read a large file: {why}"))? > 0 {}
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_line_is_read_and_a_bad_one_told() {
        let read = parse_figure(r#"{"name":"append, a second","goal":">= 300000","samples":[1.0,2.0,3.0]}"#)
            .unwrap();
        assert!(read.is_missed() && read.median() == 2.0);
        for bad in [
            "",
            "{}",
            r#"{"name":"x","goal":"== 1","samples":[1.0]}"#,
            r#"{"name":"x","goal":"<= 1","samples":[]}"#,
        ] {
            assert!(parse_figure(bad).is_err(), "{bad}");
        }
    }
}
