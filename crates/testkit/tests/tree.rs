//! The tree, simulated: many seeds, each deciding everything that happens to several pods that spawn, lend and report.
//!
//! Every run of the tests takes eleven million steps: eight with stand-ins, three with the product's own minds in the same
//! world. One seed, as a failure names it, with `MINKE_TREE_SEED=N` (and `MINKE_TREE_MINDS=product` for those);
//! `MINKE_LONG=1` takes five times as many.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use minke_testkit::{Flaw, Grown, Minds, grow};

/// Steps of the seeds in which stand-ins grow, all together.
const STEPS: u64 = 8_000_000;
/// Steps of the seeds in which the product's own minds grow.
const PRODUCT_STEPS: u64 = 3_000_000;
/// How many times as many a long run takes.
const LONG: u64 = 5;
const ACTS: usize = 1_500;
/// A guard that is left out must be missed within so many seeds.
const SOON: u64 = 4_000;

/// What must have been met by the seeds of one test run; a fault that never strikes tests nothing.
const SOMETIMES: &[&str] = &[
    "a child died before it was ready",
    "a child's end was never noted",
    "a child lives",
    "a child of an earlier life lives",
    "a child of an earlier life never began",
    "a child was handed back",
    "a child was killed by its parent",
    "a child was not ready in time",
    "a child was read",
    "a child was signalled",
    "a child was started again",
    "a child was stopped",
    "a command outlived its pod",
    "a grandchild was adopted",
    "a letter came twice",
    "a letter overtook another",
    "a letter was lost",
    "a letter was written again",
    "a loan waited for a command",
    "a person stopped a pod",
    "a pod left with reports",
    "a pod let go in good order",
    "a process number was used again",
    "a report found nobody",
    "a report was acknowledged",
    "a report was read from a log",
    "a report went to an ancestor",
    "a session was woken",
    "a start failed",
    "a start was undone",
    "a used ticket was refused",
    "an order found nobody",
    "killed",
    "killed before it booted",
    "killed before it had its row",
    "killed before it said ready",
    "killed in the middle of a spawn",
    "killed while it let go",
    "killed with a report under way",
    "refused: an ancestor lives",
    "refused: more than the lender has",
    "refused: somebody writes there",
    "refused: the name is taken",
    "refused: the session is held",
    "refused: the ticket has run out",
    "refused: too deep",
    "refused: too many",
    "somebody looked and reclaimed",
    "the clock jumped ahead",
    "the clock jumped back",
    "the machine was restarted",
    "the model failed",
    "what was not synced was lost",
];

/// What is only met in the long version: a parent kills a child that neither `shutdown` nor a signal has stopped.
const SELDOM: &[&str] = &["a child was killed by its parent"];

/// What the product's minds meet too seldom to be asked for in their fewer steps: they check themselves what the table
/// would refuse, and stop their children in good order.
const RARE: &[&str] = &[
    "a child was handed back",
    "a child was killed by its parent",
    "a child was signalled",
    "a child was not ready in time",
    "a child's end was never noted",
    "a loan waited for a command",
    "an order found nobody",
    "killed while it let go",
    "refused: an ancestor lives",
    "refused: more than the lender has",
    "refused: the ticket has run out",
    "refused: too deep",
    "refused: too many",
];

fn commit() -> String {
    let said = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    said.ok()
        .filter(|out| out.status.success())
        .map_or_else(|| "unknown".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn grown(seed: u64, minds: Minds) -> Grown {
    grow(seed, ACTS, minds, None).unwrap_or_else(|why| {
        let which = if minds == Minds::Product { " MINKE_TREE_MINDS=product" } else { "" };
        panic!("{seed}@{}: {why}\nreplay it with MINKE_TREE_SEED={seed}{which}", commit())
    })
}

/// All seeds until so many steps were taken, on all cores.
fn forest(minds: Minds, steps: u64) -> BTreeMap<&'static str, u64> {
    let (next, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let worker = || {
        let mut met = BTreeMap::<&'static str, u64>::new();
        while taken.load(Ordering::Relaxed) < steps {
            let grown = grown(next.fetch_add(1, Ordering::Relaxed), minds);
            taken.fetch_add(grown.steps, Ordering::Relaxed);
            for (what, times) in grown.met {
                *met.entry(what).or_default() += times;
            }
        }
        met
    };
    let mut met = BTreeMap::<&'static str, u64>::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        for worker in workers {
            for (what, times) in worker.join().unwrap_or_else(|why| std::panic::resume_unwind(why)) {
                *met.entry(what).or_default() += times;
            }
        }
    });
    let killed =
        met.iter().filter(|(what, _)| what.starts_with("killed")).map(|(_, times)| times).sum::<u64>();
    let (seeds, taken, took) = (next.into_inner(), taken.into_inner(), began.elapsed().as_secs_f64());
    let rate = taken as f64 / took;
    eprintln!(
        "{minds:?}: {seeds} seeds, {taken} steps, {killed} kills in {took:.1} s, {rate:.0} steps a second; met: {met:?}"
    );
    met
}

#[test]
fn no_seed_breaks_a_promise_of_the_tree() {
    if let Some(seed) = number("MINKE_TREE_SEED") {
        let product = std::env::var("MINKE_TREE_MINDS").is_ok_and(|minds| minds == "product");
        eprintln!("{:?}", grown(seed, if product { Minds::Product } else { Minds::StandIn }));
        return;
    }
    let met = forest(Minds::StandIn, STEPS * longer());
    let seldom = |what: &str| longer() == 1 && SELDOM.contains(&what);
    let never: Vec<_> = SOMETIMES.iter().filter(|what| !seldom(what) && !met.contains_key(**what)).collect();
    assert!(never.is_empty(), "never met: {never:?}");
}

fn longer() -> u64 {
    if number("MINKE_LONG").is_some() { LONG } else { 1 }
}

#[test]
fn the_products_minds_keep_the_promises_of_the_tree() {
    if number("MINKE_TREE_SEED").is_some() {
        return;
    }
    let met = forest(Minds::Product, PRODUCT_STEPS * longer());
    let wanted = ["a child was woken through its ancestor", "a person answered", "a timer fired"];
    let never: Vec<_> = SOMETIMES
        .iter()
        .chain(&wanted)
        .filter(|what| !RARE.contains(what) && !met.contains_key(**what))
        .collect();
    assert!(never.is_empty(), "never met: {never:?}");
}

/// Seeds that have failed once. What they tell changes with the simulation; what was wrong has a test of its own.
///
/// Stand-in 2778: a pod was adopted in the middle of a request, and the checker took what the request gave back off its
/// new parent's sum only. Sums go by who spawned whom since (`a_request_counts_for_everybody_above`). Product 3502: a run
/// could be resumed and was not, for the budget was spent; that is rest.
#[test]
fn recorded_seeds_hold() {
    grown(2778, Minds::StandIn);
    grown(3502, Minds::Product);
}

#[test]
fn a_failing_seed_fails_the_same_again() {
    let fails = |seed| grow(seed, ACTS, Minds::StandIn, Some(Flaw::LosesLoans)).err();
    let (seed, why) = (0..SOON).find_map(|seed| Some((seed, fails(seed)?))).expect("a flaw is noticed");
    assert_eq!(fails(seed), Some(why));
}

#[test]
fn a_tree_grows_the_same_twice() {
    for seed in 0..20 {
        assert_eq!(grown(seed, Minds::StandIn), grown(seed, Minds::StandIn));
        assert_eq!(grown(seed, Minds::Product), grown(seed, Minds::Product));
    }
    assert_ne!(grown(1, Minds::StandIn).trace, grown(2, Minds::StandIn).trace);
}

/// Each property is seen to fail without its guard.
#[track_caller]
fn is_missed(flaw: Flaw, words: &[&str]) {
    let found = (0..SOON).find_map(|seed| grow(seed, ACTS, Minds::StandIn, Some(flaw)).err());
    let why = found.unwrap_or_else(|| panic!("{flaw:?} was not noticed in {SOON} seeds"));
    let first = why.lines().next().unwrap_or_default();
    assert!(words.iter().any(|word| first.contains(word)), "{flaw:?}: {first}");
}

#[test]
fn loans_that_overlap_are_noticed() {
    is_missed(Flaw::LendsTaken, &["P1", "P2"]);
}

#[test]
fn a_lender_that_goes_on_writing_is_noticed() {
    is_missed(Flaw::NarrowsLate, &["P1"]);
}

#[test]
fn a_loan_that_is_back_before_the_commands_are_gone_is_noticed() {
    is_missed(Flaw::IgnoresCommands, &["P1"]);
}

#[test]
fn loans_that_die_with_their_lender_are_noticed() {
    is_missed(Flaw::LosesLoans, &["a parent without a row", "L1", "P1"]);
}

#[test]
fn liveness_by_process_number_is_noticed() {
    is_missed(Flaw::TrustsPids, &["P1", "L1", "has no row"]);
}

#[test]
fn the_order_of_two_logs_by_their_clocks_is_noticed() {
    is_missed(Flaw::TrustsClocks, &["P9", "L5", "L1"]);
}

#[test]
fn limits_that_are_not_kept_are_noticed() {
    is_missed(Flaw::IgnoresLimits, &["P10"]);
}

#[test]
fn a_ticket_that_stays_good_is_noticed() {
    is_missed(Flaw::KeepsTickets, &["P13"]);
}

#[test]
fn an_early_acknowledgement_is_noticed() {
    is_missed(Flaw::AcksUnwritten, &["is in no log"]);
}

#[test]
fn a_report_that_is_taken_twice_is_noticed() {
    is_missed(Flaw::AcceptsTwice, &["received twice"]);
}

#[test]
fn a_report_that_its_sender_can_lose_is_noticed() {
    is_missed(Flaw::ReadsUnsynced, &["its sender lost"]);
}

#[test]
fn a_request_without_its_reservation_is_noticed() {
    is_missed(Flaw::SkipsReservation, &["P9"]);
}

#[test]
fn spending_that_nobody_noted_is_noticed() {
    is_missed(Flaw::ForgetsBelow, &["P9"]);
}

#[test]
fn a_run_without_its_end_is_noticed() {
    is_missed(Flaw::ForgetsEnd, &["P3", "L2"]);
}
