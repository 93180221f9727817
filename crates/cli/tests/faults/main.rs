//! The real binary with a shim that makes its N-th file operation fail, for N = 1, 2, … until a run meets no
//! fault.
//!
//! Here: the sweep and its requirements. Elsewhere: one run and its checks (`point`), the shim's own test
//! (`shim`), the shim (`crates/testkit/shim/faults.c`).
//! Invariant: after any one fault the session opens, entries sent to a client are in the log byte for byte,
//! no call ran twice, and the next run works (`no_fault_loses_what_was_committed`).
#![cfg(target_os = "linux")]

mod point;
mod shim;
mod witness;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use point::{FaultPoint, PointOutcome};
use shim::{FaultKind, FaultShim};

/// Rounds (a note and an answer each) in the script of one run; enough for the required number of points.
const SCRIPT_ROUNDS: usize = 15;
/// The same for `cargo xtask faults`.
const LONG_SCRIPT_ROUNDS: usize = 30;
/// Minimum number of points of a sweep, all kinds together.
const MIN_POINTS: u64 = 2_000;
/// Limit for one kind; a sweep beyond it would not end.
const MAX_POINT: u64 = 20_000;
/// Maximum number of printed failures.
const MAX_FAILURES_SHOWN: usize = 10;

#[test]
fn no_fault_loses_what_was_committed() {
    let Some(shim) = FaultShim::compile() else { return };
    let rounds =
        if std::env::var_os("MINKE_FAULTS_LONG").is_some() { LONG_SCRIPT_ROUNDS } else { SCRIPT_ROUNDS };
    let bench = point::FaultBench::new(&shim, rounds);
    let start = Instant::now();
    let mut total = 0;
    let mut failures = Vec::new();
    for kind in FaultKind::ALL {
        let swept = sweep_kind(&bench, kind);
        eprintln!("{:<12} {:>5} points, {} failures", kind.kind_name(), swept.points, swept.failures.len());
        total += swept.points;
        failures.extend(swept.failures);
        if failures.len() >= MAX_FAILURES_SHOWN {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    eprintln!(
        "{total} points in {seconds:.0} s ({:.1} a second), {} losses or other failures",
        total as f64 / seconds,
        failures.len()
    );
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
    assert!(total >= MIN_POINTS, "only {total} points instead of {MIN_POINTS}: the script needs more rounds");
}

/// Result of one kind.
struct FaultSweep {
    points: u64,
    failures: Vec<String>,
}

/// Tests N = 1, 2, … on all cores, until a run completes without meeting its fault.
fn sweep_kind(bench: &point::FaultBench<'_>, kind: FaultKind) -> FaultSweep {
    let next = AtomicU64::new(1);
    let last = AtomicU64::new(MAX_POINT);
    let points = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let given_up = failures.lock().expect("no worker panics").len() >= MAX_FAILURES_SHOWN;
                    if n > last.load(Ordering::Relaxed) || given_up {
                        return;
                    }
                    let PointOutcome { fired, problems } = bench.try_point(FaultPoint { kind, n });
                    if fired {
                        points.fetch_add(1, Ordering::Relaxed);
                    } else {
                        last.fetch_min(n, Ordering::Relaxed);
                    }
                    if !problems.is_empty() {
                        let told = format!("{} at {n}: {}", kind.kind_name(), problems.join("\n    "));
                        failures.lock().expect("no worker panics").push(told);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no worker panics");
    let ended = last.into_inner() < MAX_POINT || !failures.is_empty();
    assert!(ended, "{} met a fault even at {MAX_POINT}", kind.kind_name());
    FaultSweep { points: points.into_inner(), failures }
}
