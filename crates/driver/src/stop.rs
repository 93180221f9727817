//! Stops the pod in stages, within one deadline: syncs the log, stops tasks, sends the farewell, removes the
//! runtime directory, releases the leases. Nothing on disk depends on this path: a killed pod recovers to the
//! same state.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::PodExit;
use crate::event_loop::Driver;
use crate::signals::PodSignals;
use crate::stderr::report;

/// For all stages together.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// For clients that do not read.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(2);

impl Driver {
    pub(crate) async fn stop_pod(mut self) -> PodExit {
        let ending = self.pod_exit.unwrap_or(PodExit::Stopped);
        if let PodExit::Signal(_) = ending {
            return ending;
        }
        let mut signals = std::mem::take(&mut self.health.signals);
        let again = self.health.signalled;
        let ending = tokio::select! {
            ending = self.close_clients(ending) => ending,
            code = second_signal(&mut signals, again) => return PodExit::Signal(code),
        };
        let Driver { scope, log, .. } = self;
        if let Err(error) = scope.release_pod() {
            report!("error: could not remove the runtime directory: {error}");
        }
        // Last, so that no other pod starts this session while its name is still registered.
        drop(log);
        ending
    }

    /// All stages up to the last line of the last client.
    async fn close_clients(&mut self, ending: PodExit) -> PodExit {
        let deadline = Instant::now() + STOP_TIMEOUT;
        let orderly = ending == PodExit::Stopped;
        // No new work starts.
        self.release_queue.drop_effects(|_| true);
        let settled = !orderly || self.wait_until_synced(deadline).await;
        self.models.stop_all_requests();
        if timeout_at(deadline, self.models.wait_recordings()).await.is_err() {
            report!(
                "warning: not all recordings were written in time; `minke log verify` lists the missing ones"
            );
        }
        self.calls.stop_all_calls();
        if timeout_at(deadline, self.hook_tasks.stop_hooks()).await.is_err() {
            report!(
                "warning: hooks were not notified of the exit in time; the pod's next process notifies them"
            );
        }
        if let Some(commands) = &self.toolset.commands
            && timeout_at(deadline, commands.stop_all()).await.is_err()
        {
            report!("warning: background commands did not end in time; they end with this process");
        }
        // The event queue is no longer read: senders must not wait for it.
        self.events.close();
        if orderly {
            self.release_queue.send_farewell(self.log.head().seq);
            let enough = deadline.min(Instant::now() + FAREWELL_TIMEOUT);
            // A client that has not read its last line by then does not read.
            drop(timeout_at(enough, self.clients.close_all()).await);
        }
        if settled { ending } else { PodExit::StorageLost }
    }

    /// Waits until all written entries are synced, and releases the queued items.
    async fn wait_until_synced(&mut self, deadline: Instant) -> bool {
        while !self.log.is_fully_synced() {
            self.log.request_sync(self.log.head().seq);
            match timeout_at(deadline, self.log.next_sync()).await {
                Ok(done) => {
                    if let Err(error) = self.log.finish_sync(done) {
                        report!("error: {error}\n  try: {}", error.hint());
                        return false;
                    }
                }
                Err(_) => {
                    report!("error: could not sync the end of the run within {STOP_TIMEOUT:?}");
                    return false;
                }
            }
        }
        self.release_ready();
        true
    }
}

/// Waits for the second signal, which ends the process immediately.
async fn second_signal(signals: &mut PodSignals, first_has_come: bool) -> u8 {
    if !first_has_come {
        signals.next().await;
    }
    signals.next().await
}
