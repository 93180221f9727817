//! The simulator: many seeds with several pods and clients.
//!
//! `cargo xtask sim` runs it in release mode; `--long` runs many more actions, `--seed N` one seed, as named
//! by a failure.

use std::collections::BTreeMap;
use std::process::Command;

use minke_testkit::{SimulationResult, simulate};

const SEEDS: u64 = 24;
const ACTS: usize = 800;
/// `--long`: total number of actions.
const LONG_ACTS: u64 = 10_000_000;
const LONG_ACTS_A_SEED: usize = 20_000;

/// Branches that the seeds of one test run must reach; a fault that never occurs tests nothing.
const REQUIRED_BRANCHES: &[&str] = &[
    "a process was killed",
    "the power was cut",
    "the power was cut, torn",
    "a death at an operation was planned",
    "a full disk was planned",
    "an input-output error was planned",
    "a short write was planned",
    "sync failed for good",
    "the log was marked as unsynced",
    "a fault ended a process",
    "a write failed",
    "the ballast helped",
    "space came back",
    "an unfinished step was cut",
    "an output waits for a sync",
    "a second writer was refused",
    "a pod exited cleanly",
    "a client restarted its view",
    "an input was sent twice",
    "the model failed",
    "a call ended",
    "a timer fired",
    "a file was checked after a crash",
];

fn current_commit() -> String {
    let said = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    said.ok()
        .filter(|out| out.status.success())
        .map_or_else(|| "unknown".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn run_seed(seed: u64, acts: usize) -> SimulationResult {
    simulate(seed, acts).unwrap_or_else(|why| {
        panic!("{seed}@{}: {why}\nreplay it with `cargo xtask sim --seed {seed}`", current_commit())
    })
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[test]
fn every_seed_keeps_the_promises() {
    if let Some(seed) = env_number("MINKE_SIM_SEED") {
        let acts = env_number("MINKE_SIM_ACTS").and_then(|acts| usize::try_from(acts).ok()).unwrap_or(ACTS);
        println!("{:?}", run_seed(seed, acts));
        return;
    }
    let (seeds, acts) = match env_number("MINKE_SIM_LONG") {
        Some(_) => (LONG_ACTS / LONG_ACTS_A_SEED as u64, LONG_ACTS_A_SEED),
        None => (SEEDS, ACTS),
    };
    let mut branches: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in 0..seeds {
        for (what, times) in run_seed(seed, acts).branches {
            *branches.entry(what).or_default() += times;
        }
    }
    let never: Vec<&&str> = REQUIRED_BRANCHES.iter().filter(|what| !branches.contains_key(**what)).collect();
    println!("{seeds} seeds of {acts} acts; met {branches:?}");
    assert!(never.is_empty(), "never met: {never:?}");
}

#[test]
fn a_seed_gives_the_same_story_twice() {
    for seed in [3, 1_000_003] {
        assert_eq!(run_seed(seed, ACTS / 2), run_seed(seed, ACTS / 2));
    }
    assert_ne!(run_seed(1, 100).trace, run_seed(2, 100).trace);
}
