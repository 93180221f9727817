//! Watching a thread: its frames from a place on, for as long as somebody looks.
//!
//! While a pod lives on the thread its socket is heard, else the log is read, and looked at again until it grows or a pod
//! lives. Elsewhere: what a frame is (`frames`), how it travels (`http`, `stdio`).
//! Invariants: nothing is left out or told twice, whichever source it comes from and wherever a client comes back
//! (`a_client_that_comes_back_sees_each_frame_once`); a log that is another one than it was is said
//! (`a_place_that_never_was_is_a_conflict`); who does not read is let go (`a_client_that_does_not_read_is_let_go`).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::Stream;
use minke_client::{Connection, Home};
use minke_protocol::{ClientInfo, Event, Place as EventPlace, Snapshot, Subscribe};
use minke_record::{Entry, ErrorCode, Millis, Position, SessionId};
use minke_registry::Runtime;
use minke_session::StoreError;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::frames::{Frame, FrameId, Frames};

/// Frames that wait for whoever watches.
const WAITING_FRAMES: usize = 32;
/// Who takes no frame for this long is let go, and comes back with the id of the last one.
pub(crate) const SLOW: Duration = Duration::from_secs(20);
/// How often a sleeping thread's log is looked at: one `stat`.
const LOOK_EVERY: Duration = Duration::from_millis(150);
/// After the log grew its pod is looked for so often: a pod writes before it listens.
const LOOKS_FOR_A_POD: u32 = 100;
/// Entries that are read at once.
const PAGE_ENTRIES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;
/// Threads whose last quiet place is remembered.
const QUIET_PLACES: usize = 1_024;

/// What watchers leave for those who come after them.
#[derive(Debug, Clone, Default)]
pub(crate) struct QuietPlaces {
    /// Where threads are known to have had nothing open: reading for a client that comes back begins there.
    places: Arc<Mutex<HashMap<SessionId, Frames>>>,
    /// How many clients were too slow.
    cut: Arc<AtomicU64>,
    /// A pod was started here: whoever waits for its first words looks at once.
    started: Arc<Notify>,
}

/// The frames of a thread, as they come. Ends only if the thread cannot be read, or its reader is too slow.
#[derive(Debug)]
pub struct Watch {
    frames: mpsc::Receiver<Frame>,
    slow: Arc<AtomicBool>,
    thread: SessionId,
    last: u64,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream for Watch {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        match std::task::ready!(self.frames.poll_recv(context)) {
            Some(frame) => {
                if let Some(id) = frame.id() {
                    self.last = id.position.seq;
                }
                Poll::Ready(Some(frame))
            }
            None if self.slow.swap(false, Ordering::AcqRel) => {
                let why = "frames were not read fast enough; come back with the id of the last one";
                Poll::Ready(Some(Frame::refusal((self.thread, self.last), now(), ErrorCode::TooMany, why)))
            }
            None => Poll::Ready(None),
        }
    }
}

impl Engine {
    /// The frames of a thread after a frame, or from its beginning.
    pub fn watch(&self, thread: SessionId, since: Option<FrameId>) -> Watch {
        self.watch_within(thread, since, SLOW)
    }

    pub(crate) fn watch_within(&self, thread: SessionId, since: Option<FrameId>, slow: Duration) -> Watch {
        let (sender, frames) = mpsc::channel(WAITING_FRAMES);
        let cut = Arc::new(AtomicBool::new(false));
        let watcher = Watcher {
            home: self.home.clone(),
            quiet: self.quiet.clone(),
            thread,
            fold: Frames::new(thread),
            since,
            sender,
            patience: slow,
            slow: cut.clone(),
        };
        let task = tokio::spawn(watcher.run());
        Watch { frames, slow: cut, thread, last: since.map_or(0, |since| since.position.seq), task }
    }
}

/// Why watching ends.
enum Over {
    /// Nobody looks any more, or not fast enough.
    Gone,
    /// The log was another one when it was last read.
    Changed,
    Unread(StoreError),
}

impl From<StoreError> for Over {
    fn from(error: StoreError) -> Over {
        Over::Unread(error)
    }
}

struct Watcher {
    home: Home,
    quiet: QuietPlaces,
    thread: SessionId,
    fold: Frames,
    /// Frames up to this one were seen.
    since: Option<FrameId>,
    sender: mpsc::Sender<Frame>,
    patience: Duration,
    slow: Arc<AtomicBool>,
}

impl Watcher {
    async fn run(mut self) {
        loop {
            let over = match self.begin().await {
                Ok(()) => self.follow().await,
                Err(over) => over,
            };
            let (code, why) = match over {
                Over::Gone => return,
                Over::Unread(StoreError::NotFound { .. }) => {
                    (ErrorCode::NotFound, "thread not found".to_owned())
                }
                Over::Unread(error) => (ErrorCode::StorageFailed, error.to_string()),
                Over::Changed => {
                    let why = "the log does not hold what was seen of it; read the thread again";
                    let after = self.fold.head().map_or(0, |head| head.seq);
                    if self
                        .send(Frame::refusal((self.thread, after), now(), ErrorCode::Conflict, why))
                        .await
                        .is_err()
                    {
                        return;
                    }
                    // What is there now is read by whoever was told so; here only what follows it is told.
                    match self.head().await {
                        Ok(head) => self.since = head.map(|position| FrameId { position, n: u32::MAX }),
                        Err(_) => return,
                    }
                    self.fold = Frames::new(self.thread);
                    continue;
                }
            };
            let after = self.fold.head().map_or(0, |head| head.seq);
            // If nobody takes it, nobody is there to be told.
            drop(self.send(Frame::refusal((self.thread, after), now(), code, why)).await);
            return;
        }
    }

    /// Reads the log up to where it ends now, telling what comes after `since`.
    async fn begin(&mut self) -> Result<(), Over> {
        if let Some(since) = self.since {
            if !self.holds(since.position).await? {
                return Err(Over::Changed);
            }
            if let Some(quiet) = self.quiet.before(self.thread, since.position.seq)
                && let Some(after) = quiet.head()
                && self.holds(after).await?
            {
                self.fold = quiet;
            }
        }
        self.catch_up(None).await
    }

    async fn follow(&mut self) -> Over {
        let quiet = self.quiet.clone();
        // Made before the first look, so that none that comes after it is missed.
        let mut started = std::pin::pin!(quiet.started.notified());
        let mut looks = 1;
        let mut stamp = None;
        loop {
            if looks > 0 {
                looks -= 1;
                match self.hear().await {
                    Ok(true) => looks = LOOKS_FOR_A_POD,
                    Ok(false) => {}
                    Err(over) => return over,
                }
            }
            match self.home.store.stamp(self.thread) {
                Ok(now) if stamp != Some(now) => {
                    if stamp.replace(now).is_some() {
                        looks = LOOKS_FOR_A_POD;
                    }
                    if let Err(over) = self.read_on().await {
                        return over;
                    }
                }
                Ok(_) => {}
                Err(error) => return error.into(),
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                () = started.as_mut() => {
                    looks = looks.max(1);
                    started.set(quiet.started.notified());
                }
                () = self.sender.closed() => return Over::Gone,
            }
        }
    }

    /// What the log holds after the last entry that was seen, if it still holds that one.
    async fn read_on(&mut self) -> Result<(), Over> {
        if let Some(head) = self.fold.head()
            && !self.holds(head).await?
        {
            return Err(Over::Changed);
        }
        self.catch_up(None).await
    }

    /// Hears the thread's pod until it ends; false if there is none.
    async fn hear(&mut self) -> Result<bool, Over> {
        let Ok(live) = Runtime::new(&self.home.paths).live_on(self.thread) else { return Ok(false) };
        let Some(live) = live else { return Ok(false) };
        let since = self.fold.head();
        let opened = Connection::open(&live.row.socket, Subscribe::Full, since, introduction()).await;
        // Starting or stopping: the log says all there is, and the next look finds out.
        let Ok(mut pod) = opened else { return Ok(false) };
        loop {
            let frame = tokio::select! {
                frame = pod.next() => frame,
                () = self.sender.closed() => return Err(Over::Gone),
            };
            let Ok(Some(frame)) = frame else { return Ok(true) };
            match &frame.event {
                Event::Shutdown => return Ok(true),
                Event::Snapshot(snapshot) => self.snapshot(snapshot).await?,
                Event::Entry(event) => self.heard(&event.entry).await?,
                Event::InFlight(open) => {
                    let told = self.fold.in_flight(open, now());
                    self.tell(told).await?;
                }
                event if matches!(frame.place, EventPlace::Live { .. }) => {
                    let told = self.fold.live(event, frame.run, now());
                    self.tell(told).await?;
                }
                _ => {}
            }
        }
    }

    async fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), Over> {
        if let Some(head) = self.fold.head()
            && (snapshot.older || snapshot.head.seq < head.seq || first(snapshot) != Some(head.seq + 1))
            && !self.holds(head).await?
        {
            return Err(Over::Changed);
        }
        for entry in &snapshot.entries {
            self.heard(entry).await?;
        }
        if self.fold.head().is_none_or(|head| head.seq < snapshot.head.seq) {
            self.catch_up(Some(snapshot.head.seq)).await?;
        }
        let told = self.fold.in_flight(&snapshot.in_flight, now());
        self.tell(told).await
    }

    /// An entry that the pod told. Those that were left out are in the log.
    async fn heard(&mut self, entry: &Entry) -> Result<(), Over> {
        let next = self.fold.head().map_or(0, |head| head.seq + 1);
        if entry.seq < next {
            return Ok(());
        }
        if entry.seq > next {
            self.catch_up(Some(entry.seq - 1)).await?;
        }
        self.take(entry).await
    }

    async fn take(&mut self, entry: &Entry) -> Result<(), Over> {
        let told = self.fold.entry(entry);
        if self.fold.plain() {
            self.quiet.note(self.thread, &self.fold);
        }
        self.tell(told).await
    }

    /// Reads the log from where the fold stands, up to an entry or to its end.
    async fn catch_up(&mut self, to: Option<u64>) -> Result<(), Over> {
        loop {
            let from = self.fold.head().map_or(0, |head| head.seq + 1);
            if to.is_some_and(|to| from > to) {
                return Ok(());
            }
            let page = self.page(from, to).await?;
            if page.is_empty() {
                return Ok(());
            }
            for entry in &page {
                self.take(entry).await?;
            }
        }
    }

    async fn page(&self, from: u64, to: Option<u64>) -> Result<Vec<Entry>, StoreError> {
        let (store, thread) = (self.home.store.clone(), self.thread);
        blocking(move || {
            let page = store.reader(thread)?.page(from, PAGE_ENTRIES, PAGE_BYTES)?;
            let entries = page.entries.into_iter().map(|sealed| sealed.entry);
            Ok(entries.take_while(|entry| to.is_none_or(|to| entry.seq <= to)).collect())
        })
        .await
    }

    /// Whether the log holds this entry, and not another one of its number.
    async fn holds(&self, position: Position) -> Result<bool, StoreError> {
        let (store, thread) = (self.home.store.clone(), self.thread);
        blocking(move || Ok(store.reader(thread)?.position(position.seq)? == Some(position))).await
    }

    async fn head(&self) -> Result<Option<Position>, StoreError> {
        let (store, thread) = (self.home.store.clone(), self.thread);
        blocking(move || store.reader(thread)?.head()).await
    }

    async fn tell(&mut self, frames: Vec<Frame>) -> Result<(), Over> {
        for frame in frames {
            if !self.seen(&frame) {
                self.send(frame).await?;
            }
        }
        Ok(())
    }

    fn seen(&self, frame: &Frame) -> bool {
        match (frame.id(), self.since) {
            (Some(id), Some(since)) => (id.position.seq, id.n) <= (since.position.seq, since.n),
            _ => false,
        }
    }

    async fn send(&self, frame: Frame) -> Result<(), Over> {
        let sent = self.sender.send_timeout(frame, self.patience).await;
        if let Err(mpsc::error::SendTimeoutError::Timeout(_)) = &sent {
            self.slow.store(true, Ordering::Release);
            self.quiet.cut.fetch_add(1, Ordering::Relaxed);
        }
        sent.map_err(|_| Over::Gone)
    }
}

impl QuietPlaces {
    /// A pod was started.
    pub(crate) fn started(&self) {
        self.started.notify_waiters();
    }

    /// How many clients were let go because they did not read.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    fn before(&self, thread: SessionId, seq: u64) -> Option<Frames> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = places.get(&thread)?;
        quiet.head().is_some_and(|after| after.seq <= seq).then(|| quiet.clone())
    }

    fn note(&self, thread: SessionId, quiet: &Frames) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= QUIET_PLACES && !places.contains_key(&thread) {
            places.clear();
        }
        places.insert(thread, quiet.clone());
    }
}

fn first(snapshot: &Snapshot) -> Option<u64> {
    snapshot.entries.first().map(|entry| entry.seq)
}

/// Reads beside the loop.
async fn blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(done) => done,
        Err(died) => std::panic::resume_unwind(died.into_panic()),
    }
}

fn introduction() -> ClientInfo {
    ClientInfo { name: "host".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), session: None }
}

pub(crate) fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}
