//! Firing: other jobs are made from those that have a schedule, or are begun again after every end.
//!
//! The id of the new session is written to the old one's log, then the session is made with it, then that it stands. So the
//! next host knows what is left to do, whenever this one was killed, and makes each of them once. Elsewhere: when one is due
//! and what is written (`thread::firing`), the keeper's look that brings all open jobs here (`known`).
//! Invariant: for every id that was written there is one session, and for every time one id at most
//! (`every_firing_is_made_once_whoever_is_killed`).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use minke_client::{DeliverError, visit};
use minke_pod::{Fire, Moment, NewSession, State, Task, Visit, new_session};
use minke_record::{Actor, ErrorCode, JobFacts, JobState, MakesWhen, Millis, PodName, SessionId};
use minke_session::StoreError;
use minke_thread::firing::{made_from, storm};
use minke_thread::{Mandate, Summary};

use crate::engine::Engine;
use crate::fault::Fault;
use crate::look::{self, exists};
use crate::stderr::report;
use crate::visits::{ids, now, seed, step};

/// The wait after a firing that failed, doubled up to the other.
const AGAIN_MS: u64 = 1_000;
const AGAIN_MOST_MS: u64 = 60_000;

/// Jobs of which none could be made, by what they are made from.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<BTreeMap<SessionId, Failed>>);

#[derive(Debug, Clone)]
struct Failed {
    wait: u64,
    again: Millis,
    why: String,
}

/// Makes what is due. `open`: every job that is not over, or owes another one.
pub(crate) fn fire(engine: &Engine, open: &[Summary], at: Millis) {
    engine.failing.only(open);
    for summary in open {
        let (Some(job), Some(session)) = (&summary.job, summary.session) else { continue };
        // What is not known to be so is not done.
        if summary.damaged.is_some() || !is_due(job, at) || engine.failing.rests(session, at) {
            continue;
        }
        match one(engine, session, job, open) {
            // Somebody talks in its thread, or it is gone: later, or never.
            Ok(()) | Err(Failure::Held | Failure::Gone) => engine.failing.forget(session),
            Err(Failure::Fault(fault)) => engine.failing.failed(session, &fault, at),
        }
    }
}

fn is_due(job: &JobFacts, now: Millis) -> bool {
    let fires =
        job.is_scheduled() && job.state == JobState::Waiting && job.until.is_none_or(|until| until <= now);
    fires || job.owes_another() || job.to_be_made().is_some()
}

enum Failure {
    Held,
    Gone,
    Fault(Fault),
}

fn one(engine: &Engine, session: SessionId, job: &JobFacts, open: &[Summary]) -> Result<(), Failure> {
    if job.to_be_made().is_none() {
        let last = job.makes.as_ref().and_then(|makes| makes.last.as_ref()?.session);
        let goes_on = |summary: &Summary| {
            summary.session == last && summary.job.as_ref().is_some_and(|job| !job.state.is_final())
        };
        let last_goes_on = last.is_some() && open.iter().any(goes_on);
        let id = SessionId(ids().next_uuid());
        write(engine, session, Fire::Due { id, last_goes_on })?;
    }
    // What the log says now counts, whoever wrote it.
    let state = look::state(&engine.home, session)?;
    let Some(job) = &state.facts.job else { return Ok(()) };
    let (Some(id), Some(makes)) = (job.to_be_made().and_then(|firing| firing.session), &job.makes) else {
        return Ok(());
    };
    if !exists(&engine.home, id)? {
        match makes.when {
            MakesWhen::OnSchedule => on_schedule(engine, session, id, &state)?,
            MakesWhen::AfterEnd => after_end(engine, session, id, &state)?,
            MakesWhen::Unknown => return Ok(()),
        }
    }
    write(engine, session, Fire::Made)?;
    // It is looked at in a moment, and begun if there is room.
    engine.nudge();
    Ok(())
}

fn write(engine: &Engine, session: SessionId, fire: Fire) -> Result<(), Failure> {
    match visit(&engine.home, session, &*step(Visit::Fire(fire), Actor::minke())) {
        Ok(()) => Ok(()),
        Err(DeliverError::Store(StoreError::Held { .. })) => Err(Failure::Held),
        Err(DeliverError::Store(StoreError::NotFound { .. })) => Err(Failure::Gone),
        Err(other) => Err(Failure::Fault(other.into())),
    }
}

/// A new session with the same manifest, whose mandate lacks the schedule.
fn on_schedule(engine: &Engine, of: SessionId, id: SessionId, state: &State) -> Result<(), Fault> {
    let start = look::start(&engine.home, of)?;
    let broken = |why: String| Fault::new(ErrorCode::Internal, why);
    let mandate = Mandate::read(start.mandate.as_ref()).map_err(broken)?;
    let (Some(mandate), Some(written)) = (mandate, &start.mandate) else { return Ok(()) };
    let segments = engine.maker.said(&mandate.objective, state)?;
    // What was changed since counts for those that are made from now on.
    let manifest = if state.facts.config.is_empty() { start.manifest } else { state.manifest.to_value() };
    let new = NewSession {
        session: id,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        name: state.facts.name.clone().unwrap_or_else(|| PodName::from_any("job")),
        created_by: Actor::job(of),
        cwd: start.cwd,
        workspace: start.workspace,
        git: start.git,
        manifest,
        scope: start.scope,
        mandate: Some(made_from(written, of)),
        metadata: start.metadata,
        parent: None,
        history: Vec::new(),
        task: Some(Task { segments, op_id: None, from: Actor::job(id) }),
    };
    let written = new_session(Moment { now: now(), seed: seed() }, new);
    match engine.home.store.create(id, written.entries, written.blobs) {
        Ok(writer) => drop(writer),
        Err(StoreError::Exists { .. }) => {}
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

/// Once more after its end, as a fork of its thread. Of too many ends in too short a time the fork waits for somebody.
fn after_end(engine: &Engine, session: SessionId, id: SessionId, state: &State) -> Result<(), Fault> {
    let mandate = look::start(&engine.home, session)?.mandate;
    let rests = storm(&ends(engine, session, state)?).then(|| {
        "needs attention: it ended three times within a minute; look at its log, then `minke job resume`"
            .to_owned()
    });
    let again = crate::threads::Again { id: Some(id), mandate, rests, ..Default::default() };
    match engine.part(session, None, again, Actor::job(session)) {
        Ok(_) => Ok(()),
        Err(_) if exists(&engine.home, id)? => Ok(()),
        Err(fault) => Err(fault),
    }
}

/// When this job and those that it was begun again from have ended, the newest first.
fn ends(engine: &Engine, session: SessionId, state: &State) -> Result<Vec<Millis>, Fault> {
    let ended =
        |job: &JobFacts| job.history.iter().rev().find(|item| item.state.is_final()).map(|item| item.at);
    let mut ends: Vec<Millis> = state.facts.job.as_ref().and_then(ended).into_iter().collect();
    let mut from = state.facts.about.as_ref().and_then(|about| about.from.as_ref()).map(|from| from.session);
    let mut child = session;
    while let Some(parent) = from.filter(|_| ends.len() < minke_thread::firing::STORM) {
        if !exists(&engine.home, parent)? {
            break;
        }
        let state = look::state(&engine.home, parent)?;
        let Some(job) = &state.facts.job else { break };
        // Somebody who begins one again by hand has looked.
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

impl Failing {
    fn only(&self, open: &[Summary]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|session, _| open.iter().any(|summary| summary.session == Some(*session)));
    }

    fn rests(&self, session: SessionId, now: Millis) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&session).is_some_and(|failed| failed.again > now)
    }

    fn forget(&self, session: SessionId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
    }

    /// Said once, not every time.
    fn failed(&self, session: SessionId, fault: &Fault, now: Millis) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&session);
        if before.is_none_or(|before| before.why != fault.message) {
            report!("no job could be made from s_{session}: {}", fault.message);
        }
        let wait = before.map_or(AGAIN_MS, |before| before.wait.saturating_mul(2).min(AGAIN_MOST_MS));
        let again = now.saturating_add(wait);
        all.insert(session, Failed { wait, again, why: fault.message.clone() });
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}
