//! Status: what a pod says of itself in `status.json`, for those who look without asking it.

use minke_record::{Millis, PodName, RunId, SessionId, WaitingOn};
use serde::{Deserialize, Serialize};

/// The content of `status.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStatus {
    pub pod_name: PodName,
    pub session: SessionId,
    /// The state's name in lower case.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<StatusWaiting>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    pub head_seq: u64,
    pub updated_ms: Millis,
}

/// What a run waits for when nothing else is left to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusWaiting {
    pub on: WaitingOn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
}
