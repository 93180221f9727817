//! Budgets: what this pod may spend, what it and its children have spent, and what a request may take of the rest.
//!
//! Here: granted, spent and left as the log implies them, what a request reserves, what a child gets, and why a run ends
//! or is refused when nothing is left. Elsewhere: the words (`record::budget`), what models cost (`llm`, through `Boot`).
//! Invariant: granted = spent + held by children + left, computed from the log alone
//! (`what_is_granted_is_spent_held_or_left`, and the tree's simulation in `testkit`).

use minke_record::{Budget, Millis, Spent};
use serde::Deserialize;
use serde_json::Value;

use crate::state::State;

/// The key of `set{budget}`.
pub const KEY: &str = "budget";

/// What a parent has written into the mandate beside permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Mandate {
    budget: Option<Budget>,
    depth: u64,
}

impl Mandate {
    /// One that cannot be read lets nothing be spent.
    pub(crate) fn read(written: Option<&Value>) -> Mandate {
        let none = Mandate { budget: Some(Budget { tokens: Some(0), ..Budget::default() }), depth: u64::MAX };
        written.map_or_else(Mandate::default, |written| Mandate::deserialize(written).unwrap_or(none))
    }
}

impl State {
    /// How many pods are above this one.
    pub fn depth(&self) -> u64 {
        self.mandate.depth
    }

    /// What this pod may spend over its whole session: what `set{budget}` says, else the less of manifest and mandate.
    pub fn granted(&self) -> Budget {
        let base = self.manifest.budget.narrowed(&self.mandate.budget.unwrap_or_default());
        let Some(set) = self.facts.budget else { return base };
        Budget {
            usd: set.usd.or(base.usd),
            tokens: set.tokens.or(base.tokens),
            turns: set.turns.or(base.turns),
            wall_s: set.wall_s.or(base.wall_s),
            children: set.children.or(base.children),
        }
    }

    /// What this pod has spent itself; a request without its end counts as what it reserved.
    pub fn own_spent(&self) -> Spent {
        let usage = &self.facts.usage;
        let used = Spent {
            usd: usage.cost_usd,
            tokens: [usage.input, usage.output, usage.cache_read, usage.cache_write]
                .into_iter()
                .fold(0, u64::saturating_add),
            turns: self.facts.requests,
            children: 0,
            unknown_cost: usage.unknown_cost,
        };
        let open = self.facts.open_llm.as_ref().filter(|open| !open.counted);
        let open = open.map(|open| reserved(&open.reserved)).unwrap_or_default();
        used.plus(&self.facts.unended).plus(&open)
    }

    /// What this pod and everything below it has spent, as far as it has ended: what `child_end` of its parent counts.
    pub fn spent(&self) -> Spent {
        self.own_spent().plus(&self.facts.children_spent)
    }

    /// What is neither spent nor held by children that live. What is not limited is absent.
    pub fn left(&self) -> Budget {
        let granted = self.granted();
        let spent = self.spent();
        let held = |part: fn(&Budget) -> f64| -> f64 {
            self.live_children().filter_map(|child| child.budget.as_ref()).map(part).sum()
        };
        let held_tokens = self.live_children().filter_map(|child| child.budget?.tokens);
        let held_tokens = held_tokens.fold(0, u64::saturating_add);
        let held_usd = held(|budget| budget.usd.unwrap_or(0.0));
        Budget {
            usd: granted.usd.map(|usd| (usd - spent.usd - held_usd).max(0.0)),
            tokens: granted.tokens.map(|all| all.saturating_sub(spent.tokens).saturating_sub(held_tokens)),
            turns: granted.turns.map(|all| all.saturating_sub(self.facts.requests)),
            wall_s: granted.wall_s,
            children: granted.children.map(|all| all.saturating_sub(self.facts.children_spent.children)),
        }
    }

    /// When `wall_s` is over.
    pub fn wall_end(&self) -> Option<Millis> {
        let created = self.facts.about.as_ref()?.created;
        self.granted().wall_s.map(|seconds| created.saturating_add(seconds.saturating_mul(1_000)))
    }
}

/// What a reservation counts as.
pub(crate) fn reserved(reserved: &minke_record::Reserved) -> Spent {
    Spent {
        usd: reserved.usd.unwrap_or(0.0),
        tokens: reserved.input.saturating_add(reserved.output),
        ..Spent::default()
    }
}
