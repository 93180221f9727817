//! What these stories happen on, and how much of it there may be. The store in PostgreSQL tells the same stories with a
//! world of its own (`crates/store-postgres/tests/log`).

use std::path::Path;
use std::sync::Arc;

use minke_session::{FileStore, RealDisk};

/// How many random mutations are tried, in four tests that run side by side; `MINKE_MUTATIONS` asks for more.
pub(crate) const MUTATIONS: u64 = 100_000;
/// The size of the log whose every byte is flipped in the ordinary run; `MINKE_FLIP_BYTES` asks for more.
pub(crate) const FLIP_BYTES: usize = 4 * 1024;
/// Of the bytes at which a log is torn, and of the operations at which something goes wrong, every how many-th is tried.
pub(crate) const STRIDE: usize = 1;
/// So many points at which something can go wrong there are at least.
pub(crate) const POINTS: u64 = 400;
/// Generated logs.
pub(crate) const CASES: u32 = 300;

/// A store that other processes share, in a directory of this machine.
pub(crate) fn real(home: &Path) -> FileStore {
    FileStore::new(Arc::new(RealDisk), home.join("sessions"))
}
