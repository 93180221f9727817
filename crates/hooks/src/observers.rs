//! Observers: hooks that are notified from the log, one task each, with a stored cursor.
//!
//! Here: all observers, and how far each is behind. Elsewhere: one of them (`observer`), the event of each
//! entry (`mapper`), the stored position (`cursor`).
//! Invariants: observers are only waited for at shutdown, with a timeout
//! (`observers_never_hold_up_a_question`, `stopping_waits_no_longer_than_it_may`); every event is delivered
//! at least once, in order, also after a kill (`observers_miss_nothing_when_they_are_killed`).

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minke_record::Entry;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cursor::CursorFile;
use crate::mapper::FramesFn;
use crate::observer::{HookDeliveryError, HookObserver, deliver_to};
use crate::question::SteeringRequest;
use crate::steer::{HookAnswer, HookReport, HookSet};

/// An observer this far behind is reported once, and again when it has caught up.
pub const LAG_ALERT_ENTRIES: u64 = 256;

/// Returns the entries from a number on, oldest first, up to one page; empty at the end. May block.
pub type PageFn = Arc<dyn Fn(u64) -> Result<Vec<Entry>, String> + Send + Sync>;
/// Receives messages for the user.
pub type AlertFn = Arc<dyn Fn(String) + Send + Sync>;

/// The configuration of the observers.
#[derive(Clone)]
pub struct ObserverConfig {
    pub page: PageFn,
    pub frames: FramesFn,
    /// The cursor directory of this session: `<state>/hooks/<session>`.
    pub cursors: PathBuf,
    /// The start for a new hook: the first entry of this process.
    pub from: u64,
    /// The last entry on disk; `None` if there is none.
    pub head: Option<u64>,
    /// Hooks that the mandate of this session names (`notified_hooks`).
    pub named_hooks: Vec<String>,
    pub alert: AlertFn,
}

/// The lag of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookLag {
    pub hook: String,
    /// The number of undelivered entries.
    pub behind: u64,
    /// The reason for the current delivery failure.
    pub last_error: Option<String>,
}

/// The observers of a pod. Dropping them ends their tasks.
pub struct Observers {
    head: watch::Sender<Option<u64>>,
    stopping: watch::Sender<bool>,
    tasks: JoinSet<()>,
    progress: Vec<Arc<ObserverProgress>>,
    alert: AlertFn,
}

/// The progress of one observer.
pub(crate) struct ObserverProgress {
    hook: String,
    /// The next entry to read.
    pub(crate) next_seq: AtomicU64,
    last_error: Mutex<Option<String>>,
    pub(crate) is_lag_reported: AtomicBool,
}

impl HookSet {
    /// Starts the observers. Needs a tokio runtime.
    pub fn start_observers(&self, config: ObserverConfig) -> Observers {
        let (head, _) = watch::channel(config.head);
        let (stopping, _) = watch::channel(false);
        let (mut tasks, mut all) = (JoinSet::new(), Vec::new());
        for name in self.unknown_hooks(&config.named_hooks) {
            (config.alert)(format!("the mandate's `notify` names the hook {name}, which does not exist"));
        }
        for hook in self.hooks.iter() {
            let is_named = config.named_hooks.contains(&hook.name);
            if hook.is_steering() && !is_named {
                continue;
            }
            let progress = Arc::new(ObserverProgress {
                hook: hook.name.clone(),
                next_seq: AtomicU64::new(config.from),
                last_error: Mutex::new(None),
                is_lag_reported: AtomicBool::new(false),
            });
            let observer = HookObserver {
                cursor: CursorFile::new(&config.cursors, &hook.cursor_id()),
                hook: Arc::clone(hook),
                context: self.context.clone(),
                http_clients: self.http_clients.clone(),
                config: config.clone(),
                head: head.subscribe(),
                stopping: stopping.subscribe(),
                progress: Arc::clone(&progress),
                is_named,
                first_seq: 0,
            };
            tasks.spawn(observer.run_observer());
            all.push(progress);
        }
        Observers { head, stopping, tasks, progress: all, alert: config.alert }
    }

    fn unknown_hooks<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a String> {
        names.iter().filter(|name| !self.hooks.iter().any(|hook| hook.name == **name))
    }

    /// Delivers a sample once to all hooks that would be notified of it, and returns the results.
    pub async fn deliver_sample(&self, sample: &SteeringRequest) -> Vec<HookReport> {
        let mut heard = Vec::new();
        for hook in self.hooks.iter().filter(|hook| !hook.is_steering() && self.is_applicable(hook, sample)) {
            let text = self.question_line(sample);
            let began = Instant::now();
            let reply = match deliver_to(hook, &self.context, &self.http_clients, text).await {
                Ok(()) => HookAnswer::NoObjection,
                Err(
                    HookDeliveryError::Retryable(why)
                    | HookDeliveryError::Skipped(why)
                    | HookDeliveryError::Unsupported(why),
                ) => HookAnswer::Failed(why),
            };
            heard.push(self.to_report(hook, began.elapsed(), reply));
        }
        heard
    }
}

impl Observers {
    /// Notifies observers that entries up to `seq` are on disk. Cheap; never blocks.
    pub fn notify_committed(&self, seq: u64) {
        self.head.send_if_modified(|head| {
            let newer = head.is_none_or(|head| head < seq);
            *head = Some(head.map_or(seq, |head| head.max(seq)));
            newer
        });
        for lag in self.progress.iter().filter(|one| one.entries_behind(Some(seq)) > LAG_ALERT_ENTRIES) {
            if !lag.is_lag_reported.swap(true, Ordering::Relaxed) {
                let why = lag.error_text().map(|why| format!(": {why}")).unwrap_or_default();
                (self.alert)(format!(
                    "hook {} is more than {LAG_ALERT_ENTRIES} entries behind{why}",
                    lag.hook
                ));
            }
        }
    }

    /// The lag of each hook that is behind.
    pub fn list_lag(&self) -> Vec<HookLag> {
        let head = *self.head.borrow();
        let lag = |one: &Arc<ObserverProgress>| HookLag {
            hook: one.hook.clone(),
            behind: one.entries_behind(head),
            last_error: one.error_text(),
        };
        self.progress.iter().map(lag).filter(|lag| lag.behind > 0).collect()
    }

    /// Lets the observers deliver the rest until the timeout; the next process delivers what remains. Returns
    /// the lag of each.
    pub async fn stop_observers(mut self, within: Duration) -> Vec<HookLag> {
        self.stopping.send_replace(true);
        let all_done = async { while self.tasks.join_next().await.is_some() {} };
        let _in_time = tokio::time::timeout(within, all_done).await;
        self.tasks.shutdown().await;
        self.list_lag()
    }
}

impl ObserverProgress {
    fn entries_behind(&self, head: Option<u64>) -> u64 {
        head.map_or(0, |head| (head + 1).saturating_sub(self.next_seq.load(Ordering::Relaxed)))
    }

    fn error_text(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the current error; returns whether delivery has started or stopped failing.
    pub(crate) fn set_last_error(&self, why: Option<String>) -> bool {
        let mut held = self.last_error.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = held.is_some() != why.is_some();
        *held = why;
        changed
    }
}
