//! Hooks with real commands in a real sandbox, real sockets and files: the effect of each, and its cleanup.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod observers;
mod parsing;
mod steering;
mod support;
mod web;
