//! Retry: whether and when a request that failed before the model said anything is made again.
//!
//! Here: the schedule, a plain function. Elsewhere: what follows a stream that broke after content (`reply`).

use minke_model::{ATTEMPTS, Failure};

/// The first wait is at most this long; each next one may be twice as long …
const BASE_MS: u64 = 500;
/// … up to this.
const CAP_MS: u64 = 30_000;
/// A provider that asks for a longer wait than this is not waited for: a run must not hang for a day.
const LONGEST_MS: u64 = 60 * 60 * 1_000;

/// What comes after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Wait { ms: u64 },
    GiveUp,
}

/// After the `failed`-th attempt (from 1). `dice` is random: waits have full jitter, so that many pods that failed
/// together do not come back together.
pub(crate) fn after(failure: &Failure, failed: u32, dice: u64) -> Next {
    if !failure.kind.retryable() || failed >= ATTEMPTS {
        return Next::GiveUp;
    }
    match failure.retry_after_ms {
        Some(ms) if ms > LONGEST_MS => Next::GiveUp,
        Some(ms) => Next::Wait { ms },
        None => {
            let ceiling = (BASE_MS << (failed - 1).min(16)).min(CAP_MS);
            Next::Wait { ms: dice % (ceiling + 1) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_model::FailureKind;

    fn failure(kind: FailureKind, retry_after_ms: Option<u64>) -> Failure {
        Failure { kind, message: "busy".into(), status: Some(529), retry_after_ms }
    }

    #[test]
    fn waits_grow_to_a_cap_and_end() {
        let busy = failure(FailureKind::Transient, None);
        let longest = |failed| match after(&busy, failed, u64::MAX - 1) {
            Next::Wait { ms } => ms,
            Next::GiveUp => panic!("attempt {failed} gave up"),
        };
        for failed in 1..ATTEMPTS {
            assert!(longest(failed) <= (BASE_MS << (failed - 1)).min(CAP_MS));
        }
        assert_eq!(after(&busy, ATTEMPTS, 7), Next::GiveUp);
        assert_eq!(after(&busy, 1, 0), Next::Wait { ms: 0 });
    }

    #[test]
    fn the_provider_says_when() {
        let later = |ms| after(&failure(FailureKind::Transient, Some(ms)), 1, 9);
        assert_eq!(later(2_000), Next::Wait { ms: 2_000 });
        assert_eq!(later(LONGEST_MS + 1), Next::GiveUp);
    }

    #[test]
    fn what_cannot_work_is_not_tried_again() {
        assert_eq!(after(&failure(FailureKind::Permanent, None), 1, 9), Next::GiveUp);
        assert_eq!(after(&failure(FailureKind::TooLong, Some(1)), 1, 9), Next::GiveUp);
    }
}
