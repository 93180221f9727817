//! Tree simulation: many seeds with several pods that spawn, lend and report.
//!
//! Each test run takes eleven million steps: eight with stand-ins, three with the product's pods.
//! `MINKE_TREE_SEED=N` runs one seed, as named by a failure (with `MINKE_TREE_MINDS=product` for the
//! product's pods); `MINKE_LONG=1` takes five times as many steps.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use minke_testkit::{PodKind, TreeFlaw, TreeResult, simulate_tree};

/// Total steps of the seeds with stand-ins.
const STAND_IN_STEPS: u64 = 8_000_000;
/// Total steps of the seeds with the product's pods.
const PRODUCT_STEPS: u64 = 3_000_000;
/// Factor of a long run.
const LONG_FACTOR: u64 = 5;
const ACTS: usize = 1_500;
/// Maximum number of seeds until a disabled guard must be detected.
const MAX_SEEDS_TO_CATCH: u64 = 4_000;

/// Branches that the seeds of one test run must reach; a fault that never occurs tests nothing.
const REQUIRED_BRANCHES: &[&str] = &[
    "a child died before it was ready",
    "a child's end was never logged",
    "a child runs",
    "a child of an earlier process runs",
    "a child of an earlier process never started",
    "a child was handed back",
    "a child was killed by its parent",
    "a child was not ready in time",
    "a child was read",
    "a child was signalled",
    "a child was started again",
    "a child was stopped",
    "a command outlived its pod",
    "a grandchild was adopted",
    "a message arrived twice",
    "a message overtook another",
    "a message was lost",
    "a message was sent again",
    "a loan waited for a command",
    "a person stopped a pod",
    "a pod exited with unsent reports",
    "a pod exited cleanly",
    "a process number was reused",
    "a report had no receiver",
    "a report was acknowledged",
    "a report was read from a log",
    "a report went to an ancestor",
    "a session was restarted",
    "a start failed",
    "a start was undone",
    "a used ticket was refused",
    "a command had no receiver",
    "killed",
    "killed before it booted",
    "killed before it had its row",
    "killed before it reported ready",
    "killed in the middle of a spawn",
    "killed while it exited",
    "killed with a report in flight",
    "refused: an ancestor is running",
    "refused: exceeds the lender's scope",
    "refused: write conflict",
    "refused: the name is taken",
    "refused: the session is held",
    "refused: the ticket has expired",
    "refused: too deep",
    "refused: too many",
    "dead rows were reclaimed",
    "the clock jumped ahead",
    "the clock jumped back",
    "the machine was restarted",
    "the model failed",
    "unsynced entries were lost",
];

/// Branches of a long run only: a parent kills a child that ignores `shutdown` and a signal.
const LONG_RUN_BRANCHES: &[&str] = &["a child was killed by its parent"];

/// Branches that the product's pods reach too rarely in their fewer steps: they check limits themselves and
/// stop their children cleanly.
const OPTIONAL_FOR_PRODUCT: &[&str] = &[
    "a child was handed back",
    "a child was killed by its parent",
    "a child was signalled",
    "a child was not ready in time",
    "a child's end was never logged",
    "a loan waited for a command",
    "a command had no receiver",
    "killed while it exited",
    "refused: an ancestor is running",
    "refused: exceeds the lender's scope",
    "refused: the ticket has expired",
    "refused: too deep",
    "refused: too many",
];

fn current_commit() -> String {
    let said = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    said.ok()
        .filter(|out| out.status.success())
        .map_or_else(|| "unknown".to_owned(), |out| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn env_number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn run_seed(seed: u64, minds: PodKind) -> TreeResult {
    simulate_tree(seed, ACTS, minds, None).unwrap_or_else(|why| {
        let which = if minds == PodKind::Product { " MINKE_TREE_MINDS=product" } else { "" };
        panic!("{seed}@{}: {why}\nreplay it with MINKE_TREE_SEED={seed}{which}", current_commit())
    })
}

/// Runs seeds on all cores until the steps are reached.
fn run_seeds(minds: PodKind, steps: u64) -> BTreeMap<&'static str, u64> {
    let (next, taken) = (AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let worker = || {
        let mut branches = BTreeMap::<&'static str, u64>::new();
        while taken.load(Ordering::Relaxed) < steps {
            let grown = run_seed(next.fetch_add(1, Ordering::Relaxed), minds);
            taken.fetch_add(grown.steps, Ordering::Relaxed);
            for (what, times) in grown.branches {
                *branches.entry(what).or_default() += times;
            }
        }
        branches
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
    if let Some(seed) = env_number("MINKE_TREE_SEED") {
        let product = std::env::var("MINKE_TREE_MINDS").is_ok_and(|minds| minds == "product");
        eprintln!("{:?}", run_seed(seed, if product { PodKind::Product } else { PodKind::StandIn }));
        return;
    }
    let branches = run_seeds(PodKind::StandIn, STAND_IN_STEPS * step_factor());
    let seldom = |what: &str| step_factor() == 1 && LONG_RUN_BRANCHES.contains(&what);
    let never: Vec<_> =
        REQUIRED_BRANCHES.iter().filter(|what| !seldom(what) && !branches.contains_key(**what)).collect();
    assert!(never.is_empty(), "never met: {never:?}");
}

fn step_factor() -> u64 {
    if env_number("MINKE_LONG").is_some() { LONG_FACTOR } else { 1 }
}

#[test]
fn the_products_minds_keep_the_promises_of_the_tree() {
    if env_number("MINKE_TREE_SEED").is_some() {
        return;
    }
    let branches = run_seeds(PodKind::Product, PRODUCT_STEPS * step_factor());
    let wanted = ["a child was restarted through its ancestor", "a person answered", "a timer fired"];
    let never: Vec<_> = REQUIRED_BRANCHES
        .iter()
        .chain(&wanted)
        .filter(|what| !OPTIONAL_FOR_PRODUCT.contains(what) && !branches.contains_key(**what))
        .collect();
    assert!(never.is_empty(), "never met: {never:?}");
}

/// Seeds that have failed once. The simulation has changed since; each defect has a test of its own.
///
/// Stand-in 2778: a pod was adopted during a request, and the checker subtracted the refund only from its new
/// parent. Sums now follow the spawning pods (`a_request_counts_for_everybody_above`). Product 3502: an
/// interrupted run was not resumed because its budget was spent, which counts as settled.
#[test]
fn recorded_seeds_hold() {
    run_seed(2778, PodKind::StandIn);
    run_seed(3502, PodKind::Product);
}

#[test]
fn a_failing_seed_fails_the_same_again() {
    let fails = |seed| simulate_tree(seed, ACTS, PodKind::StandIn, Some(TreeFlaw::LosesLoans)).err();
    let (seed, why) =
        (0..MAX_SEEDS_TO_CATCH).find_map(|seed| Some((seed, fails(seed)?))).expect("a flaw is noticed");
    assert_eq!(fails(seed), Some(why));
}

#[test]
fn a_tree_grows_the_same_twice() {
    for seed in 0..20 {
        assert_eq!(run_seed(seed, PodKind::StandIn), run_seed(seed, PodKind::StandIn));
        assert_eq!(run_seed(seed, PodKind::Product), run_seed(seed, PodKind::Product));
    }
    assert_ne!(run_seed(1, PodKind::StandIn).trace, run_seed(2, PodKind::StandIn).trace);
}

/// Checks that a property fails without its guard.
#[track_caller]
fn assert_caught(flaw: TreeFlaw, words: &[&str]) {
    let found = (0..MAX_SEEDS_TO_CATCH)
        .find_map(|seed| simulate_tree(seed, ACTS, PodKind::StandIn, Some(flaw)).err());
    let why = found.unwrap_or_else(|| panic!("{flaw:?} was not noticed in {MAX_SEEDS_TO_CATCH} seeds"));
    let first = why.lines().next().unwrap_or_default();
    assert!(words.iter().any(|word| first.contains(word)), "{flaw:?}: {first}");
}

#[test]
fn loans_that_overlap_are_noticed() {
    assert_caught(TreeFlaw::LendsTaken, &["P1", "P2"]);
}

#[test]
fn a_lender_that_goes_on_writing_is_noticed() {
    assert_caught(TreeFlaw::NarrowsLate, &["P1"]);
}

#[test]
fn a_loan_that_is_back_before_the_commands_are_gone_is_noticed() {
    assert_caught(TreeFlaw::IgnoresCommands, &["P1"]);
}

#[test]
fn loans_that_die_with_their_lender_are_noticed() {
    assert_caught(TreeFlaw::LosesLoans, &["a parent without a row", "L1", "P1"]);
}

#[test]
fn liveness_by_process_number_is_noticed() {
    assert_caught(TreeFlaw::TrustsPids, &["P1", "L1", "has no row"]);
}

#[test]
fn the_order_of_two_logs_by_their_clocks_is_noticed() {
    assert_caught(TreeFlaw::TrustsClocks, &["P9", "L5", "L1"]);
}

#[test]
fn limits_that_are_not_kept_are_noticed() {
    assert_caught(TreeFlaw::IgnoresLimits, &["P10"]);
}

#[test]
fn a_ticket_that_stays_good_is_noticed() {
    assert_caught(TreeFlaw::KeepsTickets, &["P13"]);
}

#[test]
fn an_early_acknowledgement_is_noticed() {
    assert_caught(TreeFlaw::AcksUnwritten, &["is in no log"]);
}

#[test]
fn a_report_that_is_taken_twice_is_noticed() {
    assert_caught(TreeFlaw::AcceptsTwice, &["received twice"]);
}

#[test]
fn a_report_that_its_sender_can_lose_is_noticed() {
    assert_caught(TreeFlaw::ReadsUnsynced, &["its sender lost"]);
}

#[test]
fn a_request_without_its_reservation_is_noticed() {
    assert_caught(TreeFlaw::SkipsReservation, &["P9"]);
}

#[test]
fn spending_that_nobody_noted_is_noticed() {
    assert_caught(TreeFlaw::ForgetsBelow, &["P9"]);
}

#[test]
fn a_run_without_its_end_is_noticed() {
    assert_caught(TreeFlaw::ForgetsEnd, &["P3", "L2"]);
}
