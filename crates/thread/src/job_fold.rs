//! Job fold: derives the state of a job from the log. Pod and index share this function, so they cannot
//! disagree.
//!
//! Elsewhere: allowed transitions (`job`), who triggers them (`pod`, `host`).
//! Invariant: total, and every transition is in the table (`every_log_moves_a_job_by_the_table`).

use std::collections::VecDeque;

use minke_record::{
    ActorKind, Entry, Item, JobFacts, JobItem, JobPhase, JobState, JobTrigger, Kind, Millis, Outcome,
    Progress, RejectedAttempt, RunResult, StateChange, StateWord, ToolResult, Trigger, TriggerCondition,
    WaitingOn,
};

use crate::job::check_transition;
use crate::mandate::{Mandate, RestartPolicy};
use crate::retry::RetryPolicy;
use crate::schedule_firing;

/// Maximum number of stored history items.
pub const MAX_HISTORY_ITEMS: usize = 64;
/// Prefix of the call ids of acceptance commands.
pub const ACCEPTANCE_CALL_PREFIX: &str = "accept_";
/// Maximum length of a detail in the history.
const MAX_DETAIL_CHARS: usize = 500;
/// Maximum wait that a provider can request: a week.
const MAX_RETRY_AFTER_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// Suffix of the summary of a command that exited with 0.
pub const EXIT_ZERO_SUFFIX: &str = "(exit 0)";

/// Sequence number and time of an entry.
#[derive(Debug, Clone, Copy)]
struct EntryStamp {
    seq: u64,
    at: Millis,
}

/// Returns the job of a session with this mandate, if it is one.
pub fn job_from_mandate(mandate: Option<&serde_json::Value>, seq: u64, at: Millis) -> Option<JobFacts> {
    match Mandate::from_value(mandate) {
        Ok(mandate) => mandate.map(|mandate| new_job(&mandate, seq, at)),
        Err(why) => Some(unreadable_job(&why, seq, at)),
    }
}

/// Returns a new job.
fn new_job(mandate: &Mandate, seq: u64, at: Millis) -> JobFacts {
    let mut job = JobFacts {
        state: JobState::Queued,
        max: mandate.retry.max,
        accepts: mandate.acceptance.is_some(),
        retries: 0,
        until: None,
        not_before: None,
        failed: false,
        accepting: false,
        acceptances: 0,
        rejected: None,
        percent: 0,
        detail: None,
        makes: created_jobs(mandate),
        history: VecDeque::new(),
    };
    if job.is_scheduled() {
        job.state = JobState::Waiting;
    }
    append_history(&mut job, JobPhase::Created, EntryStamp { seq, at });
    job
}

fn created_jobs(mandate: &Mandate) -> Option<JobTrigger> {
    let when = match mandate {
        Mandate { schedule: Some(_), .. } => TriggerCondition::OnSchedule,
        Mandate { restart: RestartPolicy::Always, .. } => TriggerCondition::AfterEnd,
        _ => return None,
    };
    Some(JobTrigger { when, count: 0, last: None })
}

/// Returns a job with an unreadable mandate; it never runs automatically.
fn unreadable_job(why: &str, seq: u64, at: Millis) -> JobFacts {
    let mandate =
        Mandate { retry: RetryPolicy { max: 0, ..RetryPolicy::default() }, ..Mandate::with_objective("") };
    let mut job =
        JobFacts { state: JobState::Paused, history: VecDeque::new(), ..new_job(&mandate, seq, at) };
    job.detail = Some(format!("needs attention: could not read its mandate: {why}"));
    append_history(&mut job, JobPhase::Paused, EntryStamp { seq, at });
    job
}

/// Applies one more entry to a job.
pub fn apply_entry(job: &mut JobFacts, entry: &Entry) {
    let stamp = EntryStamp { seq: entry.seq, at: entry.ts };
    if let Kind::StateChange(change) = &entry.kind
        && let (Some(makes), Some(firing)) = (&mut job.makes, &change.firing)
    {
        schedule_firing::record_firing(makes, firing);
    }
    if job.state.is_final() {
        return; // later entries of its thread do not change an ended job
    }
    if job.is_scheduled() {
        return apply_to_scheduled(job, entry, stamp);
    }
    match &entry.kind {
        Kind::Invoke(invoke) => {
            let again = invoke.trigger == Trigger::Resume;
            let phase = if again { JobPhase::Resumed } else { JobPhase::Running };
            if std::mem::take(&mut job.failed) {
                job.retries = job.retries.saturating_add(1);
            }
            (job.accepting, job.not_before) = (false, None);
            // The resume command is already in the history; the run that follows belongs to the same event.
            let noted = job.history.back().is_some_and(|last| last.phase == JobPhase::Resumed);
            if again && noted && job.state == JobState::Running {
                job.until = None;
            } else {
                transition_job(job, JobState::Running, phase, stamp);
            }
        }
        Kind::RunCompleted(end) => apply_run_completed(job, &end.result, end.reason.as_deref(), stamp),
        Kind::RunErrored(end) => {
            job.detail = Some(end.message.clone());
            job.not_before = end.retry_after_ms.map(|ms| entry.ts.saturating_add(ms.min(MAX_RETRY_AFTER_MS)));
            fail_attempt(job, end.retryable, stamp);
        }
        Kind::StateChange(change) if entry.run.is_none() => apply_state_change(job, change, stamp),
        Kind::ToolDispatch(call) if call.call_id.0.starts_with(ACCEPTANCE_CALL_PREFIX) => {
            job.acceptances = job.acceptances.saturating_add(1);
        }
        Kind::ToolResult(result) => apply_acceptance(job, result, stamp),
        Kind::QueuedInput(queued) if queued.from.actor == ActorKind::Job => job.rejected = None,
        Kind::Progress(progress) => apply_progress(job, progress, stamp),
        _ => {}
    }
}

/// Applies an entry to a job with a schedule. It never runs: only its schedule and commands that pause,
/// resume or cancel it change its state.
fn apply_to_scheduled(job: &mut JobFacts, entry: &Entry, stamp: EntryStamp) {
    let Kind::StateChange(change) = &entry.kind else { return };
    if entry.run.is_some() {
        return;
    }
    match &change.state {
        StateWord::Waiting if change.on == Some(WaitingOn::Time) => {
            if check_transition(job.state, JobState::Waiting).is_err() && job.state != JobState::Waiting {
                return;
            }
            (job.state, job.until) = (JobState::Waiting, change.until);
            if let Some(reason) = &change.reason {
                job.detail = Some(reason.clone());
                let made = change.firing.as_ref().is_some_and(|firing| firing.session.is_some());
                append_history(job, if made { JobPhase::Running } else { JobPhase::ProgressUpdated }, stamp);
            } else if let Some(last) = job.history.back_mut() {
                (last.state, last.until) = (JobState::Waiting, change.until);
            }
        }
        StateWord::Paused | StateWord::Working => apply_state_change(job, change, stamp),
        // An abandoned run in its thread is not the job.
        StateWord::Abandoned if change.on == Some(WaitingOn::Time) => apply_state_change(job, change, stamp),
        _ => {}
    }
}

fn apply_run_completed(job: &mut JobFacts, result: &RunResult, reason: Option<&str>, stamp: EntryStamp) {
    if let Some(reason) = reason {
        job.detail = Some(reason.to_owned());
    }
    match result {
        RunResult::Finished if job.accepts => job.accepting = true,
        RunResult::Finished => transition_job(job, JobState::Completed, JobPhase::Completed, stamp),
        RunResult::Paused => transition_job(job, JobState::Paused, JobPhase::Paused, stamp),
        RunResult::Interrupted => transition_job(job, JobState::Interrupted, JobPhase::Paused, stamp),
        RunResult::Cancelled | RunResult::RolledBack => {
            transition_job(job, JobState::Cancelled, JobPhase::Cancelled, stamp);
        }
        RunResult::LimitReached => transition_job(job, JobState::Failed, JobPhase::Failed, stamp),
        RunResult::Other(word) => {
            job.detail = Some(format!("needs attention: its run ended as `{word}`"));
            transition_job(job, JobState::Paused, JobPhase::Paused, stamp);
        }
    }
}

/// Ends an attempt: waits for a retry if one is useful and allowed, else fails the job.
fn fail_attempt(job: &mut JobFacts, again: bool, stamp: EntryStamp) {
    if again && job.retries < job.max {
        job.failed = true;
        transition_job(job, JobState::Waiting, JobPhase::Failed, stamp);
    } else {
        transition_job(job, JobState::Failed, JobPhase::Failed, stamp);
    }
}

fn apply_state_change(job: &mut JobFacts, change: &StateChange, stamp: EntryStamp) {
    if let Some(reason) = &change.reason {
        job.detail = Some(reason.clone());
    }
    match &change.state {
        StateWord::Waiting if change.on == Some(WaitingOn::Time) && job.state == JobState::Waiting => {
            job.until = change.until;
            if let Some(last) = job.history.back_mut() {
                last.until = change.until;
            }
        }
        StateWord::Paused => {
            let until = job.until;
            transition_job(job, JobState::Paused, JobPhase::Paused, stamp);
            job.until = until;
        }
        StateWord::Queued => transition_job(job, JobState::Queued, JobPhase::QueuedAfterResume, stamp),
        StateWord::Working => transition_job(job, JobState::Running, JobPhase::Resumed, stamp),
        // Minke abandoned it because its deadline has passed.
        StateWord::Abandoned if change.by.as_ref().is_some_and(|by| by.actor == ActorKind::Minke) => {
            transition_job(job, JobState::Failed, JobPhase::Failed, stamp);
        }
        StateWord::Abandoned => transition_job(job, JobState::Cancelled, JobPhase::Cancelled, stamp),
        _ => {}
    }
}

/// Applies the result of the acceptance command. An interrupted command has no result; it runs again.
fn apply_acceptance(job: &mut JobFacts, result: &ToolResult, stamp: EntryStamp) {
    let Item::ToolResult { call_id, summary, content, .. } = &result.item else { return };
    let cut_off = matches!(result.outcome, Outcome::Lost | Outcome::Cancelled);
    let by_job = result.by.as_ref().is_some_and(|by| by.actor == ActorKind::Job);
    if !job.accepting || !by_job || !call_id.0.starts_with(ACCEPTANCE_CALL_PREFIX) || cut_off {
        return;
    }
    job.accepting = false;
    if result.outcome == Outcome::Done && summary.ends_with(EXIT_ZERO_SUFFIX) {
        return transition_job(job, JobState::Completed, JobPhase::Completed, stamp);
    }
    job.detail = Some(format!("not accepted: {summary}"));
    job.rejected = Some(RejectedAttempt { summary: summary.clone(), content: content.clone() });
    fail_attempt(job, true, stamp);
}

fn apply_progress(job: &mut JobFacts, progress: &Progress, stamp: EntryStamp) {
    if job.state != JobState::Running {
        return;
    }
    if let Some(percent) = progress.percent {
        job.percent = clamp_percent(percent);
    }
    job.detail = Some(progress.note.clone()).filter(|note| !note.is_empty());
    append_history(job, JobPhase::ProgressUpdated, stamp);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 100 first")]
fn clamp_percent(percent: f64) -> u8 {
    if percent.is_nan() { 0 } else { percent.clamp(0.0, 100.0) as u8 }
}

fn transition_job(job: &mut JobFacts, to: JobState, phase: JobPhase, stamp: EntryStamp) {
    if job.state != to && check_transition(job.state, to).is_err() {
        return;
    }
    job.state = to;
    job.until = None;
    if to == JobState::Completed {
        (job.percent, job.detail) = (100, None);
    }
    append_history(job, phase, stamp);
}

/// Truncates a detail to the size of a history item.
fn truncate_detail(detail: &str) -> String {
    detail.chars().take(MAX_DETAIL_CHARS).collect()
}

fn append_history(job: &mut JobFacts, phase: JobPhase, stamp: EntryStamp) {
    job.history.push_back(JobItem {
        seq: stamp.seq,
        at: stamp.at,
        phase,
        state: job.state,
        percent: job.percent,
        detail: job.detail.as_deref().map(truncate_detail),
        retries: job.retries,
        until: job.until,
    });
    while job.history.len() > MAX_HISTORY_ITEMS {
        job.history.pop_front();
    }
}
