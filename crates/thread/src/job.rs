//! The states of a job and what may become of each.
//!
//! Here: the table, as one function. Elsewhere: which state a log says (`work`), who moves a job (`pod`, `host`).
//! Invariant: every move that is not in the table is refused with both states named (`every_cell_of_the_table`).

use minke_record::JobState;

/// What somebody wants of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Pause,
    Resume,
    Cancel,
    /// Once more from the start, as a fork of its thread.
    Again,
    /// Tells how far it is.
    Progress,
}

/// What a wish comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    To(JobState),
    /// It is so already, or only a figure changes.
    Stays,
    /// Another job begins.
    Fork,
}

/// Whether a job may go from one state to another.
pub fn may_move(from: JobState, to: JobState) -> Result<(), String> {
    use JobState::{Cancelled, Completed, Failed, Interrupted, Paused, Queued, Running, Unknown, Waiting};
    let may = match from {
        Queued => matches!(to, Running | Cancelled | Paused | Failed),
        Running => matches!(to, Waiting | Paused | Completed | Failed | Cancelled | Interrupted),
        Waiting => matches!(to, Running | Queued | Paused | Cancelled | Failed),
        Paused => matches!(to, Running | Queued | Cancelled),
        Interrupted => matches!(to, Running | Queued | Paused | Failed | Cancelled),
        Completed | Failed | Cancelled => false,
        // Nobody knows what it is: it can only be given up.
        Unknown => to == Cancelled,
    };
    if may { Ok(()) } else { Err(format!("a job that is {} cannot become {}", from.name(), to.name())) }
}

impl Wish {
    pub const ALL: [Wish; 5] = [Wish::Pause, Wish::Resume, Wish::Cancel, Wish::Again, Wish::Progress];

    fn word(self) -> &'static str {
        match self {
            Wish::Pause => "paused",
            Wish::Resume => "resumed",
            Wish::Cancel => "cancelled",
            Wish::Again => "retried",
            Wish::Progress => "told its progress",
        }
    }

    /// What it comes to in a state, with or without room for one more that runs.
    pub fn of(self, from: JobState, room: bool) -> Result<Moved, String> {
        let refused = || {
            let hint = if from.is_final() { "; `minke job retry` begins it again" } else { "" };
            Err(format!("a job that is {} cannot be {}{hint}", from.name(), self.word()))
        };
        match self {
            Wish::Pause if from == JobState::Paused => Ok(Moved::Stays),
            Wish::Pause => {
                may_move(from, JobState::Paused).map_or_else(|_| refused(), |()| moved(JobState::Paused))
            }
            Wish::Cancel => may_move(from, JobState::Cancelled)
                .map_or_else(|_| refused(), |()| moved(JobState::Cancelled)),
            // One that waits for a time does not wait any longer; others are not resumed but answered, or told.
            Wish::Resume => match from {
                JobState::Paused | JobState::Interrupted | JobState::Waiting => {
                    moved(if room { JobState::Running } else { JobState::Queued })
                }
                JobState::Queued | JobState::Running => Ok(Moved::Stays),
                _ => refused(),
            },
            Wish::Again if from.is_final() => Ok(Moved::Fork),
            Wish::Again => {
                Err(format!("a job that is {} is not over yet, so it cannot be retried", from.name()))
            }
            Wish::Progress if from == JobState::Running => Ok(Moved::Stays),
            Wish::Progress => refused(),
        }
    }
}

fn moved(to: JobState) -> Result<Moved, String> {
    Ok(Moved::To(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_of_the_table() {
        // Rows and columns in the order of `ALL`.
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
            assert_eq!(from.name(), name);
            for (to, cell) in JobState::ALL.into_iter().zip(row.chars()) {
                let may = may_move(from, to);
                assert_eq!(may.is_ok(), cell.is_ascii_uppercase(), "{name} to {}", to.name());
                if let Err(why) = may {
                    assert!(why.contains(name) && why.contains(to.name()), "{why}");
                }
            }
        }
    }

    #[test]
    fn a_wish_leads_only_where_the_table_leads() {
        for from in JobState::ALL {
            for wish in Wish::ALL {
                for room in [true, false] {
                    match wish.of(from, room) {
                        Ok(Moved::To(to)) => assert_eq!(may_move(from, to), Ok(()), "{wish:?}"),
                        Ok(Moved::Stays) => assert!(!from.is_final()),
                        Ok(Moved::Fork) => assert!(from.is_final()),
                        Err(why) => assert!(why.contains(from.name()), "{why}"),
                    }
                }
            }
        }
        assert_eq!(Wish::Resume.of(JobState::Paused, false), Ok(Moved::To(JobState::Queued)));
        assert_eq!(Wish::Cancel.of(JobState::Running, true), Ok(Moved::To(JobState::Cancelled)));
    }
}
