//! Copies bytes in both directions, counts them, and ends idle connections.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// The buffer size of one direction.
pub(super) const BUFFER_BYTES: usize = 16 * 1024;
/// The idle timeout after one side has ended, when the other side has little left to send.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(30);

/// Counts bytes and records the last activity of a connection.
pub(super) struct TrafficMeter {
    up: AtomicU64,
    down: AtomicU64,
    started_at: Instant,
    /// Milliseconds from `started_at` to the last byte.
    last_activity: AtomicU64,
    is_half_closed: AtomicBool,
}

impl TrafficMeter {
    pub(super) fn new() -> TrafficMeter {
        TrafficMeter {
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            started_at: Instant::now(),
            last_activity: AtomicU64::new(0),
            is_half_closed: AtomicBool::new(false),
        }
    }

    pub(super) fn bytes_up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn bytes_down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    pub(super) fn count_up(&self, bytes: usize) {
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
        self.record_activity();
    }

    pub(super) fn count_down(&self, bytes: usize) {
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
        self.record_activity();
    }

    fn record_activity(&self) {
        let now = u64::try_from(self.started_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_activity.store(now, Ordering::Relaxed);
    }

    /// Records that one side has ended.
    pub(super) fn mark_half_closed(&self) {
        self.is_half_closed.store(true, Ordering::Relaxed);
        self.record_activity();
    }

    /// Completes after the idle timeout.
    pub(super) async fn wait_for_silence(&self, idle: Duration) {
        loop {
            let most = if self.is_half_closed.load(Ordering::Relaxed) {
                idle.min(HALF_CLOSED_TIMEOUT)
            } else {
                idle
            };
            let last = self.started_at + Duration::from_millis(self.last_activity.load(Ordering::Relaxed));
            // Check again in between, because a side may end during the longer wait.
            let until = (last + most).min(Instant::now() + HALF_CLOSED_TIMEOUT);
            tokio::time::sleep_until(until).await;
            let last = self.started_at + Duration::from_millis(self.last_activity.load(Ordering::Relaxed));
            if last + most <= Instant::now() {
                return;
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Direction {
    Up,
    Down,
}

/// Copies all bytes from one side to the other, then shuts down the other's write side.
pub(super) async fn relay_bytes<R, W>(
    from: &mut R,
    to: &mut W,
    way: Direction,
    meter: &TrafficMeter,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            meter.mark_half_closed();
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..count).unwrap_or_default()).await?;
        match way {
            Direction::Up => meter.count_up(count),
            Direction::Down => meter.count_down(count),
        }
    }
}
