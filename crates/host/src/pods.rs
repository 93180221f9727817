//! Live pods: lists and describes them, sends messages to them and stops them.
//!
//! Invariant: a listed pod holds a kernel lock at this moment (`registry`).

pub(crate) mod wait_for_run;

use std::time::{Duration, Instant};

use minke_client::{Connection, ConnectionError, UserHome};
use minke_launch::client_info;
use minke_protocol::{
    ClientInfo, Method, Nothing, Refusal, Run, RunMode, Shutdown, ShutdownMode, StatusReply, Subscribe,
};
use minke_record::{Actor, ErrorCode, OpOutcome, SessionId};
use minke_registry::{LivePod, RuntimeDir};
use minke_session::StoreError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::error::ApiError;
use crate::request::{parse_params, quote_input};
use crate::response::format_session_id;
use crate::threads::log::is_ephemeral;

/// How long a pod may take to stop: slightly more than its own deadline.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// How often a stopping pod is checked.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long a pod may take to return its status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodListParams {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PodParams {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StopPodParams {
    name: String,
    #[serde(default)]
    mode: Option<ShutdownMode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SendToPodParams {
    name: String,
    input: Value,
    #[serde(default)]
    mode: Option<RunMode>,
    #[serde(default)]
    op_id: Option<String>,
}

impl Engine {
    pub(crate) fn list_pods(&self, params: Value) -> Result<Value, ApiError> {
        let PodListParams {} = parse_params("pods", params)?;
        let registry_look = RuntimeDir::new(&self.home.paths).take_snapshot()?;
        Ok(json!({ "pods": registry_look.live.iter().map(pod_json).collect::<Vec<Value>>() }))
    }

    pub(crate) async fn handle_pod(&self, params: Value, by: &Actor) -> Result<Value, ApiError> {
        let PodParams { name } = parse_params("pods/get", params)?;
        let live = self.find_live_pod(&name)?;
        let mut connection =
            Connection::open(&live.row.socket, Subscribe::None, None, client_info(by)).await?;
        let status: StatusReply = connection.send_and_wait(Method::Status, STATUS_TIMEOUT).await??;
        let mut pod = pod_json(&live);
        pod["status"] = json!(status);
        Ok(json!({ "pod": pod }))
    }

    pub(crate) async fn stop_pod(&self, params: Value, by: &Actor) -> Result<Value, ApiError> {
        let StopPodParams { name, mode } = parse_params("pods/stop", params)?;
        let live = self.find_live_pod(&name)?;
        let client = client_info(by);
        let stopped = match mode.unwrap_or(ShutdownMode::Now) {
            ShutdownMode::Now => {
                stop_and_wait(&self.home, &live, &client).await?;
                true
            }
            ShutdownMode::AfterRun => {
                request_shutdown(&live, ShutdownMode::AfterRun, &client).await?;
                false
            }
        };
        self.reap_children();
        Ok(
            json!({ "ok": true, "name": live.row.name, "thread_id": format_session_id(live.row.session), "stopped": stopped }),
        )
    }

    /// Sends a message to the thread of a pod.
    pub(crate) async fn send_to_pod(&self, params: Value, by: &Actor) -> Result<Value, ApiError> {
        let SendToPodParams { name, input, mode, op_id } = parse_params("pods/send", params)?;
        let live = self.find_live_pod(&name)?;
        let session = live.row.session;
        let input = self.prepare_input(session, &input)?;
        let run = Run { input, mode: mode.unwrap_or(RunMode::Queue), op_id };
        let mut reply_json =
            json!({ "ok": true, "name": live.row.name, "thread_id": format_session_id(session) });
        match self.deliver_message(session, run, by).await? {
            OpOutcome::Run(run) => reply_json["run"] = json!(run),
            OpOutcome::Queued(queued) => reply_json["queued"] = json!(queued),
        }
        Ok(reply_json)
    }

    /// Finds a live pod by its name or by the id of its thread.
    fn find_live_pod(&self, name: &str) -> Result<LivePod, ApiError> {
        let runtime = RuntimeDir::new(&self.home.paths);
        let by_name = name.parse().ok().map(|name| runtime.live_pod_named(&name)).transpose()?.flatten();
        let session: Option<SessionId> = name.strip_prefix("s_").unwrap_or(name).parse().ok();
        let live_pod = match (by_name, session) {
            (None, Some(session)) => runtime.live_pod_of_session(session)?,
            (by_name, _) => by_name,
        };
        live_pod.ok_or_else(|| {
            ApiError::new(ErrorCode::NotFound, format!("there is no live pod `{}`", quote_input(name)))
        })
    }
}

fn pod_json(live: &LivePod) -> Value {
    let row = &live.row;
    let mut pod = json!({
        "name": row.name,
        "thread_id": format_session_id(row.session),
        "state": live.state_label(),
        "pid": row.pid,
        "since": row.since / 1_000,
        "depth": row.depth,
        "scope": row.scope,
    });
    if let Some(parent) = row.parent {
        pod["parent"] = json!(format_session_id(parent));
    }
    if let Some(activity) = live.status.as_ref().and_then(|status| status.activity.as_ref()) {
        pod["activity"] = json!(activity);
    }
    pod
}

/// Requests the recorded scope of a session whose pod is about to start. Fails if a holder does not yield.
pub(crate) async fn request_session_scope(
    home: &UserHome,
    session: SessionId,
    by: &Actor,
) -> Result<(), ApiError> {
    match minke_launch::request_session_scope(home, session, &client_info(by)).await? {
        Some(holder) => Err(ApiError::new(ErrorCode::Conflict, holder.describe())),
        None => Ok(()),
    }
}

/// Stops the pod of a session, if it is live.
pub(crate) async fn stop_pod_of_session(
    home: &UserHome,
    session: SessionId,
    by: &Actor,
) -> Result<(), ApiError> {
    match RuntimeDir::new(&home.paths).live_pod_of_session(session)? {
        Some(live) => stop_and_wait(home, &live, &client_info(by)).await,
        None => Ok(()),
    }
}

/// Stops one pod, and waits until it has released its session.
async fn stop_and_wait(home: &UserHome, live: &LivePod, client: &ClientInfo) -> Result<(), ApiError> {
    request_shutdown(live, ShutdownMode::Now, client).await?;
    let (session, name) = (live.row.session, &live.row.name);
    let until = Instant::now() + STOP_TIMEOUT;
    // The session lease is released last, or the session is removed.
    while RuntimeDir::new(&home.paths).is_live(name, session)? || is_session_held(home, session)? {
        if Instant::now() >= until {
            let message = format!("pod `{name}` has not stopped after {} s", STOP_TIMEOUT.as_secs());
            return Err(ApiError::new(ErrorCode::Conflict, message));
        }
        tokio::time::sleep(STOP_POLL_INTERVAL).await;
    }
    Ok(())
}

/// Returns whether the session is held. An ephemeral session exists until the very end.
fn is_session_held(home: &UserHome, session: SessionId) -> Result<bool, ApiError> {
    if is_ephemeral(home, session) {
        return Ok(true);
    }
    match home.store.lease_holder(session) {
        Ok(holder) => Ok(holder.is_some()),
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Requests the shutdown of a pod. Succeeds if the pod has already exited.
async fn request_shutdown(live: &LivePod, mode: ShutdownMode, client: &ClientInfo) -> Result<(), ApiError> {
    let shutdown_call = async {
        let mut connection =
            Connection::open(&live.row.socket, Subscribe::None, None, client.clone()).await?;
        connection.send_and_wait(Method::Shutdown(Shutdown { mode }), STOP_TIMEOUT).await
    };
    let answered: Result<Result<Nothing, Refusal>, ConnectionError> = shutdown_call.await;
    match answered {
        Ok(Ok(Nothing {})) => Ok(()),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(e) if e.is_not_running() => Ok(()),
        Err(e) => Err(e.into()),
    }
}
