//! Keeps one spare helper per pod: started after a command, so that the next command does not wait for a helper.
//!
//! At most one, and only for a short time: an idle pod keeps none (`an_idle_pod_keeps_no_spare`). If a spare cannot be
//! started, the next command starts a helper itself and reports the error.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use minke_policy::SandboxBackend;

use crate::sandbox::{HelperBinary, SpareHelper};

/// How long a spare waits for a command. A working model calls again within this time; a spare uses a few hundred KiB.
const SPARE_TTL: Duration = Duration::from_secs(60);

/// Holds at most one spare helper.
#[derive(Clone, Default)]
pub(super) struct HelperPool(Arc<Mutex<PoolState>>);

#[derive(Default)]
struct PoolState {
    spare: Option<SpareHelper>,
    /// Counts started and dropped spares. A task compares it to find out whether its spare is still the current one.
    generation: u64,
    is_starting: bool,
}

impl HelperPool {
    fn lock_state(&self) -> MutexGuard<'_, PoolState> {
        // No code panics under this lock with the state half-changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn take_spare(&self) -> Option<SpareHelper> {
        self.lock_state().spare.take()
    }

    /// Drops the spare, and the one that is being started.
    pub(super) fn clear_spare(&self) {
        let mut state = self.lock_state();
        state.generation += 1;
        state.is_starting = false;
        state.spare = None;
    }

    /// Starts a spare in the background, unless there is one. Requires a tokio runtime.
    pub(super) fn refill_spare(&self, helper: &HelperBinary, backend: SandboxBackend) {
        self.refill_with_ttl(helper, backend, SPARE_TTL);
    }

    fn refill_with_ttl(&self, helper: &HelperBinary, backend: SandboxBackend, ttl: Duration) {
        let number = {
            let mut state = self.lock_state();
            if state.spare.is_some() || state.is_starting {
                return;
            }
            state.is_starting = true;
            state.generation += 1;
            state.generation
        };
        let (weak, helper) = (Arc::downgrade(&self.0), helper.clone());
        tokio::spawn(async move {
            let made = tokio::task::spawn_blocking(move || SpareHelper::spawn_spare(&helper, backend)).await;
            // If the pool was dropped in the meantime, the spare is dropped here and ends.
            let Some(spares) = weak.upgrade().map(HelperPool) else { return };
            {
                let mut state = spares.lock_state();
                if state.generation != number {
                    return;
                }
                state.is_starting = false;
                state.spare = made.ok().and_then(Result::ok);
            }
            drop(spares);
            tokio::time::sleep(ttl).await;
            let Some(spares) = weak.upgrade().map(HelperPool) else { return };
            let mut state = spares.lock_state();
            if state.generation == number {
                state.spare = None;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    async fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(10), "timeout: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn process_exists(pid: u32) -> bool {
        rustix::process::test_kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap()).is_ok()
    }

    /// Reads its standard input to the end, like a helper that receives no plan.
    fn waiting_helper() -> (tempfile::TempDir, HelperBinary) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("waiter");
        std::fs::write(&path, "#!/bin/sh\nread line\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, HelperBinary::from_path(path))
    }

    #[tokio::test]
    async fn an_idle_pod_keeps_no_spare() {
        let (_dir, helper) = waiting_helper();
        let spares = HelperPool::default();
        spares.refill_with_ttl(&helper, SandboxBackend::Off, Duration::from_millis(50));
        let mut pid = None;
        wait_until("a spare is made", || {
            pid = pid.or(spares.lock_state().spare.as_ref().and_then(SpareHelper::pid));
            pid.is_some()
        })
        .await;
        wait_until("the spare is dropped", || spares.lock_state().spare.is_none()).await;
        wait_until("its process has exited and was reaped", || !process_exists(pid.unwrap())).await;
    }

    #[tokio::test]
    async fn there_is_one_spare_and_it_ends_with_the_pod() {
        let (_dir, helper) = waiting_helper();
        let spares = HelperPool::default();
        spares.refill_spare(&helper, SandboxBackend::Off);
        spares.refill_spare(&helper, SandboxBackend::Off);
        wait_until("a spare is made", || spares.lock_state().spare.is_some()).await;
        spares.refill_spare(&helper, SandboxBackend::Off);
        assert!(
            !spares.lock_state().is_starting && spares.lock_state().generation == 1,
            "a second spare was started"
        );
        let pid = spares.lock_state().spare.as_ref().and_then(SpareHelper::pid).unwrap();
        drop(spares);
        wait_until("its process has exited and was reaped", || !process_exists(pid)).await;
    }

    #[tokio::test]
    async fn one_that_is_being_made_can_be_given_up() {
        let (_dir, helper) = waiting_helper();
        let spares = HelperPool::default();
        spares.refill_spare(&helper, SandboxBackend::Off);
        spares.clear_spare();
        spares.refill_spare(&helper, SandboxBackend::Off);
        wait_until("the second spare exists", || spares.lock_state().spare.is_some()).await;
        assert_eq!(spares.lock_state().generation, 3);
        spares.clear_spare();
        assert!(spares.take_spare().is_none());
    }

    #[tokio::test]
    async fn a_helper_that_is_not_there_leaves_no_spare() {
        let spares = HelperPool::default();
        spares.refill_spare(&HelperBinary::from_path("/nonexistent/helper"), SandboxBackend::Off);
        wait_until("the start has failed", || !spares.lock_state().is_starting).await;
        assert!(spares.take_spare().is_none());
    }
}
