//! Session summaries and jobs.
//!
//! Contents: the fold of a log into a summary that can be stored and continued (`summary`), its preview line
//! (`preview`), the thread object of the API (`thread_object`), job states (`job`) and retries (`retry`).
//! Elsewhere: the fold of a running pod (`pod`), storage and search of summaries (`index`).
//! Invariant: pure and total. A stored summary that is continued equals the summary of the whole log
//! (`a_kept_summary_goes_on_as_if_it_had_read_everything`).

mod job;
pub mod job_fold;
mod job_object;
mod job_plan;
mod mandate;
mod preview;
mod retry;
pub mod schedule;
pub mod schedule_firing;
mod summary;
mod thread_object;

pub use job::{JobAction, JobTransition, check_transition};
pub use job_fold::{ACCEPTANCE_CALL_PREFIX, EXIT_ZERO_SUFFIX, MAX_HISTORY_ITEMS};
pub use job_object::{JobHistoryItem, JobObject, JobRetry, history_item};
pub use job_plan::{JobCandidate, JobCapacity, JobNeed, JobPlan, plan_jobs};
pub use mandate::{Mandate, RestartPolicy};
pub use minke_record::JobState;
pub use preview::{NEW_CONVERSATION, PREVIEW_CHARS, preview_input};
pub use retry::{RetryError, RetryPolicy, max_retry_wait, retry_wait};
pub use schedule::Schedule;
pub use summary::{LastRun, LatestMessage, OpenRunSummary, SessionOrigin, SessionSummary, ThreadWait};
pub use thread_object::{ThreadObject, ThreadSource, ThreadStatus};
