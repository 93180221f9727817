//! Time and ids of entries that are written without a pod.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::{SystemTime, UNIX_EPOCH};

use minke_record::{IdGenerator, Millis};

/// Returns the current time.
pub fn now_millis() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// Returns a new source of ids.
pub fn new_ids() -> IdGenerator {
    IdGenerator::new(now_millis(), random_seed())
}

/// Returns random bits: the keys of the standard library's hasher come from the operating system.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
