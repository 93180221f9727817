//! Job plan: which jobs start now and when to check again. A pure function of all job states.
//!
//! Elsewhere: the state in a log (`job_fold`), starting the jobs (`host`).
//! Invariant: never more running jobs than the capacity allows, and no tree starves another
//! (`jobs_share_the_room`).

use std::collections::BTreeMap;

use minke_record::{JobState, Millis, SessionId, WaitingOn};

use crate::job::check_transition;
use crate::mandate::{Mandate, RestartPolicy};
use crate::summary::SessionSummary;

/// Maximum numbers of running jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobCapacity {
    pub running: usize,
    pub per_provider: usize,
    pub per_workspace: usize,
}

impl Default for JobCapacity {
    fn default() -> JobCapacity {
        JobCapacity { running: 16, per_provider: 16, per_workspace: 8 }
    }
}

/// A job that could be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCandidate {
    pub session: SessionId,
    pub need: JobNeed,
    /// A process holds the session.
    pub is_held: bool,
    /// When it entered its state.
    pub since: Millis,
    pub provider: String,
    pub workspace: String,
    /// The oldest ancestor session, or itself.
    pub tree: SessionId,
}

/// Why a job needs a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobNeed {
    /// It does not: the job is paused, waits for a person, or an idle pod holds it.
    Nothing,
    /// It runs if a pod holds it, else it must be resumed.
    Resume,
    /// It starts as soon as there is capacity.
    Start,
    /// It starts at this time.
    StartAt(Millis),
    /// At this time another job is created from it, without a pod.
    FireSchedule(Millis),
    /// Its deadline has passed: only its end must be logged, which needs no capacity.
    Finish,
}

/// The jobs to start and the next check.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobPlan {
    /// The jobs to start, in this order.
    pub start: Vec<SessionId>,
    /// When the next waiting job is due.
    pub next_check: Option<Millis>,
    /// Some jobs wait for capacity.
    pub has_waiting: bool,
}

impl SessionSummary {
    /// Returns the job as a candidate, unless it has ended.
    pub fn job_candidate(&self, is_held: bool, now: Millis) -> Option<JobCandidate> {
        let (job, session) = (self.job.as_ref()?, self.session?);
        if job.state.is_final() && !job.needs_successor() {
            return None;
        }
        // A damaged log may lack an end, so the job does not start.
        let damaged = self.damaged.is_some();
        let mandate = Mandate::from_value(self.origin.mandate.as_ref()).ok().flatten();
        let late = mandate.as_ref().and_then(Mandate::deadline_ms).is_some_and(|end| end <= now);
        let on = self.thread_wait().map(|waits| waits.on);
        let need = match job.state {
            _ if damaged => JobNeed::Nothing,
            _ if job.needs_successor() => JobNeed::FireSchedule(now),
            // Only a person can move a paused job.
            _ if late && !is_held && check_transition(job.state, JobState::Failed).is_ok() => JobNeed::Finish,
            JobState::Waiting if job.is_scheduled() => JobNeed::FireSchedule(job.until.unwrap_or(now)),
            _ if job.is_scheduled() => JobNeed::Nothing,
            JobState::Queued => JobNeed::Start,
            JobState::Waiting => job.until.map_or(JobNeed::Start, JobNeed::StartAt),
            // The answer to the ask wakes the pod.
            JobState::Running | JobState::Interrupted if on == Some(WaitingOn::Ask) => JobNeed::Nothing,
            JobState::Running => JobNeed::Resume,
            JobState::Interrupted => {
                let restart = mandate.map_or(RestartPolicy::Never, |mandate| mandate.restart);
                if restart == RestartPolicy::Never { JobNeed::Nothing } else { JobNeed::Resume }
            }
            _ => JobNeed::Nothing,
        };
        let tree = self.origin.parent.as_ref().map_or(session, |parent| parent.session);
        let provider = self.provider.clone().unwrap_or_default();
        let workspace = self.origin.workspace.clone();
        Some(JobCandidate { session, need, is_held, since: self.updated, provider, workspace, tree })
    }

    /// Returns the state of the job, including the state of the session lease.
    pub fn job_state(&self, held: bool) -> Option<JobState> {
        let state = self.job.as_ref()?.state;
        Some(match state {
            other if other.is_final() => other,
            _ if self.damaged.is_some() => JobState::Paused,
            JobState::Running if self.thread_wait().is_some() => JobState::Waiting,
            JobState::Running if !held => JobState::Interrupted,
            other => other,
        })
    }
}

/// Returns the jobs to start. Trees take turns: first the tree with the fewest running jobs, then the oldest
/// job.
pub fn plan_jobs(candidates: &[JobCandidate], capacity: JobCapacity, now: Millis) -> JobPlan {
    let mut used = UsedCapacity::default();
    // A held job that has not started is about to start.
    let working = |job: &&JobCandidate| job.is_held && matches!(job.need, JobNeed::Resume | JobNeed::Start);
    for running in candidates.iter().filter(working) {
        used.add_job(running);
    }
    let mut plan = JobPlan::default();
    let mut ready: Vec<&JobCandidate> = Vec::new();
    for job in candidates.iter().filter(|one| !one.is_held) {
        match job.need {
            JobNeed::Finish => plan.start.push(job.session),
            JobNeed::Start | JobNeed::Resume => ready.push(job),
            JobNeed::StartAt(time) if time <= now => ready.push(job),
            JobNeed::StartAt(time) => {
                plan.next_check = Some(plan.next_check.map_or(time, |next| next.min(time)))
            }
            // A due job that was not created yet is checked again soon.
            JobNeed::FireSchedule(time) if time > now => {
                plan.next_check = Some(plan.next_check.map_or(time, |next| next.min(time)));
            }
            JobNeed::FireSchedule(_) | JobNeed::Nothing => {}
        }
    }
    while let Some(at) = (0..ready.len())
        .filter(|at| ready.get(*at).is_some_and(|job| used.has_room_for(job, capacity)))
        .min_by_key(|at| ready.get(*at).map(|one| (used.jobs_in_tree(&one.tree), one.since, one.session)))
    {
        let one = ready.remove(at);
        used.add_job(one);
        plan.start.push(one.session);
    }
    plan.has_waiting = !ready.is_empty();
    plan
}

#[derive(Default)]
struct UsedCapacity<'c> {
    all: usize,
    providers: BTreeMap<&'c str, usize>,
    workspaces: BTreeMap<&'c str, usize>,
    trees: BTreeMap<SessionId, usize>,
}

impl<'c> UsedCapacity<'c> {
    fn add_job(&mut self, job: &'c JobCandidate) {
        self.all += 1;
        *self.providers.entry(&job.provider).or_default() += 1;
        *self.workspaces.entry(&job.workspace).or_default() += 1;
        *self.trees.entry(job.tree).or_default() += 1;
    }

    fn has_room_for(&self, one: &JobCandidate, capacity: JobCapacity) -> bool {
        let count = |counts: &BTreeMap<&str, usize>, key: &str| counts.get(key).copied().unwrap_or(0);
        self.all < capacity.running
            && count(&self.providers, &one.provider) < capacity.per_provider
            && count(&self.workspaces, &one.workspace) < capacity.per_workspace
    }

    fn jobs_in_tree(&self, tree: &SessionId) -> usize {
        self.trees.get(tree).copied().unwrap_or(0)
    }
}
