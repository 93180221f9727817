//! The real binary with its sessions in PostgreSQL: one home, two homes, two hosts, and failures of every
//! part.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[expect(dead_code, reason = "these tests use only a part")]
#[path = "../cli/support/http.rs"]
mod http;
#[expect(unreachable_pub, reason = "the file belongs to testkit")]
#[path = "../../../testkit/src/postgres.rs"]
mod server;
#[expect(dead_code, reason = "these tests use only a part")]
#[path = "../cli/support/world.rs"]
mod world;

mod cuttable_socket;
mod one_database;
mod two_hosts;
