//! Loop guard: warns the model once when the same call fails repeatedly, then ends the run.
//!
//! Failures are counted in this process and this run only.

use minke_prompts::Snippet;
use minke_record::{AlertLevel, AlertSource, OpenCall, Outcome, RunResult, SystemKind, Text};

use crate::calls::table::CallTable;
use crate::engine::PodEngine;
use crate::step_builder::StepBuilder;

/// Number of failures after which model and person are warned.
const WARN_AT: u32 = 3;
/// Number of failures after which the run ends.
const END_AT: u32 = 10;

/// A failed call and the number of failures in a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RepeatedFailure {
    tool: String,
    arguments: Text,
    times: u32,
}

impl CallTable {
    /// Counts the failure of a model call.
    pub(crate) fn count_call_failure(&mut self, call: &OpenCall, outcome: &Outcome) {
        if call.by.is_some() {
            return;
        }
        if !matches!(outcome, Outcome::Failed | Outcome::Invalid | Outcome::Refused | Outcome::TimedOut) {
            self.repeated_failure = None;
            return;
        }
        let (tool, arguments) = (call.tool.clone(), call.arguments.clone());
        let before = self.repeated_failure.take().filter(|f| f.tool == tool && f.arguments == arguments);
        let times = before.map_or(1, |failing| failing.times.saturating_add(1));
        self.repeated_failure = Some(RepeatedFailure { tool, arguments, times });
    }
}

impl PodEngine {
    /// Before a request: warns about a loop or ends the run. Returns whether the run continues.
    pub(crate) fn pass_loop_guard(&mut self, step: &mut StepBuilder<'_>) -> bool {
        let Some(RepeatedFailure { tool, times, .. }) = self.work.calls.repeated_failure.clone() else {
            return true;
        };
        if times >= END_AT {
            let reason = format!("the same call of {tool} has failed {times} times in a row");
            self.end_run(step, RunResult::LimitReached, Some(reason));
            return false;
        }
        if times >= WARN_AT && self.work.calls.loop_warned_at != Some(times) {
            self.work.calls.loop_warned_at = Some(times);
            if times == WARN_AT {
                let message = format!("the same call of {tool} has failed {times} times in a row");
                step.append_alert(AlertLevel::Warn, AlertSource::Worker, message);
            }
            let (times, ends) = (times.to_string(), END_AT.to_string());
            let values = [("tool", tool.as_str()), ("times", &times), ("ends", &ends)];
            step.append_model_message(SystemKind::Notification, Snippet::Loop, &values);
        }
        true
    }
}
