//! Delivery: sends a method to a session, whether a pod is running on it or not.
//!
//! Uses the pod's socket if there is one. Otherwise, if the session lease is free, writes the input as an
//! offline edit and starts a pod with that lease, so that no input depends on a process that may die. While
//! the pod is starting or stopping, retries. Elsewhere: writing an offline edit (`offline`).
//! Invariant: a method with an `op_id` takes effect once, however often it is delivered
//! (`a_message_to_a_sleeping_session_is_run_once`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use minke_client::{Connection, ConnectionError, UserHome, find_ancestors};
use minke_pod::OfflineEdit;
use minke_protocol::{
    Activity, ClientInfo, Method, Refusal, RestorePod, RestorePodReply, StatusReply, Subscribe,
};
use minke_record::{Actor, ErrorCode, Kind, PodName, Position, SessionId, SessionStart};
use minke_registry::{RegistryError, RuntimeDir, ScopeRow};
use minke_session::{AppendError, LogDamage, StoreError, SyncError};
use serde_json::Value;
use thiserror::Error;

use crate::offline::{OfflineStep, append_offline_edit, edit_step, write_offline_edit};
use crate::process::{LaunchError, LaunchedPod, PodLifetime, launch_pod};

/// How long to wait for a pod that is starting or stopping.
const DELIVER_WAIT: Duration = Duration::from_secs(10);
/// The polling interval meanwhile.
const DELIVER_RETRY: Duration = Duration::from_millis(20);
/// How long a live pod may take to answer: its reply waits for the disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A method to be delivered to a session.
pub struct Delivery<'a> {
    pub session: SessionId,
    pub method: Method,
    pub client: ClientInfo,
    /// The offline edit for a session without a pod. Without it the pod is started and gets the method
    /// through its socket.
    pub offline_step: Option<&'a OfflineStep<'a>>,
}

/// How a method reached its session.
#[derive(Debug)]
pub enum DeliveryOutcome {
    /// Through the socket of a pod, which replied.
    Replied { pod: PodName, result: Value },
    /// As an offline edit. Then the pod was started, here or by an ancestor. `before` is the last entry
    /// before the edit.
    WrittenOffline { pod: PodName, launched: Option<LaunchedPod>, before: Option<Position> },
}

/// Delivers a method; starts the pod if none is running on the session.
pub async fn deliver_method(
    home: &UserHome,
    delivery: Delivery<'_>,
) -> Result<DeliveryOutcome, DeliverError> {
    let until = Instant::now() + DELIVER_WAIT;
    loop {
        let (pod, socket) = match delivery.offline_step {
            None => {
                let reached = reach_until(home, delivery.session, until).await?;
                (reached.name, reached.socket)
            }
            Some(visit) => match live_pod(home, delivery.session)? {
                Some(found) => found,
                None => match wake_via_ancestor(home, delivery.session, visit).await {
                    Ok(visited) => return Ok(visited),
                    Err(e) if e.is_transient() && Instant::now() < until => {
                        tokio::time::sleep(DELIVER_RETRY).await;
                        continue;
                    }
                    Err(other) => return Err(other),
                },
            },
        };
        match send_method(&socket, &delivery).await {
            Ok(PodReply::Accepted(result)) => return Ok(DeliveryOutcome::Replied { pod, result }),
            Ok(PodReply::Stopping) if Instant::now() < until => tokio::time::sleep(DELIVER_RETRY).await,
            Ok(PodReply::Stopping) => return Err(DeliverError::Stopping { pod }),
            Ok(PodReply::Refused(refusal)) => return Err(DeliverError::Refused { pod: Some(pod), refusal }),
            Err(e) if e.is_not_running() && Instant::now() < until => tokio::time::sleep(DELIVER_RETRY).await,
            Err(e) => return Err(e.into()),
        }
    }
}

/// A change of a session: the method for its pod, and the same as an offline edit.
pub struct SessionChange {
    pub method: Method,
    pub edit: OfflineEdit,
}

/// Sends a change to a live pod, or writes it offline without starting one.
pub async fn change_session(
    home: &UserHome,
    session: SessionId,
    change: SessionChange,
    by: &Actor,
) -> Result<(), DeliverError> {
    let SessionChange { method, edit } = change;
    let living = RuntimeDir::new(&home.paths).live_pod_of_session(session)?.is_some();
    if !living {
        match write_offline_edit(home, session, &*edit_step(edit, by.clone())) {
            Ok(()) => return Ok(()),
            // A pod has started meanwhile: send the change to it.
            Err(DeliverError::Store(StoreError::Held { .. })) => {}
            Err(other) => return Err(other),
        }
    }
    deliver_method(home, Delivery { session, method, client: client_info(by), offline_step: None }).await?;
    Ok(())
}

/// Returns the client info of an actor; the pod records it as the actor of its entries.
pub fn client_info(by: &Actor) -> ClientInfo {
    ClientInfo {
        name: by.surface.clone().unwrap_or_else(|| "host".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        session: by.session,
    }
}

/// Writes the offline edit and has the pod started: by its nearest running ancestor, which lends its scope
/// again, or here if there is none.
async fn wake_via_ancestor(
    home: &UserHome,
    session: SessionId,
    step: &OfflineStep<'_>,
) -> Result<DeliveryOutcome, DeliverError> {
    let Some(ancestor) = living_ancestor(home, session).await? else {
        let (launched, before) = wake_session(home, session, step, PodLifetime::Detached).await?;
        return Ok(DeliveryOutcome::WrittenOffline {
            pod: launched.ready.name.clone(),
            launched: Some(launched),
            before,
        });
    };
    let (before, writer) = append_offline_edit(home, session, step)?;
    // The pod reads the edit at boot, whichever process starts it.
    drop(writer);
    let restored = restore_via_parent(home, &ancestor, session).await?;
    Ok(DeliveryOutcome::WrittenOffline { pod: restored.name, launched: None, before })
}

/// The nearest running ancestor of a session: only it may start the session's pod. If none is running and the
/// session has a share of a parent's budget, the pod that divides the budget is started first: the unspent
/// share was returned at the exit and may have been given to another child.
async fn living_ancestor(home: &UserHome, session: SessionId) -> Result<Option<ScopeRow>, DeliverError> {
    let ancestors = find_ancestors(home.store.as_ref(), session)?;
    if ancestors.is_empty() {
        return Ok(None);
    }
    let runtime = RuntimeDir::new(&home.paths);
    if let Some(row) = runtime.first_live_ancestor(&ancestors)? {
        return Ok(Some(row));
    }
    if !is_spending_parents_budget(&session_start(home, session)?) {
        return Ok(None);
    }
    for parent in &ancestors {
        match Box::pin(reach_pod(home, *parent)).await {
            Ok(_) => return Ok(runtime.first_live_ancestor(&ancestors)?),
            // No pod is left that knows the budget.
            Err(DeliverError::Store(StoreError::NotFound { .. })) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

fn session_start(home: &UserHome, session: SessionId) -> Result<SessionStart, DeliverError> {
    let first = home.store.open_reader(session)?.read_page(0, 1, usize::MAX)?.entries.into_iter().next();
    match first.map(|sealed| sealed.entry.kind) {
        Some(Kind::SessionStart(start)) => Ok(start),
        _ => Err(StoreError::NotFound { id: session, place: home.paths.sessions_dir() }.into()),
    }
}

/// Whether the session has a share of its parent's tokens or dollars.
fn is_spending_parents_budget(start: &SessionStart) -> bool {
    let budget = start.mandate.as_ref().and_then(|mandate| mandate.get("budget"));
    budget.is_some_and(|budget| budget.get("tokens").is_some() || budget.get("usd").is_some())
}

/// Asks a pod to start a stopped descendant.
async fn restore_via_parent(
    home: &UserHome,
    ancestor: &ScopeRow,
    session: SessionId,
) -> Result<RestorePodReply, DeliverError> {
    let name = session_start(home, session)?.name;
    let mut connection = Connection::open(&ancestor.socket, Subscribe::None, None, probe_client()).await?;
    let method = Method::RestorePod(RestorePod { name, session: Some(session) });
    connection
        .send_and_wait(method, ANSWER_TIMEOUT)
        .await?
        .map_err(|refusal| DeliverError::Refused { pod: Some(ancestor.name.clone()), refusal })
}

/// A running pod of a session.
#[derive(Debug)]
pub struct ReachablePod {
    pub name: PodName,
    pub socket: PathBuf,
    /// Set if it was started here.
    pub launched: Option<LaunchedPod>,
}

/// Finds the pod of a session, or starts one.
pub async fn reach_pod(home: &UserHome, session: SessionId) -> Result<ReachablePod, DeliverError> {
    reach_until(home, session, Instant::now() + DELIVER_WAIT).await
}

async fn reach_until(
    home: &UserHome,
    session: SessionId,
    until: Instant,
) -> Result<ReachablePod, DeliverError> {
    loop {
        if let Some((name, socket)) = live_pod(home, session)? {
            // The row may exist before the socket listens and after it has closed.
            match Connection::open(&socket, Subscribe::None, None, probe_client()).await {
                Ok(_) => return Ok(ReachablePod { name, socket, launched: None }),
                Err(e) if e.is_not_running() && Instant::now() < until => {}
                Err(e) => return Err(e.into()),
            }
        } else if let Some(ancestor) = living_ancestor(home, session).await? {
            match restore_via_parent(home, &ancestor, session).await {
                // The socket listens before the pod is ready.
                Ok(_) if Instant::now() < until => continue,
                Ok(restored) => return Err(DeliverError::Stopping { pod: restored.name }),
                Err(e) if e.is_transient() && Instant::now() < until => {}
                Err(other) => return Err(other),
            }
        } else {
            // The pod itself reads the log and reports removed partial data.
            let woken = match home.store.take_lease(session) {
                Ok(lease) => launch_pod(&home.paths, session, lease, PodLifetime::Detached)
                    .await
                    .map_err(DeliverError::from),
                Err(e) => Err(e.into()),
            };
            match woken {
                Ok(launched) => {
                    let (name, socket) = (launched.ready.name.clone(), launched.ready.socket.clone());
                    return Ok(ReachablePod { name, socket, launched: Some(launched) });
                }
                Err(DeliverError::Store(StoreError::Held { .. })) if Instant::now() < until => {}
                Err(other) => return Err(other),
            }
        }
        tokio::time::sleep(DELIVER_RETRY).await;
    }
}

/// Takes the lease of a session without a pod, writes the offline edit, and starts a pod with the lease.
/// Returns the last entry before the edit, so that a client can request everything after it. Fails with the
/// holder's name if the lease is held.
pub async fn wake_session(
    home: &UserHome,
    session: SessionId,
    step: &OfflineStep<'_>,
    lifetime: PodLifetime,
) -> Result<(LaunchedPod, Option<Position>), DeliverError> {
    home.store.check_startable(session)?;
    let (before, writer) = append_offline_edit(home, session, step)?;
    let lease = writer.into_lease().map_err(|source| DeliverError::Lease { session, source })?;
    Ok((launch_pod(&home.paths, session, lease, lifetime).await?, before))
}

fn live_pod(home: &UserHome, session: SessionId) -> Result<Option<(PodName, PathBuf)>, RegistryError> {
    let live = RuntimeDir::new(&home.paths).live_pod_of_session(session)?;
    Ok(live.map(|live| (live.row.name, live.row.socket)))
}

/// A pod's reply to a method.
enum PodReply {
    Accepted(Value),
    Refused(Refusal),
    /// The pod is stopping: its session can be opened again in a moment.
    Stopping,
}

async fn send_method(socket: &std::path::Path, delivery: &Delivery<'_>) -> Result<PodReply, ConnectionError> {
    let mut connection = Connection::open(socket, Subscribe::None, None, delivery.client.clone()).await?;
    let refusal = match connection.send_and_wait(delivery.method.clone(), ANSWER_TIMEOUT).await? {
        Ok(result) => return Ok(PodReply::Accepted(result)),
        Err(refusal) => refusal,
    };
    if refusal.code == ErrorCode::Conflict {
        let status = connection.send_and_wait::<StatusReply>(Method::Status, ANSWER_TIMEOUT).await?;
        if status.is_ok_and(|status| status.activity == Some(Activity::Stopping)) {
            return Ok(PodReply::Stopping);
        }
    }
    Ok(PodReply::Refused(refusal))
}

fn probe_client() -> ClientInfo {
    ClientInfo { name: "minke".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), session: None }
}

impl DeliverError {
    /// Whether a retry may succeed, because a pod is starting or stopping.
    fn is_transient(&self) -> bool {
        match self {
            DeliverError::Store(StoreError::Held { .. }) => true,
            DeliverError::Connection(error) => error.is_not_running(),
            // The ancestor has not noticed the exit yet, or has just started the pod.
            DeliverError::Refused { pod: Some(_), refusal } => refusal.code == ErrorCode::AlreadyRunning,
            _ => false,
        }
    }
}

/// The reason why a method did not reach its session or was refused.
#[derive(Debug, Error)]
pub enum DeliverError {
    #[error("{}", .refusal.message)]
    Refused { pod: Option<PodName>, refusal: Refusal },
    #[error("pod `{pod}` is stopping and did not exit within {} s", DELIVER_WAIT.as_secs())]
    Stopping { pod: PodName },
    #[error("could not resume session s_{session}: {damage}")]
    Damaged { session: SessionId, damage: LogDamage },
    #[error("could not write to session s_{session}")]
    Append { session: SessionId, source: AppendError },
    #[error("could not sync the log of session s_{session}")]
    Sync { session: SessionId, source: SyncError },
    #[error("could not pass on the lease of session s_{session}")]
    Lease { session: SessionId, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Launch(#[from] LaunchError),
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}
