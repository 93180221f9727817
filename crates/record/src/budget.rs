//! Budgets: the limits of a pod and its spending. A parent divides money and tokens among its children.
//!
//! Here: the types. Elsewhere: the remaining budget and reservations of requests (`pod::budget`).

use serde::{Deserialize, Serialize};

use crate::SessionId;

/// The spending limits of a pod over its whole session; absent fields are unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Budget {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Requests; every pod counts its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// Seconds since the session started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_s: Option<u64>,
    /// The number of spawns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<u64>,
}

impl Budget {
    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        *self == Budget::default()
    }

    /// The smaller limit of each field.
    #[must_use]
    pub fn smaller_of(&self, other: &Budget) -> Budget {
        fn smaller_limit<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(if b < a { b } else { a }),
                (one, None) | (None, one) => one,
            }
        }
        Budget {
            usd: smaller_limit(self.usd, other.usd),
            tokens: smaller_limit(self.tokens, other.tokens),
            turns: smaller_limit(self.turns, other.turns),
            wall_s: smaller_limit(self.wall_s, other.wall_s),
            children: smaller_limit(self.children, other.children),
        }
    }
}

/// The spending of a pod and its descendants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Spend {
    pub usd: f64,
    pub tokens: u64,
    /// Requests.
    pub turns: u64,
    /// Spawns.
    pub children: u64,
    /// Requests with an unknown price.
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown_cost: u64,
}

/// The spending of one pod over its whole session, without its descendants, according to its log at an entry.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PodSpend {
    pub session: SessionId,
    /// The pod that spawned it.
    pub under: SessionId,
    /// The last entry of its log that was read.
    pub read_to: u64,
    pub spent: Spend,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Spend {
    #[must_use]
    pub fn combined_with(&self, other: &Spend) -> Spend {
        Spend {
            usd: self.usd + other.usd,
            tokens: self.tokens.saturating_add(other.tokens),
            turns: self.turns.saturating_add(other.turns),
            children: self.children.saturating_add(other.children),
            unknown_cost: self.unknown_cost.saturating_add(other.unknown_cost),
        }
    }

    /// The spending since `before`, an earlier value of the same pod.
    #[must_use]
    pub fn spent_since(&self, before: &Spend) -> Spend {
        Spend {
            // Rounded to a billionth, so that adding and subtracting an amount restores the original value.
            usd: ((self.usd - before.usd).max(0.0) * 1e9).round() / 1e9,
            tokens: self.tokens.saturating_sub(before.tokens),
            turns: self.turns.saturating_sub(before.turns),
            children: self.children.saturating_sub(before.children),
            unknown_cost: self.unknown_cost.saturating_sub(before.unknown_cost),
        }
    }
}
