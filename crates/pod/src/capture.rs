//! Capture: the write scope as it was, kept before a run's first command, so that what commands change can be undone.
//!
//! Here: when it is asked for and what becomes of it. Elsewhere: looking at the files (`undo`), putting them back (a
//! client's call `Undo`).
//! Invariant: a command of a run starts only after its scope was captured, or after the person was told that it cannot
//! be (`a_command_waits_until_its_scope_is_captured`).

use minke_record::{AlertLevel, AlertSource, Large, RunId, Snapshot, SnapshotFile, SnapshotWhen};

use crate::pod::{Making, Pod};
use crate::step::Effect;

impl Pod {
    /// Whether a command of the open run has to wait for the capture, which is asked for if nobody has yet.
    pub(crate) fn waits_for_capture(&mut self, m: &mut Making) -> bool {
        let Some(run) = self.state.facts.run.as_ref().filter(|run| !run.captured) else { return false };
        if self.life.uncapturable {
            return false;
        }
        if self.life.capturing != Some(run.id) {
            self.life.capturing = Some(run.id);
            m.effect(Effect::Capture { run: run.id, when: SnapshotWhen::Before });
        }
        true
    }

    /// A run whose scope was captured has ended: how it left the files is kept too.
    pub(crate) fn capture_after(&mut self, m: &mut Making, run: RunId) {
        self.life.closing = Some(run);
        m.effect(Effect::Capture { run, when: SnapshotWhen::After });
    }

    pub(crate) fn captured(
        &mut self,
        m: &mut Making,
        run: RunId,
        when: &SnapshotWhen,
        captured: Result<Vec<SnapshotFile>, String>,
    ) {
        let before = *when == SnapshotWhen::Before;
        if before {
            let open = self.state.facts.run.as_ref().is_some_and(|open| open.id == run);
            if self.life.capturing != Some(run) || !open {
                return; // the run has ended meanwhile
            }
            self.life.capturing = None;
        } else if self.life.closing == Some(run) {
            self.life.closing = None;
        }
        match captured {
            Ok(files) => {
                let of_run = (!before).then_some(run);
                self.note(
                    m,
                    Snapshot { call_id: None, of_run, when: when.clone(), files: Large::Here(files) },
                );
            }
            Err(why) => {
                self.life.uncapturable = true;
                let message = format!("what commands change here cannot be undone: {why}");
                self.alert(m, AlertLevel::Warn, AlertSource::Pod, message);
            }
        }
        if before {
            self.dispatch_ready(m);
        } else if self.life.stop_waits && self.life.closing.is_none() {
            self.leave(m);
        }
    }
}
