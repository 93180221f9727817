//! Who is meant: a live pod's name, a session's id or the beginning of one, or the name that a session had.
//!
//! Invariant: a live pod's name wins over every session's, and an id that fits two sessions is refused with both
//! (`a_name_is_a_live_pods_or_that_of_the_newest_session`).

use minke_record::{Kind, PodName, SessionId};
use minke_registry::{Live, RegistryError, Runtime};
use minke_session::{Sealed, Store, StoreError};
use thiserror::Error;

use crate::deliver::Home;

/// A beginning of an id shorter than this says too little: ids begin with their time.
const PREFIX_CHARS: usize = 6;
/// How many sessions are named when a beginning fits several.
const NAMED: usize = 3;

/// A session, and the pod that lives on it if one does.
#[derive(Debug)]
pub struct Found {
    pub session: SessionId,
    pub live: Option<Live>,
}

/// Finds who is meant by a word of the command line.
pub fn find(home: &Home, word: &str) -> Result<Found, FindError> {
    let runtime = Runtime::new(&home.paths);
    if let Ok(name) = word.parse::<PodName>()
        && let Some(live) = runtime.live_named(&name)?
    {
        return Ok(Found { session: live.row.session, live: Some(live) });
    }
    let sessions = home.store.list()?;
    let session = match by_id(&sessions, word)? {
        Some(session) => session,
        None => by_name(home.store.as_ref(), &sessions, word)?,
    };
    Ok(Found { session, live: runtime.live_on(session)? })
}

/// A whole id, or the beginning of exactly one.
fn by_id(sessions: &[SessionId], word: &str) -> Result<Option<SessionId>, FindError> {
    let bare = word.strip_prefix("s_").unwrap_or(word);
    if let Ok(id) = bare.parse::<SessionId>() {
        return if sessions.contains(&id) { Ok(Some(id)) } else { Err(FindError::NoSession { id }) };
    }
    if bare.len() < PREFIX_CHARS || !bare.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
        return Ok(None);
    }
    let bare = bare.to_ascii_lowercase();
    let fits: Vec<SessionId> =
        sessions.iter().copied().filter(|id| id.to_string().starts_with(&bare)).collect();
    match fits.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => Err(FindError::Several {
            word: word.to_owned(),
            count: several.len(),
            sessions: several.iter().rev().take(NAMED).map(|id| format!("s_{id}")).collect(),
        }),
    }
}

/// The newest session that had the name.
fn by_name(store: &dyn Store, sessions: &[SessionId], word: &str) -> Result<SessionId, FindError> {
    let nobody = || FindError::Nobody { word: word.to_owned() };
    let name: PodName = word.parse().map_err(|_| nobody())?;
    for id in sessions.iter().rev() {
        // One session that cannot be read must not hide the others; `log verify --all` speaks of it.
        let Ok(replay) = store.reader(*id).and_then(|reader| reader.replay()) else { continue };
        if names(&replay).any(|had| *had == name) {
            return Ok(*id);
        }
    }
    Err(nobody())
}

/// The names that a session's own entries speak of. Those of a fork's parent, which stand before its start, are not
/// its own.
fn names(replay: &[Sealed]) -> impl Iterator<Item = &PodName> {
    let start = replay.iter().rposition(|sealed| matches!(sealed.entry.kind, Kind::SessionStart(_)));
    replay.iter().skip(start.unwrap_or(0)).filter_map(|sealed| match &sealed.entry.kind {
        Kind::SessionStart(start) => Some(&start.name),
        Kind::Renamed(renamed) => Some(&renamed.name),
        Kind::SegmentStart(segment) => segment.carry.here().and_then(|facts| facts.name.as_ref()),
        Kind::Carry(carry) => carry.carry.here().and_then(|facts| facts.name.as_ref()),
        _ => None,
    })
}

/// Nobody, or not exactly one, is meant.
#[derive(Debug, Error)]
pub enum FindError {
    #[error("there is no live pod and no session called `{word}`")]
    Nobody { word: String },
    #[error("there is no session s_{id}")]
    NoSession { id: SessionId },
    #[error("`{word}` is the beginning of {count} sessions: {} …", .sessions.join(", "))]
    Several { word: String, count: usize, sessions: Vec<String> },
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
