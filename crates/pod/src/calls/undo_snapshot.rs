//! Undo snapshots: the write scope is captured before the first command of a run, so that its changes can be
//! undone.
//!
//! Elsewhere: reading the files (`undo`), restoring them (the client call `Undo`).
//! Invariant: a command of a run starts only after the capture, or after an alert that the scope cannot be
//! captured (`a_command_waits_until_its_scope_is_captured`).

use minke_record::{AlertLevel, AlertSource, Large, RunId, Snapshot, SnapshotFile, SnapshotWhen};

use crate::engine::InputHandler;
use crate::exit::ExitState;
use crate::step::Effect;
use crate::step_builder::StepBuilder;

/// The capture before the first command of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct CaptureState {
    /// The run whose write scope is captured before its first command.
    pub(crate) capturing_before: Option<RunId>,
    /// The write scope cannot be captured; the user has been warned.
    pub(crate) capture_failed: bool,
}

impl CaptureState {
    /// Returns whether a command must wait for the capture, and requests the capture if necessary.
    pub(crate) fn start_capture_if_needed(&mut self, step: &mut StepBuilder<'_>) -> bool {
        let Some(run) = step.state.facts.run.as_ref().filter(|run| !run.captured) else { return false };
        if self.capture_failed {
            return false;
        }
        if self.capturing_before != Some(run.id) {
            self.capturing_before = Some(run.id);
            step.add_effect(Effect::Capture { run: run.id, when: SnapshotWhen::Before });
        }
        true
    }
}

impl ExitState {
    /// Requests a capture after the run, so that its changes can be compared.
    pub(crate) fn capture_after_run(&mut self, step: &mut StepBuilder<'_>, run: RunId) {
        self.capturing_after = Some(run);
        step.add_effect(Effect::Capture { run, when: SnapshotWhen::After });
    }
}

impl InputHandler<'_, '_> {
    pub(crate) fn apply_capture(
        &mut self,
        run: RunId,
        when: &SnapshotWhen,
        captured: Result<Vec<SnapshotFile>, String>,
    ) {
        let before = *when == SnapshotWhen::Before;
        if before {
            let open = self.step.state.facts.run.as_ref().is_some_and(|open| open.id == run);
            if self.engine.work.capture.capturing_before != Some(run) || !open {
                return; // the run has ended
            }
            self.engine.work.capture.capturing_before = None;
        } else if self.engine.process.exit.capturing_after == Some(run) {
            self.engine.process.exit.capturing_after = None;
        }
        match captured {
            Ok(files) => {
                let of_run = (!before).then_some(run);
                self.step.append_entry(Snapshot {
                    call_id: None,
                    of_run,
                    when: when.clone(),
                    files: Large::Here(files),
                });
            }
            Err(why) => {
                self.engine.work.capture.capture_failed = true;
                let message = format!("what commands change here cannot be undone: {why}");
                self.step.append_alert(AlertLevel::Warn, AlertSource::Pod, message);
            }
        }
        if before {
            self.engine.dispatch_ready_calls(self.step);
        } else if self.engine.process.exit.stop_after_capture
            && self.engine.process.exit.capturing_after.is_none()
        {
            self.engine.process.exit.flush_and_exit(self.step);
        }
    }
}
