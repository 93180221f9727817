//! The user's home: the directories of Minke and the store of the sessions.

use std::sync::Arc;

use minke_registry::UserPaths;
use minke_session::SessionStore;

/// The user's pods and sessions.
#[derive(Clone)]
pub struct UserHome {
    pub paths: UserPaths,
    pub store: Arc<dyn SessionStore>,
}
