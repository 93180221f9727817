//! Timers: what the pod wants to be reminded of, each at most once at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use minke_pod::Timer;
use minke_record::Millis;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(crate) struct Timers {
    /// By the process's own clock: a clock that is set back or forward moves none of them.
    set: BTreeMap<Timer, Instant>,
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at: Millis, now: Millis) {
        let wait = Duration::from_millis(at.saturating_sub(now));
        self.set.insert(timer, Instant::now() + wait);
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.set.remove(&timer);
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.set.values().min().copied()
    }

    /// Takes one that is due, the oldest first.
    pub(crate) fn take_due(&mut self) -> Option<Timer> {
        let (timer, at) = self.set.iter().min_by_key(|(_, at)| **at).map(|(timer, at)| (*timer, *at))?;
        if at > Instant::now() {
            return None;
        }
        self.set.remove(&timer);
        Some(timer)
    }
}
