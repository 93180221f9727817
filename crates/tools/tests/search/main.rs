//! Glob and Grep, through the front door: what they find, what they refuse, what they cost, and that `rg` agrees.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bad;
mod cost;
mod front;
mod rg;
mod scope;
mod tools;
mod tree;

use tools::{Tools, home};

/// What cannot be tested here says so, and where nothing may be skipped it fails.
fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
    assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "skipped: {why}");
}
