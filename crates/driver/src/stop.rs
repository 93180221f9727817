//! Stopping, in stages, with one deadline: everything synced, tasks stopped, goodbye said, the runtime directory gone,
//! the leases let go. Nothing on disk depends on this path: a killed pod comes back the same.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::Ending;
use crate::driver::Driver;
use crate::signals::Signals;
use crate::stderr::report;

/// All of it.
const STOP_WAIT: Duration = Duration::from_secs(10);
/// What clients that do not read may cost of it.
const GOODBYE_WAIT: Duration = Duration::from_secs(2);

impl Driver {
    pub(crate) async fn stop(mut self) -> Ending {
        let ending = self.ending.unwrap_or(Ending::Stopped);
        if let Ending::Signal(_) = ending {
            return ending;
        }
        let mut signals = std::mem::take(&mut self.signals);
        let again = self.signalled;
        let ending = tokio::select! {
            ending = self.wind_down(ending) => ending,
            code = second(&mut signals, again) => return Ending::Signal(code),
        };
        let Driver { scope, log, .. } = self;
        if let Err(error) = scope.release() {
            report!("error: the runtime directory could not be removed: {error}");
        }
        // Only now, so that nobody starts this session while its name is still taken.
        drop(log);
        ending
    }

    /// Everything up to the last line of the last client.
    async fn wind_down(&mut self, ending: Ending) -> Ending {
        let deadline = Instant::now() + STOP_WAIT;
        let orderly = ending == Ending::Stopped;
        // Nothing begins any more.
        self.outlet.forget(|_| true);
        let settled = !orderly || self.settle(deadline).await;
        self.models.stop_all();
        if timeout_at(deadline, self.models.kept()).await.is_err() {
            report!("warning: the disk did not take all recordings in time; `minke log verify` names them");
        }
        self.calls.stop_all();
        if timeout_at(deadline, self.hooked.stop()).await.is_err() {
            report!(
                "warning: hooks were not told of the end in time; they hear of it in the pod's next life"
            );
        }
        if let Some(commands) = &self.kit.commands
            && timeout_at(deadline, commands.stop_all()).await.is_err()
        {
            report!("warning: commands in the background did not end in time; they die with this process");
        }
        // Nobody opens letters any more: whoever wants to send one must not wait for that.
        self.mailbox.close();
        if orderly {
            self.outlet.say_farewell(self.log.head().seq);
            let enough = deadline.min(Instant::now() + GOODBYE_WAIT);
            // Whoever has not read its last line by then does not read.
            drop(timeout_at(enough, self.clients.say_goodbye()).await);
        }
        if settled { ending } else { Ending::StorageLost }
    }

    /// Waits until everything that was written is on the disk, and lets it leave.
    async fn settle(&mut self, deadline: Instant) -> bool {
        while !self.log.is_clean() {
            self.log.want(self.log.head().seq);
            match timeout_at(deadline, self.log.next()).await {
                Ok(done) => {
                    if let Err(error) = self.log.heard(done) {
                        report!("error: {error}\n  try: {}", error.hint());
                        return false;
                    }
                }
                Err(_) => {
                    report!("error: the disk did not take the end of the run within {STOP_WAIT:?}");
                    return false;
                }
            }
        }
        self.release();
        true
    }
}

/// The signal that ends the process at once: the second one.
async fn second(signals: &mut Signals, first_has_come: bool) -> u8 {
    if !first_has_come {
        signals.next().await;
    }
    signals.next().await
}
