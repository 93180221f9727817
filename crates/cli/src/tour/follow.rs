//! Listening to all pods of the tour: entries and live events of each session, from one life of its pod to the next.
//!
//! Invariant: of each session entries come once and in order, also over a death of its pod: each connection goes on where
//! the last one ended.

use std::collections::BTreeSet;
use std::time::Duration;

use minke_client::{Connection, Home};
use minke_protocol::{Event, Subscribe};
use minke_record::{Entry, PodName, Position, SessionId};
use minke_registry::Runtime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::around::introduction;
use crate::failure::Failure;

/// How often a session without a pod is looked at.
const LOOK_RETRY: Duration = Duration::from_millis(5);
/// What is kept for a listener that is busy; then pods are read more slowly.
const KEPT: usize = 1_024;

/// Something of one of the sessions.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) session: SessionId,
    pub(super) name: PodName,
    pub(super) news: News,
}

#[derive(Debug)]
pub(super) enum News {
    /// Its pod, this process, answers: for the first time, or once more while it stops.
    Lives(u32),
    Entry(Box<Entry>),
}

/// Everybody who is listened to.
pub(super) struct Follow {
    home: Home,
    tx: mpsc::Sender<Result<Heard, Failure>>,
    rx: mpsc::Receiver<Result<Heard, Failure>>,
    sessions: BTreeSet<SessionId>,
    tasks: JoinSet<()>,
}

impl Follow {
    pub(super) fn new(home: &Home) -> Follow {
        let (tx, rx) = mpsc::channel(KEPT);
        Follow { home: home.clone(), tx, rx, sessions: BTreeSet::new(), tasks: JoinSet::new() }
    }

    /// Listens to a session from its first entry on.
    pub(super) fn session(&mut self, session: SessionId, name: &PodName) {
        if !self.sessions.insert(session) {
            return;
        }
        let (home, tx, name) = (self.home.clone(), self.tx.clone(), name.clone());
        self.tasks.spawn(async move {
            if let Err(failure) = listen(&home, session, &name, &tx).await {
                // Whoever hears nobody any more has ended.
                drop(tx.send(Err(failure)).await);
            }
        });
    }

    /// The next entry of any session.
    pub(super) async fn next(&mut self) -> Option<Result<Heard, Failure>> {
        self.rx.recv().await
    }
}

async fn listen(
    home: &Home,
    session: SessionId,
    name: &PodName,
    tx: &mpsc::Sender<Result<Heard, Failure>>,
) -> Result<(), Failure> {
    let mut since: Option<Position> = None;
    loop {
        let live = Runtime::new(&home.paths).live_on(session)?;
        let found = live.map(|live| (live.row.socket, live.row.pid));
        let Some((socket, pid)) = found else {
            tokio::time::sleep(LOOK_RETRY).await;
            continue;
        };
        let mut connection = match Connection::open(&socket, Subscribe::Full, since, introduction()).await {
            Ok(connection) => connection,
            // It does not listen yet, or no more.
            Err(e) if e.is_nobody() => {
                tokio::time::sleep(LOOK_RETRY).await;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let heard = |news| Ok(Heard { session, name: name.clone(), news });
        if tx.send(heard(News::Lives(pid))).await.is_err() {
            return Ok(());
        }
        loop {
            let frame = match connection.next().await {
                Ok(Some(frame)) => frame,
                // Killed or stopped: its session may live again.
                Ok(None) => break,
                Err(e) if e.is_nobody() => break,
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
                if tx.send(heard(News::Entry(Box::new(entry)))).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}
