//! Telling hooks what happened, afterwards and from the log: one task for each, with a cursor that outlives it.
//!
//! Here: all of them together, and how far behind each is. Elsewhere: one of them (`observer`), which entry is which event
//! (`map`), how far one is (`cursor`).
//! Invariants: nothing here is waited for by anybody but at the end, and then not for long
//! (`observers_never_hold_up_a_question`, `stopping_waits_no_longer_than_it_may`); every event is delivered at least
//! once, in order, also after a kill (`observers_miss_nothing_when_they_are_killed`).

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use minke_record::Entry;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cursor::Cursor;
use crate::map::Frames;
use crate::observer::{Observer, Undelivered, give};
use crate::question::Question;
use crate::steer::{Heard, Hooks, Said};

/// So far behind it is told, once, and once more when it has caught up.
pub const LAG_TOLD: u64 = 256;

/// Entries from a number on, the oldest first, as many as make a bite; none if there are no more. It may block.
pub type Page = Arc<dyn Fn(u64) -> Result<Vec<Entry>, String> + Send + Sync>;
/// Takes what a person should know.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// What observers need.
#[derive(Clone)]
pub struct Observing {
    pub page: Page,
    pub frames: Frames,
    /// Where the cursors of this session lie: `<state>/hooks/<session>`.
    pub cursors: PathBuf,
    /// Where a hook begins that was not there before: the first entry of this life.
    pub from: u64,
    /// The last entry that is on disk now; absent if there is none.
    pub head: Option<u64>,
    /// Hooks that the mandate of this session names (`notified`).
    pub notify: Vec<String>,
    pub tell: Tell,
}

/// How far a hook is behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lag {
    pub hook: String,
    /// Entries that it has not been told of.
    pub behind: u64,
    /// Why it cannot be told at the moment.
    pub why: Option<String>,
}

/// The observers of a pod. Dropping them ends their tasks.
pub struct Observers {
    head: watch::Sender<Option<u64>>,
    ending: watch::Sender<bool>,
    tasks: JoinSet<()>,
    all: Vec<Arc<Progress>>,
    tell: Tell,
}

/// How far one is, for whoever looks.
pub(crate) struct Progress {
    hook: String,
    /// The next entry to be read.
    pub(crate) next: AtomicU64,
    why: Mutex<Option<String>>,
    pub(crate) lag_told: AtomicBool,
}

impl Hooks {
    /// Begins to tell the hooks that are told afterwards. Needs a runtime.
    pub fn observe(&self, observing: Observing) -> Observers {
        let (head, _) = watch::channel(observing.head);
        let (ending, _) = watch::channel(false);
        let (mut tasks, mut all) = (JoinSet::new(), Vec::new());
        for name in self.unknown(&observing.notify) {
            (observing.tell)(format!(
                "the mandate's `notify` names the hook {name}, and there is none of that name"
            ));
        }
        for hook in self.hooks.iter() {
            let named = observing.notify.contains(&hook.name);
            if hook.steers() && !named {
                continue;
            }
            let progress = Arc::new(Progress {
                hook: hook.name.clone(),
                next: AtomicU64::new(observing.from),
                why: Mutex::new(None),
                lag_told: AtomicBool::new(false),
            });
            let observer = Observer {
                cursor: Cursor::new(&observing.cursors, &hook.id()),
                hook: Arc::clone(hook),
                around: self.around.clone(),
                web: self.web.clone(),
                observing: observing.clone(),
                head: head.subscribe(),
                ending: ending.subscribe(),
                progress: Arc::clone(&progress),
                named,
                since: 0,
            };
            tasks.spawn(observer.observe());
            all.push(progress);
        }
        Observers { head, ending, tasks, all, tell: observing.tell }
    }

    fn unknown<'a>(&'a self, names: &'a [String]) -> impl Iterator<Item = &'a String> {
        names.iter().filter(|name| !self.hooks.iter().any(|hook| hook.name == **name))
    }

    /// Tells one thing, once, to those who would be told it afterwards: to see what becomes of it.
    pub async fn tell(&self, sample: &Question) -> Vec<Heard> {
        let mut heard = Vec::new();
        for hook in self.hooks.iter().filter(|hook| !hook.steers() && self.fits(hook, sample)) {
            let text = self.told(sample);
            let began = Instant::now();
            let said = match give(hook, &self.around, &self.web, text).await {
                Ok(()) => Said::Nothing,
                Err(Undelivered::Later(why) | Undelivered::LeftOut(why) | Undelivered::Never(why)) => {
                    Said::Problem(why)
                }
            };
            heard.push(self.heard(hook, began.elapsed(), said));
        }
        heard
    }
}

impl Observers {
    /// Entries up to this one are on disk. Costs next to nothing and waits for nobody.
    pub fn committed(&self, seq: u64) {
        self.head.send_if_modified(|head| {
            let newer = head.is_none_or(|head| head < seq);
            *head = Some(head.map_or(seq, |head| head.max(seq)));
            newer
        });
        for lag in self.all.iter().filter(|one| one.behind(Some(seq)) > LAG_TOLD) {
            if !lag.lag_told.swap(true, Ordering::Relaxed) {
                let why = lag.why().map(|why| format!(": {why}")).unwrap_or_default();
                (self.tell)(format!("hook {} is more than {LAG_TOLD} entries behind{why}", lag.hook));
            }
        }
    }

    /// How far each hook is behind; nothing for those that are not.
    pub fn lag(&self) -> Vec<Lag> {
        let head = *self.head.borrow();
        let lag =
            |one: &Arc<Progress>| Lag { hook: one.hook.clone(), behind: one.behind(head), why: one.why() };
        self.all.iter().map(lag).filter(|lag| lag.behind > 0).collect()
    }

    /// Lets them tell the rest, for so long at most; what is left is told in the next life. Who is still behind.
    pub async fn stop(mut self, within: Duration) -> Vec<Lag> {
        self.ending.send_replace(true);
        let all_done = async { while self.tasks.join_next().await.is_some() {} };
        let _in_time = tokio::time::timeout(within, all_done).await;
        self.tasks.shutdown().await;
        self.lag()
    }
}

impl Progress {
    fn behind(&self, head: Option<u64>) -> u64 {
        head.map_or(0, |head| (head + 1).saturating_sub(self.next.load(Ordering::Relaxed)))
    }

    fn why(&self) -> Option<String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets why it cannot be told; whether that has changed between something and nothing.
    pub(crate) fn set_why(&self, why: Option<String>) -> bool {
        let mut held = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = held.is_some() != why.is_some();
        *held = why;
        changed
    }
}
