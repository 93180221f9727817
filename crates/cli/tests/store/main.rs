//! The real binary with its sessions in PostgreSQL: one home, two homes, two hosts, and everything dying around them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[expect(dead_code, reason = "these stories use a part of what there is")]
#[path = "../cli/http.rs"]
mod http;
#[expect(unreachable_pub, reason = "it is testkit's, taken by path")]
#[path = "../../../testkit/src/postgres.rs"]
mod server;
#[expect(dead_code, reason = "these stories use a part of what there is")]
#[path = "../cli/world.rs"]
mod world;

mod one;
mod two;
mod wire;
