//! Child table: the children of this process and the calls that wait for them.

use std::collections::{BTreeMap, BTreeSet};

use minke_record::{AskId, CallId, Millis, SessionId};

use crate::children::wait::PodWait;
use crate::input::ReplyId;

/// Starts of children. They survive a rebuild after a failed write.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildStarts {
    /// Children that this process is starting.
    pub(crate) starting_children: BTreeSet<SessionId>,
    /// Clients that wait for a child to restart.
    pub(crate) restore_waiters: Vec<(SessionId, ReplyId)>,
    pub(crate) last_wait_number: u64,
}

/// The work on children that is in progress.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChildTable {
    /// Children of earlier processes whose state is being checked.
    pub(crate) watched_children: BTreeSet<SessionId>,
    /// Calls that stop a child.
    pub(crate) stop_calls: BTreeMap<SessionId, CallId>,
    /// Deadlines of spawn calls that wait for their child.
    pub(crate) spawn_deadlines: BTreeMap<CallId, Millis>,
    /// Calls of an earlier process that end when the state of their child is known.
    pub(crate) lost_calls: Vec<(CallId, SessionId)>,
    pub(crate) pod_waits: Vec<PodWait>,
    /// A message arrived in this step.
    pub(crate) message_received: bool,
    /// Asks of children that a wait has already returned.
    pub(crate) reported_asks: BTreeSet<AskId>,
}
