//! Stories about the log, through the front door of the crate: on a virtual disk that fails on demand, and on the
//! real one where the kernel matters (locks, descriptors, processes).

#![expect(clippy::unwrap_used, reason = "a story whose world does not stand has failed")]

// The virtual disk belongs to `testkit`; taken by path, because testkit stands on half the workspace and these
// stories need none of it.
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
mod unmade;
mod verdict;
mod world;
mod writing;
