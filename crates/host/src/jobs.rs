//! Job requests: list, start, pause, resume, cancel and retry.
//!
//! Elsewhere: starting their pods (`job_scheduler`), the state machine (`thread`), the work (their pods).
//! Invariant: a command that the current state does not allow is refused, and the error names the state
//! (`wishes_are_answered_by_the_table_of_states`).

pub(crate) mod cache;
pub(crate) mod claims;
pub(crate) mod pending;
pub(crate) mod scheduler;
pub(crate) mod schedules;

use bytes::Bytes;
use minke_launch::{Delivery, SessionChange, change_session, client_info, deliver_method, reach_pod};
use minke_pod::{JobAction, OfflineEdit};
use minke_protocol::{Detail, Method, Set, SetProgress};
use minke_record::{Actor, ErrorCode, JobItem, SessionId};
use minke_thread::{JobObject, JobTransition, Mandate, RetryPolicy, SessionSummary, history_item};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::engine::{Engine, run_blocking};
use crate::error::ApiError;
use crate::request::{New, RequestOverrides, ThreadName, parse_params};
use crate::response::format_session_id;
use crate::stderr::report;
use crate::threads::ForkOptions;
use crate::threads::lists::query_index;
use crate::threads::log::ThreadLog;

/// The default and the maximum number of listed jobs.
const DEFAULT_LIST_LIMIT: usize = 100;
const MAX_LIST_LIMIT: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobListParams {
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobParams {
    id: ThreadName,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobCommandParams {
    id: ThreadName,
    #[serde(default)]
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobProgressParams {
    id: ThreadName,
    progress: f64,
    #[serde(default)]
    detail: Option<String>,
}

/// The response that lists jobs.
#[derive(Debug, Serialize)]
struct JobListing {
    ok: bool,
    data: JobListBody,
    events: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct JobListBody {
    jobs: Vec<JobObject>,
    total: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<String>,
}

impl JobListing {
    /// Serializes the response.
    fn to_bytes(&self) -> Result<Bytes, ApiError> {
        let written =
            serde_json::to_vec(self).map_err(|e| ApiError::new(ErrorCode::Internal, e.to_string()))?;
        Ok(written.into())
    }
}

impl Engine {
    /// Returns the newest jobs, last changed first, and their total number.
    pub(crate) async fn handle_jobs(&self, method: &str, params: Value) -> Result<Value, ApiError> {
        match parse_params(method, params)? {
            JobListParams { limit: None } => self.list_jobs(DEFAULT_LIST_LIMIT).await,
            JobListParams { limit: Some(limit) } if (1..=MAX_LIST_LIMIT).contains(&limit) => {
                self.list_jobs(limit).await
            }
            JobListParams { limit: Some(limit) } => {
                Err(ApiError::invalid(format!("limit: is {limit}; it must be 1 to {MAX_LIST_LIMIT}")))
            }
        }
    }

    /// Returns the default list, serialized. Concurrent requests share one query.
    pub(crate) async fn newest_jobs_bytes(&self) -> Result<Bytes, ApiError> {
        let home = self.home.clone();
        self.job_list
            .get_or_run(run_blocking(move || read_job_listing(&home, DEFAULT_LIST_LIMIT)?.to_bytes()))
            .await
    }

    async fn list_jobs(&self, limit: usize) -> Result<Value, ApiError> {
        let home = self.home.clone();
        let listing = run_blocking(move || read_job_listing(&home, limit)).await?;
        Ok(json!(listing))
    }

    pub(crate) async fn get_job(&self, params: Value) -> Result<Value, ApiError> {
        let JobParams { id } = parse_params("jobs/get", params)?;
        let session = self.resolve_job(&id)?;
        self.job_response(session).await
    }

    /// Starts a thread with a required mandate.
    pub(crate) async fn start_job(&self, params: Value, by: &Actor) -> Result<Value, ApiError> {
        let new: New = parse_params("jobs/start", params)?;
        let Some(mandate) = &new.mandate else {
            return Err(ApiError::invalid("mandate: is missing; a job needs an objective"));
        };
        Mandate::from_request(mandate).map_err(|reason| ApiError::invalid(format!("mandate: {reason}")))?;
        let mut answer = self.create_thread(new, "started", by).await?.to_value()?;
        let session: Option<SessionId> =
            answer["thread_id"].as_str().and_then(|id| id.strip_prefix("s_")?.parse().ok());
        if let Some(session) = session {
            answer["data"]["job"] = json!(self.load_job(session).await?);
        }
        Ok(answer)
    }

    pub(crate) async fn command_job(
        &self,
        method: &str,
        params: Value,
        by: &Actor,
    ) -> Result<Value, ApiError> {
        let JobCommandParams { id, detail } = parse_params(method, params)?;
        let command = match method {
            "jobs/pause" => JobAction::Pause,
            "jobs/resume" => JobAction::Resume,
            "jobs/cancel" => JobAction::Cancel,
            _ => JobAction::Retry,
        };
        let session = self.resolve_job(&id)?;
        let JobObject { status: state, schedule, .. } = self.load_job(session).await?;
        let transition = command
            .transition_from(state, true)
            .map_err(|reason| ApiError::new(ErrorCode::Conflict, reason))?;
        let detail_param = Detail { detail: detail.clone() };
        match (transition, command) {
            (JobTransition::Unchanged, _) => {}
            (JobTransition::Fork, _) => return self.restart_job(session, by).await,
            (JobTransition::To(_), JobAction::Resume) if schedule.is_none() => {
                let (method, client) = (Method::Resume(detail_param), client_info(by));
                crate::pods::request_session_scope(&self.home, session, by).await?;
                let delivery = Delivery { session, method, client, offline_step: None };
                match deliver_method(&self.home, delivery).await {
                    Ok(_) => {}
                    // Waking it was enough: it resumed automatically.
                    Err(minke_launch::DeliverError::Refused { refusal, .. })
                        if matches!(refusal.code, ErrorCode::AlreadyRunning | ErrorCode::NotPaused) => {}
                    Err(other) => return Err(other.into()),
                }
            }
            (JobTransition::To(_), _) => {
                let method = match command {
                    JobAction::Pause => Method::Pause(detail_param),
                    JobAction::Resume => Method::Resume(detail_param),
                    _ => Method::Cancel(detail_param),
                };
                change_session(
                    &self.home,
                    session,
                    SessionChange { method, edit: OfflineEdit::Job { action: command, detail } },
                    by,
                )
                .await?;
                self.notify_job_hooks(session, by).await;
            }
        }
        self.wake_up();
        self.job_response(session).await
    }

    /// Lets a pod notify the job's hooks. Only pods run hooks: if the mandate names some, a pod is started for that and
    /// exits automatically. If no pod can start now, the next one notifies them.
    async fn notify_job_hooks(&self, session: SessionId, by: &Actor) {
        let start = crate::threads::log::read_session_start(&self.home, session);
        let names = start.ok().and_then(|start| Mandate::from_value(start.mandate.as_ref()).ok().flatten());
        if names.is_none_or(|mandate| mandate.notify.is_empty()) {
            return;
        }
        let woken = async {
            crate::pods::request_session_scope(&self.home, session, by).await?;
            reach_pod(&self.home, session).await.map_err(ApiError::from)
        };
        match woken.await {
            Ok(reached) => self.track_child(reached.launched),
            Err(fault) => {
                report!("the hooks of job s_{session} are notified when its pod next runs: {}", fault.message)
            }
        }
    }

    /// Restarts a job as a fork of its thread.
    async fn restart_job(&self, session: SessionId, by: &Actor) -> Result<Value, ApiError> {
        let (engine, by) = (self.clone(), by.clone());
        let again = run_blocking(move || {
            let mandate = crate::threads::log::read_session_start(&engine.home, session)?.mandate;
            engine.fork_session(session, None, ForkOptions { mandate, ..ForkOptions::default() }, by)
        })
        .await?;
        self.wake_up();
        self.job_response(again).await
    }

    pub(crate) async fn report_job_progress(&self, params: Value, by: &Actor) -> Result<Value, ApiError> {
        let JobProgressParams { id, progress, detail } = parse_params("jobs/progress", params)?;
        let session = self.resolve_job(&id)?;
        let state = self.load_job(session).await?.status;
        JobAction::Progress
            .transition_from(state, true)
            .map_err(|reason| ApiError::new(ErrorCode::Conflict, reason))?;
        if !progress.is_finite() {
            return Err(ApiError::invalid("progress: must be a number from 0 to 100"));
        }
        let note = detail.unwrap_or_default();
        self.reject_secrets(&[&note])?;
        let progress = SetProgress { percent: Some(progress.clamp(0.0, 100.0)), note };
        let set = Set { progress: Some(progress), ..Set::default() };
        let method = Method::Set(Box::new(set));
        deliver_method(&self.home, Delivery { session, method, client: client_info(by), offline_step: None })
            .await?;
        self.job_response(session).await
    }

    async fn job_response(&self, session: SessionId) -> Result<Value, ApiError> {
        Ok(json!({ "ok": true, "data": { "job": self.load_job(session).await? }, "events": [] }))
    }

    /// Reads one job from its current log.
    async fn load_job(&self, session: SessionId) -> Result<JobObject, ApiError> {
        let home = self.home.clone();
        run_blocking(move || {
            let thread_log = ThreadLog::read_session(&home, session)?;
            job_object(&home, &thread_log.fold.summary)?.ok_or_else(|| no_such_job(session))
        })
        .await
    }

    fn resolve_job(&self, name: &ThreadName) -> Result<SessionId, ApiError> {
        self.resolve_session(name, &RequestOverrides::default())
    }
}

fn read_job_listing(home: &minke_client::UserHome, limit: usize) -> Result<JobListing, ApiError> {
    let index_answer = query_index(home, |index| Ok((index.list_jobs(false, limit)?, index.count_jobs()?)))?;
    let (newest, total) = index_answer.value;
    let mut jobs: Vec<JobObject> = Vec::new();
    for summary in &newest {
        jobs.extend(job_object(home, summary)?);
    }
    let events = newest.iter().flat_map(job_event_frames).collect();
    Ok(JobListing { ok: true, data: JobListBody { jobs, total, notices: index_answer.notices }, events })
}

/// Returns the events of a job, as the frames of its thread's stream show them.
fn job_event_frames(summary: &SessionSummary) -> Vec<Value> {
    let (Some(session), Some(facts)) = (summary.session, summary.job.as_ref()) else { return Vec::new() };
    let mandate = Mandate::from_value(summary.origin.mandate.as_ref()).ok().flatten();
    let retry = mandate.map_or(RetryPolicy { max: 0, ..RetryPolicy::default() }, |mandate| mandate.retry);
    let frame = |item: &JobItem| {
        json!({
            "seq": item.seq, "thread_id": format_session_id(session), "ts": item.at, "event": "job_updated", "job_id": format_session_id(session),
            "item": history_item(item, &retry),
        })
    };
    facts.history.iter().map(frame).collect()
}

pub(crate) fn job_object(
    home: &minke_client::UserHome,
    summary: &SessionSummary,
) -> Result<Option<JobObject>, ApiError> {
    let Some(session) = summary.session else { return Ok(None) };
    // The holder of a finished job's session does not matter.
    if summary.job.as_ref().is_some_and(|job| job.state.is_final()) {
        return Ok(summary.job_object(false));
    }
    let held = match home.store.lease_holder(session) {
        Ok(holder) => holder.is_some(),
        Err(minke_session::StoreError::NotFound { .. }) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    Ok(summary.job_object(held))
}

fn no_such_job(session: SessionId) -> ApiError {
    let message = format!("thread s_{session} is not a job: it has no mandate with an objective");
    ApiError::new(ErrorCode::NotFound, message)
}
