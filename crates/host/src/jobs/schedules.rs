//! Schedules: creates jobs from jobs with a schedule, and restarts jobs after each end.
//!
//! The id of the new session is logged in the old one, then the session is created with it, then its creation is
//! logged. So the next host continues a firing after this one was killed at any point, and each job is created once.
//! Elsewhere: the firing times and entries (`thread::firing`), the scan that finds all open jobs (`job_cache`).
//! Invariant: each logged id has one session, and each scheduled time at most one id
//! (`every_firing_is_made_once_whoever_is_killed`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use minke_launch::{
    DeliverError, ReferenceScope, SetupError, edit_step, new_ids, now_millis, random_seed, write_offline_edit,
};
use minke_pod::{InitialTask, NewSession, OfflineEdit, ScheduleEvent, State, StepSeed, new_session};
use minke_record::{Actor, ErrorCode, JobFacts, JobState, Millis, PodName, SessionId, TriggerCondition};
use minke_session::StoreError;
use minke_thread::schedule_firing::{created_job_mandate, is_restart_storm};
use minke_thread::{Mandate, SessionSummary};

use crate::engine::Engine;
use crate::error::ApiError;
use crate::stderr::report;
use crate::threads::log::{self, session_exists};

/// The delay after a failed firing, doubled up to the maximum.
const RETRY_DELAY_MS: u64 = 1_000;
const MAX_RETRY_DELAY_MS: u64 = 60_000;

/// Failed firings, by the scheduled job.
#[derive(Debug, Default)]
pub(crate) struct FailedFirings(Mutex<BTreeMap<SessionId, FailedFiring>>);

#[derive(Debug, Clone)]
struct FailedFiring {
    delay_ms: u64,
    retry_at: Millis,
    error: String,
}

/// Fires all due jobs. `open`: every job that is unfinished or has a next firing.
pub(crate) fn fire_due_jobs(engine: &Engine, open: &[SessionSummary], at: Millis) {
    engine.failed_firings.retain_open(open);
    for summary in open {
        let (Some(job), Some(session)) = (&summary.job, summary.session) else { continue };
        // Do not fire a job with a damaged log.
        if summary.damaged.is_some() || !is_due(job, at) || engine.failed_firings.is_waiting(session, at) {
            continue;
        }
        match fire_job(engine, session, job, open) {
            // The thread is in use, or deleted: later, or never.
            Ok(()) | Err(FireError::SessionHeld | FireError::SessionGone) => {
                engine.failed_firings.forget_job(session)
            }
            Err(FireError::Api(error)) => engine.failed_firings.record_failure(session, &error, at),
        }
    }
}

fn is_due(job: &JobFacts, now: Millis) -> bool {
    let fires =
        job.is_scheduled() && job.state == JobState::Waiting && job.until.is_none_or(|until| until <= now);
    fires || job.needs_successor() || job.pending_firing().is_some()
}

enum FireError {
    SessionHeld,
    SessionGone,
    Api(ApiError),
}

fn fire_job(
    engine: &Engine,
    session: SessionId,
    job: &JobFacts,
    open: &[SessionSummary],
) -> Result<(), FireError> {
    if job.pending_firing().is_none() {
        let last = job.makes.as_ref().and_then(|makes| makes.last.as_ref()?.session);
        let goes_on = |summary: &SessionSummary| {
            summary.session == last && summary.job.as_ref().is_some_and(|job| !job.state.is_final())
        };
        let previous_running = last.is_some() && open.iter().any(goes_on);
        let id = SessionId(new_ids().next_uuid());
        append_fire(engine, session, ScheduleEvent::Due { id, previous_running })?;
    }
    // The current log decides, regardless of which process wrote it.
    let state = log::load_state(&engine.home, session)?;
    let Some(job) = &state.facts.job else { return Ok(()) };
    let (Some(id), Some(makes)) = (job.pending_firing().and_then(|firing| firing.session), &job.makes) else {
        return Ok(());
    };
    if !session_exists(&engine.home, id)? {
        match makes.when {
            TriggerCondition::OnSchedule => create_scheduled_job(engine, session, id, &state)?,
            TriggerCondition::AfterEnd => restart_after_end(engine, session, id, &state)?,
            TriggerCondition::Unknown => return Ok(()),
        }
    }
    append_fire(engine, session, ScheduleEvent::Created)?;
    // The next scan finds it and starts it if the limits allow.
    engine.wake_up();
    Ok(())
}

fn append_fire(engine: &Engine, session: SessionId, fire: ScheduleEvent) -> Result<(), FireError> {
    match write_offline_edit(
        &engine.home,
        session,
        &*edit_step(OfflineEdit::Schedule(fire), Actor::from_minke()),
    ) {
        Ok(()) => Ok(()),
        Err(DeliverError::Store(StoreError::Held { .. })) => Err(FireError::SessionHeld),
        Err(DeliverError::Store(StoreError::NotFound { .. })) => Err(FireError::SessionGone),
        Err(other) => Err(FireError::Api(other.into())),
    }
}

/// Creates a session with the same manifest, whose mandate lacks the schedule.
fn create_scheduled_job(
    engine: &Engine,
    of: SessionId,
    id: SessionId,
    state: &State,
) -> Result<(), ApiError> {
    let start = log::read_session_start(&engine.home, of)?;
    let broken = |why: String| ApiError::new(ErrorCode::Internal, why);
    let mandate = Mandate::from_value(start.mandate.as_ref()).map_err(broken)?;
    let (Some(mandate), Some(session_draft)) = (mandate, &start.mandate) else { return Ok(()) };
    let segments = ReferenceScope::for_state(state, &engine.launch_env)
        .map_err(SetupError::from)?
        .parse_text(&mandate.objective);
    // Configuration changes since then apply to jobs created from now on.
    let manifest = if state.facts.config.is_empty() { start.manifest } else { state.manifest.to_value() };
    let new = NewSession {
        session: id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: state.facts.name.clone().unwrap_or_else(|| PodName::from_text("job")),
        created_by: Actor::from_job(of),
        cwd: start.cwd,
        workspace: start.workspace,
        git: start.git,
        manifest,
        scope: start.scope,
        mandate: Some(created_job_mandate(session_draft, of)),
        metadata: start.metadata,
        parent: None,
        history: Vec::new(),
        task: Some(InitialTask { segments, op_id: None, from: Actor::from_job(id) }),
    };
    let written = new_session(StepSeed { now: now_millis(), seed: random_seed() }, new);
    match engine.home.store.create(id, written.entries, written.blobs) {
        Ok(writer) => drop(writer),
        Err(StoreError::Exists { .. }) => {}
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

/// Restarts a job after its end, as a fork of its thread. After too many ends in a short time the fork starts paused.
fn restart_after_end(
    engine: &Engine,
    session: SessionId,
    id: SessionId,
    state: &State,
) -> Result<(), ApiError> {
    let mandate = log::read_session_start(&engine.home, session)?.mandate;
    let pause_reason = is_restart_storm(&end_times(engine, session, state)?).then(|| {
        "needs attention: it ended three times within a minute; check its log, then run `minke job resume`"
            .to_owned()
    });
    let again = crate::threads::ForkOptions { id: Some(id), mandate, pause_reason, ..Default::default() };
    match engine.fork_session(session, None, again, Actor::from_job(session)) {
        Ok(_) => Ok(()),
        Err(_) if session_exists(&engine.home, id)? => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the end times of this job and of the jobs that it was restarted from, newest first.
fn end_times(engine: &Engine, session: SessionId, state: &State) -> Result<Vec<Millis>, ApiError> {
    let ended =
        |job: &JobFacts| job.history.iter().rev().find(|item| item.state.is_final()).map(|item| item.at);
    let mut ends: Vec<Millis> = state.facts.job.as_ref().and_then(ended).into_iter().collect();
    let mut from = state.facts.about.as_ref().and_then(|about| about.from.as_ref()).map(|from| from.session);
    let mut child = session;
    while let Some(parent) = from.filter(|_| ends.len() < minke_thread::schedule_firing::STORM_ENDS) {
        if !session_exists(&engine.home, parent)? {
            break;
        }
        let state = log::load_state(&engine.home, parent)?;
        let Some(job) = &state.facts.job else { break };
        // A restart by a user resets the count.
        let last = job.makes.as_ref().and_then(|makes| makes.last.as_ref()?.session);
        if last != Some(child) {
            break;
        }
        ends.extend(ended(job));
        from = state.facts.about.as_ref().and_then(|about| about.from.as_ref()).map(|from| from.session);
        child = parent;
    }
    Ok(ends)
}

impl FailedFirings {
    fn retain_open(&self, open: &[SessionSummary]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session, _| open.iter().any(|summary| summary.session == Some(*session)));
    }

    fn is_waiting(&self, session: SessionId, now: Millis) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&session).is_some_and(|failed| failed.retry_at > now)
    }

    fn forget_job(&self, session: SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// Reports a failure once, not at every attempt.
    fn record_failure(&self, session: SessionId, error: &ApiError, now: Millis) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&session);
        if before.is_none_or(|before| before.error != error.message) {
            report!("could not create a job from s_{session}: {}", error.message);
        }
        let delay_ms =
            before.map_or(RETRY_DELAY_MS, |before| before.delay_ms.saturating_mul(2).min(MAX_RETRY_DELAY_MS));
        let retry_at = now.saturating_add(delay_ms);
        all.insert(session, FailedFiring { delay_ms, retry_at, error: error.message.clone() });
    }
}

impl From<ApiError> for FireError {
    fn from(fault: ApiError) -> FireError {
        FireError::Api(fault)
    }
}
