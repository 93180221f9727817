//! The real binary under a shim that makes its N-th file operation go wrong, for N = 1, 2, … until a run meets no fault.
//!
//! Here: the sweep and what is promised after it. Elsewhere: one run and its checks (`point`), the shim's own test
//! (`shim`), the shim (`crates/testkit/shim/faults.c`).
//! Invariant: after any one fault the session opens, what a client was sent is there byte for byte, no once call ran
//! twice, and the next run works (`no_fault_loses_what_was_committed`).
#![cfg(target_os = "linux")]

mod point;
mod shim;
mod witness;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use point::{Outcome, Point};
use shim::{Kind, Shim};

/// Rounds (a note and an answer each) in the script of one run. Enough for the points that are promised below.
const ROUNDS: usize = 15;
/// The same for `cargo xtask faults`.
const LONG_ROUNDS: usize = 30;
/// What one sweep must come to at least, all kinds together.
const POINTS: u64 = 2_000;
/// A sweep that goes on beyond this for one kind does not end by itself: something counts without bound.
const LAST_N: u64 = 20_000;
/// Failures shown before the sweep is given up.
const FAILURES_SHOWN: usize = 10;

#[test]
fn no_fault_loses_what_was_committed() {
    let Some(shim) = Shim::build() else { return };
    let rounds = if std::env::var_os("MINKE_FAULTS_LONG").is_some() { LONG_ROUNDS } else { ROUNDS };
    let bench = point::Bench::new(&shim, rounds);
    let start = Instant::now();
    let mut total = 0;
    let mut failures = Vec::new();
    for kind in Kind::ALL {
        let swept = sweep(&bench, kind);
        eprintln!("{:<12} {:>5} points, {} failures", kind.name(), swept.points, swept.failures.len());
        total += swept.points;
        failures.extend(swept.failures);
        if failures.len() >= FAILURES_SHOWN {
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
    assert!(total >= POINTS, "only {total} points; {POINTS} are promised: the script needs more rounds");
}

/// What one kind came to.
struct Swept {
    points: u64,
    failures: Vec<String>,
}

/// N = 1, 2, … on all cores, until a run completes without meeting its fault.
fn sweep(bench: &point::Bench<'_>, kind: Kind) -> Swept {
    let next = AtomicU64::new(1);
    let last = AtomicU64::new(LAST_N);
    let points = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let given_up = failures.lock().expect("no worker panics").len() >= FAILURES_SHOWN;
                    if n > last.load(Ordering::Relaxed) || given_up {
                        return;
                    }
                    let Outcome { fired, problems } = bench.try_point(Point { kind, n });
                    if fired {
                        points.fetch_add(1, Ordering::Relaxed);
                    } else {
                        last.fetch_min(n, Ordering::Relaxed);
                    }
                    if !problems.is_empty() {
                        let told = format!("{} at {n}: {}", kind.name(), problems.join("\n    "));
                        failures.lock().expect("no worker panics").push(told);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no worker panics");
    let ended = last.into_inner() < LAST_N || !failures.is_empty();
    assert!(ended, "{} met a fault even at {LAST_N}", kind.name());
    Swept { points: points.into_inner(), failures }
}
