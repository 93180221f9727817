//! Glob and Grep: results, errors, cost, and the comparison with `rg`.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod bad_input;
mod cost;
mod random_tree;
mod results;
mod rg;
mod scope;
mod tools;

use tools::{Tools, home};

/// Prints that a test is skipped; fails if tests must not be skipped.
fn skip_test(why: &str) {
    eprintln!("SKIPPED: {why}");
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "skipped: {why}");
}
