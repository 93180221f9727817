//! Who stands above a session: the one that spawned it, that one's own parent, and so on up to the root.
//!
//! Read from the sessions' first entries, which never change. Elsewhere: who of them lives (`registry`).

use minke_record::{Kind, SessionId};
use minke_session::{Store, StoreError};

/// More pods are never above one: the limit of depth is far below, and a log that says otherwise is not believed.
pub const ABOVE_MOST: usize = 64;

/// The sessions above this one, the nearest first. A session that is gone ends the list: nobody knows who was above it.
pub fn above(store: &dyn Store, session: SessionId) -> Result<Vec<SessionId>, StoreError> {
    let mut above = Vec::new();
    let mut at = session;
    while above.len() < ABOVE_MOST {
        let page = match store.reader(at).and_then(|reader| reader.page(0, 1, usize::MAX)) {
            Ok(page) => page,
            Err(StoreError::NotFound { .. }) if at != session => break,
            Err(e) => return Err(e),
        };
        let start = page.entries.first().map(|sealed| &sealed.entry.kind);
        let Some(Kind::SessionStart(start)) = start else { break };
        match &start.parent {
            // A ring cannot be made by us; whoever wrote one is not followed around it.
            Some(parent) if parent.session != session && !above.contains(&parent.session) => {
                above.push(parent.session);
                at = parent.session;
            }
            Some(_) | None => break,
        }
    }
    Ok(above)
}
