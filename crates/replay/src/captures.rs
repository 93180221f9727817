//! Captures: what a hand saw in the write scope, as the log has it.

use minke_pod::What;
use minke_record::{CallId, RunId, Snapshot, SnapshotFile, SnapshotWhen};

use crate::ReplayError;
use crate::causes::{Look, Plan};
use crate::mind::Mind;
use crate::timeline::LogStep;

/// How the alert about a scope that cannot be captured begins.
const NOT_CAPTURED: &str = "what commands change here cannot be undone: ";

impl Look<'_> {
    /// Plans for a step that begins with what a capture saw.
    pub(crate) fn captured(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        taken: &Snapshot,
    ) -> Result<Vec<Plan>, ReplayError> {
        let files = taken.files.here().cloned().unwrap_or_default();
        if let Some(run) = taken.of_run {
            let run = RunId(self.pairs.here(run.0));
            let (when, captured) = (SnapshotWhen::After, Ok(files));
            return Ok(vec![vec![What::Captured { run, when, captured }.into()]]);
        }
        self.before_commands(mind, step, Ok(files))
    }

    /// Plans for an alert that says why there is no capture.
    pub(crate) fn not_captured(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        message: &str,
    ) -> Result<Vec<Plan>, ReplayError> {
        match message.strip_prefix(NOT_CAPTURED) {
            Some(why) => self.before_commands(mind, step, Err(why.to_owned())),
            None => Ok(Vec::new()),
        }
    }

    /// The capture came when the commands that waited for it were prepared, which left no entry.
    fn before_commands(
        &self,
        mind: &Mind,
        step: LogStep<'_>,
        captured: Result<Vec<SnapshotFile>, String>,
    ) -> Result<Vec<Plan>, ReplayError> {
        let Some(run) = mind.pod.state().facts.run.as_ref().map(|run| run.id) else { return Ok(Vec::new()) };
        let came = || What::Captured { run, when: SnapshotWhen::Before, captured: captured.clone() };
        let waiting: Vec<&CallId> = mind.preparing.iter().map(|pending| &pending.call_id).collect();
        let mut plans = Vec::new();
        for ready in [step.dispatched(), waiting] {
            let mut plan = self.readied(mind, step, &ready)?;
            plan.push(came().into());
            plans.push(plan);
        }
        Ok(plans)
    }
}
