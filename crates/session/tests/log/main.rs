//! Tests of the log through the public interface: on a simulated disk that fails on demand, and on the real one for
//! kernel features (locks, descriptors, processes).

#![expect(clippy::unwrap_used, reason = "a story whose world does not stand has failed")]

// The simulated disk belongs to `testkit`. It is included by path, because testkit depends on half the workspace and
// these tests need none of it.
#[expect(dead_code, unreachable_pub, reason = "these stories use a part of what testkit offers")]
#[path = "../../../testkit/src/disk.rs"]
mod disk;

mod damage;
mod faults;
mod forks;
mod leases;
mod passing;
mod space;
mod support;
mod unfinished;
mod verdict;
mod world;
mod writing;
