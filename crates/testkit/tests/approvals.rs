//! Approvals under every order of events: no unapproved effect, none run twice, answers bound to what was asked.
//!
//! 100,000 interleavings of ask, answer, second answer, disconnect, restart, power cut, expiry, an edit of the file or of a
//! script after the ask, a change of the posture, hooks that deny, ask and rewrite, pause, resume, cancel, clients' own calls.
//! `MINKE_APPROVALS_SEED=N` plays one seed.

use std::sync::atomic::{AtomicU64, Ordering};

use minke_testkit::{Interleaved, Mutant, interleave};

const INTERLEAVINGS: u64 = 100_000;
/// A broken pod must be noticed within so many.
const SOON: u64 = 2_000;

fn play(seed: u64) -> Interleaved {
    interleave(seed, None).unwrap_or_else(|why| panic!("MINKE_APPROVALS_SEED={seed}: {why}"))
}

#[test]
fn no_interleaving_runs_what_nobody_approved() {
    if let Some(seed) = std::env::var("MINKE_APPROVALS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        eprintln!("{:?}", play(seed));
        return;
    }
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let worker = || {
        let mut sums = Interleaved::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= INTERLEAVINGS {
                return sums;
            }
            sums += play(seed);
        }
    };
    let mut all = Interleaved::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            all += worker.join().unwrap_or_else(|why| std::panic::resume_unwind(why));
        }
    });
    eprintln!("{INTERLEAVINGS} interleavings: {all:?}");
    // A branch that is never met tests nothing.
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
        assert_eq!(play(seed), play(seed));
    }
}

#[track_caller]
fn is_caught(mutant: Mutant, words: &[&str]) {
    let found = (0..SOON).find_map(|seed| interleave(seed, Some(mutant)).err());
    let why = found.unwrap_or_else(|| panic!("{mutant:?} was not noticed in {SOON} interleavings"));
    let first = why.lines().next().unwrap_or_default();
    assert!(words.iter().any(|word| first.contains(word)), "{mutant:?}: {first}");
}

#[test]
fn an_approval_that_is_skipped_is_caught() {
    is_caught(Mutant::SkipsApproval, &["without an answer"]);
}

#[test]
fn an_answer_for_something_else_is_caught() {
    is_caught(Mutant::ForgetsDigest, &["without an answer"]);
}

#[test]
fn a_call_that_runs_twice_after_its_answer_is_caught() {
    is_caught(Mutant::RunsTwice, &["was started 2 times"]);
}

#[test]
fn a_script_that_changed_after_its_approval_is_caught() {
    is_caught(Mutant::ForgetsScripts, &["a script that nobody approved"]);
}

#[test]
fn an_approval_that_nobody_gave_is_caught() {
    is_caught(Mutant::ApprovesItself, &["approved by nobody"]);
}
