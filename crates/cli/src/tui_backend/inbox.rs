//! Open asks of all pods, for the terminal UI: of live pods on every refresh, of other sessions when the user
//! wants to see all.

use std::collections::BTreeMap;

use minke_client::UserHome;
use minke_record::{Ask, AskId, Millis, OpenAsk, Position, SessionId};
use minke_registry::RuntimeDir;
use minke_session::StoreError;
use minke_tui::BackendResponse;
use minke_tui::panes::AskRow;
use minke_view::AskCard;

use super::CliTuiBackend;
use crate::error::CliError;
use crate::render::open_asks::{OpenAsks, read_open_asks, unreadable_log};

/// Maximum number of asks shown.
const MAX_ROWS: usize = 1_000;

/// Open asks of a log at some head.
#[derive(Debug, Clone)]
struct CachedAsks {
    head: Option<Position>,
    rows: Vec<AskRow>,
    incomplete_reason: Option<String>,
}

/// Cached asks of each log. A log is read again only after it has grown.
#[derive(Debug, Default)]
pub(super) struct AskInbox {
    cached: BTreeMap<SessionId, CachedAsks>,
}

impl AskInbox {
    fn collect_asks(&mut self, home: &UserHome, everywhere: bool) -> Result<BackendResponse, CliError> {
        let sessions: Vec<SessionId> = if everywhere {
            home.store.list_sessions()?
        } else {
            let live = RuntimeDir::new(&home.paths).take_snapshot()?.live;
            let asking = self.cached.iter().filter(|(_, cached)| !cached.rows.is_empty()).map(|(id, _)| *id);
            let mut some: Vec<SessionId> = live.iter().map(|live| live.row.session).chain(asking).collect();
            some.sort_unstable();
            some.dedup();
            some
        };
        let (mut cached, mut unreadable) = (BTreeMap::new(), Vec::new());
        for session in sessions {
            // An unreadable session must not hide the others; it is listed instead.
            match self.session_asks(home, session) {
                Ok(found) => {
                    unreadable.extend(found.incomplete_reason.clone());
                    cached.insert(session, found);
                }
                Err(e) => unreadable.push(unreadable_log(session, &e)),
            }
        }
        let mut rows: Vec<AskRow> = cached.values().flat_map(|seen| &seen.rows).cloned().collect();
        self.cached = cached;
        rows.sort_by_key(|row| row.asked_at);
        rows.truncate(MAX_ROWS);
        Ok(BackendResponse::Asks { rows, unreadable_logs: unreadable })
    }

    fn session_asks(&self, home: &UserHome, session: SessionId) -> Result<CachedAsks, StoreError> {
        let reader = home.store.open_reader(session)?;
        let head = reader.head_position()?;
        if let Some(cached) = self.cached.get(&session).filter(|seen| seen.head == head) {
            return Ok(cached.clone());
        }
        let OpenAsks { pod, asks, incomplete_reason, .. } = read_open_asks(&*reader)?;
        let rows = asks.into_iter().map(|ask| ask_row(session, &pod, ask)).collect();
        Ok(CachedAsks { head, rows, incomplete_reason })
    }
}

fn ask_row(session: SessionId, pod: &str, ask: OpenAsk) -> AskRow {
    let OpenAsk { id, ask, subject, options, expires } = ask;
    let ask = Ask { id, ask, subject, options, expires };
    let card_lines = AskCard { ask, pod: None, socket: None, answer: None, closed: false };
    AskRow { session, pod: pod.to_owned(), asked_at: asked_at(id), card_lines }
}

/// Returns the time at which an ask was created; its id contains it.
fn asked_at(ask: AskId) -> Millis {
    let at = ask.0.get_timestamp().map(|at| at.to_unix());
    at.map_or(0, |(seconds, nanos)| seconds.saturating_mul(1_000) + u64::from(nanos / 1_000_000))
}

impl CliTuiBackend {
    pub(super) async fn list_asks(&self, everywhere: bool) -> Result<BackendResponse, CliError> {
        let (home, inbox) = (self.home.clone(), self.inbox.clone());
        let looked = self.run_blocking("the list of asks", move || {
            let mut inbox = inbox.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            inbox.collect_asks(&home, everywhere)
        });
        looked.await
    }
}
