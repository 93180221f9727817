//! Figures of single crates: the benchmarks of `session`, of folding and of the wire formats, their samples kept and the
//! log's set beside their floors.
//!
//! Elsewhere: what is measured there (`crates/session/benches/log.rs`, `crates/testkit/benches/fold.rs`).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::time::Instant;

use serde_json::Value;
use tempfile::TempDir;

use super::figure::{Figure, Floor, Goal};
use super::home::Built;
use crate::run::{cargo, must};

const SAMPLES: usize = 9;
/// What one step of the append figure holds.
const STEP: usize = 16;
const ENTRY_BYTES: usize = 1_024;
const STEPS: usize = 2_500;
/// What the reading figure reads, about.
const LOG_BYTES: usize = 100_000_000;

pub(crate) fn log(_: &Built) -> Result<Vec<Figure>, String> {
    let folder = TempDir::new().map_err(|why| format!("cannot make a temporary directory: {why}"))?;
    let kept = folder.path().join("samples");
    let mut figures = run(&kept, &[("minke-session", "log"), ("minke-testkit", "fold")])?;
    for figure in &mut figures {
        figure.floor = match figure.name.split(' ').next() {
            Some("append") => {
                Some(Floor { what: "raw appends of as many bytes", samples: raw_appends(&folder)? })
            }
            Some("read") => {
                Some(Floor { what: "reading as many cached bytes", samples: raw_reads(&folder)? })
            }
            _ => None,
        };
    }
    Ok(figures)
}

/// Decoding and building of the four wire formats, by themselves.
pub(crate) fn wire(_: &Built) -> Result<Vec<Figure>, String> {
    let folder = TempDir::new().map_err(|why| format!("cannot make a temporary directory: {why}"))?;
    run(&folder.path().join("samples"), &[("minke-llm", "wire")])
}

/// Runs benchmarks of crates and gives the figures that they kept.
fn run(kept: &std::path::Path, benches: &[(&str, &str)]) -> Result<Vec<Figure>, String> {
    for (package, bench) in benches {
        must(cargo(&["bench", "-q", "-p", package, "--bench", bench]).env("MINKE_BENCH_SAMPLES", kept))?;
    }
    let text = fs::read_to_string(kept).map_err(|why| format!("the benchmark kept no samples: {why}"))?;
    text.lines().map(figure).collect()
}

/// One line of the benchmark's samples.
fn figure(line: &str) -> Result<Figure, String> {
    let bad = |why: &str| format!("the log's benchmark kept `{line}`, {why}");
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
        "<=" => Goal::AtMost(number),
        ">=" => Goal::AtLeast(number),
        _ => return Err(bad("with a goal that has no direction")),
    };
    Ok(Figure { name, unit: "", samples, goal, floor: None, beside: Vec::new() })
}

/// Entries a second when their bytes are only written, a step at a time.
fn raw_appends(folder: &TempDir) -> Result<Vec<f64>, String> {
    let step = vec![b'x'; STEP * ENTRY_BYTES];
    (0..SAMPLES)
        .map(|_| {
            let mut file = File::create(folder.path().join("raw"))
                .map_err(|why| format!("cannot make a file: {why}"))?;
            let start = Instant::now();
            for _ in 0..STEPS {
                file.write_all(&step).map_err(|why| format!("cannot append to a file: {why}"))?;
            }
            Ok((STEPS * STEP) as f64 / start.elapsed().as_secs_f64())
        })
        .collect()
}

/// Milliseconds to read a file of the log's size that the kernel has in memory.
fn raw_reads(folder: &TempDir) -> Result<Vec<f64>, String> {
    let path = folder.path().join("large");
    fs::write(&path, vec![b'x'; LOG_BYTES]).map_err(|why| format!("cannot write a large file: {why}"))?;
    let mut piece = vec![0; 1024 * 1024];
    (0..SAMPLES)
        .map(|_| {
            let mut file = File::open(&path).map_err(|why| format!("cannot open a large file: {why}"))?;
            let start = Instant::now();
            while file.read(&mut piece).map_err(|why| format!("cannot read a large file: {why}"))? > 0 {}
            Ok(start.elapsed().as_secs_f64() * 1e3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_line_is_read_and_a_bad_one_told() {
        let read =
            figure(r#"{"name":"append, a second","goal":">= 300000","samples":[1.0,2.0,3.0]}"#).unwrap();
        assert!(read.is_missed() && read.median() == 2.0);
        for bad in [
            "",
            "{}",
            r#"{"name":"x","goal":"== 1","samples":[1.0]}"#,
            r#"{"name":"x","goal":"<= 1","samples":[]}"#,
        ] {
            assert!(figure(bad).is_err(), "{bad}");
        }
    }
}
