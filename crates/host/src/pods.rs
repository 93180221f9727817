//! Live pods: who they are, what they do, saying something to one, ending one.
//!
//! Invariant: who is listed holds a kernel lock at this moment; nobody is listed by guess (`registry`).

use std::time::{Duration, Instant};

use minke_client::{Connection, ConnectionError, Home};
use minke_protocol::{
    ClientInfo, Method, Nothing, Refusal, Run, RunMode, Shutdown, ShutdownMode, StatusReply, Subscribe,
};
use minke_record::{Actor, ErrorCode, OpGave, SessionId};
use minke_registry::{Live, Runtime};
use minke_session::StoreError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::id;
use crate::engine::Engine;
use crate::fault::Fault;
use crate::look::passes;
use crate::request::{params_of, quoted};
use crate::visits::introduction;

/// How long a pod may take to stop: its own deadline, and a little.
const STOP_WAIT: Duration = Duration::from_secs(12);
/// How often it is looked at meanwhile.
const STOP_RETRY: Duration = Duration::from_millis(5);
/// How long a pod may take to say what it does.
const STATUS_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nobody {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    name: String,
    #[serde(default)]
    mode: Option<ShutdownMode>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Send {
    name: String,
    input: Value,
    #[serde(default)]
    mode: Option<RunMode>,
    #[serde(default)]
    op_id: Option<String>,
}

impl Engine {
    pub(crate) fn pods(&self, params: Value) -> Result<Value, Fault> {
        let Nobody {} = params_of("pods", params)?;
        let look = Runtime::new(&self.home.paths).look()?;
        Ok(json!({ "pods": look.live.iter().map(row).collect::<Vec<Value>>() }))
    }

    pub(crate) async fn pod(&self, params: Value, by: &Actor) -> Result<Value, Fault> {
        let Named { name } = params_of("pods/get", params)?;
        let live = self.live(&name)?;
        let mut connection =
            Connection::open(&live.row.socket, Subscribe::None, None, introduction(by)).await?;
        let status: StatusReply = connection.ask(Method::Status, STATUS_WAIT).await??;
        let mut pod = row(&live);
        pod["status"] = json!(status);
        Ok(json!({ "pod": pod }))
    }

    pub(crate) async fn pod_stop(&self, params: Value, by: &Actor) -> Result<Value, Fault> {
        let Stop { name, mode } = params_of("pods/stop", params)?;
        let live = self.live(&name)?;
        let client = introduction(by);
        let stopped = match mode.unwrap_or(ShutdownMode::Now) {
            ShutdownMode::Now => {
                end(&self.home, &live, &client).await?;
                true
            }
            ShutdownMode::AfterRun => {
                told(&live, ShutdownMode::AfterRun, &client).await?;
                false
            }
        };
        self.reap();
        Ok(
            json!({ "ok": true, "name": live.row.name, "thread_id": id(live.row.session), "stopped": stopped }),
        )
    }

    /// The same as a message to its thread, for whoever knows the pod by its name.
    pub(crate) async fn pod_send(&self, params: Value, by: &Actor) -> Result<Value, Fault> {
        let Send { name, input, mode, op_id } = params_of("pods/send", params)?;
        let live = self.live(&name)?;
        let session = live.row.session;
        let input = self.input(session, &input)?;
        let run = Run { input, mode: mode.unwrap_or(RunMode::Queue), op_id };
        let mut told = json!({ "ok": true, "name": live.row.name, "thread_id": id(session) });
        match self.say(session, run, by).await? {
            OpGave::Run(run) => told["run"] = json!(run),
            OpGave::Queued(queued) => told["queued"] = json!(queued),
        }
        Ok(told)
    }

    /// By its name, or by the id of its thread.
    fn live(&self, name: &str) -> Result<Live, Fault> {
        let runtime = Runtime::new(&self.home.paths);
        let by_name = name.parse().ok().map(|name| runtime.live_named(&name)).transpose()?.flatten();
        let session: Option<SessionId> = name.strip_prefix("s_").unwrap_or(name).parse().ok();
        let found = match (by_name, session) {
            (None, Some(session)) => runtime.live_on(session)?,
            (by_name, _) => by_name,
        };
        found.ok_or_else(|| {
            Fault::new(ErrorCode::NotFound, format!("no live pod is called `{}`", quoted(name)))
        })
    }
}

fn row(live: &Live) -> Value {
    let row = &live.row;
    let mut pod = json!({
        "name": row.name,
        "thread_id": id(row.session),
        "state": live.state(),
        "pid": row.pid,
        "since": row.since / 1_000,
        "depth": row.depth,
        "scope": row.scope,
    });
    if let Some(parent) = row.parent {
        pod["parent"] = json!(id(parent));
    }
    if let Some(activity) = live.status.as_ref().and_then(|status| status.activity.as_ref()) {
        pod["activity"] = json!(activity);
    }
    pod
}

/// Ends the pod of a session, if one lives.
pub(crate) async fn end_of(home: &Home, session: SessionId, by: &Actor) -> Result<(), Fault> {
    match Runtime::new(&home.paths).live_on(session)? {
        Some(live) => end(home, &live, &introduction(by)).await,
        None => Ok(()),
    }
}

/// Ends one pod, and waits until it has let go of its session.
async fn end(home: &Home, live: &Live, client: &ClientInfo) -> Result<(), Fault> {
    told(live, ShutdownMode::Now, client).await?;
    let (session, name) = (live.row.session, &live.row.name);
    let until = Instant::now() + STOP_WAIT;
    // The session lease goes last, or the session itself.
    while Runtime::new(&home.paths).lives(name, session)? || is_held(home, session)? {
        if Instant::now() >= until {
            let message = format!("pod `{name}` has not stopped after {} s", STOP_WAIT.as_secs());
            return Err(Fault::new(ErrorCode::Conflict, message));
        }
        tokio::time::sleep(STOP_RETRY).await;
    }
    Ok(())
}

/// One that goes with its pod is there until the very end.
fn is_held(home: &Home, session: SessionId) -> Result<bool, Fault> {
    if passes(home, session) {
        return Ok(true);
    }
    match home.store.holder(session) {
        Ok(holder) => Ok(holder.is_some()),
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Tells a pod to stop. One that is gone needs no telling.
async fn told(live: &Live, mode: ShutdownMode, client: &ClientInfo) -> Result<(), Fault> {
    let asked = async {
        let mut connection =
            Connection::open(&live.row.socket, Subscribe::None, None, client.clone()).await?;
        connection.ask(Method::Shutdown(Shutdown { mode }), STOP_WAIT).await
    };
    let answered: Result<Result<Nothing, Refusal>, ConnectionError> = asked.await;
    match answered {
        Ok(Ok(Nothing {})) => Ok(()),
        Ok(Err(refusal)) => Err(refusal.into()),
        Err(e) if e.is_nobody() => Ok(()),
        Err(e) => Err(e.into()),
    }
}
