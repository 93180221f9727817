//! Finds a session by the name of a live pod, by its id or a prefix of it, or by a former name.
//!
//! Invariant: the name of a live pod has priority, and an ambiguous prefix is refused with the matching
//! sessions (`a_name_is_a_live_pods_or_that_of_the_newest_session`).

use minke_record::{Kind, PodName, SessionId};
use minke_registry::{LivePod, RegistryError, RuntimeDir};
use minke_session::{SealedEntry, SessionStore, StoreError};
use thiserror::Error;

use crate::home::UserHome;

/// A shorter prefix is not accepted, because ids start with their time.
const MIN_PREFIX_CHARS: usize = 6;
/// An ambiguous prefix lists at most this many sessions.
const MAX_NAMED_SESSIONS: usize = 3;

/// A session and its pod, if one is running.
#[derive(Debug)]
pub struct SessionMatch {
    pub session: SessionId,
    pub live: Option<LivePod>,
}

/// Finds the session for a command-line argument.
pub fn find_session(home: &UserHome, word: &str) -> Result<SessionMatch, FindError> {
    let runtime = RuntimeDir::new(&home.paths);
    if let Ok(name) = word.parse::<PodName>()
        && let Some(live) = runtime.live_pod_named(&name)?
    {
        return Ok(SessionMatch { session: live.row.session, live: Some(live) });
    }
    let sessions = home.store.list_sessions()?;
    let session = match find_by_id(&sessions, word)? {
        Some(session) => session,
        None => find_by_name(home.store.as_ref(), &sessions, word)?,
    };
    Ok(SessionMatch { session, live: runtime.live_pod_of_session(session)? })
}

/// Matches a whole id, or a unique prefix.
fn find_by_id(sessions: &[SessionId], word: &str) -> Result<Option<SessionId>, FindError> {
    let bare = word.strip_prefix("s_").unwrap_or(word);
    if let Ok(id) = bare.parse::<SessionId>() {
        return if sessions.contains(&id) { Ok(Some(id)) } else { Err(FindError::NoSession { id }) };
    }
    if bare.len() < MIN_PREFIX_CHARS || !bare.chars().all(|c| c.is_ascii_hexdigit() || c == '-') {
        return Ok(None);
    }
    let bare = bare.to_ascii_lowercase();
    let fits: Vec<SessionId> =
        sessions.iter().copied().filter(|id| id.to_string().starts_with(&bare)).collect();
    match fits.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        several => Err(FindError::Ambiguous {
            word: word.to_owned(),
            count: several.len(),
            sessions: several.iter().rev().take(MAX_NAMED_SESSIONS).map(|id| format!("s_{id}")).collect(),
        }),
    }
}

/// The newest session that had the name.
fn find_by_name(
    store: &dyn SessionStore,
    sessions: &[SessionId],
    word: &str,
) -> Result<SessionId, FindError> {
    let not_found = || FindError::NotFound { word: word.to_owned() };
    let name: PodName = word.parse().map_err(|_| not_found())?;
    for id in sessions.iter().rev() {
        // An unreadable session must not hide the others; `log verify --all` reports it.
        let Ok(replay) = store.open_reader(*id).and_then(|reader| reader.read_replay()) else { continue };
        if pod_names(&replay).any(|had| *had == name) {
            return Ok(*id);
        }
    }
    Err(not_found())
}

/// The pod names in a session's own entries, without those of a fork's parent.
fn pod_names(replay: &[SealedEntry]) -> impl Iterator<Item = &PodName> {
    let start = replay.iter().rposition(|sealed| matches!(sealed.entry.kind, Kind::SessionStart(_)));
    replay.iter().skip(start.unwrap_or(0)).filter_map(|sealed| match &sealed.entry.kind {
        Kind::SessionStart(start) => Some(&start.name),
        Kind::Renamed(renamed) => Some(&renamed.name),
        Kind::SegmentStart(segment) => segment.carry.inline().and_then(|facts| facts.name.as_ref()),
        Kind::Carry(carry) => carry.carry.inline().and_then(|facts| facts.name.as_ref()),
        _ => None,
    })
}

/// The reason why no unique session was found.
#[derive(Debug, Error)]
pub enum FindError {
    #[error("no running pod and no session is named `{word}`")]
    NotFound { word: String },
    #[error("there is no session s_{id}")]
    NoSession { id: SessionId },
    #[error("`{word}` is a prefix of {count} sessions: {} …", .sessions.join(", "))]
    Ambiguous { word: String, count: usize, sessions: Vec<String> },
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
