//! The parameters of these tests. The PostgreSQL store runs the same tests with its own parameters
//! (`crates/store-postgres/tests/log`).

use std::path::Path;
use std::sync::Arc;

use minke_session::{FileStore, RealDisk};

/// The number of random mutations, in four concurrent tests; `MINKE_MUTATIONS` can increase it.
pub(crate) const MUTATIONS: u64 = 100_000;
/// The size of the log with flips in every byte; `MINKE_FLIP_BYTES` can increase it.
pub(crate) const FLIP_BYTES: usize = 4 * 1024;
/// The step between the tested bytes of torn logs, and between the tested operations with faults.
pub(crate) const STRIDE: usize = 1;
/// The minimum number of fault points.
pub(crate) const POINTS: u64 = 400;
/// The number of generated logs.
pub(crate) const CASES: u32 = 300;

/// Returns a store in a directory of this machine, which other processes share.
pub(crate) fn real(home: &Path) -> FileStore {
    FileStore::new(Arc::new(RealDisk), home.join("sessions"))
}
