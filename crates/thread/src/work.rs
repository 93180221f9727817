//! The work of a job, entry by entry: what the log says of its state. The pod and the index read it with this function,
//! so that they cannot disagree.
//!
//! Elsewhere: which moves there are (`job`), who makes them (`pod`, `host`).
//! Invariant: total, and every move that it makes is one of the table (`every_log_moves_a_job_by_the_table`).

use std::collections::VecDeque;

use minke_record::{
    ActorKind, Entry, Item, JobFacts, JobItem, JobPhase, JobState, Kind, Makes, MakesWhen, Millis, Outcome,
    Progress, Rejected, RunResult, StateChange, StateWord, ToolResult, Trigger, WaitingOn,
};

use crate::firing;
use crate::job::may_move;
use crate::mandate::{Mandate, Restart};
use crate::retry::Retry;

/// The newest things that happened to a job and are kept at hand.
pub const HISTORY: usize = 64;
/// What calls of acceptance commands are named by.
pub const ACCEPT: &str = "accept_";
/// The longest detail in a history.
const DETAIL_CHARS: usize = 500;
/// No provider is left alone for longer than this, whatever it asks for: a week.
const RETRY_AFTER_MOST_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// How the summary of a command ends that has exited with 0.
pub const PASSED: &str = "(exit 0)";

/// The job of a session that begins with this mandate, if it is one.
pub fn of(mandate: Option<&serde_json::Value>, seq: u64, at: Millis) -> Option<JobFacts> {
    match Mandate::read(mandate) {
        Ok(mandate) => mandate.map(|mandate| begin(&mandate, seq, at)),
        Err(why) => Some(unreadable(&why, seq, at)),
    }
}

/// A job that was just made.
fn begin(mandate: &Mandate, seq: u64, at: Millis) -> JobFacts {
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
        makes: makes(mandate),
        history: VecDeque::new(),
    };
    if job.is_scheduled() {
        job.state = JobState::Waiting;
    }
    happened(&mut job, JobPhase::Created, (seq, at));
    job
}

fn makes(mandate: &Mandate) -> Option<Makes> {
    let when = match mandate {
        Mandate { schedule: Some(_), .. } => MakesWhen::OnSchedule,
        Mandate { restart: Restart::Always, .. } => MakesWhen::AfterEnd,
        _ => return None,
    };
    Some(Makes { when, count: 0, last: None })
}

/// A job whose mandate cannot be read: it is never run by itself.
fn unreadable(why: &str, seq: u64, at: Millis) -> JobFacts {
    let mandate = Mandate { retry: Retry { max: 0, ..Retry::default() }, ..Mandate::of_words("") };
    let mut job = JobFacts { state: JobState::Paused, history: VecDeque::new(), ..begin(&mandate, seq, at) };
    job.detail = Some(format!("needs attention: its mandate cannot be read ({why})"));
    happened(&mut job, JobPhase::Paused, (seq, at));
    job
}

/// What one more entry says of a job.
pub fn apply(job: &mut JobFacts, entry: &Entry) {
    let when = (entry.seq, entry.ts);
    if let Kind::StateChange(change) = &entry.kind
        && let (Some(makes), Some(firing)) = (&mut job.makes, &change.firing)
    {
        firing::noted(makes, firing);
    }
    if job.state.is_final() {
        return; // what is said in its thread later does not change it
    }
    if job.is_scheduled() {
        return on_schedule(job, entry, when);
    }
    match &entry.kind {
        Kind::Invoke(invoke) => {
            let again = invoke.trigger == Trigger::Resume;
            let phase = if again { JobPhase::Resumed } else { JobPhase::Running };
            if std::mem::take(&mut job.failed) {
                job.retries = job.retries.saturating_add(1);
            }
            (job.accepting, job.not_before) = (false, None);
            // The order to resume is in the history already; the run that follows it is the same event.
            let noted = job.history.back().is_some_and(|last| last.phase == JobPhase::Resumed);
            if again && noted && job.state == JobState::Running {
                job.until = None;
            } else {
                go(job, JobState::Running, phase, when);
            }
        }
        Kind::RunCompleted(end) => completed(job, &end.result, end.reason.as_deref(), when),
        Kind::RunErrored(end) => {
            job.detail = Some(end.message.clone());
            job.not_before =
                end.retry_after_ms.map(|ms| entry.ts.saturating_add(ms.min(RETRY_AFTER_MOST_MS)));
            fail(job, end.retryable, when);
        }
        Kind::StateChange(change) if entry.run.is_none() => changed(job, change, when),
        Kind::ToolDispatch(call) if call.call_id.0.starts_with(ACCEPT) => {
            job.acceptances = job.acceptances.saturating_add(1);
        }
        Kind::ToolResult(result) => judged(job, result, when),
        Kind::QueuedInput(queued) if queued.from.actor == ActorKind::Job => job.rejected = None,
        Kind::Progress(progress) => told(job, progress, when),
        _ => {}
    }
}

/// A job with a schedule never runs: what is said in its thread is not its own, and only its schedule, and people who
/// pause, resume and cancel it, move it.
fn on_schedule(job: &mut JobFacts, entry: &Entry, when: (u64, Millis)) {
    let Kind::StateChange(change) = &entry.kind else { return };
    if entry.run.is_some() {
        return;
    }
    match &change.state {
        StateWord::Waiting if change.on == Some(WaitingOn::Time) => {
            if may_move(job.state, JobState::Waiting).is_err() && job.state != JobState::Waiting {
                return;
            }
            (job.state, job.until) = (JobState::Waiting, change.until);
            if let Some(reason) = &change.reason {
                job.detail = Some(reason.clone());
                let made = change.firing.as_ref().is_some_and(|firing| firing.session.is_some());
                happened(job, if made { JobPhase::Running } else { JobPhase::ProgressUpdated }, when);
            } else if let Some(last) = job.history.back_mut() {
                (last.state, last.until) = (JobState::Waiting, change.until);
            }
        }
        StateWord::Paused | StateWord::Working => changed(job, change, when),
        // A run in its thread that was given up is not the job.
        StateWord::Abandoned if change.on == Some(WaitingOn::Time) => changed(job, change, when),
        _ => {}
    }
}

fn completed(job: &mut JobFacts, result: &RunResult, reason: Option<&str>, when: (u64, Millis)) {
    if let Some(reason) = reason {
        job.detail = Some(reason.to_owned());
    }
    match result {
        RunResult::Finished if job.accepts => job.accepting = true,
        RunResult::Finished => go(job, JobState::Completed, JobPhase::Completed, when),
        RunResult::Paused => go(job, JobState::Paused, JobPhase::Paused, when),
        RunResult::Interrupted => go(job, JobState::Interrupted, JobPhase::Paused, when),
        RunResult::Cancelled | RunResult::RolledBack => {
            go(job, JobState::Cancelled, JobPhase::Cancelled, when);
        }
        RunResult::LimitReached => go(job, JobState::Failed, JobPhase::Failed, when),
        RunResult::Other(word) => {
            job.detail = Some(format!("needs attention: its run ended as `{word}`"));
            go(job, JobState::Paused, JobPhase::Paused, when);
        }
    }
}

/// An attempt has failed: it is tried again if that can help and is allowed.
fn fail(job: &mut JobFacts, again: bool, when: (u64, Millis)) {
    if again && job.retries < job.max {
        job.failed = true;
        go(job, JobState::Waiting, JobPhase::Failed, when);
    } else {
        go(job, JobState::Failed, JobPhase::Failed, when);
    }
}

fn changed(job: &mut JobFacts, change: &StateChange, when: (u64, Millis)) {
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
            go(job, JobState::Paused, JobPhase::Paused, when);
            job.until = until;
        }
        StateWord::Queued => go(job, JobState::Queued, JobPhase::QueuedAfterResume, when),
        StateWord::Working => go(job, JobState::Running, JobPhase::Resumed, when),
        // Nobody gave it up: its time was over.
        StateWord::Abandoned if change.by.as_ref().is_some_and(|by| by.actor == ActorKind::Minke) => {
            go(job, JobState::Failed, JobPhase::Failed, when);
        }
        StateWord::Abandoned => go(job, JobState::Cancelled, JobPhase::Cancelled, when),
        _ => {}
    }
}

/// The acceptance command has spoken. One that was cut off has not: it is run again.
fn judged(job: &mut JobFacts, result: &ToolResult, when: (u64, Millis)) {
    let Item::ToolResult { call_id, summary, content, .. } = &result.item else { return };
    let cut_off = matches!(result.outcome, Outcome::Lost | Outcome::Cancelled);
    let by_job = result.by.as_ref().is_some_and(|by| by.actor == ActorKind::Job);
    if !job.accepting || !by_job || !call_id.0.starts_with(ACCEPT) || cut_off {
        return;
    }
    job.accepting = false;
    if result.outcome == Outcome::Done && summary.ends_with(PASSED) {
        return go(job, JobState::Completed, JobPhase::Completed, when);
    }
    job.detail = Some(format!("not accepted: {summary}"));
    job.rejected = Some(Rejected { summary: summary.clone(), content: content.clone() });
    fail(job, true, when);
}

fn told(job: &mut JobFacts, progress: &Progress, when: (u64, Millis)) {
    if job.state != JobState::Running {
        return;
    }
    if let Some(percent) = progress.percent {
        job.percent = clamped(percent);
    }
    job.detail = Some(progress.note.clone()).filter(|note| !note.is_empty());
    happened(job, JobPhase::ProgressUpdated, when);
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 to 100 first")]
fn clamped(percent: f64) -> u8 {
    if percent.is_nan() { 0 } else { percent.clamp(0.0, 100.0) as u8 }
}

fn go(job: &mut JobFacts, to: JobState, phase: JobPhase, when: (u64, Millis)) {
    if job.state != to && may_move(job.state, to).is_err() {
        return;
    }
    job.state = to;
    job.until = None;
    if to == JobState::Completed {
        (job.percent, job.detail) = (100, None);
    }
    happened(job, phase, when);
}

/// A detail is a line, not a document.
fn short(detail: &str) -> String {
    detail.chars().take(DETAIL_CHARS).collect()
}

fn happened(job: &mut JobFacts, phase: JobPhase, (seq, at): (u64, Millis)) {
    job.history.push_back(JobItem {
        seq,
        at,
        phase,
        state: job.state,
        percent: job.percent,
        detail: job.detail.as_deref().map(short),
        retries: job.retries,
        until: job.until,
    });
    while job.history.len() > HISTORY {
        job.history.pop_front();
    }
}
