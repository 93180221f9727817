//! Clients: how many are connected, which of them wait, and the status that they have.

use crate::input::{ReplyId, WaitCondition};
use crate::step::StatusReport;

/// The clients of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientTable {
    pub(crate) client_count: usize,
    pub(crate) command_count: usize,
    pub(crate) waiters: Vec<StateWaiter>,
    pub(crate) idle_timer_set: bool,
    /// The owner client has disconnected, so the pod exits when it is idle.
    pub(crate) is_orphaned: bool,
    pub(crate) published_status: Option<StatusReport>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StateWaiter {
    pub(crate) reply: ReplyId,
    pub(crate) condition: WaitCondition,
}
