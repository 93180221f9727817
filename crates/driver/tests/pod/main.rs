//! Tests of a whole pod in a thread of the test, over its real socket.
#![expect(clippy::unwrap_used, reason = "a failing test helper panics, as a test does")]

mod held_disk;
mod references;
mod runs;
mod startup;
mod storage;
mod streams;
#[expect(dead_code, reason = "the benchmarks use more of it")]
mod support;
mod wire;
