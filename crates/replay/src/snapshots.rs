//! Snapshots: reconstructs the results of captures from the log.

use minke_pod::InputKind;
use minke_record::{CallId, RunId, Snapshot, SnapshotFile, SnapshotWhen};

use crate::ReplayError;
use crate::causes::{CauseFinder, FeedPlan};
use crate::machine::PodMachine;
use crate::timeline::LogStep;

/// The start of the alert about a failed capture. Must match the alert of `pod` and of older logs.
const CAPTURE_FAILED_PREFIX: &str = "what commands change here cannot be undone: ";

impl CauseFinder<'_> {
    /// Plans for a step that starts with a snapshot.
    pub(crate) fn plan_capture(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        snapshot: &Snapshot,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let files = snapshot.files.inline().cloned().unwrap_or_default();
        if let Some(run) = snapshot.of_run {
            let run = RunId(self.pairs.local_id(run.0));
            let (when, captured) = (SnapshotWhen::After, Ok(files));
            return Ok(vec![vec![InputKind::Captured { run, when, captured }.into()]]);
        }
        self.plan_before_commands(machine, step, Ok(files))
    }

    /// Plans for an alert about a failed capture.
    pub(crate) fn plan_capture_failure(
        &self,
        mind: &PodMachine,
        step: LogStep<'_>,
        message: &str,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        match message.strip_prefix(CAPTURE_FAILED_PREFIX) {
            Some(why) => self.plan_before_commands(mind, step, Err(why.to_owned())),
            None => Ok(Vec::new()),
        }
    }

    /// The capture finished when the waiting commands were prepared, which left no entry.
    fn plan_before_commands(
        &self,
        machine: &PodMachine,
        step: LogStep<'_>,
        captured: Result<Vec<SnapshotFile>, String>,
    ) -> Result<Vec<FeedPlan>, ReplayError> {
        let Some(run) = machine.pod.state().facts.run.as_ref().map(|run| run.id) else {
            return Ok(Vec::new());
        };
        let came = || InputKind::Captured { run, when: SnapshotWhen::Before, captured: captured.clone() };
        let waiting: Vec<&CallId> = machine.preparing.iter().map(|pending| &pending.call_id).collect();
        let mut plans = Vec::new();
        for ready in [step.dispatched_calls(), waiting] {
            let mut plan = self.prepare_calls(machine, step, &ready)?;
            plan.push(came().into());
            plans.push(plan);
        }
        Ok(plans)
    }
}
