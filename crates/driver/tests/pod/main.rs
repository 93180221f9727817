//! A whole pod, in a thread of the test, spoken to over its real socket.
#![expect(clippy::unwrap_used, reason = "a helper of a test that cannot go on panics, as a test does")]

mod held;
mod references;
mod runs;
mod starting;
mod storage;
mod streams;
#[expect(dead_code, reason = "the benchmarks use more of it")]
mod support;
mod wire;
