//! The spare helper of a pod: made when a command is over, so that the next one finds it ready.
//!
//! At most one, and for a short while: an idle pod keeps none (`an_idle_pod_keeps_no_spare`). A pod whose spare cannot be
//! made goes on without: the next command starts a helper itself, and says then what is wrong.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use minke_policy::Tier;

use crate::fence::{Helper, Spare};

/// How long a spare waits for a command. A model that works calls again within this; what it costs meanwhile is some
/// hundred KiB.
const KEPT: Duration = Duration::from_secs(60);

/// The place of one spare.
#[derive(Clone, Default)]
pub(super) struct Spares(Arc<Mutex<Place>>);

#[derive(Default)]
struct Place {
    spare: Option<Spare>,
    /// Counts spares, those given up too: whoever brings or clears one away looks whether it is still the one that was
    /// meant.
    made: u64,
    being_made: bool,
}

impl Spares {
    fn place(&self) -> MutexGuard<'_, Place> {
        // Nothing is done under this lock that could leave it half-done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take(&self) -> Option<Spare> {
        self.place().spare.take()
    }

    /// Gives up the spare, and the one that is being made.
    pub(super) fn clear(&self) {
        let mut place = self.place();
        place.made += 1;
        place.being_made = false;
        place.spare = None;
    }

    /// Makes a spare in the background, unless there is one. Must be called inside a runtime.
    pub(super) fn refill(&self, helper: &Helper, tier: Tier) {
        self.refill_for(helper, tier, KEPT);
    }

    fn refill_for(&self, helper: &Helper, tier: Tier, kept: Duration) {
        let number = {
            let mut place = self.place();
            if place.spare.is_some() || place.being_made {
                return;
            }
            place.being_made = true;
            place.made += 1;
            place.made
        };
        let (weak, helper) = (Arc::downgrade(&self.0), helper.clone());
        tokio::spawn(async move {
            let made = tokio::task::spawn_blocking(move || Spare::make(&helper, tier)).await;
            // A pod that is over meanwhile has no place for it, and it ends where it is dropped.
            let Some(spares) = weak.upgrade().map(Spares) else { return };
            {
                let mut place = spares.place();
                if place.made != number {
                    return;
                }
                place.being_made = false;
                place.spare = made.ok().and_then(Result::ok);
            }
            drop(spares);
            tokio::time::sleep(kept).await;
            let Some(spares) = weak.upgrade().map(Spares) else { return };
            let mut place = spares.place();
            if place.made == number {
                place.spare = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    async fn until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(10), "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn is_there(pid: u32) -> bool {
        rustix::process::test_kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap()).is_ok()
    }

    /// Reads its standard input to the end, as a helper does that nobody gives a plan.
    fn waiter() -> (tempfile::TempDir, Helper) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("waiter");
        std::fs::write(&path, "#!/bin/sh\nread line\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, Helper::at(path))
    }

    #[tokio::test]
    async fn an_idle_pod_keeps_no_spare() {
        let (_dir, helper) = waiter();
        let spares = Spares::default();
        spares.refill_for(&helper, Tier::Off, Duration::from_millis(50));
        let mut pid = None;
        until("a spare is made", || {
            pid = pid.or(spares.place().spare.as_ref().and_then(Spare::pid));
            pid.is_some()
        })
        .await;
        until("the spare is given up", || spares.place().spare.is_none()).await;
        until("its process is gone and reaped", || !is_there(pid.unwrap())).await;
    }

    #[tokio::test]
    async fn there_is_one_spare_and_it_ends_with_the_pod() {
        let (_dir, helper) = waiter();
        let spares = Spares::default();
        spares.refill(&helper, Tier::Off);
        spares.refill(&helper, Tier::Off);
        until("a spare is made", || spares.place().spare.is_some()).await;
        spares.refill(&helper, Tier::Off);
        assert!(!spares.place().being_made && spares.place().made == 1, "a second one was made");
        let pid = spares.place().spare.as_ref().and_then(Spare::pid).unwrap();
        drop(spares);
        until("its process is gone and reaped", || !is_there(pid)).await;
    }

    #[tokio::test]
    async fn one_that_is_being_made_can_be_given_up() {
        let (_dir, helper) = waiter();
        let spares = Spares::default();
        spares.refill(&helper, Tier::Off);
        spares.clear();
        spares.refill(&helper, Tier::Off);
        until("the second is there", || spares.place().spare.is_some()).await;
        assert_eq!(spares.place().made, 3);
        spares.clear();
        assert!(spares.take().is_none());
    }

    #[tokio::test]
    async fn a_helper_that_is_not_there_leaves_no_spare() {
        let spares = Spares::default();
        spares.refill(&Helper::at("/nonexistent/helper"), Tier::Off);
        until("it was tried", || !spares.place().being_made).await;
        assert!(spares.take().is_none());
    }
}
