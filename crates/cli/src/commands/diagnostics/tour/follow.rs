//! Follows all pods of the tour: entries and events of each session, across restarts of its pod.
//!
//! Invariant: entries of a session arrive once and in order, even if its pod dies: each connection continues
//! at the end of the last one.

use std::collections::BTreeSet;
use std::time::Duration;

use minke_client::{Connection, UserHome};
use minke_protocol::{Event, Subscribe};
use minke_record::{Entry, PodName, Position, SessionId};
use minke_registry::RuntimeDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::context::client_info;
use crate::error::CliError;

/// How often a session without a pod is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Size of the event buffer; when it is full, pods are read more slowly.
const EVENT_BUFFER: usize = 1_024;

/// An event of one of the sessions.
#[derive(Debug)]
pub(super) struct FollowEvent {
    pub(super) session: SessionId,
    pub(super) name: PodName,
    pub(super) kind: FollowEventKind,
}

#[derive(Debug)]
pub(super) enum FollowEventKind {
    /// Its pod answers, in this process; may repeat while the pod stops.
    PodLive(u32),
    Entry(Box<Entry>),
}

/// Follows several sessions.
pub(super) struct SessionFollower {
    home: UserHome,
    tx: mpsc::Sender<Result<FollowEvent, CliError>>,
    rx: mpsc::Receiver<Result<FollowEvent, CliError>>,
    sessions: BTreeSet<SessionId>,
    tasks: JoinSet<()>,
}

impl SessionFollower {
    pub(super) fn new(home: &UserHome) -> SessionFollower {
        let (tx, rx) = mpsc::channel(EVENT_BUFFER);
        SessionFollower { home: home.clone(), tx, rx, sessions: BTreeSet::new(), tasks: JoinSet::new() }
    }

    /// Follows a session from its first entry.
    pub(super) fn follow_session(&mut self, session: SessionId, name: &PodName) {
        if !self.sessions.insert(session) {
            return;
        }
        let (home, tx, name) = (self.home.clone(), self.tx.clone(), name.clone());
        self.tasks.spawn(async move {
            if let Err(failure) = follow_loop(&home, session, &name, &tx).await {
                // The receiver is closed only when the tour has ended.
                drop(tx.send(Err(failure)).await);
            }
        });
    }

    /// Returns the next event of any session.
    pub(super) async fn next_event(&mut self) -> Option<Result<FollowEvent, CliError>> {
        self.rx.recv().await
    }
}

async fn follow_loop(
    home: &UserHome,
    session: SessionId,
    name: &PodName,
    tx: &mpsc::Sender<Result<FollowEvent, CliError>>,
) -> Result<(), CliError> {
    let mut since: Option<Position> = None;
    loop {
        let live = RuntimeDir::new(&home.paths).live_pod_of_session(session)?;
        let found = live.map(|live| (live.row.socket, live.row.pid));
        let Some((socket, pid)) = found else {
            tokio::time::sleep(POLL_INTERVAL).await;
            continue;
        };
        let mut connection = match Connection::open(&socket, Subscribe::Full, since, client_info()).await {
            Ok(connection) => connection,
            // It does not accept connections yet, or no longer.
            Err(e) if e.is_not_running() => {
                tokio::time::sleep(POLL_INTERVAL).await;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let heard = |kind| Ok(FollowEvent { session, name: name.clone(), kind });
        if tx.send(heard(FollowEventKind::PodLive(pid))).await.is_err() {
            return Ok(());
        }
        loop {
            let frame = match connection.next_frame().await {
                Ok(Some(frame)) => frame,
                // Killed or stopped: its session may get another pod.
                Ok(None) => break,
                Err(e) if e.is_not_running() => break,
                Err(e) => return Err(e.into()),
            };
            let entries = match frame.event {
                Event::Snapshot(snapshot) => snapshot.entries,
                Event::Entry(event) => vec![*event.entry],
                _ => continue,
            };
            for entry in entries {
                if since.is_some_and(|since| entry.seq <= since.seq) {
                    continue;
                }
                since = Some(Position { seq: entry.seq, h: entry.h });
                if tx.send(heard(FollowEventKind::Entry(Box::new(entry)))).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}
