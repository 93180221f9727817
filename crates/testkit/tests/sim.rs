//! The simulator: many seeds, each deciding everything that happens to several pods and clients.
//!
//! `cargo xtask sim` runs it in release; `--long` many more acts, `--seed N` one seed, as a failure names it.

use std::collections::BTreeMap;
use std::process::Command;

use minke_testkit::{Simulated, simulate};

const SEEDS: u64 = 24;
const ACTS: usize = 800;
/// `--long`: acts in all.
const LONG_ACTS: u64 = 10_000_000;
const LONG_ACTS_A_SEED: usize = 20_000;

/// Everything that must have been met by the seeds of one test run; a fault that never strikes tests nothing.
const SOMETIMES: &[&str] = &[
    "a process was killed",
    "the power was cut",
    "the power was cut, torn",
    "a death at an operation was planned",
    "a full disk was planned",
    "an input-output error was planned",
    "a short write was planned",
    "sync failed for good",
    "the next writer was warned",
    "a fault ended a process",
    "a write failed",
    "the ballast helped",
    "space came back",
    "an unfinished step was cut",
    "something waits for a sync",
    "a second writer was refused",
    "a pod let go in good order",
    "a client began anew",
    "an input was sent twice",
    "the model failed",
    "a call ended",
    "a timer fired",
    "a file was looked at after a death",
];

fn commit() -> String {
    let said = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    said.ok()
        .filter(|out| out.status.success())
        .map_or_else(|| "unknown".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn run(seed: u64, acts: usize) -> Simulated {
    simulate(seed, acts).unwrap_or_else(|why| {
        panic!("{seed}@{}: {why}\nreplay it with `cargo xtask sim --seed {seed}`", commit())
    })
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn every_seed_keeps_the_promises() {
    if let Some(seed) = number("MINKE_SIM_SEED") {
        let acts = number("MINKE_SIM_ACTS").and_then(|acts| usize::try_from(acts).ok()).unwrap_or(ACTS);
        println!("{:?}", run(seed, acts));
        return;
    }
    let (seeds, acts) = match number("MINKE_SIM_LONG") {
        Some(_) => (LONG_ACTS / LONG_ACTS_A_SEED as u64, LONG_ACTS_A_SEED),
        None => (SEEDS, ACTS),
    };
    let mut met: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..seeds {
        for (what, times) in run(seed, acts).met {
            *met.entry(what).or_default() += times;
        }
    }
    let never: Vec<&&str> = SOMETIMES.iter().filter(|what| !met.contains_key(**what)).collect();
    println!("{seeds} seeds of {acts} acts; met {met:?}");
    assert!(never.is_empty(), "never met: {never:?}");
}

#[test]
fn a_seed_gives_the_same_story_twice() {
    for seed in [3, 1_000_003] {
        assert_eq!(run(seed, ACTS / 2), run(seed, ACTS / 2));
    }
    assert_ne!(run(1, 100).trace, run(2, 100).trace);
}
