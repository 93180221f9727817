//! The real binary, in a separate home: commands, their output and their files.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod commands;
mod host;
mod jobs;
mod providers;
mod safety;
mod support;
mod trees;
mod tui;
