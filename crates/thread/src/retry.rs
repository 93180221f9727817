//! When a job is tried again: `retry` of a mandate, and how long each wait is.

use serde::{Deserialize, Serialize};

/// Doubled at most so often: what lies beyond is the cap anyway.
const DOUBLINGS: u32 = 20;

/// How a mandate says that it is to be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Retries: 3 means four executions.
    pub max: u32,
    pub base_ms: u64,
    pub cap_ms: u64,
    /// Somewhere below the bound instead of at it.
    pub jitter: bool,
}

impl Default for Retry {
    fn default() -> Self {
        Retry { max: 3, base_ms: 500, cap_ms: 300_000, jitter: true }
    }
}

/// Why there is no wait: nothing is left to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryError {
    /// All retries are used up.
    UsedUp,
    /// The first execution is not a retry.
    First,
}

/// The longest wait before retry `k` (the first is 1).
pub fn bound(retry: &Retry, k: u32) -> u64 {
    let doubled = 1_u64 << k.saturating_sub(1).min(DOUBLINGS);
    retry.base_ms.saturating_mul(doubled).min(retry.cap_ms)
}

/// The wait before retry `k`. `dice` is a random number; what the provider asked for wins.
pub fn wait(retry: &Retry, k: u32, dice: u64, retry_after_ms: Option<u64>) -> Result<u64, RetryError> {
    match k {
        0 => Err(RetryError::First),
        k if k > retry.max => Err(RetryError::UsedUp),
        k => Ok(retry_after_ms.unwrap_or_else(|| {
            let bound = bound(retry, k);
            if retry.jitter { dice % bound.saturating_add(1) } else { bound }
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let retry = Retry { max: 40, jitter: false, ..Retry::default() };
        let waits: Vec<u64> = (1..=12).map(|k| wait(&retry, k, 7, None).unwrap()).collect();
        let doubled =
            [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000];
        assert_eq!(waits, doubled);
        let endless = Retry { cap_ms: u64::MAX, ..retry };
        assert_eq!(wait(&endless, 40, 0, None), Ok(500 << 20), "no more than twenty doublings");
        assert_eq!(wait(&Retry { base_ms: u64::MAX, ..endless }, 9, 0, None), Ok(u64::MAX));
    }

    #[test]
    fn the_count_is_of_retries_and_the_provider_wins() {
        let retry = Retry::default();
        assert_eq!(wait(&retry, 0, 0, None), Err(RetryError::First));
        assert_eq!(wait(&retry, 3, 0, Some(9_999_999)), Ok(9_999_999));
        assert_eq!(wait(&retry, 4, 0, Some(1)), Err(RetryError::UsedUp));
        assert_eq!(wait(&Retry { max: 0, ..retry }, 1, 0, None), Err(RetryError::UsedUp));
        for dice in 0..10_000 {
            assert!(wait(&retry, 2, dice * 31, None).unwrap() <= 1_000);
        }
        let ends: Vec<u64> = (0..=500).map(|dice| wait(&retry, 1, dice, None).unwrap()).collect();
        assert_eq!((ends.iter().min(), ends.iter().max()), (Some(&0), Some(&500)), "both ends can come");
    }
}
