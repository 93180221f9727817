//! Schedules: the log entries of a job that creates other jobs, on a schedule or after each end.
//!
//! This module decides which entry an offline edit or a pod appends. Elsewhere: due times and entry contents
//! (`thread::schedule_firing`), creation of the other session (`host`).

use minke_record::{
    Actor, ErrorCode, History, JobState, SegmentReason, SessionId, StateChange, StateWord, Text, WaitingOn,
    limits,
};
use minke_thread::Mandate;
use minke_thread::schedule_firing::{self, FiringCheck};
use serde_json::Value;

use crate::run::SegmentInit;
use crate::state::State;
use crate::step::CommandRefusal;
use crate::step_builder::StepBuilder;

/// An event of a job that creates other jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScheduleEvent {
    /// A time may be due: the next job gets this id. `previous_running`: the previous job has not ended.
    Due { id: SessionId, previous_running: bool },
    /// The announced job was created.
    Created,
}

impl State {
    /// Returns whether this job has a schedule.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.facts.job.as_ref().is_some_and(minke_record::JobFacts::is_scheduled)
    }

    fn created_at(&self) -> u64 {
        self.facts.about.as_ref().map_or(0, |about| about.created)
    }

    /// Returns an error unless the job can be resumed without a pod.
    pub(crate) fn check_offline_resume(&self) -> Result<(), CommandRefusal> {
        let paused = self.facts.job.as_ref().map(|job| job.state);
        match paused {
            Some(JobState::Paused | JobState::Waiting) if self.is_scheduled() => Ok(()),
            _ => Err(CommandRefusal::new(
                ErrorCode::Conflict,
                "this needs a running pod; send it to the session",
            )),
        }
    }
}

impl StepBuilder<'_> {
    /// Appends the first time of the schedule to a new session.
    pub(crate) fn start_schedule(&mut self) {
        let begun = self.state.created_at();
        if let Some(change) =
            self.state.job_mandate().and_then(|mandate| schedule_firing::first_time_change(&mandate, begun))
        {
            self.append_entry(change);
        }
    }

    /// Appends a due event in an offline edit.
    pub(crate) fn apply_schedule_event(&mut self, event: ScheduleEvent) {
        let (Some(job), Some(mandate)) = (self.state.facts.job.clone(), self.state.job_mandate()) else {
            return;
        };
        let change = match event {
            ScheduleEvent::Created => schedule_firing::created_change(&job),
            ScheduleEvent::Due { id, previous_running } => {
                let check = FiringCheck { now: self.now, previous_running, id };
                schedule_firing::due_change(&job, &mandate, self.state.created_at(), check)
                    .or_else(|| schedule_firing::restart_change(&job, &mandate, check))
            }
        };
        if let Some(change) = change {
            self.append_entry(change);
            self.carry_or_start_segment();
        }
    }

    /// Handles `resume` of a job with a schedule.
    pub(crate) fn resume_schedule(&mut self, by: &Actor) {
        let (Some(job), Some(mandate)) = (self.state.facts.job.clone(), self.state.job_mandate()) else {
            return;
        };
        for change in schedule_firing::resume_changes(&job, &mandate, self.state.created_at(), self.now) {
            self.append_entry(StateChange { by: Some(by.clone()), ..change });
        }
    }

    /// Abandons the schedule, not a run in its thread.
    pub(crate) fn abandon_schedule(&mut self, why: &str, by: &Actor) {
        let (state, on, until) = (StateWord::Abandoned, Some(WaitingOn::Time), None);
        let (reason, by) = (Some(why.to_owned()), Some(by.clone()));
        self.append_entry(StateChange { state, on, until, reason, by, firing: None });
    }

    /// Pauses a job before its first run.
    pub(crate) fn pause_from_start(&mut self, why: String) {
        let by = Actor::from_minke();
        self.append_state_change(StateWord::Paused, why, &by);
    }

    /// A session on which no pod ever ran has no segment to carry. After many offline edits it gets one, so
    /// that readers need not start at its beginning.
    fn carry_or_start_segment(&mut self) {
        if self.state.segment.is_some() || self.state.entries_since_carry < limits::CARRY_EVERY / 2 {
            return self.carry_if_due();
        }
        self.start_segment(SegmentInit {
            reason: SegmentReason::Initial,
            system_prompt: Text::default(),
            tools: Vec::new(),
            config: Value::Null,
            history: History::Here(Vec::new()),
        });
    }
}

/// Returns whether a mandate has a schedule. Such a session starts with a time instead of an input.
pub(crate) fn has_schedule(mandate: Option<&Value>) -> bool {
    Mandate::from_value(mandate).ok().flatten().is_some_and(|mandate| mandate.schedule.is_some())
}
