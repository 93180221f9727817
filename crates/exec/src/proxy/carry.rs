//! Bytes both ways: carried, counted, and ended when nobody says anything any more.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

/// What one direction holds at a time.
pub(super) const BUFFER_BYTES: usize = 16 * 1024;
/// The longest silence once one side has ended: the other side has no more than its last words to say.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// What a connection has carried, and when it last did.
pub(super) struct Meter {
    up: AtomicU64,
    down: AtomicU64,
    began: Instant,
    /// Milliseconds from `began` to the last byte.
    last: AtomicU64,
    half_over: AtomicBool,
}

impl Meter {
    pub(super) fn new() -> Meter {
        Meter {
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            began: Instant::now(),
            last: AtomicU64::new(0),
            half_over: AtomicBool::new(false),
        }
    }

    pub(super) fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    pub(super) fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    pub(super) fn count_up(&self, bytes: usize) {
        self.up.fetch_add(bytes as u64, Ordering::Relaxed);
        self.touch();
    }

    pub(super) fn count_down(&self, bytes: usize) {
        self.down.fetch_add(bytes as u64, Ordering::Relaxed);
        self.touch();
    }

    fn touch(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// One side has said all that it had to say.
    pub(super) fn half(&self) {
        self.half_over.store(true, Ordering::Relaxed);
        self.touch();
    }

    /// Returns when there was silence for too long.
    pub(super) async fn silence(&self, idle: Duration) {
        loop {
            let most = if self.half_over.load(Ordering::Relaxed) { idle.min(LAST_WORDS) } else { idle };
            let last = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed));
            // Looked at again in between, because a side may end while the longer wait runs.
            let until = (last + most).min(Instant::now() + LAST_WORDS);
            tokio::time::sleep_until(until).await;
            let last = self.began + Duration::from_millis(self.last.load(Ordering::Relaxed));
            if last + most <= Instant::now() {
                return;
            }
        }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Way {
    Up,
    Down,
}

/// Carries everything from one side to the other, then tells the other that this was all.
pub(super) async fn carry<R, W>(from: &mut R, to: &mut W, way: Way, meter: &Meter) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            meter.half();
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..count).unwrap_or_default()).await?;
        match way {
            Way::Up => meter.count_up(count),
            Way::Down => meter.count_down(count),
        }
    }
}
