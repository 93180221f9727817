//! What the keeper knows of all jobs between two looks at everything.
//!
//! A look at everything costs as much as there are sessions; so places that become free are filled from the last one,
//! and only those at work are looked at in between. What is known can be old: a pod that is started for nothing finds
//! that in its log and rests.
//! Invariant: looking at everything never takes more than a third of the time (`many_jobs_are_done_by_few_looks`).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use minke_client::Home;
use minke_record::{Millis, SessionId};
use minke_thread::{Candidate, Need, Summary};
use tokio::time::Instant;

use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::lists::{from_index, some_from_index};
use crate::visits::now;

/// How often everything is looked at, while there are jobs that are not over …
const LOOK_OPEN: Duration = Duration::from_secs(1);
/// … and while there are none.
const LOOK_IDLE: Duration = Duration::from_secs(30);
/// Between two looks at everything, so many times what one took.
const REST: u32 = 2;
/// Jobs that are looked at together.
const JOBS: usize = 20_000;

/// All jobs that are not over.
#[derive(Debug, Default)]
pub(crate) struct Known {
    jobs: BTreeMap<SessionId, Job>,
    /// When everything was last looked at, and how long that took.
    looked: Option<(Instant, Duration)>,
    /// What was known then is known to be old.
    old: bool,
    /// When a session was last made or removed, as it was then.
    sessions: Option<SystemTime>,
    /// Others make sessions too, and nothing on this machine shows it.
    shared: bool,
}

#[derive(Debug)]
struct Job {
    candidate: Candidate,
    asks: bool,
}

impl Known {
    /// Looks at everything if it is time for that, else at those who are at work.
    pub(crate) async fn look(&mut self, engine: &Engine) -> Result<(), Fault> {
        let home = engine.home.clone();
        self.shared = home.store.is_shared();
        if self.looked.is_some() && Instant::now() < self.next_look() {
            let busy: Vec<SessionId> = self
                .jobs
                .values()
                .filter(|job| job.candidate.held)
                .map(|job| job.candidate.session)
                .collect();
            if busy.is_empty() {
                return Ok(());
            }
            let asked = busy.clone();
            let found = off(move || seen(&home, &some_from_index(&home, &asked)?.value)).await?;
            for session in busy {
                self.jobs.remove(&session);
            }
            self.jobs.extend(found);
            return Ok(());
        }
        let begun = Instant::now();
        // Before it is looked: what is made meanwhile is found by the next look.
        self.sessions = changed(&home);
        // Whatever fails, the next one comes no sooner.
        self.looked = Some((begun, Duration::ZERO));
        let engine = engine.clone();
        let jobs = off(move || {
            let open = from_index(&home, |index| index.jobs(true, JOBS))?.value;
            crate::firing::fire(&engine, &open, now());
            seen(&home, &open)
        })
        .await?;
        (self.jobs, self.old) = (jobs, false);
        self.looked = Some((Instant::now(), begun.elapsed()));
        Ok(())
    }

    /// When everything is to be looked at.
    pub(crate) fn next_look(&self) -> Instant {
        let Some((at, took)) = self.looked else { return Instant::now() };
        let usual = match (self.old, self.jobs.is_empty() && !self.shared) {
            (true, _) => Duration::ZERO,
            (false, true) => LOOK_IDLE,
            (false, false) => LOOK_OPEN,
        };
        at + usual.max(took * REST)
    }

    /// Something has changed that only a look at everything shows.
    pub(crate) fn all_is_old(&mut self) {
        self.old = true;
    }

    /// Whether a session was made or removed since everything was looked at.
    pub(crate) fn is_old(&mut self, engine: &Engine) -> bool {
        self.old |= self.sessions != changed(&engine.home);
        self.old
    }

    /// Its pod lives now.
    pub(crate) fn started(&mut self, session: SessionId) {
        if let Some(job) = self.jobs.get_mut(&session) {
            (job.candidate.held, job.candidate.need) = (true, Need::Work);
        }
    }

    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.jobs.contains_key(&session)
    }

    pub(crate) fn candidates(&self) -> Vec<Candidate> {
        self.jobs.values().map(|job| job.candidate.clone()).collect()
    }

    /// Whether something is due, or will be, that only a host does.
    pub(crate) fn due(&self) -> bool {
        self.jobs.values().any(|job| job.asks || job.candidate.need != Need::Nothing)
    }
}

/// When a session was last made or removed.
fn changed(home: &Home) -> Option<SystemTime> {
    std::fs::metadata(home.paths.sessions()).and_then(|found| found.modified()).ok()
}

/// What their logs say of those jobs that are not over.
fn seen(home: &Home, summaries: &[Summary]) -> Result<BTreeMap<SessionId, Job>, Fault> {
    let now: Millis = now();
    let mut jobs = BTreeMap::new();
    let held = crate::claims::held(home, summaries)?;
    for summary in summaries {
        let Some((session, held)) = summary.session.and_then(|id| Some((id, *held.get(&id)?))) else {
            continue;
        };
        let asks = summary.open_asks() > 0;
        jobs.extend(summary.candidate(held, now).map(|candidate| (session, Job { candidate, asks })));
    }
    Ok(jobs)
}
