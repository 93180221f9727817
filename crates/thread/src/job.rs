//! The states of a job and its allowed transitions, as one function.
//!
//! Elsewhere: the state in a log (`job_fold`), who changes it (`pod`, `host`).
//! Invariant: a transition outside the table is refused with both states named (`every_cell_of_the_table`).

use minke_record::JobState;

/// An action on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobAction {
    Pause,
    Resume,
    Cancel,
    /// Start again as a fork of its thread.
    Retry,
    /// Report progress.
    Progress,
}

/// The effect of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobTransition {
    To(JobState),
    /// No change, or only the progress changes.
    Unchanged,
    /// Another job starts.
    Fork,
}

/// Checks whether a job may change from one state to another.
pub fn check_transition(from: JobState, to: JobState) -> Result<(), String> {
    use JobState::{Cancelled, Completed, Failed, Interrupted, Paused, Queued, Running, Unknown, Waiting};
    let is_allowed = match from {
        Queued => matches!(to, Running | Cancelled | Paused | Failed),
        Running => matches!(to, Waiting | Paused | Completed | Failed | Cancelled | Interrupted),
        Waiting => matches!(to, Running | Queued | Paused | Cancelled | Failed),
        Paused => matches!(to, Running | Queued | Cancelled),
        Interrupted => matches!(to, Running | Queued | Paused | Failed | Cancelled),
        Completed | Failed | Cancelled => false,
        // An unknown state can only be cancelled.
        Unknown => to == Cancelled,
    };
    if is_allowed {
        Ok(())
    } else {
        Err(format!("a job that is {} cannot become {}", from.state_name(), to.state_name()))
    }
}

impl JobAction {
    pub const ALL: [JobAction; 5] =
        [JobAction::Pause, JobAction::Resume, JobAction::Cancel, JobAction::Retry, JobAction::Progress];

    fn past_participle(self) -> &'static str {
        match self {
            JobAction::Pause => "paused",
            JobAction::Resume => "resumed",
            JobAction::Cancel => "cancelled",
            JobAction::Retry => "retried",
            JobAction::Progress => "updated",
        }
    }

    /// Returns the effect in a state. `room`: another job may run now.
    pub fn transition_from(self, from: JobState, room: bool) -> Result<JobTransition, String> {
        let refused = || {
            let hint = if from.is_final() { "; `minke job retry` starts it again" } else { "" };
            Err(format!("a job that is {} cannot be {}{hint}", from.state_name(), self.past_participle()))
        };
        match self {
            JobAction::Pause if from == JobState::Paused => Ok(JobTransition::Unchanged),
            JobAction::Pause => check_transition(from, JobState::Paused)
                .map_or_else(|_| refused(), |()| transition_to(JobState::Paused)),
            JobAction::Cancel => check_transition(from, JobState::Cancelled)
                .map_or_else(|_| refused(), |()| transition_to(JobState::Cancelled)),
            // A waiting job stops waiting. A job with an open ask needs an answer, not a resume.
            JobAction::Resume => match from {
                JobState::Paused | JobState::Interrupted | JobState::Waiting => {
                    transition_to(if room { JobState::Running } else { JobState::Queued })
                }
                JobState::Queued | JobState::Running => Ok(JobTransition::Unchanged),
                _ => refused(),
            },
            JobAction::Retry if from.is_final() => Ok(JobTransition::Fork),
            JobAction::Retry => {
                Err(format!("a job that is {} has not ended, so it cannot be retried", from.state_name()))
            }
            JobAction::Progress if from == JobState::Running => Ok(JobTransition::Unchanged),
            JobAction::Progress => refused(),
        }
    }
}

fn transition_to(to: JobState) -> Result<JobTransition, String> {
    Ok(JobTransition::To(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_table() {
        // Rows and columns are in the order of `ALL`.
        let table = [
            ("queued", "-R.P.-FC"),
            ("running", "..WPIDFC"),
            ("waiting", "QR.P..FC"),
            ("paused", "QR.....C"),
            ("interrupted", "QR.P..FC"),
            ("completed", "........"),
            ("failed", "........"),
            ("cancelled", "........"),
        ];
        for (from, (name, row)) in JobState::ALL.into_iter().zip(table) {
            assert_eq!(from.state_name(), name);
            for (to, cell) in JobState::ALL.into_iter().zip(row.chars()) {
                let is_allowed = check_transition(from, to);
                assert_eq!(is_allowed.is_ok(), cell.is_ascii_uppercase(), "{name} to {}", to.state_name());
                if let Err(why) = is_allowed {
                    assert!(why.contains(name) && why.contains(to.state_name()), "{why}");
                }
            }
        }
    }

    #[test]
    fn a_wish_leads_only_where_the_table_leads() {
        for from in JobState::ALL {
            for action in JobAction::ALL {
                for room in [true, false] {
                    match action.transition_from(from, room) {
                        Ok(JobTransition::To(to)) => {
                            assert_eq!(check_transition(from, to), Ok(()), "{action:?}")
                        }
                        Ok(JobTransition::Unchanged) => assert!(!from.is_final()),
                        Ok(JobTransition::Fork) => assert!(from.is_final()),
                        Err(why) => assert!(why.contains(from.state_name()), "{why}"),
                    }
                }
            }
        }
        assert_eq!(
            JobAction::Resume.transition_from(JobState::Paused, false),
            Ok(JobTransition::To(JobState::Queued))
        );
        assert_eq!(
            JobAction::Cancel.transition_from(JobState::Running, true),
            Ok(JobTransition::To(JobState::Cancelled))
        );
    }
}
