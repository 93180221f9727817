//! Hooks with real commands behind a real fence, real sockets and files: what each does, and what is left of it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod observing;
mod reading;
mod steering;
mod support;
mod web;
