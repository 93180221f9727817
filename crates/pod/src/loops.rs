//! Loops: the same call that fails again and again. The model is told once, then the run ends.
//!
//! Here: the counting, in this life and this run alone. Elsewhere: what a run ends with (`run`).

use minke_prompts::Snippet;
use minke_record::{AlertLevel, AlertSource, OpenCall, Outcome, RunResult, SystemKind, Text};

use crate::pod::{Making, Pod};

/// After so many the model and the person are told …
const TOLD_AT: u32 = 3;
/// … and after so many the run ends.
const ENDS_AT: u32 = 10;

/// A call that failed, and how often in a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failing {
    tool: String,
    arguments: Text,
    times: u32,
}

impl Pod {
    /// A call of the model has its result.
    pub(crate) fn count_failure(&mut self, call: &OpenCall, outcome: &Outcome) {
        if call.by.is_some() {
            return;
        }
        if !matches!(outcome, Outcome::Failed | Outcome::Invalid | Outcome::Refused | Outcome::TimedOut) {
            self.life.failing = None;
            return;
        }
        let (tool, arguments) = (call.tool.clone(), call.arguments.clone());
        let before = self.life.failing.take().filter(|f| f.tool == tool && f.arguments == arguments);
        let times = before.map_or(1, |failing| failing.times.saturating_add(1));
        self.life.failing = Some(Failing { tool, arguments, times });
    }

    /// Before a request: a loop is told of, or ends the run. Gives whether the run goes on.
    pub(crate) fn breaks_loop(&mut self, m: &mut Making) -> bool {
        let Some(Failing { tool, times, .. }) = self.life.failing.clone() else { return true };
        if times >= ENDS_AT {
            let reason = format!("the same call of {tool} has failed {times} times in a row");
            self.end_run(m, RunResult::LimitReached, Some(reason));
            return false;
        }
        if times >= TOLD_AT && self.life.told_of_loop != Some(times) {
            self.life.told_of_loop = Some(times);
            if times == TOLD_AT {
                let message = format!("the same call of {tool} has failed {times} times in a row");
                self.alert(m, AlertLevel::Warn, AlertSource::Worker, message);
            }
            let (times, ends) = (times.to_string(), ENDS_AT.to_string());
            let values = [("tool", tool.as_str()), ("times", &times), ("ends", &ends)];
            self.tell_model(m, SystemKind::Notification, Snippet::Loop, &values);
        }
        true
    }
}
