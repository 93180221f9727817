//! The status of a pod: phase, activity and wait.

use minke_record::{Action, CallId, WaitingOn};

use crate::calls::CallProgress;
use crate::calls::table::CallTable;
use crate::engine::{PodEngine, RunningWork};
use crate::state::State;
use crate::step::{LiveEventKind, PodActivity, PodPhase, StatusReport, WaitStatus};
use crate::step_builder::StepBuilder;

/// A wait longer than this is shown as waiting and logged.
pub(crate) const VISIBLE_WAIT_MS: u64 = 60_000;

impl State {
    /// Returns the time of the next attempt if the wait is long enough to be shown.
    fn visible_retry_end(&self, activity: Option<PodActivity>) -> Option<u64> {
        let until = self.facts.run.as_ref()?.waits_until;
        until.filter(|_| activity == Some(PodActivity::Model))
    }
}

impl PodEngine {
    pub(crate) fn status(&self, state: &State) -> StatusReport {
        let phase = self.process.exit.phase(state);
        let mut status = StatusReport { phase, activity: None, detail: None, waiting: None };
        match phase {
            PodPhase::Idle => {}
            PodPhase::Paused => {
                let waiting = |until| WaitStatus { on: WaitingOn::Time, until: Some(until) };
                status.waiting = self.work.run.resume_at.map(waiting);
            }
            PodPhase::Compacting => status.activity = Some(PodActivity::Compacting),
            PodPhase::Stopping => status.activity = Some(PodActivity::Stopping),
            PodPhase::Running => {
                status.activity = Some(self.work.current_activity(state));
                status.detail = self.work.calls.activity_detail(state);
                if let Some(until) = state.visible_retry_end(status.activity) {
                    status.activity = Some(PodActivity::Time);
                    status.waiting = Some(WaitStatus { on: WaitingOn::Time, until: Some(until) });
                }
                if status.activity == Some(PodActivity::Child) {
                    let until = self
                        .work
                        .children
                        .pod_waits
                        .iter()
                        .map(crate::children::wait::PodWait::wait_deadline)
                        .min();
                    status.waiting = Some(WaitStatus { on: WaitingOn::Child, until });
                }
                if status.activity == Some(PodActivity::Ask) {
                    let until = state.facts.asks.iter().filter_map(|ask| ask.expires).min();
                    status.waiting = Some(WaitStatus { on: WaitingOn::Ask, until });
                }
            }
        }
        if status.activity.is_none() && !self.process.hooks.pending_inputs.is_empty() {
            // An input waits for hooks; show that the pod is not stuck.
            status.activity = Some(PodActivity::Hook);
        }
        status
    }

    /// Publishes the status if it has changed.
    pub(crate) fn publish_status(&mut self, step: &mut StepBuilder<'_>) {
        let status = self.status(step.state);
        if self.process.clients.published_status.as_ref() != Some(&status) {
            self.process.clients.published_status = Some(status.clone());
            step.publish_live(LiveEventKind::Status(status));
        }
    }
}

impl RunningWork {
    pub(crate) fn current_activity(&self, state: &State) -> PodActivity {
        let waits = |id: &CallId| self.children.pod_waits.iter().any(|wait| wait.is_for_call(id));
        let busy = self
            .calls
            .call_progress
            .iter()
            .any(|(id, work)| !matches!(work, CallProgress::Asking(_)) && !waits(id));
        if self.reply.reply_draft.is_some() {
            PodActivity::Model
        } else if !busy && !self.children.pod_waits.is_empty() && state.facts.asks.is_empty() {
            PodActivity::Child
        } else if busy || state.facts.asks.is_empty() {
            PodActivity::Tool
        } else {
            PodActivity::Ask
        }
    }
}

impl CallTable {
    /// Returns the running tool and its target, for example `Note NOTES.md`.
    pub(crate) fn activity_detail(&self, state: &State) -> Option<String> {
        let running = self.call_progress.iter().find_map(|(id, work)| match work {
            CallProgress::Running { action, .. } => Some((id, action)),
            CallProgress::Preparing(_)
            | CallProgress::AskingHooks(_)
            | CallProgress::Ready(_)
            | CallProgress::Asking(_)
            | CallProgress::Checking
            | CallProgress::PreparingAgain => None,
        });
        let (id, action) = running?;
        let tool = &state.open_call(id)?.tool;
        Some(match action_target(action) {
            Some(target) => format!("{tool} {target}"),
            None => tool.clone(),
        })
    }
}

fn action_target(action: &Action) -> Option<&str> {
    action
        .command
        .as_deref()
        .or(action.writes.first().map(String::as_str))
        .or(action.reads.first().map(String::as_str))
        .map(|target| target.lines().next().unwrap_or(target))
}
