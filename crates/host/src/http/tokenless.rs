//! Connections without a valid token so far. They have a separate small limit; at the limit the oldest one is closed. A
//! client with the token sends a whole head at once, so thousands of incomplete heads do not lock it out.
//!
//! Invariant: `half_sent_heads_do_not_close_the_door`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// The maximum number of such connections.
pub(crate) const MAX_TOKENLESS_CONNECTIONS: usize = 256;

/// The token state of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionAuth {
    authorised: AtomicBool,
    close_requested: Notify,
}

impl ConnectionAuth {
    /// Records that a request of this connection had the token.
    pub(crate) fn set_authorised(&self) {
        self.authorised.store(true, Ordering::Release);
    }

    /// Waits until the connection must close in favour of a newer one.
    pub(crate) async fn wait_for_close(&self) {
        self.close_requested.notified().await;
    }

    fn is_authorised(&self) -> bool {
        self.authorised.load(Ordering::Acquire)
    }
}

/// The connections without a valid token so far, oldest first.
#[derive(Debug, Default)]
pub(crate) struct TokenlessConnections(Mutex<VecDeque<Arc<ConnectionAuth>>>);

impl TokenlessConnections {
    /// Adds a connection. At the limit, closes the oldest one without a token.
    pub(crate) fn add_connection(&self) -> Arc<ConnectionAuth> {
        let connection = Arc::new(ConnectionAuth::default());
        let mut waiting = self.lock_list();
        waiting.push_back(connection.clone());
        if waiting.len() > MAX_TOKENLESS_CONNECTIONS {
            waiting.retain(|visitor| !visitor.is_authorised());
        }
        if waiting.len() > MAX_TOKENLESS_CONNECTIONS
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.close_requested.notify_one();
        }
        connection
    }

    /// Removes a closed connection.
    pub(crate) fn remove_connection(&self, visitor: &Arc<ConnectionAuth>) {
        self.lock_list().retain(|other| !Arc::ptr_eq(other, visitor));
    }

    fn lock_list(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<ConnectionAuth>>> {
        // After a panic the list is still valid: every change is atomic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
