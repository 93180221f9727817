//! What a pod says of itself: state, activity, and whether there is nothing left but to wait.

use minke_record::{Action, CallId, WaitingOn};

use crate::calls::Work;
use crate::pod::{Making, Pod};
use crate::step::{Activity, LiveWhat, Phase, Status, Waiting};

/// A wait longer than this is shown as waiting for a time, and stands in the log.
pub(crate) const VISIBLE_WAIT_MS: u64 = 60_000;

impl Pod {
    pub fn status(&self) -> Status {
        let phase = self.phase();
        let mut status = Status { phase, activity: None, detail: None, waiting: None };
        match phase {
            Phase::Idle => {}
            Phase::Paused => {
                let waiting = |until| Waiting { on: WaitingOn::Time, until: Some(until) };
                status.waiting = self.life.resume_at.map(waiting);
            }
            Phase::Compacting => status.activity = Some(Activity::Compacting),
            Phase::Stopping => status.activity = Some(Activity::Stopping),
            Phase::Running => {
                status.activity = Some(self.activity());
                status.detail = self.detail();
                if let Some(until) = self.long_retry(status.activity) {
                    status.activity = Some(Activity::Time);
                    status.waiting = Some(Waiting { on: WaitingOn::Time, until: Some(until) });
                }
                if status.activity == Some(Activity::Child) {
                    let until = self.life.waits.iter().map(crate::waits::Waits::deadline).min();
                    status.waiting = Some(Waiting { on: WaitingOn::Child, until });
                }
                if status.activity == Some(Activity::Ask) {
                    let until = self.state.facts.asks.iter().filter_map(|ask| ask.expires).min();
                    status.waiting = Some(Waiting { on: WaitingOn::Ask, until });
                }
            }
        }
        if status.activity.is_none() && !self.life.parked.is_empty() {
            // It has an input and is about to begin: nobody is to think that it stands still.
            status.activity = Some(Activity::Hook);
        }
        status
    }

    /// When the next attempt of a request is made, if that is so far away that the run waits visibly.
    fn long_retry(&self, activity: Option<Activity>) -> Option<u64> {
        let until = self.state.facts.run.as_ref()?.waits_until;
        until.filter(|_| activity == Some(Activity::Model))
    }

    fn activity(&self) -> Activity {
        let waits = |id: &CallId| self.life.waits.iter().any(|wait| wait.is(id));
        let busy = self.life.work.iter().any(|(id, work)| !matches!(work, Work::Asking(_)) && !waits(id));
        if self.life.reply.is_some() {
            Activity::Model
        } else if !busy && !self.life.waits.is_empty() && self.state.facts.asks.is_empty() {
            Activity::Child
        } else if busy || self.state.facts.asks.is_empty() {
            Activity::Tool
        } else {
            Activity::Ask
        }
    }

    /// `Note NOTES.md`: the tool that runs and what it touches.
    fn detail(&self) -> Option<String> {
        let running = self.life.work.iter().find_map(|(id, work)| match work {
            Work::Running { action, .. } => Some((id, action)),
            Work::Preparing(_)
            | Work::Hooked(_)
            | Work::Ready(_)
            | Work::Asking(_)
            | Work::Checking
            | Work::Again => None,
        });
        let (id, action) = running?;
        let tool = &self.state.call(id)?.tool;
        Some(match target(action) {
            Some(target) => format!("{tool} {target}"),
            None => tool.clone(),
        })
    }

    /// Tells the status if it is another than the one told last.
    pub(crate) fn tell_status(&mut self, m: &mut Making) {
        let status = self.status();
        if self.life.told.as_ref() != Some(&status) {
            self.life.told = Some(status.clone());
            self.live(m, LiveWhat::Status(status));
        }
    }
}

fn target(action: &Action) -> Option<&str> {
    action
        .command
        .as_deref()
        .or(action.writes.first().map(String::as_str))
        .or(action.reads.first().map(String::as_str))
        .map(|target| target.lines().next().unwrap_or(target))
}
