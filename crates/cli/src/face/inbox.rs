//! Every open question of every pod, for the terminal: those of pods that live at every look, those of sessions that
//! sleep when somebody wants to see all.

use std::collections::BTreeMap;

use minke_client::Home;
use minke_pod::State;
use minke_record::{Ask, AskId, Millis, OpenAsk, Position, SessionId};
use minke_registry::Runtime;
use minke_session::StoreError;
use minke_tui::Answer;
use minke_tui::panes::AskRow;
use minke_view::AskCard;

use super::Face;
use crate::failure::Failure;

/// Questions that are shown.
const ROWS: usize = 1_000;

/// Where a log stood, and what was open there.
type Seen = (Position, Vec<AskRow>);

/// Where each log stood when it was looked at, and what was open there. A log that has not grown is not read again.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    seen: BTreeMap<SessionId, Seen>,
}

impl Inbox {
    fn look(&mut self, home: &Home, everywhere: bool) -> Result<Answer, Failure> {
        let known = |(_, rows): &Seen| !rows.is_empty();
        let sessions: Vec<SessionId> = if everywhere {
            home.store.list()?
        } else {
            let live = Runtime::new(&home.paths).look()?.live;
            let asking = self.seen.iter().filter(|(_, seen)| known(seen)).map(|(session, _)| *session);
            let mut some: Vec<SessionId> = live.iter().map(|live| live.row.session).chain(asking).collect();
            some.sort_unstable();
            some.dedup();
            some
        };
        let (mut seen, mut unread) = (BTreeMap::new(), Vec::new());
        for session in sessions {
            // One that cannot be read must not hide the others; it is named.
            match self.session(home, session) {
                Ok(Some(found)) => {
                    seen.insert(session, found);
                }
                Ok(None) => {}
                Err(e) => unread.push(format!("s_{session} may ask something: its log cannot be read: {e}")),
            }
        }
        let mut rows: Vec<AskRow> = seen.values().flat_map(|(_, rows)| rows).cloned().collect();
        self.seen = seen;
        rows.sort_by_key(|row| row.since);
        rows.truncate(ROWS);
        Ok(Answer::Asks { rows, unread })
    }

    /// Nothing, if nothing was ever written there.
    fn session(&self, home: &Home, session: SessionId) -> Result<Option<Seen>, StoreError> {
        let reader = home.store.reader(session)?;
        let Some(head) = reader.head()? else { return Ok(None) };
        if let Some(seen) = self.seen.get(&session).filter(|(at, _)| *at == head) {
            return Ok(Some(seen.clone()));
        }
        let replay = reader.replay()?;
        let facts = State::replay(replay.iter().map(|sealed| &sealed.entry)).facts;
        let pod = facts.name.as_ref().map(ToString::to_string).unwrap_or_default();
        let rows = facts.asks.into_iter().map(|ask| row(session, &pod, ask)).collect();
        Ok(Some((head, rows)))
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
