//! The ancestors of a session: its parent, the parent's parent, and so on up to the root.
//!
//! Read from the first entries of the sessions, which never change. Elsewhere: which of them are running
//! (`registry`).

use minke_record::{Kind, SessionId};
use minke_session::{SessionStore, StoreError};

/// The maximum number of ancestors. The depth limit is far lower; a log that exceeds it is not trusted.
pub const MAX_ANCESTORS: usize = 64;

/// The ancestors of a session, nearest first. The list ends at a deleted session, whose parent is unknown.
pub fn find_ancestors(store: &dyn SessionStore, session: SessionId) -> Result<Vec<SessionId>, StoreError> {
    let mut ancestors = Vec::new();
    let mut at = session;
    while ancestors.len() < MAX_ANCESTORS {
        let page = match store.open_reader(at).and_then(|reader| reader.read_page(0, 1, usize::MAX)) {
            Ok(page) => page,
            Err(StoreError::NotFound { .. }) if at != session => break,
            Err(e) => return Err(e),
        };
        let start = page.entries.first().map(|sealed| &sealed.entry.kind);
        let Some(Kind::SessionStart(start)) = start else { break };
        match &start.parent {
            // Minke cannot create a cycle; a log that contains one is not followed further.
            Some(parent) if parent.session != session && !ancestors.contains(&parent.session) => {
                ancestors.push(parent.session);
                at = parent.session;
            }
            Some(_) | None => break,
        }
    }
    Ok(ancestors)
}
