//! Firing: the log entries of a job that creates other jobs.
//!
//! First the id of the new session is logged, then the session is created, then its creation is logged. After
//! a crash the next process continues at the missing step, so each job is created once. Elsewhere: due times
//! (`schedule`), the effect of the entries on the job (`job_fold`), writing the entries and creating the
//! sessions (`host`).

use minke_record::{
    Actor, JobFacts, JobFiring, JobState, JobTrigger, Millis, MissedFirings, SessionId, StateChange,
    StateWord, WaitingOn,
};
use serde_json::Value;

use crate::mandate::Mandate;
use crate::schedule::{MAX_COUNTED_TIMES, ScheduleTimes, format_time};

/// A firing that is later than this is reported as late.
pub const LATE_AFTER_MS: u64 = 60_000;
/// Number of restarted jobs …
pub const STORM_ENDS: usize = 3;
/// … that end within this time before automatic restarts stop.
pub const STORM_WINDOW_MS: u64 = 60_000;

/// The inputs of a firing decision.
#[derive(Debug, Clone, Copy)]
pub struct FiringCheck {
    pub now: Millis,
    /// The previously created job has not ended.
    pub previous_running: bool,
    /// The id of the next job.
    pub id: SessionId,
}

/// Returns the change to log now for a job with a schedule. `created`: when the job was created.
pub fn due_change(
    job: &JobFacts,
    mandate: &Mandate,
    created: Millis,
    check: FiringCheck,
) -> Option<StateChange> {
    let schedule = mandate.schedule.as_ref()?;
    let FiringCheck { now, .. } = check;
    let due = job.until.unwrap_or(now);
    let waits = job.is_scheduled() && job.state == JobState::Waiting;
    if !waits || due > now || job.pending_firing().is_some() {
        return None;
    }
    let next = schedule.times(created).and_then(|times| match times.next_after(now) {
        Some(next) => Ok((times, next)),
        None => Err("its schedule has no more times".to_owned()),
    });
    Some(match next {
        Ok(_) if job.until.is_none() => waiting_change(next.map(|(_, next)| next).ok(), None),
        Ok((times, next)) => firing_change(job, &times, next, check),
        Err(why) => state_change(StateWord::Paused, format!("needs attention: {why}")),
    })
}

fn firing_change(job: &JobFacts, times: &ScheduleTimes, next: Millis, look: FiringCheck) -> StateChange {
    let first = job.until.unwrap_or(look.now);
    let count = times.count_between(first, look.now);
    let due = times.last_up_to(look.now).filter(|last| *last >= first && count > 0).unwrap_or(first);
    let missed = (count > 1).then(|| {
        let last = times.last_up_to(due.saturating_sub(1)).unwrap_or(first);
        MissedFirings { count: count - 1, first, last }
    });
    let mut reasons = Vec::new();
    if let Some(missed) = missed {
        reasons.push(describe_missed(missed));
    } else if look.now.saturating_sub(due) > LATE_AFTER_MS {
        reasons.push(format!("was due at {}, when no host was running", format_time(due)));
    }
    let last = job.makes.as_ref().and_then(|makes| makes.last.as_ref()?.session);
    let session = match last.filter(|_| look.previous_running) {
        Some(last) => {
            reasons.insert(0, format!("skipped at {}: s_{last} has not ended", format_time(due)));
            None
        }
        None => {
            reasons.insert(0, format!("fired as s_{}", look.id));
            Some(look.id)
        }
    };
    let firing = JobFiring { due, session, made: false, missed };
    StateChange { firing: Some(firing), ..waiting_change(Some(next), Some(reasons.join("; "))) }
}

fn describe_missed(missed: MissedFirings) -> String {
    let MissedFirings { count, first, last } = missed;
    let count = if count + 1 >= MAX_COUNTED_TIMES { format!("{count} or more") } else { count.to_string() };
    format!(
        "{count} before it were missed while no host was running, from {} to {}",
        format_time(first),
        format_time(last)
    )
}

/// Returns the first time of a schedule. An invalid schedule needs attention by a person.
pub fn first_time_change(mandate: &Mandate, created: Millis) -> Option<StateChange> {
    let schedule = mandate.schedule.as_ref()?;
    let next = schedule.times(created).map(|times| times.next_after(created));
    Some(match next {
        Ok(Some(next)) => waiting_change(Some(next), None),
        Ok(None) => state_change(StateWord::Paused, "needs attention: its schedule has no times".to_owned()),
        Err(why) => state_change(StateWord::Paused, format!("needs attention: {why}")),
    })
}

/// Resumes a job with a schedule: a waiting one fires now, a paused one waits for its next time.
pub fn resume_changes(job: &JobFacts, mandate: &Mandate, created: Millis, now: Millis) -> Vec<StateChange> {
    if job.state == JobState::Waiting {
        return vec![waiting_change(Some(now), Some("fires now on request".to_owned()))];
    }
    let at = mandate.schedule.as_ref().and_then(|schedule| schedule.times(created).ok()?.next_after(now));
    let working = state_change(StateWord::Working, "resumed".to_owned());
    // Without a next time it stays paused with a reason.
    match at {
        Some(at) => vec![working, waiting_change(Some(at), None)],
        None => vec![state_change(
            StateWord::Paused,
            "needs attention: its schedule has no more times".to_owned(),
        )],
    }
}

/// Returns the id of the fork that restarts an ended job.
pub fn restart_change(job: &JobFacts, mandate: &Mandate, check: FiringCheck) -> Option<StateChange> {
    let late = mandate.deadline_ms().is_some_and(|end| end <= check.now);
    if !job.needs_successor() || job.pending_firing().is_some() {
        return None;
    }
    let (session, why) = match late {
        // The deadline has passed, so a restart would be useless.
        true => (None, "not restarted: the deadline has passed".to_owned()),
        false => (Some(check.id), format!("restarted as s_{}", check.id)),
    };
    let firing = JobFiring { due: check.now, session, made: session.is_none(), missed: None };
    Some(StateChange { firing: Some(firing), ..state_change(StateWord::Queued, why) })
}

/// Records that the announced job was created.
pub fn created_change(job: &JobFacts) -> Option<StateChange> {
    let firing = JobFiring { made: true, ..job.pending_firing()?.clone() };
    let scheduled = job.is_scheduled().then(|| waiting_change(job.until, None));
    let change = scheduled.unwrap_or_else(|| state_change(StateWord::Queued, None));
    Some(StateChange { firing: Some(firing), ..change })
}

/// Returns the mandate of a job created by a schedule: without the schedule, and with the id of the scheduled
/// job.
pub fn created_job_mandate(mandate: &Value, of: SessionId) -> Value {
    let mut mandate = mandate.clone();
    if let Some(members) = mandate.as_object_mut() {
        members.shift_remove("schedule");
        members.insert("of".to_owned(), Value::String(format!("s_{of}")));
    }
    mandate
}

/// Returns whether too many jobs ended within a short time for another automatic restart. `ends`: the newest
/// first.
pub fn is_restart_storm(ends: &[Millis]) -> bool {
    match (ends.first(), ends.get(STORM_ENDS - 1)) {
        (Some(newest), Some(oldest)) => newest.saturating_sub(*oldest) <= STORM_WINDOW_MS,
        _ => false,
    }
}

fn waiting_change(until: Option<Millis>, reason: Option<String>) -> StateChange {
    StateChange { on: Some(WaitingOn::Time), until, ..state_change(StateWord::Waiting, reason) }
}

fn state_change(state: StateWord, reason: impl Into<Option<String>>) -> StateChange {
    let (on, until, reason, by) = (None, None, reason.into(), Some(Actor::from_minke()));
    StateChange { state, on, until, reason, by, firing: None }
}

/// Applies a firing to the job's record of created jobs.
pub(crate) fn record_firing(makes: &mut JobTrigger, firing: &JobFiring) {
    if firing.made && makes.last.as_ref().is_some_and(|last| last.session == firing.session && !last.made) {
        makes.count = makes.count.saturating_add(1);
    }
    // A skipped time keeps the previous job.
    if firing.session.is_some() || firing.made {
        makes.last = Some(firing.clone());
    }
}
