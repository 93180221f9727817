//! Requests to an engine with its own home, without pods: the tests of the binary cover requests that start one.

#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]

mod harness;
mod normal;
mod stdio;
mod threads;
