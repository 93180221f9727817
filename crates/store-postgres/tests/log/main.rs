//! The tests of the log with sessions in PostgreSQL: the same files as those of the file store, on a disk of tables.
//! Tests of the space of a local disk (`space`) only exist there.

#![expect(clippy::unwrap_used, reason = "a story whose world does not stand has failed")]

#[path = "../../../session/tests/log/damage.rs"]
mod damage;
mod disk;
#[path = "../../../session/tests/log/faults.rs"]
mod faults;
#[path = "../../../session/tests/log/forks.rs"]
mod forks;
#[path = "../../../session/tests/log/leases.rs"]
mod leases;
#[path = "../../../session/tests/log/passing.rs"]
mod passing;
#[expect(dead_code, unreachable_pub, reason = "these stories use a part of what testkit offers")]
#[path = "../../../testkit/src/postgres.rs"]
mod server;
#[path = "../../../session/tests/log/support.rs"]
mod support;
mod world;
#[path = "../../../session/tests/log/writing.rs"]
mod writing;
