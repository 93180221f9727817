//! The job cache: the scheduler's data about jobs between two full scans.
//!
//! The cost of a full scan grows with the number of sessions. So free slots are filled from the last scan, and only
//! running jobs are read in between. The data may be stale: a pod that is started for a finished job sees that in its
//! log and stops.
//! Invariant: full scans never take more than a third of the time (`many_jobs_are_done_by_few_looks`).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use minke_client::UserHome;
use minke_launch::now_millis;
use minke_record::{Millis, SessionId};
use minke_thread::{JobCandidate, JobNeed, SessionSummary};
use tokio::time::Instant;

use crate::engine::{Engine, run_blocking};
use crate::error::ApiError;
use crate::threads::lists::{query_index, query_summaries};

/// The interval of full scans while there are unfinished jobs.
const OPEN_SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// The interval of full scans otherwise.
const IDLE_SCAN_INTERVAL: Duration = Duration::from_secs(30);
/// The minimum pause after a full scan, as a multiple of its duration.
const SCAN_PAUSE_FACTOR: u32 = 2;
/// The maximum number of jobs in a scan.
const MAX_SCANNED_JOBS: usize = 20_000;

/// All unfinished jobs.
#[derive(Debug, Default)]
pub(crate) struct JobCache {
    jobs: BTreeMap<SessionId, CachedJob>,
    /// The time and the duration of the last full scan.
    last_scan: Option<(Instant, Duration)>,
    /// The cached data is known to be stale.
    is_stale: bool,
    /// The modification time of the sessions directory at the last scan.
    sessions_modified: Option<SystemTime>,
    /// Other machines create sessions too, without a trace on this one.
    store_is_shared: bool,
}

#[derive(Debug)]
struct CachedJob {
    candidate: JobCandidate,
    has_asks: bool,
}

impl JobCache {
    /// Scans all jobs if a full scan is due, else the running ones.
    pub(crate) async fn refresh(&mut self, engine: &Engine) -> Result<(), ApiError> {
        let home = engine.home.clone();
        self.store_is_shared = home.store.is_shared();
        if self.last_scan.is_some() && Instant::now() < self.next_scan() {
            let busy: Vec<SessionId> = self
                .jobs
                .values()
                .filter(|job| job.candidate.is_held)
                .map(|job| job.candidate.session)
                .collect();
            if busy.is_empty() {
                return Ok(());
            }
            let requested = busy.clone();
            let open_jobs =
                run_blocking(move || read_open_jobs(&home, &query_summaries(&home, &requested)?.value))
                    .await?;
            for session in busy {
                self.jobs.remove(&session);
            }
            self.jobs.extend(open_jobs);
            return Ok(());
        }
        let scan_start = Instant::now();
        // Before the scan: a session created meanwhile is found by the next scan.
        self.sessions_modified = sessions_modified_time(&home);
        // The next scan is not earlier if this one fails.
        self.last_scan = Some((scan_start, Duration::ZERO));
        let engine = engine.clone();
        let jobs = run_blocking(move || {
            let open = query_index(&home, |index| index.list_jobs(true, MAX_SCANNED_JOBS))?.value;
            crate::jobs::schedules::fire_due_jobs(&engine, &open, now_millis());
            read_open_jobs(&home, &open)
        })
        .await?;
        (self.jobs, self.is_stale) = (jobs, false);
        self.last_scan = Some((Instant::now(), scan_start.elapsed()));
        Ok(())
    }

    /// Returns the time of the next full scan.
    pub(crate) fn next_scan(&self) -> Instant {
        let Some((at, took)) = self.last_scan else { return Instant::now() };
        let usual = match (self.is_stale, self.jobs.is_empty() && !self.store_is_shared) {
            (true, _) => Duration::ZERO,
            (false, true) => IDLE_SCAN_INTERVAL,
            (false, false) => OPEN_SCAN_INTERVAL,
        };
        at + usual.max(took * SCAN_PAUSE_FACTOR)
    }

    /// Requests a full scan.
    pub(crate) fn invalidate(&mut self) {
        self.is_stale = true;
    }

    /// Returns whether a session was created or removed since the last full scan.
    pub(crate) fn check_stale(&mut self, engine: &Engine) -> bool {
        self.is_stale |= self.sessions_modified != sessions_modified_time(&engine.home);
        self.is_stale
    }

    /// Records that its pod is live.
    pub(crate) fn mark_started(&mut self, session: SessionId) {
        if let Some(job) = self.jobs.get_mut(&session) {
            (job.candidate.is_held, job.candidate.need) = (true, JobNeed::Resume);
        }
    }

    pub(crate) fn contains(&self, session: SessionId) -> bool {
        self.jobs.contains_key(&session)
    }

    pub(crate) fn candidates(&self) -> Vec<JobCandidate> {
        self.jobs.values().map(|job| job.candidate.clone()).collect()
    }

    /// Returns whether there is or will be work that only a host does.
    pub(crate) fn has_due_work(&self) -> bool {
        self.jobs.values().any(|job| job.has_asks || job.candidate.need != JobNeed::Nothing)
    }
}

/// Returns when a session was last created or removed.
fn sessions_modified_time(home: &UserHome) -> Option<SystemTime> {
    std::fs::metadata(home.paths.sessions_dir()).and_then(|open_jobs| open_jobs.modified()).ok()
}

/// Reads the unfinished jobs from their logs.
fn read_open_jobs(
    home: &UserHome,
    summaries: &[SessionSummary],
) -> Result<BTreeMap<SessionId, CachedJob>, ApiError> {
    let now: Millis = now_millis();
    let mut jobs = BTreeMap::new();
    let claims = crate::jobs::claims::held_claims(home, summaries)?;
    for summary in summaries {
        let Some((session, held)) = summary.session.and_then(|id| Some((id, *claims.get(&id)?))) else {
            continue;
        };
        let has_asks = summary.open_ask_count() > 0;
        jobs.extend(
            summary.job_candidate(held, now).map(|candidate| (session, CachedJob { candidate, has_asks })),
        );
    }
    Ok(jobs)
}
