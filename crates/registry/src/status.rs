//! The status that a pod publishes in `status.json`, for readers that do not connect to it.

use minke_record::{Budget, Millis, PodName, RunId, SessionId, SessionUsage, Spend, WaitingOn};
use serde::{Deserialize, Serialize};

/// The content of `status.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PodStatus {
    pub pod_name: PodName,
    pub session: SessionId,
    /// The name of the state in lower case.
    pub state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<PendingReasons>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    pub head_seq: u64,
    pub updated_ms: Millis,
    /// The totals of the log. Present only while no run is open and there are no children.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tally: Option<LogTotals>,
}

/// Totals of a log, so that readers of many pods need not read it. They are valid only while the log has the same
/// length: a pod may hang, and then its log is newer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogTotals {
    /// The number of the log's newest file, and its length.
    pub file: u32,
    pub bytes: u64,
    pub created: Millis,
    pub usage: SessionUsage,
    /// Open asks.
    pub asks: usize,
    pub granted: Budget,
    pub spent: Spend,
    pub left: Budget,
    pub archived: bool,
}

/// The reasons why a run waits when it has no other work left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingReasons {
    pub on: WaitingOn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Millis>,
}
