//! Requests to the engine, in a home of its own, without a pod: what starts one is tried with the binary.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod house;
mod normal;
mod stdio;
mod threads;
