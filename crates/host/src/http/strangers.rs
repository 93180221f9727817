//! Connections that have not shown the token yet: they have a small limit of their own, and at the limit the oldest is
//! closed for the newest. A client with the token sends a whole head at once, so that thousands of half-sent heads of
//! others do not close the door to it.
//!
//! Invariant: `half_sent_heads_do_not_close_the_door`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

/// So many connections at the same time may owe the token.
pub(crate) const STRANGERS: usize = 256;

/// A connection, as far as the token is concerned.
#[derive(Debug, Default)]
pub(crate) struct Visitor {
    authorised: AtomicBool,
    closed: Notify,
}

impl Visitor {
    /// A request of this connection had the token.
    pub(crate) fn authorise(&self) {
        self.authorised.store(true, Ordering::Release);
    }

    /// Until the connection has to make room for a newer one.
    pub(crate) async fn closed(&self) {
        self.closed.notified().await;
    }

    fn is_authorised(&self) -> bool {
        self.authorised.load(Ordering::Acquire)
    }
}

/// The connections that owe the token, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<VecDeque<Arc<Visitor>>>);

impl Strangers {
    /// Takes a new connection in. At the limit the oldest one that still owes the token is closed.
    pub(crate) fn admit(&self) -> Arc<Visitor> {
        let visitor = Arc::new(Visitor::default());
        let mut waiting = self.lock();
        waiting.push_back(visitor.clone());
        if waiting.len() > STRANGERS {
            waiting.retain(|visitor| !visitor.is_authorised());
        }
        if waiting.len() > STRANGERS
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.closed.notify_one();
        }
        visitor
    }

    /// A connection has ended.
    pub(crate) fn dismiss(&self, visitor: &Arc<Visitor>) {
        self.lock().retain(|other| !Arc::ptr_eq(other, visitor));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Visitor>>> {
        // Whoever panicked left a whole list: every change is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
