//! The job scheduler: scans all jobs periodically, and starts the pods of due ones.
//!
//! It has no state of its own: if it is killed, the next one continues from the logs. Elsewhere: the cache between two
//! scans (`job_cache`), which jobs are due (`thread::plan`), the work of a pod on its job (`pod`).
//! Invariant: a job whose pod cannot start is retried with growing delays and does not delay other jobs
//! (`a_job_that_cannot_start_keeps_nobody_waiting`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use minke_launch::{now_millis, reach_pod};
use minke_record::{Actor, Millis, SessionId};
use minke_thread::{JobNeed, JobPlan, plan_jobs};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::error::ApiError;
use crate::jobs::cache::JobCache;
use crate::stderr::report;

/// How often it checks for changes, by reading the metadata of one directory.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// How often it checks running jobs while others wait for a free slot.
const CROWDED_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The number of pods that start concurrently.
const MAX_CONCURRENT_STARTS: usize = 4;
/// The delay after a failed start, doubled up to the maximum.
const RETRY_DELAY_MS: u64 = 500;
const MAX_RETRY_DELAY_MS: u64 = 30_000;

/// The channel between the scheduler and the rest of the host.
#[derive(Debug, Default)]
pub(crate) struct JobScheduler {
    wakeup: Notify,
    /// There is or will be work that only a host does.
    has_due_work: AtomicBool,
}

impl Engine {
    /// Wakes the scheduler up.
    pub(crate) fn wake_up(&self) {
        self.scheduler.wakeup.notify_one();
    }

    /// Returns whether there is work that only a host does, so that it must not exit: timers, queued jobs, unread asks.
    pub fn has_work(&self) -> bool {
        self.scheduler.has_due_work.load(Ordering::Relaxed)
    }
}

/// Runs the scheduler until `stop` is set.
pub(crate) async fn run_scheduler(engine: Engine, mut stop: watch::Receiver<bool>) {
    let mut keeping = SchedulerState::default();
    let mut last = String::new();
    loop {
        engine.reap_children();
        let until = match keeping.job_cache.refresh(&engine).await {
            Ok(()) => {
                last.clear();
                keeping.start_due_jobs(&engine)
            }
            Err(fault) => {
                // Reported once, not every second.
                if last != fault.message {
                    report!("could not scan the jobs: {}", fault.message);
                    last = fault.message;
                }
                keeping.job_cache.next_scan()
            }
        };
        if keeping.wait_for_work(&engine, &mut stop, until).await.is_break() {
            return;
        }
    }
}

#[derive(Default)]
struct SchedulerState {
    job_cache: JobCache,
    /// The last written state of the mark file.
    written_mark: Option<bool>,
    attempts: StartAttempts,
    starting: JoinSet<(SessionId, Result<(), ApiError>)>,
}

impl SchedulerState {
    /// Starts due jobs within the limits, and returns the time of the next check.
    fn start_due_jobs(&mut self, engine: &Engine) -> Instant {
        let now = now_millis();
        let due = self.job_cache.has_due_work();
        engine.scheduler.has_due_work.store(due, Ordering::Relaxed);
        self.update_mark(engine, due);
        self.attempts.0.retain(|session, tried| tried.in_progress || self.job_cache.contains(*session));
        let mut candidates = self.job_cache.candidates();
        for one in &mut candidates {
            match self.attempts.0.get(&one.session) {
                // It already uses a slot.
                Some(tried) if tried.in_progress => (one.is_held, one.need) = (true, JobNeed::Resume),
                Some(tried) if tried.not_before > now && !one.is_held => {
                    one.need = JobNeed::StartAt(tried.not_before)
                }
                _ => {}
            }
        }
        let JobPlan { start, next_check, has_waiting } = plan_jobs(&candidates, engine.job_limits, now);
        let room = MAX_CONCURRENT_STARTS.saturating_sub(self.starting.len());
        let more = has_waiting || start.len() > room;
        for session in start.into_iter().take(room) {
            self.attempts.0.entry(session).or_default().in_progress = true;
            let engine = engine.clone();
            self.starting.spawn(async move { (session, start_job_pod(&engine, session).await) });
        }
        let usual = self.job_cache.next_scan();
        let usual = if more { usual.min(Instant::now() + CROWDED_CHECK_INTERVAL) } else { usual };
        let wait = |next: Millis| Instant::now() + Duration::from_millis(next.saturating_sub(now));
        next_check.map_or(usual, |next| usual.min(wait(next)))
    }

    /// Updates the mark that tells commands that a host is needed, even after this one has exited.
    fn update_mark(&mut self, engine: &Engine, due: bool) {
        if self.written_mark == Some(due) {
            return;
        }
        if let Err(e) = crate::jobs::pending::write_mark(&engine.home.paths, due) {
            report!("could not write the mark for pending jobs: {e}");
        }
        self.written_mark = Some(due);
    }

    /// Waits until that time or until there is a change.
    async fn wait_for_work(
        &mut self,
        engine: &Engine,
        stop: &mut watch::Receiver<bool>,
        until: Instant,
    ) -> ControlFlow<()> {
        loop {
            tokio::select! {
                _ = stop.changed() => return ControlFlow::Break(()),
                () = engine.scheduler.wakeup.notified() => {
                    self.job_cache.invalidate();
                    break;
                }
                Some(done) = self.starting.join_next(), if !self.starting.is_empty() => {
                    if let Ok((session, result)) = done {
                        if result.is_ok() {
                            self.job_cache.mark_started(session);
                        }
                        self.attempts.record_attempt(session, result, now_millis());
                    }
                    break;
                }
                () = tokio::time::sleep_until(until) => break,
                () = tokio::time::sleep(CHECK_INTERVAL) => {
                    if self.job_cache.check_stale(engine) {
                        break;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

async fn start_job_pod(engine: &Engine, session: SessionId) -> Result<(), ApiError> {
    if !crate::jobs::claims::claim_job(&engine.home, session).await? {
        return Ok(());
    }
    crate::pods::request_session_scope(&engine.home, session, &Actor::from_minke()).await?;
    let reached = reach_pod(&engine.home, session).await?;
    engine.track_child(reached.launched);
    Ok(())
}

/// The start attempts of unfinished jobs.
#[derive(Debug, Default)]
struct StartAttempts(BTreeMap<SessionId, StartAttempt>);

#[derive(Debug, Default)]
struct StartAttempt {
    /// The pod is starting now.
    in_progress: bool,
    /// The earliest time of the next attempt.
    not_before: Millis,
    /// The last delay; 0 before the first.
    delay_ms: u64,
    /// The reported error, so that it is reported once.
    error: String,
}

impl StartAttempts {
    fn record_attempt(&mut self, session: SessionId, result: Result<(), ApiError>, now: Millis) {
        let tried = self.0.entry(session).or_default();
        match result {
            Ok(()) => drop(self.0.remove(&session)),
            Err(fault) => {
                let delay_ms = tried.delay_ms.saturating_mul(2).clamp(RETRY_DELAY_MS, MAX_RETRY_DELAY_MS);
                if tried.error != fault.message {
                    report!("could not start job s_{session} yet: {}", fault.message);
                }
                let not_before = now.saturating_add(delay_ms);
                *tried = StartAttempt { in_progress: false, not_before, delay_ms, error: fault.message };
            }
        }
    }
}
