//! Status: what a pod says of itself in `status.json`, for those who look without asking it.

use minke_record::{Budget, Millis, PodName, RunId, SessionId, Spent, Usage, WaitingOn};
use serde::{Deserialize, Serialize};

/// The content of `status.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// What the log comes to. Only while no run is open and no child is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<Tally>,
}

/// What a log comes to, so that those who look at many pods need not read it. It counts only as long as the log is as long
/// as it was then: a pod may hang, and its log always says more than it does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The number of the log's newest file, and its length.
    pub file: u32,
    pub bytes: u64,
    pub created: Millis,
    pub usage: Usage,
    /// Questions that wait for an answer.
    pub asks: usize,
    pub granted: Budget,
    pub spent: Spent,
    pub left: Budget,
    pub archived: bool,
}

/// What a run waits for when nothing else is left to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusWaiting {
    pub on: WaitingOn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
}
