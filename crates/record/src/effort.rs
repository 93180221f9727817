//! Effort: how much a model should think.

use serde::{Deserialize, Serialize};

/// Thinking effort: a level, or a number of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "none, minimal, low, medium, high, xhigh, or a number of tokens")]
pub enum Reasoning {
    Effort(Effort),
    Budget(u64),
}

/// Effort levels, from none to maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effort {
    None,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}
