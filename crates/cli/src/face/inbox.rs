//! Every open question of every pod, for the terminal: those of pods that live at every look, those of sessions that
//! sleep when somebody wants to see all.

use std::collections::BTreeMap;

use minke_client::Home;
use minke_record::{Ask, AskId, Millis, OpenAsk, Position, SessionId};
use minke_registry::Runtime;
use minke_session::StoreError;
use minke_tui::Answer;
use minke_tui::panes::AskRow;
use minke_view::AskCard;

use super::Face;
use crate::failure::Failure;
use crate::questions::{Questions, questions, unread};

/// Questions that are shown.
const ROWS: usize = 1_000;

/// Where a log stood, what was open there, and why there may be more.
#[derive(Debug, Clone)]
struct Seen {
    head: Option<Position>,
    rows: Vec<AskRow>,
    doubt: Option<String>,
}

/// Where each log stood when it was looked at. A log that has not grown is not read again.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    seen: BTreeMap<SessionId, Seen>,
}

impl Inbox {
    fn look(&mut self, home: &Home, everywhere: bool) -> Result<Answer, Failure> {
        let sessions: Vec<SessionId> = if everywhere {
            home.store.list()?
        } else {
            let live = Runtime::new(&home.paths).look()?.live;
            let asking = self.seen.iter().filter(|(_, seen)| !seen.rows.is_empty()).map(|(id, _)| *id);
            let mut some: Vec<SessionId> = live.iter().map(|live| live.row.session).chain(asking).collect();
            some.sort_unstable();
            some.dedup();
            some
        };
        let (mut seen, mut missing) = (BTreeMap::new(), Vec::new());
        for session in sessions {
            // One that cannot be read must not hide the others; it is named.
            match self.session(home, session) {
                Ok(found) => {
                    missing.extend(found.doubt.clone());
                    seen.insert(session, found);
                }
                Err(e) => missing.push(unread(session, &e)),
            }
        }
        let mut rows: Vec<AskRow> = seen.values().flat_map(|seen| &seen.rows).cloned().collect();
        self.seen = seen;
        rows.sort_by_key(|row| row.since);
        rows.truncate(ROWS);
        Ok(Answer::Asks { rows, unread: missing })
    }

    fn session(&self, home: &Home, session: SessionId) -> Result<Seen, StoreError> {
        let reader = home.store.reader(session)?;
        let head = reader.head()?;
        if let Some(seen) = self.seen.get(&session).filter(|seen| seen.head == head) {
            return Ok(seen.clone());
        }
        let Questions { pod, asks, doubt, .. } = questions(&*reader)?;
        let rows = asks.into_iter().map(|ask| row(session, &pod, ask)).collect();
        Ok(Seen { head, rows, doubt })
    }
}

fn row(session: SessionId, pod: &str, ask: OpenAsk) -> AskRow {
    let OpenAsk { id, ask, subject, options, expires } = ask;
    let ask = Ask { id, ask, subject, options, expires };
    let card = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow { session, pod: pod.to_owned(), since: since(id), card }
}

/// When it was asked: its id says so.
fn since(ask: AskId) -> Millis {
    let at = ask.0.get_timestamp().map(|at| at.to_unix());
    at.map_or(0, |(seconds, nanos)| seconds.saturating_mul(1_000) + u64::from(nanos / 1_000_000))
}

impl Face {
    pub(super) async fn asks(&self, everywhere: bool) -> Result<Answer, Failure> {
        let (home, inbox) = (self.home.clone(), self.inbox.clone());
        let looked = self.beside("the list of questions", move || {
            let mut inbox = inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            inbox.look(&home, everywhere)
        });
        looked.await
    }
}
