//! Waking: the one way in which a method reaches a session, whether a pod lives on it or not.
//!
//! The socket, if there is one. Else, if the session lease is free, what was said is written as a visit and a pod is
//! started with that lease, so that nothing is given to a process that may not live. Else (starting, stopping) again,
//! for a while. Elsewhere: the entries of a visit (a mind makes them; whoever delivers hands in the function).
//! Invariant: a method with an `op_id` is acted on once, however often it is delivered
//! (`a_message_to_a_sleeping_session_is_run_once`).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use minke_protocol::{
    Activity, ClientInfo, Method, Refusal, RestorePod, RestorePodReply, StatusReply, Subscribe,
};
use minke_record::{
    Alert, AlertLevel, AlertSource, Blob, Draft, Durability, ErrorCode, Kind, Millis, PodName, Position,
    SessionId, SessionStart,
};
use minke_registry::{Paths, RegistryError, Row, Runtime};
use minke_session::{AppendError, Damage, OpenLog, Sealed, Store, StoreError, SyncError, Writer};
use serde_json::Value;
use thiserror::Error;

use crate::above::above;
use crate::connection::{Connection, ConnectionError};
use crate::launch::{Bond, LaunchError, Launched, launch};

/// How long a pod that starts or stops is waited for.
const DELIVER_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked at meanwhile.
const DELIVER_RETRY: Duration = Duration::from_millis(20);
/// How long a live pod may take to answer: its reply waits for the disk.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(30);

/// Where this user's pods and sessions are.
#[derive(Clone)]
pub struct Home {
    pub paths: Paths,
    pub store: Arc<dyn Store>,
}

/// Makes the step of a visit from the entries of an open log: `opened{as: visit}` and the change. Without entries
/// nothing is written: the log holds it already.
pub type VisitStep<'a> = dyn Fn(&[Sealed]) -> Result<Visited, Refusal> + Send + Sync + 'a;

/// The step of a visit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Visited {
    pub entries: Vec<Draft>,
    pub blobs: Vec<Blob>,
}

/// A method on its way to a session.
pub struct Delivery<'a> {
    pub session: SessionId,
    pub method: Method,
    pub client: ClientInfo,
    /// What to write if no pod lives. Without it the pod is started and gets the method by its socket.
    pub visit: Option<&'a VisitStep<'a>>,
}

/// How a method reached its session.
#[derive(Debug)]
pub enum Delivered {
    /// By the socket of a pod, which replied.
    Replied { pod: PodName, result: Value },
    /// As a visit, for the pod that was then started: here, or by the pod above it. `before` is the last entry before the
    /// visit.
    Visited { pod: PodName, launched: Option<Launched>, before: Option<Position> },
}

/// Delivers a method, waking the session if nobody lives on it.
pub async fn deliver(home: &Home, delivery: Delivery<'_>) -> Result<Delivered, DeliverError> {
    let until = Instant::now() + DELIVER_WAIT;
    loop {
        let (pod, socket) = match delivery.visit {
            None => {
                let reached = reach_until(home, delivery.session, until).await?;
                (reached.name, reached.socket)
            }
            Some(visit) => match live(home, delivery.session)? {
                Some(found) => found,
                None => match wake_by_whom_it_may(home, delivery.session, visit).await {
                    Ok(visited) => return Ok(visited),
                    Err(e) if e.is_passing() && Instant::now() < until => {
                        tokio::time::sleep(DELIVER_RETRY).await;
                        continue;
                    }
                    Err(other) => return Err(other),
                },
            },
        };
        match ask(&socket, &delivery).await {
            Ok(Answer::Given(result)) => return Ok(Delivered::Replied { pod, result }),
            Ok(Answer::Stopping) if Instant::now() < until => tokio::time::sleep(DELIVER_RETRY).await,
            Ok(Answer::Stopping) => return Err(DeliverError::Stopping { pod }),
            Ok(Answer::Refused(refusal)) => return Err(DeliverError::Refused { pod: Some(pod), refusal }),
            Err(e) if e.is_nobody() && Instant::now() < until => tokio::time::sleep(DELIVER_RETRY).await,
            Err(e) => return Err(e.into()),
        }
    }
}

/// Writes the visit and has the pod started: by the nearest living pod above it, which lends it its scope anew, or here
/// if nobody is above it.
async fn wake_by_whom_it_may(
    home: &Home,
    session: SessionId,
    step: &VisitStep<'_>,
) -> Result<Delivered, DeliverError> {
    let Some(keeper) = keeper(home, session).await? else {
        let (launched, before) = wake(home, session, step, Bond::Free).await?;
        return Ok(Delivered::Visited { pod: launched.ready.name.clone(), launched: Some(launched), before });
    };
    let (before, writer) = write_visit(home, session, step)?;
    // What was written counts when the pod boots, whoever starts it.
    drop(writer);
    let restored = restore(home, &keeper, session).await?;
    Ok(Delivered::Visited { pod: restored.name, launched: None, before })
}

/// The nearest living pod above a session: only it can start the session's pod. If none lives and the session spends part
/// of another's budget, the one that divides it is started first: what the session had not spent was given back when it
/// ended, and may be somebody else's by now.
async fn keeper(home: &Home, session: SessionId) -> Result<Option<Row>, DeliverError> {
    let above = above(home.store.as_ref(), session)?;
    if above.is_empty() {
        return Ok(None);
    }
    let runtime = Runtime::new(&home.paths);
    if let Some(row) = runtime.ancestor(&above)? {
        return Ok(Some(row));
    }
    if !spends_anothers(&start(home, session)?) {
        return Ok(None);
    }
    for parent in &above {
        match Box::pin(reach(home, *parent)).await {
            Ok(_) => return Ok(runtime.ancestor(&above)?),
            // Nobody is left who could say what it may spend.
            Err(DeliverError::Store(StoreError::NotFound { .. })) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

fn start(home: &Home, session: SessionId) -> Result<SessionStart, DeliverError> {
    let first = home.store.reader(session)?.page(0, 1, usize::MAX)?.entries.into_iter().next();
    match first.map(|sealed| sealed.entry.kind) {
        Some(Kind::SessionStart(start)) => Ok(start),
        _ => Err(StoreError::NotFound { id: session, place: home.paths.sessions() }.into()),
    }
}

/// Whether tokens or dollars were taken out of a parent's budget for it.
fn spends_anothers(start: &SessionStart) -> bool {
    let budget = start.mandate.as_ref().and_then(|mandate| mandate.get("budget"));
    budget.is_some_and(|budget| budget.get("tokens").is_some() || budget.get("usd").is_some())
}

/// Asks a pod to start one below it again.
async fn restore(home: &Home, keeper: &Row, session: SessionId) -> Result<RestorePodReply, DeliverError> {
    let name = start(home, session)?.name;
    let mut connection = Connection::open(&keeper.socket, Subscribe::None, None, probe()).await?;
    let method = Method::RestorePod(RestorePod { name, session: Some(session) });
    connection
        .ask(method, ANSWER_WAIT)
        .await?
        .map_err(|refusal| DeliverError::Refused { pod: Some(keeper.name.clone()), refusal })
}

/// A pod that lives on a session: found, or started for the purpose.
#[derive(Debug)]
pub struct Reached {
    pub name: PodName,
    pub socket: PathBuf,
    /// If it was started here.
    pub launched: Option<Launched>,
}

/// Finds the pod of a session, or starts one.
pub async fn reach(home: &Home, session: SessionId) -> Result<Reached, DeliverError> {
    reach_until(home, session, Instant::now() + DELIVER_WAIT).await
}

async fn reach_until(home: &Home, session: SessionId, until: Instant) -> Result<Reached, DeliverError> {
    loop {
        if let Some((name, socket)) = live(home, session)? {
            // A row may stand there before the socket listens, and after it has stopped.
            match Connection::open(&socket, Subscribe::None, None, probe()).await {
                Ok(_) => return Ok(Reached { name, socket, launched: None }),
                Err(e) if e.is_nobody() && Instant::now() < until => {}
                Err(e) => return Err(e.into()),
            }
        } else if let Some(keeper) = keeper(home, session).await? {
            match restore(home, &keeper, session).await {
                // Its socket listens before it is ready.
                Ok(_) if Instant::now() < until => continue,
                Ok(restored) => return Err(DeliverError::Stopping { pod: restored.name }),
                Err(e) if e.is_passing() && Instant::now() < until => {}
                Err(other) => return Err(other),
            }
        } else {
            // Reading the log, and saying what was cut off it, is the pod's own business then.
            let woken = match home.store.lease(session) {
                Ok(lease) => {
                    launch(&home.paths, session, lease, Bond::Free).await.map_err(DeliverError::from)
                }
                Err(e) => Err(e.into()),
            };
            match woken {
                Ok(launched) => {
                    let (name, socket) = (launched.ready.name.clone(), launched.ready.socket.clone());
                    return Ok(Reached { name, socket, launched: Some(launched) });
                }
                Err(DeliverError::Store(StoreError::Held { .. })) if Instant::now() < until => {}
                Err(other) => return Err(other),
            }
        }
        tokio::time::sleep(DELIVER_RETRY).await;
    }
}

/// Takes the lease of a session on which nobody lives, writes the visit, and starts a pod with the lease. Gives the
/// last entry before the visit, so that a client can ask for everything since. Refused with the holder's name if the
/// lease is held.
pub async fn wake(
    home: &Home,
    session: SessionId,
    step: &VisitStep<'_>,
    bond: Bond,
) -> Result<(Launched, Option<Position>), DeliverError> {
    home.store.may_start(session)?;
    let (before, writer) = write_visit(home, session, step)?;
    let lease = writer.into_lease().map_err(|source| DeliverError::Lease { session, source })?;
    Ok((launch(&home.paths, session, lease, bond).await?, before))
}

/// Writes a visit and lets go of the lease: for changes that wake nobody.
pub fn visit(home: &Home, session: SessionId, step: &VisitStep<'_>) -> Result<(), DeliverError> {
    write_visit(home, session, step).map(|(_, writer)| drop(writer))
}

fn write_visit(
    home: &Home,
    session: SessionId,
    step: &VisitStep<'_>,
) -> Result<(Option<Position>, Box<dyn Writer>), DeliverError> {
    let OpenLog { mut writer, replay, alerts, damaged, unchecked, .. } = home.store.open(session)?;
    // Nothing is written behind damage, wherever it is.
    let damaged = match damaged {
        None if unchecked => home.store.reader(session)?.damage()?,
        known => known,
    };
    if let Some(damage) = damaged {
        return Err(DeliverError::Damaged { session, damage });
    }
    let before = writer.head();
    let mut step = step(&replay).map_err(|refusal| DeliverError::Refused { pod: None, refusal })?;
    if let Some(last) = step.entries.last().map(|last| (last.seq, last.ts)) {
        // What this opening has cut off is said once, by whoever found it.
        step.entries.extend(alerts.into_iter().zip(1..).map(|(message, after)| alert(message, last, after)));
        writer.append(step.entries, step.blobs).map_err(|source| DeliverError::Append { session, source })?;
        writer.syncer().sync().map_err(|source| DeliverError::Sync { session, source })?;
    }
    Ok((before, writer))
}

fn alert(message: String, (seq, ts): (u64, Millis), after: u64) -> Draft {
    let kind = Kind::Alert(Alert { level: AlertLevel::Warn, source: AlertSource::Storage, message });
    Draft { seq: seq + after, ts, run: None, kind, durability: Durability::Lazy }
}

fn live(home: &Home, session: SessionId) -> Result<Option<(PodName, PathBuf)>, RegistryError> {
    let live = Runtime::new(&home.paths).live_on(session)?;
    Ok(live.map(|live| (live.row.name, live.row.socket)))
}

/// What a pod said to a method.
enum Answer {
    Given(Value),
    Refused(Refusal),
    /// It is on its way out: its session can be woken again in a moment.
    Stopping,
}

async fn ask(socket: &std::path::Path, delivery: &Delivery<'_>) -> Result<Answer, ConnectionError> {
    let mut connection = Connection::open(socket, Subscribe::None, None, delivery.client.clone()).await?;
    let refusal = match connection.ask(delivery.method.clone(), ANSWER_WAIT).await? {
        Ok(result) => return Ok(Answer::Given(result)),
        Err(refusal) => refusal,
    };
    if refusal.code == ErrorCode::Conflict {
        let status = connection.ask::<StatusReply>(Method::Status, ANSWER_WAIT).await?;
        if status.is_ok_and(|status| status.activity == Some(Activity::Stopping)) {
            return Ok(Answer::Stopping);
        }
    }
    Ok(Answer::Refused(refusal))
}

fn probe() -> ClientInfo {
    ClientInfo { name: "minke".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), session: None }
}

impl DeliverError {
    /// Whether it may be otherwise in a moment: somebody starts or stops.
    fn is_passing(&self) -> bool {
        match self {
            DeliverError::Store(StoreError::Held { .. }) => true,
            DeliverError::Connection(error) => error.is_nobody(),
            // The pod above it has not noticed yet that it is gone, or has just started it.
            DeliverError::Refused { pod: Some(_), refusal } => refusal.code == ErrorCode::AlreadyRunning,
            _ => false,
        }
    }
}

/// A method did not reach its session, or was refused there.
#[derive(Debug, Error)]
pub enum DeliverError {
    #[error("{}", .refusal.message)]
    Refused { pod: Option<PodName>, refusal: Refusal },
    #[error("pod `{pod}` is stopping and has not ended in {} s", DELIVER_WAIT.as_secs())]
    Stopping { pod: PodName },
    #[error("session s_{session} cannot be gone on with: {damage}")]
    Damaged { session: SessionId, damage: Damage },
    #[error("cannot write to session s_{session}")]
    Append { session: SessionId, source: AppendError },
    #[error("cannot make durable what was written to session s_{session}")]
    Sync { session: SessionId, source: SyncError },
    #[error("cannot hand on the lease of session s_{session}")]
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
