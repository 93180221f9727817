//! `session`, `hooks` and `budget`: storage, hooks and spending limits.

use minke_record::Budget;
use serde::{Deserialize, Serialize};

use crate::form::{AmountForm, Count, Field, FlagForm, one_of};
use crate::key::{Key, keys, section};

section! {
    /// The log of a pod.
    SessionSection at "session" {
        /// Whether effects wait for the disk: `full`, or `lazy` for lower durability.
        durability: SyncMode = SyncMode::Full, DurabilityWord, Override, Nothing, true;
        /// Whether response streams are recorded for replay.
        record_streams: bool = true, FlagForm, Override, Nothing, true;
        /// Maximum size of the recordings of a session, compressed.
        record_max_bytes: u64 = 256 << 20, Count, Override, Nothing, true;
    }
    besides {}
}

/// Whether effects wait for the disk. `lazy` has lower durability.
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
    /// The user's hooks; they are defined in `hooks.toml`.
    HooksSection at "hooks" {
        /// Whether hooks run.
        enabled: bool = true, FlagForm, Override, Nothing, false;
    }
    besides {}
}

/// Spending limits of the whole session; absent values are unlimited.
pub(crate) const BUDGET_KEYS: &[Key] = keys!("budget" {
    /// Dollars of the whole session including children; models without a price need a token limit too.
    usd: AmountForm<false>, Override, Lower, true;
    /// Tokens of the whole session, input and output, including children.
    tokens: Count, Override, Lower, true;
    /// Requests of this pod in the whole session.
    turns: Count, Override, Lower, true;
    /// Seconds since the session started; a child ends at the latest with its parent.
    wall_s: Count, Override, Lower, true;
    /// Number of spawns; a child gets at most the remaining number.
    children: Count, Override, Lower, true;
});

/// Checks that the dollar limit is a usable number.
pub fn validate_budget(budget: &Budget) -> Result<(), String> {
    match budget.usd {
        Some(usd) if !usd.is_finite() || usd < 0.0 => {
            Err(format!("budget.usd is {usd}: expected a non-negative number"))
        }
        _ => Ok(()),
    }
}
