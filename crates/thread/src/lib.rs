//! Threads: what a session amounts to, for whoever lists, searches and runs many of them.
//!
//! Here: the fold of a log into a summary that can be kept and gone on with (`summary`), its one line (`preview`), the
//! object that API clients get (`object`), and of sessions with a mandate the states of a job (`job`) and when it is tried
//! again (`retry`). Elsewhere: the fold that a pod lives on (`pod`), where summaries are kept and searched (`index`).
//! Invariant: pure and total, and a summary that was kept in the middle of a log and gone on with is the summary of the
//! whole (`a_kept_summary_goes_on_as_if_it_had_read_everything`).

pub mod firing;
mod job;
mod listing;
mod mandate;
mod object;
mod preview;
mod retry;
mod roster;
pub mod schedule;
mod summary;
pub mod work;

pub use job::{Moved, Wish, may_move};
pub use listing::{Job, JobLine, JobRetry, line};
pub use mandate::{Mandate, Restart};
pub use minke_record::JobState;
pub use object::{Source, Thread, ThreadStatus};
pub use preview::{NEW, PREVIEW_CHARS, preview};
pub use retry::{Retry, RetryError, bound, wait};
pub use roster::{Candidate, Need, Plan, Room, plan};
pub use schedule::Schedule;
pub use summary::{Ended, Latest, OpenRun, Summary, Waits};
pub use work::{ACCEPT, HISTORY, PASSED};
