//! Approvals under random orders of events: no effect without approval, none twice, answers bound to the
//! shown call.
//!
//! 100,000 interleavings of asks, answers, second answers, disconnects, restarts, power cuts, expiry, edits
//! of files and scripts after the ask, posture changes, hooks that deny, ask and rewrite, pause, resume,
//! cancel, and client calls. `MINKE_APPROVALS_SEED=N` runs one seed.

use std::sync::atomic::{AtomicU64, Ordering};

use minke_testkit::{ApprovalMutant, InterleavingStats, run_interleaving};

const INTERLEAVINGS: u64 = 100_000;
/// Maximum number of seeds until a broken pod must be detected.
const MAX_SEEDS_TO_CATCH: u64 = 2_000;

fn run_seed(seed: u64) -> InterleavingStats {
    run_interleaving(seed, None).unwrap_or_else(|why| panic!("MINKE_APPROVALS_SEED={seed}: {why}"))
}

#[test]
fn no_interleaving_runs_what_nobody_approved() {
    if let Some(seed) = std::env::var("MINKE_APPROVALS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        eprintln!("{:?}", run_seed(seed));
        return;
    }
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let worker = || {
        let mut sums = InterleavingStats::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= INTERLEAVINGS {
                return sums;
            }
            sums += run_seed(seed);
        }
    };
    let mut all = InterleavingStats::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            all += worker.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
        }
    });
    eprintln!("{INTERLEAVINGS} interleavings: {all:?}");
    // A branch that never occurs tests nothing.
    for (met, least) in [
        (all.asks, INTERLEAVINGS),
        (all.approved, INTERLEAVINGS / 10),
        (all.granted, 100),
        (all.ran, INTERLEAVINGS / 2),
        (all.deaths, INTERLEAVINGS / 2),
        (all.conflicts, INTERLEAVINGS / 10),
        (all.expired, 500),
        (all.asked_anew, 500),
        (all.scripted, 1_000),
        (all.swapped, 20),
    ] {
        assert!(met >= least, "{met} of at least {least}: {all:?}");
    }
}

#[test]
fn a_seed_plays_the_same_twice() {
    for seed in 0..50 {
        assert_eq!(run_seed(seed), run_seed(seed));
    }
}

#[track_caller]
fn assert_caught(mutant: ApprovalMutant, words: &[&str]) {
    let found = (0..MAX_SEEDS_TO_CATCH).find_map(|seed| run_interleaving(seed, Some(mutant)).err());
    let why =
        found.unwrap_or_else(|| panic!("{mutant:?} was not noticed in {MAX_SEEDS_TO_CATCH} interleavings"));
    let first = why.lines().next().unwrap_or_default();
    assert!(words.iter().any(|word| first.contains(word)), "{mutant:?}: {first}");
}

#[test]
fn an_approval_that_is_skipped_is_caught() {
    assert_caught(ApprovalMutant::SkipsApproval, &["without an answer"]);
}

#[test]
fn an_answer_for_something_else_is_caught() {
    let caught = ["without an answer", "the pod's state differs from the state of its log"];
    assert_caught(ApprovalMutant::ForgetsDigest, &caught);
}

#[test]
fn a_call_that_runs_twice_after_its_answer_is_caught() {
    assert_caught(ApprovalMutant::RunsTwice, &["was started 2 times"]);
}

#[test]
fn a_script_that_changed_after_its_approval_is_caught() {
    assert_caught(ApprovalMutant::ForgetsScripts, &["a script without approval"]);
}

#[test]
fn an_approval_that_nobody_gave_is_caught() {
    assert_caught(ApprovalMutant::ApprovesItself, &["approved without a user"]);
}
