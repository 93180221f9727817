//! The real binary, in a home of its own: what a person types, what comes back, what is left behind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod config;
mod crash;
mod crowd;
mod docs;
mod doctor;
mod documented;
mod endless;
mod exec;
mod failures;
mod front;
mod gate;
mod hands;
mod held;
mod hooks;
mod host;
mod hostile;
mod http;
mod images;
mod kin;
mod live;
mod login;
mod mock;
mod pods;
mod profiles;
mod prompts;
mod providers;
mod pty;
mod qa;
mod references;
mod replay;
mod repository;
mod secrets;
mod secrets_everywhere;
mod spawn_killed;
mod task;
mod threads;
mod tour;
mod tree;
mod tree_face;
mod trouble;
mod trust;
mod upward;
mod wired;
mod world;
