//! `session`, `hooks` and `budget`: what is kept, who else is asked, what may be spent.

use minke_record::Budget;
use serde::{Deserialize, Serialize};

use crate::form::{Amount, Count, Field, Flag, one_of};
use crate::key::{Key, keys, section};

section! {
    /// The log of a pod.
    SessionSection at "session" {
        /// Whether effects wait for the disk: `full`, or `lazy` for people who accept less.
        durability: SyncMode = SyncMode::Full, DurabilityWord, Override, Nothing, true;
        /// Whether the response bytes of requests are kept, for replay.
        record_streams: bool = true, Flag, Override, Nothing, true;
        /// Bytes of recordings that a session keeps, compressed.
        record_max_bytes: u64 = 256 << 20, Count, Override, Nothing, true;
    }
    besides {}
}

/// Whether effects wait for the disk. `lazy` is for people who accept less.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncMode {
    #[default]
    Full,
    Lazy,
}

impl Field for SyncMode {}

one_of!(DurabilityWord reads SyncMode: "full", "lazy");

section! {
    /// People's own programs; the hooks themselves stand in `hooks.toml`.
    HooksSection at "hooks" {
        /// Whether hooks are asked and told.
        enabled: bool = true, Flag, Override, Nothing, false;
    }
    besides {}
}

/// What the pod may spend over its whole session; what is absent is not limited.
pub(crate) const BUDGET: &[Key] = keys!("budget" {
    /// Dollars of the whole session, children included; a model without a price is refused unless tokens are limited too.
    usd: Amount<false>, Override, Lower, true;
    /// Tokens of the whole session, input and output, children included.
    tokens: Count, Override, Lower, true;
    /// Requests of this pod, over the whole session.
    turns: Count, Override, Lower, true;
    /// Seconds since the session began; a child ends with its parent's at the latest.
    wall_s: Count, Override, Lower, true;
    /// Spawns, counted down; a child gets at most what is left.
    children: Count, Override, Lower, true;
});

/// Dollars are a number that can be counted with.
pub fn check_budget(budget: &Budget) -> Result<(), String> {
    match budget.usd {
        Some(usd) if !usd.is_finite() || usd < 0.0 => {
            Err(format!("budget.usd is {usd}: give a number of dollars that is not below 0"))
        }
        _ => Ok(()),
    }
}
