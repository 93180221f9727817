//! Call table: the open calls of this process and their progress.

use std::collections::BTreeMap;

use minke_record::CallId;

use crate::calls::CallProgress;
use crate::calls::client_calls::ClientCall;
use crate::input::NestedInstructions;
use crate::run::loop_guard::RepeatedFailure;

/// The calls that this process handles.
#[derive(Debug, Clone, Default)]
pub(crate) struct CallTable {
    /// Progress of the open calls.
    pub(crate) call_progress: BTreeMap<CallId, CallProgress>,
    /// Client calls that are not dispatched yet.
    pub(crate) client_calls: Vec<ClientCall>,
    /// Instruction files for the next request, with the calls that led to them.
    pub(crate) pending_instructions: Vec<(CallId, NestedInstructions)>,
    pub(crate) repeated_failure: Option<RepeatedFailure>,
    pub(crate) loop_warned_at: Option<u32>,
}
