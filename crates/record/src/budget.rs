//! Budgets: what a pod may spend, and what it has spent. Down the tree money and tokens are divided.
//!
//! Here: the words. Elsewhere: what is left, and what a request reserves (`pod::budget`).

use serde::{Deserialize, Serialize};

use crate::SessionId;

/// What a pod may spend, over its whole session; what is absent is not limited.
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
    /// Seconds since the session began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_s: Option<u64>,
    /// Spawns, counted down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<u64>,
}

impl Budget {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Budget::default()
    }

    /// The smaller of both, key by key.
    #[must_use]
    pub fn narrowed(&self, other: &Budget) -> Budget {
        fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
            match (a, b) {
                (Some(a), Some(b)) => Some(if b < a { b } else { a }),
                (one, None) | (None, one) => one,
            }
        }
        Budget {
            usd: least(self.usd, other.usd),
            tokens: least(self.tokens, other.tokens),
            turns: least(self.turns, other.turns),
            wall_s: least(self.wall_s, other.wall_s),
            children: least(self.children, other.children),
        }
    }
}

/// What was spent, by a pod and everything below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Spent {
    pub usd: f64,
    pub tokens: u64,
    /// Requests.
    pub turns: u64,
    /// Spawns.
    pub children: u64,
    /// Requests whose price nobody knows.
    #[serde(skip_serializing_if = "is_zero")]
    pub unknown_cost: u64,
}

/// What one pod has spent itself over its whole session, without those below it, as its log said at an entry.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Paid {
    pub session: SessionId,
    /// Who had spawned it.
    pub under: SessionId,
    /// How far its log was read.
    pub read_to: u64,
    pub spent: Spent,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Spent {
    #[must_use]
    pub fn plus(&self, other: &Spent) -> Spent {
        Spent {
            usd: self.usd + other.usd,
            tokens: self.tokens.saturating_add(other.tokens),
            turns: self.turns.saturating_add(other.turns),
            children: self.children.saturating_add(other.children),
            unknown_cost: self.unknown_cost.saturating_add(other.unknown_cost),
        }
    }

    /// What was spent since `before`, which is an earlier reading of the same pod.
    #[must_use]
    pub fn since(&self, before: &Spent) -> Spent {
        Spent {
            // To a billionth: what is added and taken away again must be the same number.
            usd: ((self.usd - before.usd).max(0.0) * 1e9).round() / 1e9,
            tokens: self.tokens.saturating_sub(before.tokens),
            turns: self.turns.saturating_sub(before.turns),
            children: self.children.saturating_sub(before.children),
            unknown_cost: self.unknown_cost.saturating_sub(before.unknown_cost),
        }
    }
}
