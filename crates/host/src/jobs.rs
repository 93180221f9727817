//! Jobs, as they are asked about: listed, begun, paused, resumed, cancelled, begun again.
//!
//! Elsewhere: who starts them (`keeper`), what may become of them (`thread`), who does it (their pods).
//! Invariant: a wish that the table of states does not know is refused with the state named
//! (`wishes_are_answered_by_the_table_of_states`).

use bytes::Bytes;
use minke_client::{Delivery, deliver, reach};
use minke_pod::{Visit, Wish};
use minke_protocol::{Detail, Method, Set, SetProgress};
use minke_record::{Actor, ErrorCode, JobItem, SessionId};
use minke_thread::{Job, Mandate, Moved, Retry, Summary, line};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::answer::id;
use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::lists::from_index;
use crate::look::Glance;
use crate::request::{New, Override, ThreadName, params_of};
use crate::stderr::report;
use crate::threads::Again;
use crate::visits::{change, introduction};

/// How many jobs are listed if nobody says, and at most.
const LISTED: usize = 100;
const LISTED_MOST: usize = 1_000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Newest {
    #[serde(default)]
    limit: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct One {
    id: ThreadName,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wished {
    id: ThreadName,
    #[serde(default)]
    detail: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    id: ThreadName,
    progress: f64,
    #[serde(default)]
    detail: Option<String>,
}

/// The answer that lists jobs.
#[derive(Debug, Serialize)]
struct Listing {
    ok: bool,
    data: ListedJobs,
    events: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct ListedJobs {
    jobs: Vec<Job>,
    total: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notices: Vec<String>,
}

impl Listing {
    /// As it goes over a wire.
    fn text(&self) -> Result<Bytes, Fault> {
        let written = serde_json::to_vec(self).map_err(|e| Fault::new(ErrorCode::Internal, e.to_string()))?;
        Ok(written.into())
    }
}

impl Engine {
    /// The newest jobs, the one that changed last first, and how many there are.
    pub(crate) async fn jobs(&self, method: &str, params: Value) -> Result<Value, Fault> {
        match params_of(method, params)? {
            Newest { limit: None } => self.list_jobs(LISTED).await,
            Newest { limit: Some(limit) } if (1..=LISTED_MOST).contains(&limit) => {
                self.list_jobs(limit).await
            }
            Newest { limit: Some(limit) } => {
                Err(Fault::invalid(format!("limit: is {limit}; there are lists of 1 to {LISTED_MOST} jobs")))
            }
        }
    }

    /// As many as are listed if nobody says, as it goes over a wire: one look, written once, for all who ask now.
    pub(crate) async fn newest_jobs(&self) -> Result<Bytes, Fault> {
        let home = self.home.clone();
        self.listed.get(off(move || listing(&home, LISTED)?.text())).await
    }

    async fn list_jobs(&self, limit: usize) -> Result<Value, Fault> {
        let home = self.home.clone();
        let listing = off(move || listing(&home, limit)).await?;
        Ok(json!(listing))
    }

    pub(crate) async fn job_get(&self, params: Value) -> Result<Value, Fault> {
        let One { id } = params_of("jobs/get", params)?;
        let session = self.job_named(&id)?;
        self.job_told(session).await
    }

    /// A `start` whose mandate is required.
    pub(crate) async fn job_start(&self, params: Value, by: &Actor) -> Result<Value, Fault> {
        let new: New = params_of("jobs/start", params)?;
        let Some(mandate) = &new.mandate else {
            return Err(Fault::invalid("mandate: is missing: a job needs an objective"));
        };
        Mandate::asked(mandate).map_err(|why| Fault::invalid(format!("mandate: {why}")))?;
        let mut answer = self.create(new, "started", by).await?.value()?;
        let session: Option<SessionId> =
            answer["thread_id"].as_str().and_then(|id| id.strip_prefix("s_")?.parse().ok());
        if let Some(session) = session {
            answer["data"]["job"] = json!(self.job(session).await?);
        }
        Ok(answer)
    }

    pub(crate) async fn job_wish(&self, method: &str, params: Value, by: &Actor) -> Result<Value, Fault> {
        let Wished { id, detail } = params_of(method, params)?;
        let wish = match method {
            "jobs/pause" => Wish::Pause,
            "jobs/resume" => Wish::Resume,
            "jobs/cancel" => Wish::Cancel,
            _ => Wish::Again,
        };
        let session = self.job_named(&id)?;
        let Job { status: state, schedule, .. } = self.job(session).await?;
        let moved = wish.of(state, true).map_err(|why| Fault::new(ErrorCode::Conflict, why))?;
        let said = Detail { detail: detail.clone() };
        match (moved, wish) {
            (Moved::Stays, _) => {}
            (Moved::Fork, _) => return self.job_again(session, by).await,
            (Moved::To(_), Wish::Resume) if schedule.is_none() => {
                let (method, client) = (Method::Resume(said), introduction(by));
                crate::room::make_way(&self.home, session, by).await?;
                let delivery = Delivery { session, method, client, visit: None };
                match deliver(&self.home, delivery).await {
                    Ok(_) => {}
                    // Waking it was enough: it went on by itself.
                    Err(minke_client::DeliverError::Refused { refusal, .. })
                        if matches!(refusal.code, ErrorCode::AlreadyRunning | ErrorCode::NotPaused) => {}
                    Err(other) => return Err(other.into()),
                }
            }
            (Moved::To(_), _) => {
                let method = match wish {
                    Wish::Pause => Method::Pause(said),
                    Wish::Resume => Method::Resume(said),
                    _ => Method::Cancel(said),
                };
                change(&self.home, session, (method, Visit::Job { wish, detail }), by).await?;
                self.told_by_its_pod(session, by).await;
            }
        }
        self.nudge();
        self.job_told(session).await
    }

    /// Only a pod tells hooks: that of a job whose mandate names some is started for it, and ends again by itself. The
    /// wish is fulfilled in any case; if no pod can be started now, the next one tells it.
    async fn told_by_its_pod(&self, session: SessionId, by: &Actor) {
        let start = crate::look::start(&self.home, session);
        let names = start.ok().and_then(|start| Mandate::read(start.mandate.as_ref()).ok().flatten());
        if names.is_none_or(|mandate| mandate.notify.is_empty()) {
            return;
        }
        let woken = async {
            crate::room::make_way(&self.home, session, by).await?;
            reach(&self.home, session).await.map_err(Fault::from)
        };
        match woken.await {
            Ok(reached) => self.keep(reached.launched),
            Err(fault) => {
                report!("the hooks of job s_{session} are told when its pod lives: {}", fault.message)
            }
        }
    }

    /// Once more, as a fork of its thread.
    async fn job_again(&self, session: SessionId, by: &Actor) -> Result<Value, Fault> {
        let (engine, by) = (self.clone(), by.clone());
        let again = off(move || {
            let mandate = crate::look::start(&engine.home, session)?.mandate;
            engine.part(session, None, Again { mandate, ..Again::default() }, by)
        })
        .await?;
        self.nudge();
        self.job_told(again).await
    }

    pub(crate) async fn job_progress(&self, params: Value, by: &Actor) -> Result<Value, Fault> {
        let Told { id, progress, detail } = params_of("jobs/progress", params)?;
        let session = self.job_named(&id)?;
        let state = self.job(session).await?.status;
        Wish::Progress.of(state, true).map_err(|why| Fault::new(ErrorCode::Conflict, why))?;
        if !progress.is_finite() {
            return Err(Fault::invalid("progress: is a number from 0 to 100"));
        }
        let note = detail.unwrap_or_default();
        self.maker.without_secrets(&[&note])?;
        let progress = SetProgress { percent: Some(progress.clamp(0.0, 100.0)), note };
        let set = Set { progress: Some(progress), ..Set::default() };
        let method = Method::Set(Box::new(set));
        deliver(&self.home, Delivery { session, method, client: introduction(by), visit: None }).await?;
        self.job_told(session).await
    }

    async fn job_told(&self, session: SessionId) -> Result<Value, Fault> {
        Ok(json!({ "ok": true, "data": { "job": self.job(session).await? }, "events": [] }))
    }

    /// One job, from its log as it is now.
    async fn job(&self, session: SessionId) -> Result<Job, Fault> {
        let home = self.home.clone();
        off(move || {
            let glance = Glance::of(&home, session)?;
            object(&home, &glance.story.summary)?.ok_or_else(|| no_job(session))
        })
        .await
    }

    fn job_named(&self, name: &ThreadName) -> Result<SessionId, Fault> {
        self.session(name, &Override::default())
    }
}

fn listing(home: &minke_client::Home, limit: usize) -> Result<Listing, Fault> {
    let found = from_index(home, |index| Ok((index.jobs(false, limit)?, index.count_jobs()?)))?;
    let (newest, total) = found.value;
    let mut jobs: Vec<Job> = Vec::new();
    for summary in &newest {
        jobs.extend(object(home, summary)?);
    }
    let events = newest.iter().flat_map(frames).collect();
    Ok(Listing { ok: true, data: ListedJobs { jobs, total, notices: found.notices }, events })
}

/// What happened to a job, as the frames that its thread's stream has for it.
fn frames(summary: &Summary) -> Vec<Value> {
    let (Some(session), Some(facts)) = (summary.session, summary.job.as_ref()) else { return Vec::new() };
    let mandate = Mandate::read(summary.mandate.as_ref()).ok().flatten();
    let retry = mandate.map_or(Retry { max: 0, ..Retry::default() }, |mandate| mandate.retry);
    let frame = |item: &JobItem| {
        json!({
            "seq": item.seq, "thread_id": id(session), "ts": item.at, "event": "job_updated", "job_id": id(session),
            "item": line(item, &retry),
        })
    };
    facts.history.iter().map(frame).collect()
}

pub(crate) fn object(home: &minke_client::Home, summary: &Summary) -> Result<Option<Job>, Fault> {
    let Some(session) = summary.session else { return Ok(None) };
    // Of one that is over it does not matter who holds it.
    if summary.job.as_ref().is_some_and(|job| job.state.is_final()) {
        return Ok(summary.job_object(false));
    }
    let held = match home.store.holder(session) {
        Ok(holder) => holder.is_some(),
        Err(minke_session::StoreError::NotFound { .. }) => return Ok(None),
        Err(other) => return Err(other.into()),
    };
    Ok(summary.job_object(held))
}

fn no_job(session: SessionId) -> Fault {
    let message = format!("thread s_{session} is no job: it has no mandate with an objective");
    Fault::new(ErrorCode::NotFound, message)
}
