//! The heartbeat: wakes the event loop every few seconds; nothing else does while a pod is idle.
//!
//! The event loop itself sends the heartbeat, so that a stuck loop is detected. On Linux the kernel keeps the
//! time, because the timers of the runtime wake it two or three times for one tick.

use std::io;
use std::time::Duration;

#[cfg(target_os = "linux")]
pub(crate) use self::linux::Heartbeat;
#[cfg(not(target_os = "linux"))]
pub(crate) use self::portable::Heartbeat;

#[cfg(target_os = "linux")]
mod linux {
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;

    use super::{Duration, io};

    pub(crate) struct Heartbeat {
        timer: AsyncFd<OwnedFd>,
        /// It has failed once and reported it; a retry would not help.
        has_failed: bool,
    }

    impl Heartbeat {
        pub(crate) fn with_period(period: Duration) -> io::Result<Heartbeat> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let period = Timespec {
                tv_sec: i64::try_from(period.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: period.subsec_nanos().into(),
            };
            let spec = Itimerspec { it_interval: period, it_value: period };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
            #[expect(
                unsafe_code,
                reason = "tokio cannot see for every type that its descriptor stays the same"
            )]
            // SAFETY: an `OwnedFd` returns the same open descriptor for as long as it lives, and the
            // `AsyncFd` owns it: it is closed only after it was removed from the reactor.
            let timer = unsafe { AsyncFd::register(timer) }?;
            Ok(Heartbeat { timer, has_failed: false })
        }

        /// Waits for the next tick. Missed ticks are merged into one.
        pub(crate) async fn next(&mut self) -> io::Result<()> {
            if self.has_failed {
                return std::future::pending().await;
            }
            let beaten = self.wait_tick().await;
            self.has_failed = beaten.is_err();
            beaten
        }

        async fn wait_tick(&self) -> io::Result<()> {
            loop {
                let mut ready = self.timer.readable().await?;
                let read = ready.try_io(|timer| {
                    let mut beats = [0u8; 8];
                    Ok(rustix::io::read(timer, &mut beats)?)
                });
                match read {
                    Ok(beats) => return beats.map(drop),
                    Err(_not_yet) => {}
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod portable {
    use tokio::time::{Interval, MissedTickBehavior, interval};

    use super::{Duration, io};

    pub(crate) struct Heartbeat {
        interval: Interval,
    }

    impl Heartbeat {
        pub(crate) fn with_period(period: Duration) -> io::Result<Heartbeat> {
            let mut interval = interval(period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            Ok(Heartbeat { interval })
        }

        pub(crate) async fn next(&mut self) -> io::Result<()> {
            self.interval.tick().await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_beats_again_and_again() {
        let mut heartbeat = Heartbeat::with_period(Duration::from_millis(1)).unwrap();
        for _ in 0..3 {
            heartbeat.next().await.unwrap();
        }
    }
}
