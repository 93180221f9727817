//! Retry: whether and when a request that failed before any output is repeated.
//!
//! Elsewhere: streams that break after some output (`reply`).

use minke_model::{MAX_ATTEMPTS, ModelError};

/// Maximum first wait; each next one may be twice as long.
const BASE_WAIT_MS: u64 = 500;
/// Maximum wait.
const MAX_WAIT_MS: u64 = 30_000;
/// Maximum wait that a provider can request; longer ones fail the run.
const MAX_REQUESTED_WAIT_MS: u64 = 60 * 60 * 1_000;

/// The decision after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    Wait { ms: u64 },
    GiveUp,
}

/// Decides after attempt number `attempt` (from 1). Waits have full jitter, so that pods that failed together
/// do not retry together.
pub(crate) fn decide_retry(failure: &ModelError, attempt: u32, random: u64) -> RetryDecision {
    if !failure.kind.is_retryable() || attempt >= MAX_ATTEMPTS {
        return RetryDecision::GiveUp;
    }
    match failure.retry_after_ms {
        Some(ms) if ms > MAX_REQUESTED_WAIT_MS => RetryDecision::GiveUp,
        Some(ms) => RetryDecision::Wait { ms },
        None => {
            let ceiling = (BASE_WAIT_MS << (attempt - 1).min(16)).min(MAX_WAIT_MS);
            RetryDecision::Wait { ms: random % (ceiling + 1) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_model::ModelErrorKind;

    fn model_failure(kind: ModelErrorKind, retry_after_ms: Option<u64>) -> ModelError {
        ModelError { kind, message: "busy".into(), status: Some(529), retry_after_ms }
    }

    #[test]
    fn waits_grow_to_a_cap_and_end() {
        let busy = model_failure(ModelErrorKind::Transient, None);
        let longest = |attempt| match decide_retry(&busy, attempt, u64::MAX - 1) {
            RetryDecision::Wait { ms } => ms,
            RetryDecision::GiveUp => panic!("attempt {attempt} gave up"),
        };
        for failed in 1..MAX_ATTEMPTS {
            assert!(longest(failed) <= (BASE_WAIT_MS << (failed - 1)).min(MAX_WAIT_MS));
        }
        assert_eq!(decide_retry(&busy, MAX_ATTEMPTS, 7), RetryDecision::GiveUp);
        assert_eq!(decide_retry(&busy, 1, 0), RetryDecision::Wait { ms: 0 });
    }

    #[test]
    fn the_provider_says_when() {
        let later = |ms| decide_retry(&model_failure(ModelErrorKind::Transient, Some(ms)), 1, 9);
        assert_eq!(later(2_000), RetryDecision::Wait { ms: 2_000 });
        assert_eq!(later(MAX_REQUESTED_WAIT_MS + 1), RetryDecision::GiveUp);
    }

    #[test]
    fn what_cannot_work_is_not_tried_again() {
        assert_eq!(
            decide_retry(&model_failure(ModelErrorKind::Permanent, None), 1, 9),
            RetryDecision::GiveUp
        );
        assert_eq!(
            decide_retry(&model_failure(ModelErrorKind::ContextTooLong, Some(1)), 1, 9),
            RetryDecision::GiveUp
        );
    }
}
