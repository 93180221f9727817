//! Jobs that others come from: what is written to their logs when another one is to be made, and when it stands.
//!
//! The new session's id is written first, then the session is made with it, then that it stands: whoever is killed between
//! any two of these, the next one sees what is left to do, and each is made once. Elsewhere: at which times (`schedule`), what
//! the entries mean for the job (`work`), who writes them and makes the sessions (`host`).

use minke_record::{
    Actor, Firing, JobFacts, JobState, Makes, Millis, Missed, SessionId, StateChange, StateWord, WaitingOn,
};
use serde_json::Value;

use crate::mandate::Mandate;
use crate::schedule::{COUNTED, Times, shown};

/// A firing that comes this much later than it was due is said to be late.
pub const LATE_MS: u64 = 60_000;
/// So many ends of jobs that are begun again and again …
pub const STORM: usize = 3;
/// … within this time are too many: the next one waits for somebody to look.
pub const STORM_MS: u64 = 60_000;

/// What is known at the moment when somebody looks.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    pub now: Millis,
    /// The one that was made last is not over.
    pub last_goes_on: bool,
    /// For the one that may be made.
    pub id: SessionId,
}

/// What is to be written to the log of a job with a schedule now, if anything is. `begun`: when the job was made.
pub fn fire(job: &JobFacts, mandate: &Mandate, begun: Millis, look: Look) -> Option<StateChange> {
    let schedule = mandate.schedule.as_ref()?;
    let Look { now, .. } = look;
    let due = job.until.unwrap_or(now);
    let waits = job.is_scheduled() && job.state == JobState::Waiting;
    if !waits || due > now || job.to_be_made().is_some() {
        return None;
    }
    let next = schedule.times(begun).and_then(|times| match times.after(now) {
        Some(next) => Ok((times, next)),
        None => Err("its schedule has no more times".to_owned()),
    });
    Some(match next {
        Ok(_) if job.until.is_none() => waiting(next.map(|(_, next)| next).ok(), None),
        Ok((times, next)) => fired(job, &times, next, look),
        Err(why) => state(StateWord::Paused, format!("needs attention: {why}")),
    })
}

fn fired(job: &JobFacts, times: &Times, next: Millis, look: Look) -> StateChange {
    let first = job.until.unwrap_or(look.now);
    let count = times.count(first, look.now);
    let due = times.up_to(look.now).filter(|last| *last >= first && count > 0).unwrap_or(first);
    let missed = (count > 1).then(|| {
        let last = times.up_to(due.saturating_sub(1)).unwrap_or(first);
        Missed { count: count - 1, first, last }
    });
    let mut said = Vec::new();
    if let Some(missed) = missed {
        said.push(named(missed));
    } else if look.now.saturating_sub(due) > LATE_MS {
        said.push(format!("was due at {}, when nobody was there", shown(due)));
    }
    let last = job.makes.as_ref().and_then(|makes| makes.last.as_ref()?.session);
    let session = match last.filter(|_| look.last_goes_on) {
        Some(last) => {
            said.insert(0, format!("skipped at {}: s_{last} is not over", shown(due)));
            None
        }
        None => {
            said.insert(0, format!("fired as s_{}", look.id));
            Some(look.id)
        }
    };
    let firing = Firing { due, session, made: false, missed };
    StateChange { firing: Some(firing), ..waiting(Some(next), Some(said.join("; "))) }
}

fn named(missed: Missed) -> String {
    let Missed { count, first, last } = missed;
    let count = if count + 1 >= COUNTED { format!("{count} or more") } else { count.to_string() };
    format!("{count} before it were missed while nobody was there, from {} to {}", shown(first), shown(last))
}

/// The first time of a job with a schedule; a schedule that cannot be kept is for somebody to look at.
pub fn first(mandate: &Mandate, begun: Millis) -> Option<StateChange> {
    let schedule = mandate.schedule.as_ref()?;
    let next = schedule.times(begun).map(|times| times.after(begun));
    Some(match next {
        Ok(Some(next)) => waiting(Some(next), None),
        Ok(None) => state(StateWord::Paused, "needs attention: its schedule has no times".to_owned()),
        Err(why) => state(StateWord::Paused, format!("needs attention: {why}")),
    })
}

/// A job with a schedule goes on: one that waits fires now, one that was paused waits for the next time.
pub fn resumed(job: &JobFacts, mandate: &Mandate, begun: Millis, now: Millis) -> Vec<StateChange> {
    if job.state == JobState::Waiting {
        return vec![waiting(Some(now), Some("fires now, because somebody wants that".to_owned()))];
    }
    let at = mandate.schedule.as_ref().and_then(|schedule| schedule.times(begun).ok()?.after(now));
    let working = state(StateWord::Working, "resumed".to_owned());
    // Without a time it stays paused, and says why.
    match at {
        Some(at) => vec![working, waiting(Some(at), None)],
        None => vec![state(StateWord::Paused, "needs attention: its schedule has no more times".to_owned())],
    }
}

/// One that has ended and is to be begun again: the id of the fork.
pub fn again(job: &JobFacts, mandate: &Mandate, look: Look) -> Option<StateChange> {
    let late = mandate.deadline().is_some_and(|end| end <= look.now);
    if !job.owes_another() || job.to_be_made().is_some() {
        return None;
    }
    let (session, why) = match late {
        // There is nothing that another one could still do.
        true => (None, "not begun again: the deadline has passed".to_owned()),
        false => (Some(look.id), format!("begun again as s_{}", look.id)),
    };
    let firing = Firing { due: look.now, session, made: session.is_none(), missed: None };
    Some(StateChange { firing: Some(firing), ..state(StateWord::Queued, why) })
}

/// The one that was to be made stands.
pub fn stands(job: &JobFacts) -> Option<StateChange> {
    let firing = Firing { made: true, ..job.to_be_made()?.clone() };
    let scheduled = job.is_scheduled().then(|| waiting(job.until, None));
    let change = scheduled.unwrap_or_else(|| state(StateWord::Queued, None));
    Some(StateChange { firing: Some(firing), ..change })
}

/// The mandate of a job that a schedule makes: it lacks the schedule and names whose it was.
pub fn made_from(mandate: &Value, of: SessionId) -> Value {
    let mut mandate = mandate.clone();
    if let Some(members) = mandate.as_object_mut() {
        members.shift_remove("schedule");
        members.insert("of".to_owned(), Value::String(format!("s_{of}")));
    }
    mandate
}

/// Whether so many ended within so short a time that the next one is not begun by itself. `ends`: the newest first.
pub fn storm(ends: &[Millis]) -> bool {
    match (ends.first(), ends.get(STORM - 1)) {
        (Some(newest), Some(oldest)) => newest.saturating_sub(*oldest) <= STORM_MS,
        _ => false,
    }
}

fn waiting(until: Option<Millis>, reason: Option<String>) -> StateChange {
    StateChange { on: Some(WaitingOn::Time), until, ..state(StateWord::Waiting, reason) }
}

fn state(state: StateWord, reason: impl Into<Option<String>>) -> StateChange {
    let (on, until, reason, by) = (None, None, reason.into(), Some(Actor::minke()));
    StateChange { state, on, until, reason, by, firing: None }
}

/// What an entry says of the jobs that come from one.
pub(crate) fn noted(makes: &mut Makes, firing: &Firing) {
    if firing.made && makes.last.as_ref().is_some_and(|last| last.session == firing.session && !last.made) {
        makes.count = makes.count.saturating_add(1);
    }
    // A time that was skipped leaves the last one the last.
    if firing.session.is_some() || firing.made {
        makes.last = Some(firing.clone());
    }
}
