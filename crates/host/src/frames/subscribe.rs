//! Subscriptions: the frames of a thread from a position on.
//!
//! While a pod is live its socket is followed; otherwise the log is read and polled until it grows or a pod starts.
//! Elsewhere: the frames (`frames`), the transports (`http`, `stdio`).
//! Invariants: frames are neither lost nor repeated, regardless of their source and of the client's resume point
//! (`a_client_that_comes_back_sees_each_frame_once`); a replaced log is reported
//! (`a_place_that_never_was_is_a_conflict`); a client that does not read is disconnected
//! (`a_client_that_does_not_read_is_let_go`).

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::Stream;
use minke_client::{Connection, UserHome};
use minke_protocol::{ClientInfo, Event, EventPosition as EventPlace, Snapshot, Subscribe};
use minke_record::{Entry, ErrorCode, Millis, Position, SessionId};
use minke_registry::RuntimeDir;
use minke_session::StoreError;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::engine::Engine;
use crate::frames::{Frame, FrameFold, FrameId};

/// The capacity of a subscriber's queue.
const FRAME_QUEUE: usize = 32;
/// A client that receives no frame for this long is disconnected and may reconnect with the id of its last frame.
pub(crate) const SLOW_CLIENT_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a sleeping thread's log is checked, with one `stat`.
const LOG_POLL_INTERVAL: Duration = Duration::from_millis(150);
/// How often to look for the pod after the log grew: a pod writes before it listens.
const POD_LOOKUP_ATTEMPTS: u32 = 100;
/// The number of entries in one read.
const PAGE_ENTRIES: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;
/// The maximum number of cached folds.
const MAX_CACHED_FOLDS: usize = 1_024;

/// State that subscriptions share.
#[derive(Debug, Clone, Default)]
pub(crate) struct FoldCache {
    /// Folds of threads at an idle position, where reading for a new subscriber can begin.
    folds: Arc<Mutex<HashMap<SessionId, FrameFold>>>,
    /// The number of disconnected slow clients.
    slow_clients: Arc<AtomicU64>,
    /// Notified when a pod was started here, so that its followers check at once.
    pod_started: Arc<Notify>,
}

/// The frames of a thread. Ends only if the thread is unreadable or the subscriber too slow.
#[derive(Debug)]
pub struct FrameSubscription {
    frames: mpsc::Receiver<Frame>,
    is_slow: Arc<AtomicBool>,
    thread: SessionId,
    last: u64,
    task: JoinHandle<()>,
}

impl Drop for FrameSubscription {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stream for FrameSubscription {
    type Item = Frame;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Frame>> {
        match std::task::ready!(self.frames.poll_recv(context)) {
            Some(frame) => {
                if let Some(id) = frame.frame_id() {
                    self.last = id.position.seq;
                }
                Poll::Ready(Some(frame))
            }
            None if self.is_slow.swap(false, Ordering::AcqRel) => {
                let message = "the client read frames too slowly; reconnect with the id of the last one";
                Poll::Ready(Some(Frame::error_frame(
                    self.thread,
                    self.last,
                    now_millis(),
                    ErrorCode::TooMany,
                    message,
                )))
            }
            None => Poll::Ready(None),
        }
    }
}

impl Engine {
    /// Subscribes to the frames of a thread after a frame, or from its beginning.
    pub fn follow_thread(&self, thread: SessionId, since: Option<FrameId>) -> FrameSubscription {
        self.follow_thread_within(thread, since, SLOW_CLIENT_TIMEOUT)
    }

    pub(crate) fn follow_thread_within(
        &self,
        thread: SessionId,
        since: Option<FrameId>,
        timeout: Duration,
    ) -> FrameSubscription {
        let (sender, frames) = mpsc::channel(FRAME_QUEUE);
        let cut = Arc::new(AtomicBool::new(false));
        let watcher = ThreadFollower {
            home: self.home.clone(),
            fold_cache: self.fold_cache.clone(),
            thread,
            fold: FrameFold::new(thread),
            since,
            sender,
            timeout,
            is_slow: cut.clone(),
        };
        let task = tokio::spawn(watcher.run());
        FrameSubscription {
            frames,
            is_slow: cut,
            thread,
            last: since.map_or(0, |since| since.position.seq),
            task,
        }
    }
}

/// Why following ended.
enum FollowEnd {
    /// The subscriber has disconnected or is too slow.
    SubscriberGone,
    /// The log was replaced since it was last read.
    LogReplaced,
    ReadFailed(StoreError),
}

impl From<StoreError> for FollowEnd {
    fn from(error: StoreError) -> FollowEnd {
        FollowEnd::ReadFailed(error)
    }
}

struct ThreadFollower {
    home: UserHome,
    fold_cache: FoldCache,
    thread: SessionId,
    fold: FrameFold,
    /// The last frame that the client has.
    since: Option<FrameId>,
    sender: mpsc::Sender<Frame>,
    timeout: Duration,
    is_slow: Arc<AtomicBool>,
}

impl ThreadFollower {
    async fn run(mut self) {
        loop {
            let over = match self.read_existing().await {
                Ok(()) => self.follow_log().await,
                Err(over) => over,
            };
            let (code, message) = match over {
                FollowEnd::SubscriberGone => return,
                FollowEnd::ReadFailed(StoreError::NotFound { .. }) => {
                    (ErrorCode::NotFound, "thread not found".to_owned())
                }
                FollowEnd::ReadFailed(error) => (ErrorCode::StorageFailed, error.to_string()),
                FollowEnd::LogReplaced => {
                    let message = "the log no longer contains the last seen entry; read the thread again";
                    let after = self.fold.head().map_or(0, |head| head.seq);
                    if self
                        .send_frame(Frame::error_frame(
                            self.thread,
                            after,
                            now_millis(),
                            ErrorCode::Conflict,
                            message,
                        ))
                        .await
                        .is_err()
                    {
                        return;
                    }
                    // The client reads the existing entries itself; only later ones are sent.
                    match self.log_head().await {
                        Ok(head) => self.since = head.map(|position| FrameId { position, n: u32::MAX }),
                        Err(_) => return,
                    }
                    self.fold = FrameFold::new(self.thread);
                    continue;
                }
            };
            let after = self.fold.head().map_or(0, |head| head.seq);
            // The subscriber may have disconnected.
            drop(self.send_frame(Frame::error_frame(self.thread, after, now_millis(), code, message)).await);
            return;
        }
    }

    /// Reads the log to its current end, and sends the frames after `since`.
    async fn read_existing(&mut self) -> Result<(), FollowEnd> {
        if let Some(since) = self.since {
            if !self.log_contains(since.position).await? {
                return Err(FollowEnd::LogReplaced);
            }
            if let Some(quiet) = self.fold_cache.fold_before(self.thread, since.position.seq)
                && let Some(after) = quiet.head()
                && self.log_contains(after).await?
            {
                self.fold = quiet;
            }
        }
        self.catch_up(None).await
    }

    async fn follow_log(&mut self) -> FollowEnd {
        let quiet = self.fold_cache.clone();
        // Created before the first check, so that no later notification is missed.
        let mut started = std::pin::pin!(quiet.pod_started.notified());
        let mut looks = 1;
        let mut stamp = None;
        loop {
            if looks > 0 {
                looks -= 1;
                match self.follow_pod().await {
                    Ok(true) => looks = POD_LOOKUP_ATTEMPTS,
                    Ok(false) => {}
                    Err(over) => return over,
                }
            }
            match self.home.store.log_stamp(self.thread) {
                Ok(now) if stamp != Some(now) => {
                    if stamp.replace(now).is_some() {
                        looks = POD_LOOKUP_ATTEMPTS;
                    }
                    if let Err(over) = self.read_new_entries().await {
                        return over;
                    }
                }
                Ok(_) => {}
                Err(error) => return error.into(),
            }
            tokio::select! {
                () = tokio::time::sleep(LOG_POLL_INTERVAL) => {}
                () = started.as_mut() => {
                    looks = looks.max(1);
                    started.set(quiet.pod_started.notified());
                }
                () = self.sender.closed() => return FollowEnd::SubscriberGone,
            }
        }
    }

    /// Reads the entries after the last one seen, if the log still contains that one.
    async fn read_new_entries(&mut self) -> Result<(), FollowEnd> {
        if let Some(head) = self.fold.head()
            && !self.log_contains(head).await?
        {
            return Err(FollowEnd::LogReplaced);
        }
        self.catch_up(None).await
    }

    /// Follows the thread's pod until it exits; returns false if there is none.
    async fn follow_pod(&mut self) -> Result<bool, FollowEnd> {
        let Ok(live) = RuntimeDir::new(&self.home.paths).live_pod_of_session(self.thread) else {
            return Ok(false);
        };
        let Some(live) = live else { return Ok(false) };
        let since = self.fold.head();
        let opened = Connection::open(&live.row.socket, Subscribe::Full, since, client_info()).await;
        // The pod is starting or stopping: the log is complete, and the next check sees the new state.
        let Ok(mut pod) = opened else { return Ok(false) };
        loop {
            let frame = tokio::select! {
                frame = pod.next_frame() => frame,
                () = self.sender.closed() => return Err(FollowEnd::SubscriberGone),
            };
            let Ok(Some(frame)) = frame else { return Ok(true) };
            match &frame.event {
                Event::Shutdown => return Ok(true),
                Event::Snapshot(snapshot) => self.apply_snapshot(snapshot).await?,
                Event::Entry(event) => self.apply_live_entry(&event.entry).await?,
                Event::InFlight(open) => {
                    let new_frames = self.fold.in_flight_frames(open, now_millis());
                    self.send_frames(new_frames).await?;
                }
                event if matches!(frame.position, EventPlace::Live { .. }) => {
                    let told = self.fold.live_event_frames(event, frame.run, now_millis());
                    self.send_frames(told).await?;
                }
                _ => {}
            }
        }
    }

    async fn apply_snapshot(&mut self, snapshot: &Snapshot) -> Result<(), FollowEnd> {
        if let Some(head) = self.fold.head()
            && (snapshot.older
                || snapshot.head.seq < head.seq
                || first_open_seq(snapshot) != Some(head.seq + 1))
            && !self.log_contains(head).await?
        {
            return Err(FollowEnd::LogReplaced);
        }
        for entry in &snapshot.entries {
            self.apply_live_entry(entry).await?;
        }
        if self.fold.head().is_none_or(|head| head.seq < snapshot.head.seq) {
            self.catch_up(Some(snapshot.head.seq)).await?;
        }
        let new_frames = self.fold.in_flight_frames(&snapshot.in_flight, now_millis());
        self.send_frames(new_frames).await
    }

    /// Handles an entry from the pod. Skipped ones are read from the log.
    async fn apply_live_entry(&mut self, entry: &Entry) -> Result<(), FollowEnd> {
        let next = self.fold.head().map_or(0, |head| head.seq + 1);
        if entry.seq < next {
            return Ok(());
        }
        if entry.seq > next {
            self.catch_up(Some(entry.seq - 1)).await?;
        }
        self.fold_and_send(entry).await
    }

    async fn fold_and_send(&mut self, entry: &Entry) -> Result<(), FollowEnd> {
        let new_frames = self.fold.fold_entry(entry);
        if self.fold.is_idle() {
            self.fold_cache.store_fold(self.thread, &self.fold);
        }
        self.send_frames(new_frames).await
    }

    /// Reads the log from the position of the fold, up to an entry or to its end.
    async fn catch_up(&mut self, to: Option<u64>) -> Result<(), FollowEnd> {
        loop {
            let from = self.fold.head().map_or(0, |head| head.seq + 1);
            if to.is_some_and(|to| from > to) {
                return Ok(());
            }
            let page = self.read_page(from, to).await?;
            if page.is_empty() {
                return Ok(());
            }
            for entry in &page {
                self.fold_and_send(entry).await?;
            }
        }
    }

    async fn read_page(&self, from: u64, to: Option<u64>) -> Result<Vec<Entry>, StoreError> {
        let (store, thread) = (self.home.store.clone(), self.thread);
        read_blocking(move || {
            let page = store.open_reader(thread)?.read_page(from, PAGE_ENTRIES, PAGE_BYTES)?;
            let entries = page.entries.into_iter().map(|sealed| sealed.entry);
            Ok(entries.take_while(|entry| to.is_none_or(|to| entry.seq <= to)).collect())
        })
        .await
    }

    /// Returns whether the log contains this entry, and not another one with its number.
    async fn log_contains(&self, position: Position) -> Result<bool, StoreError> {
        let (store, thread) = (self.home.store.clone(), self.thread);
        read_blocking(move || Ok(store.open_reader(thread)?.position_of(position.seq)? == Some(position)))
            .await
    }

    async fn log_head(&self) -> Result<Option<Position>, StoreError> {
        let (store, thread) = (self.home.store.clone(), self.thread);
        read_blocking(move || store.open_reader(thread)?.head_position()).await
    }

    async fn send_frames(&mut self, frames: Vec<Frame>) -> Result<(), FollowEnd> {
        for frame in frames {
            if !self.is_already_sent(&frame) {
                self.send_frame(frame).await?;
            }
        }
        Ok(())
    }

    fn is_already_sent(&self, frame: &Frame) -> bool {
        match (frame.frame_id(), self.since) {
            (Some(id), Some(since)) => (id.position.seq, id.n) <= (since.position.seq, since.n),
            _ => false,
        }
    }

    async fn send_frame(&self, frame: Frame) -> Result<(), FollowEnd> {
        let sent = self.sender.send_timeout(frame, self.timeout).await;
        if let Err(mpsc::error::SendTimeoutError::Timeout(_)) = &sent {
            self.is_slow.store(true, Ordering::Release);
            self.fold_cache.slow_clients.fetch_add(1, Ordering::Relaxed);
        }
        sent.map_err(|_| FollowEnd::SubscriberGone)
    }
}

impl FoldCache {
    /// Notifies followers that a pod was started.
    pub(crate) fn notify_pod_started(&self) {
        self.pod_started.notify_waiters();
    }

    /// Returns how many slow clients were disconnected.
    pub(crate) fn slow_client_count(&self) -> u64 {
        self.slow_clients.load(Ordering::Relaxed)
    }

    fn fold_before(&self, thread: SessionId, seq: u64) -> Option<FrameFold> {
        let places = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        let quiet = places.get(&thread)?;
        quiet.head().is_some_and(|after| after.seq <= seq).then(|| quiet.clone())
    }

    fn store_fold(&self, thread: SessionId, quiet: &FrameFold) {
        let mut places = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= MAX_CACHED_FOLDS && !places.contains_key(&thread) {
            places.clear();
        }
        places.insert(thread, quiet.clone());
    }
}

fn first_open_seq(snapshot: &Snapshot) -> Option<u64> {
    snapshot.entries.first().map(|entry| entry.seq)
}

/// Reads outside of the async threads.
async fn read_blocking<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(read).await {
        Ok(done) => done,
        Err(died) => std::panic::resume_unwind(died.into_panic()),
    }
}

fn client_info() -> ClientInfo {
    ClientInfo { name: "host".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), session: None }
}

pub(crate) fn now_millis() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}
