//! Budgets in the form that users read.
//!
//! Elsewhere: the limits themselves (`record::Budget`), the spending of each pod (`pod`), the form that users
//! type (`launch::parse_budget`).

use minke_pod::State;
use minke_record::{Budget, Spend};
use serde_json::{Value, json};

/// Budget of a pod: granted, spent and remaining.
#[derive(Debug, Clone, Default)]
pub(crate) struct BudgetTotals {
    pub(crate) granted: Budget,
    /// Spent by the pod and its ended children; an open request counts with its full reservation.
    pub(crate) spent: Spend,
    /// Remaining, without the amounts lent to live children.
    pub(crate) remaining: Budget,
}

impl BudgetTotals {
    pub(crate) fn from_state(state: &State) -> BudgetTotals {
        BudgetTotals {
            granted: state.granted_budget(),
            spent: state.total_spent(),
            remaining: state.remaining_budget(),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({ "granted": self.granted, "spent": self.spent, "left": self.remaining })
    }

    /// Returns the remaining budget in short form; empty if nothing is limited.
    pub(crate) fn summarize_remaining(&self) -> String {
        let Budget { usd, tokens, turns, wall_s: _, children } = &self.remaining;
        let words = [
            usd.map(|usd| format!("${usd:.2}")),
            tokens.map(|tokens| format!("{} tokens", format_count(tokens))),
            turns.map(|turns| format!("{turns} turns")),
            children.map(|children| format!("{children} children")),
        ];
        words.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Formats a count as `950`, `12.3k` or `4.5M`, rounded down.
pub(crate) fn format_count(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..1_000_000 => format!("{}.{}k", count / 1_000, count % 1_000 / 100),
        _ => format!("{}.{}M", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_short_and_never_more_than_they_are() {
        let shown = [(0, "0"), (9_999, "9999"), (12_399, "12.3k"), (999_999, "999.9k"), (4_590_000, "4.5M")];
        for (count, text) in shown {
            assert_eq!(format_count(count), text);
        }
    }
}
