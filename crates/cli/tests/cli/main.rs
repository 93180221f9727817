//! The real binary, in a home of its own: what a person types, what comes back, what is left behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod crash;
mod docs;
mod exec;
mod login;
mod pods;
mod providers;
mod trouble;
mod wired;
mod world;
