//! Time and randomness: the driver supplies both to the pod's inputs. Core crates have neither.

use std::fs::File;
use std::io::{self, Read};
use std::time::{SystemTime, UNIX_EPOCH};

use minke_record::Millis;

/// An odd number with well-mixed bits: adding it repeatedly yields distinct seeds.
const SEED_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Debug)]
pub(crate) struct Clock {
    seed: u64,
}

impl Clock {
    /// Takes the first seed from the kernel.
    pub(crate) fn start() -> io::Result<Clock> {
        let mut seed = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Clock { seed: u64::from_ne_bytes(seed) })
    }

    /// Milliseconds since the epoch; a clock before the epoch returns 0.
    pub(crate) fn now_millis(&self) -> Millis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
    }

    /// The next seed.
    pub(crate) fn next_seed(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(SEED_STRIDE);
        self.seed
    }
}
