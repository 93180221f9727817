//! Retries of a job: the `retry` table of a mandate and the length of each wait.

use serde::{Deserialize, Serialize};

/// Maximum number of doublings; larger waits exceed the cap.
const MAX_DOUBLINGS: u32 = 20;

/// The retry settings of a mandate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Number of retries: 3 means four attempts.
    pub max: u32,
    pub base_ms: u64,
    pub cap_ms: u64,
    /// Choose a random wait up to the limit.
    pub jitter: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { max: 3, base_ms: 500, cap_ms: 300_000, jitter: true }
    }
}

/// Why there is no wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryError {
    /// All retries are used.
    Exhausted,
    /// The first attempt is not a retry.
    NotARetry,
}

/// Returns the maximum wait before retry `k` (the first is 1).
pub fn max_retry_wait(retry: &RetryPolicy, k: u32) -> u64 {
    let doubled = 1_u64 << k.saturating_sub(1).min(MAX_DOUBLINGS);
    retry.base_ms.saturating_mul(doubled).min(retry.cap_ms)
}

/// Returns the wait before retry `k`. `random` is a random number; the provider's wait takes precedence.
pub fn retry_wait(
    retry: &RetryPolicy,
    k: u32,
    random: u64,
    retry_after_ms: Option<u64>,
) -> Result<u64, RetryError> {
    match k {
        0 => Err(RetryError::NotARetry),
        k if k > retry.max => Err(RetryError::Exhausted),
        k => Ok(retry_after_ms.unwrap_or_else(|| {
            let bound = max_retry_wait(retry, k);
            if retry.jitter { random % bound.saturating_add(1) } else { bound }
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_cap() {
        let retry = RetryPolicy { max: 40, jitter: false, ..RetryPolicy::default() };
        let waits: Vec<u64> = (1..=12).map(|k| retry_wait(&retry, k, 7, None).unwrap()).collect();
        let doubled =
            [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 300_000, 300_000];
        assert_eq!(waits, doubled);
        let endless = RetryPolicy { cap_ms: u64::MAX, ..retry };
        assert_eq!(retry_wait(&endless, 40, 0, None), Ok(500 << 20), "no more than twenty doublings");
        assert_eq!(retry_wait(&RetryPolicy { base_ms: u64::MAX, ..endless }, 9, 0, None), Ok(u64::MAX));
    }

    #[test]
    fn the_count_is_of_retries_and_the_provider_wins() {
        let retry = RetryPolicy::default();
        assert_eq!(retry_wait(&retry, 0, 0, None), Err(RetryError::NotARetry));
        assert_eq!(retry_wait(&retry, 3, 0, Some(9_999_999)), Ok(9_999_999));
        assert_eq!(retry_wait(&retry, 4, 0, Some(1)), Err(RetryError::Exhausted));
        assert_eq!(retry_wait(&RetryPolicy { max: 0, ..retry }, 1, 0, None), Err(RetryError::Exhausted));
        for random in 0..10_000 {
            assert!(retry_wait(&retry, 2, random * 31, None).unwrap() <= 1_000);
        }
        let ends: Vec<u64> = (0..=500).map(|dice| retry_wait(&retry, 1, dice, None).unwrap()).collect();
        assert_eq!((ends.iter().min(), ends.iter().max()), (Some(&0), Some(&500)), "both ends can come");
    }
}
