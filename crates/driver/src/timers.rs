//! Timers of the pod; each is set at most once at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use minke_pod::PodTimer;
use minke_record::Millis;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// Uses the monotonic clock: changes of the system time do not move timers.
    deadlines: BTreeMap<PodTimer, Instant>,
}

impl Timers {
    pub(crate) fn set_timer(&mut self, timer: PodTimer, at: Millis, now: Millis) {
        let wait = Duration::from_millis(at.saturating_sub(now));
        self.deadlines.insert(timer, Instant::now() + wait);
    }

    pub(crate) fn clear_timer(&mut self, timer: PodTimer) {
        self.deadlines.remove(&timer);
    }

    /// The deadline of the next timer.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.deadlines.values().min().copied()
    }

    /// Removes and returns a timer that is due, oldest first.
    pub(crate) fn take_due(&mut self) -> Option<PodTimer> {
        let (timer, at) =
            self.deadlines.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at))?;
        if at > Instant::now() {
            return None;
        }
        self.deadlines.remove(&timer);
        Some(timer)
    }
}
