//! Time and chance: the driver is where a pod's inputs get both. Minds have neither.

use std::fs::File;
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use minke_record::Millis;

/// An odd number with well-mixed bits: seeds made by adding it never repeat before they have all been used.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug)]
pub(crate) struct Clock {
    seed: u64,
}

impl Clock {
    /// Draws the first seed from the kernel.
    pub(crate) fn start() -> io::Result<Clock> {
        let mut seed = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Clock { seed: u64::from_ne_bytes(seed) })
    }

    /// Milliseconds since the epoch; a clock before it counts as at it.
    pub(crate) fn now(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
    }

    /// A fresh seed.
    pub(crate) fn seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(STRIDE);
        self.seed
    }
}
