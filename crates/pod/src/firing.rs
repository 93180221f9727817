//! A job that others come from, in its own log: the first time of its schedule, each firing, and the one that follows its end.
//!
//! Here: which of these entries a visit or a pod writes. Elsewhere: what is due and what each entry says (`thread::firing`), who
//! makes the other session (`host`).

use minke_record::{
    Actor, ErrorCode, History, JobState, SegmentReason, SessionId, StateChange, StateWord, Text, WaitingOn,
    limits,
};
use minke_thread::Mandate;
use minke_thread::firing::{self, Look};
use serde_json::Value;

use crate::pod::{Making, Pod};
use crate::run::Beginning;
use crate::step::Refusal;

/// Something that happens to a job that others come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fire {
    /// Another one is named by this id, if its time has come. `last_goes_on`: the one that was made last is not over.
    Due { id: SessionId, last_goes_on: bool },
    /// The one that was named stands.
    Made,
}

impl Pod {
    /// The job is one whose schedule makes others.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.state.facts.job.as_ref().is_some_and(minke_record::JobFacts::is_scheduled)
    }

    /// When a session with a schedule is made: its first time.
    pub(crate) fn begin_schedule(&mut self, m: &mut Making) {
        let begun = self.begun();
        if let Some(change) = self.mandate().and_then(|mandate| firing::first(&mandate, begun)) {
            self.note(m, change);
        }
    }

    /// What is due, in a visit.
    pub(crate) fn fire(&mut self, m: &mut Making, fire: Fire) {
        let (Some(job), Some(mandate)) = (self.state.facts.job.clone(), self.mandate()) else { return };
        let change = match fire {
            Fire::Made => firing::stands(&job),
            Fire::Due { id, last_goes_on } => {
                let look = Look { now: m.now, last_goes_on, id };
                firing::fire(&job, &mandate, self.begun(), look)
                    .or_else(|| firing::again(&job, &mandate, look))
            }
        };
        if let Some(change) = change {
            self.note(m, change);
            self.carry_far(m);
        }
    }

    /// `resume` of a job with a schedule.
    pub(crate) fn resume_schedule(&mut self, m: &mut Making, by: &Actor) {
        let (Some(job), Some(mandate)) = (self.state.facts.job.clone(), self.mandate()) else { return };
        for change in firing::resumed(&job, &mandate, self.begun(), m.now) {
            self.note(m, StateChange { by: Some(by.clone()), ..change });
        }
    }

    /// A schedule is given up, and not a run in its thread.
    pub(crate) fn give_schedule_up(&mut self, m: &mut Making, why: &str, by: &Actor) {
        let (state, on, until) = (StateWord::Abandoned, Some(WaitingOn::Time), None);
        let (reason, by) = (Some(why.to_owned()), Some(by.clone()));
        self.note(m, StateChange { state, on, until, reason, by, firing: None });
    }

    /// A job that is paused from its beginning.
    pub(crate) fn rest_at(&mut self, m: &mut Making, why: String) {
        let by = self.me();
        self.note_state(m, StateWord::Paused, why, &by);
    }

    /// A session on which no pod ever lived has no segment to carry on; after very many visits it gets one, so that nobody
    /// reads it from its beginning each time.
    fn carry_far(&mut self, m: &mut Making) {
        if self.state.segment.is_some() || self.state.since_carry < limits::CARRY_EVERY / 2 {
            return self.carry_if_due(m);
        }
        self.begin_segment(
            m,
            Beginning {
                reason: SegmentReason::Initial,
                system_prompt: Text::default(),
                tools: Vec::new(),
                config: Value::Null,
                history: History::Here(Vec::new()),
            },
        );
    }

    fn begun(&self) -> u64 {
        self.state.facts.about.as_ref().map_or(0, |about| about.created)
    }

    /// Whether its thread is the place for this wish, or why not.
    pub(crate) fn may_resume_in_visit(&self) -> Result<(), Refusal> {
        let paused = self.state.facts.job.as_ref().map(|job| job.state);
        match paused {
            Some(JobState::Paused | JobState::Waiting) if self.is_scheduled() => Ok(()),
            _ => Err(Refusal::new(ErrorCode::Conflict, "that needs a pod: send it to the session")),
        }
    }
}

/// Whether a mandate has a schedule: then the session begins with a time, and not with an input.
pub(crate) fn has_schedule(mandate: Option<&Value>) -> bool {
    Mandate::read(mandate).ok().flatten().is_some_and(|mandate| mandate.schedule.is_some())
}
