//! Child state: the facts about children and descendants, folded from the log.
//!
//! Elsewhere: calls about children and their events (`children`), budgets (`budget`).
//! Invariant: spending of a child is counted once, even if its parent changes (`scripted_pods` in `testkit`,
//! the tree simulation).

use minke_record::{
    CallId, Child, ChildEnd, ChildOutcome, ChildSpent, HowEnded, OpenAsk, OpenChild, PodEvent, PodName,
    PodSpend, Scope, SessionId, Spend,
};

use crate::children::messages::DescendantState;
use crate::state::State;

/// Maximum number of stored asks per child.
const MAX_CHILD_ASKS: usize = 16;
/// Maximum number of ancestors that are followed, in case readings form a cycle.
const MAX_TREE_DEPTH: usize = 64;

/// The unspent budget of running children: neither spent nor remaining.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HeldBudget {
    pub tokens: u64,
    pub usd: f64,
}

impl HeldBudget {
    #[must_use]
    pub fn plus(&self, other: &HeldBudget) -> HeldBudget {
        HeldBudget { tokens: self.tokens.saturating_add(other.tokens), usd: self.usd + other.usd }
    }
}

impl State {
    /// Adds a child, restarts it or updates a running one.
    pub(crate) fn apply_child(&mut self, e: &Child) {
        let before = self.facts.children.iter().position(|child| child.session == e.session);
        let before = before.map(|at| self.facts.children.remove(at));
        if let Some(mut same) = before.clone().filter(|child| child.ended.is_none()) {
            same.clone.clone_from(&e.clone);
            same.budget = e.budget;
            same.adopted_from = e.adopted_from;
            same.line.clone_from(&e.line);
            return self.facts.children.push(same);
        }
        if before.is_none() && e.adopted_from.is_none() {
            let spawned = Spend { children: 1, ..Spend::default() };
            self.facts.children_spent = self.facts.children_spent.combined_with(&spawned);
        }
        self.facts.children.push(OpenChild {
            budget: e.budget,
            adopted_from: e.adopted_from,
            line: e.line.clone(),
            clone: e.clone.clone(),
            lived: before.is_some() || e.adopted_from.is_some(),
            before: self.spent_by(e.session),
            asks: before.map(|child| child.asks).unwrap_or_default(),
            ..OpenChild::new(e.session, e.name.clone(), e.call_id.clone(), e.scope.clone())
        });
    }

    /// Marks a child as ended. One that never started is removed, which frees its name.
    pub(crate) fn apply_child_end(&mut self, e: &ChildEnd) {
        let Some(at) = self.facts.children.iter().position(|child| child.session == e.session) else {
            return;
        };
        let child = &mut self.facts.children[at];
        let never_started = e.outcome == ChildOutcome::FailedToStart && !child.lived;
        let adopted_from = child.adopted_from;
        child.ended = Some(HowEnded { outcome: e.outcome.clone(), exit: e.exit });
        if never_started || e.outcome == ChildOutcome::Returned {
            self.facts.children.remove(at);
        }
        if never_started && adopted_from.is_none() {
            let count = &mut self.facts.children_spent.children;
            *count = count.saturating_sub(1);
        }
    }

    /// Applies readings of descendants' spending. The newest reading of each session counts.
    pub(crate) fn apply_child_spending(&mut self, e: &ChildSpent) {
        for paid in &e.paid {
            let newest = self.facts.paid.get(&paid.session).is_none_or(|known| known.read_to <= paid.read_to);
            if newest {
                self.facts.paid.insert(paid.session, *paid);
            }
        }
        let spawned = Spend { children: self.facts.children_spent.children, ..Spend::default() };
        self.facts.children_spent = self
            .facts
            .paid
            .values()
            .fold(spawned, |sum, paid| sum.combined_with(&Spend { children: 0, ..paid.spent }));
    }

    /// Returns whether `session` is `top` or one of its descendants, by the readings so far.
    fn is_descendant(&self, session: SessionId, top: SessionId) -> bool {
        let mut at = session;
        for _ in 0..=MAX_TREE_DEPTH {
            if at == top {
                return true;
            }
            match self.facts.paid.get(&at) {
                Some(paid) => at = paid.under,
                None => return false,
            }
        }
        false
    }

    /// Returns the spending of a descendant and everything below it, as far as it was read.
    pub fn spent_by(&self, session: SessionId) -> Spend {
        let below = self.facts.paid.values().filter(|paid| self.is_descendant(paid.session, session));
        below.fold(Spend::default(), |sum, paid| sum.combined_with(&paid.spent))
    }

    /// Returns the readings of all descendants of a child, without its own.
    pub(crate) fn descendant_spending(&self, session: SessionId) -> Vec<PodSpend> {
        let others = self.facts.paid.values().filter(|paid| paid.session != session);
        others.filter(|paid| self.is_descendant(paid.session, session)).copied().collect()
    }

    /// Returns the budget that a running child can still spend. It is zero if the budget of another running
    /// child includes it.
    pub fn budget_held_by(&self, child: &OpenChild) -> HeldBudget {
        let above = |other: &OpenChild| child.line.contains(&other.session);
        if child.ended.is_some() || self.live_children().any(above) {
            return HeldBudget::default();
        }
        self.unspent_budget_of(child)
    }

    /// Returns the unspent part of a child's budget, regardless of its owner.
    pub fn unspent_budget_of(&self, child: &OpenChild) -> HeldBudget {
        let budget = child.budget.unwrap_or_default();
        let spent = self.spent_by(child.session);
        HeldBudget {
            tokens: budget.tokens.map_or(0, |all| all.saturating_sub(spent.tokens)),
            usd: budget.usd.map_or(0.0, |all| (all - spent.usd).max(0.0)),
        }
    }

    /// Returns the running children adopted from `of`, which gets them back when it restarts.
    pub fn children_adopted_from(&self, of: SessionId) -> impl Iterator<Item = &OpenChild> {
        self.live_children().filter(move |other| other.line.contains(&of))
    }

    /// Returns the facts about its descendants that a restarted child needs.
    pub fn descendant_state(&self, session: SessionId) -> DescendantState {
        let own_line = |child: &OpenChild| -> Vec<SessionId> {
            child.line.iter().copied().take_while(|above| *above != session).collect()
        };
        let known = |child: &OpenChild| {
            let line = own_line(child);
            Child {
                session: child.session,
                name: child.name.clone(),
                call_id: child.call_id.clone(),
                scope: child.scope.clone(),
                budget: child.budget,
                adopted_from: line.first().copied(),
                line,
                clone: child.clone.clone(),
            }
        };
        DescendantState {
            paid: self.descendant_spending(session),
            children: self.children_adopted_from(session).map(known).collect(),
        }
    }

    /// Returns the budget that all running children can still spend.
    pub fn held_budget(&self) -> HeldBudget {
        self.live_children().fold(HeldBudget::default(), |sum, child| sum.plus(&self.budget_held_by(child)))
    }

    /// Applies a report to the state of its sender.
    pub(crate) fn apply_child_report(&mut self, from: SessionId, event: &PodEvent, seq: u64) {
        let Some(child) = self.facts.children.iter_mut().find(|child| child.session == from) else { return };
        child.ready = true;
        match event {
            PodEvent::TurnEnded { .. } | PodEvent::Errored { .. } => {
                child.reported = Some(seq);
                child.asks.clear();
            }
            PodEvent::Asked { ask, .. } => {
                if let Ok(ask) = serde_json::from_value::<OpenAsk>(ask.clone())
                    && child.asks.len() < MAX_CHILD_ASKS
                    && child.asks.iter().all(|known| known.id != ask.id)
                {
                    child.asks.push(ask);
                }
            }
            PodEvent::ShutDown { .. } | PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => {}
        }
    }

    /// Clears the last report of a child, because it does not answer a newer input.
    pub(crate) fn clear_child_report(&mut self, name: &str) {
        let mut named = self.facts.children.iter_mut().rev();
        if let Some(child) = named.find(|child| child.name.as_str() == name) {
            child.reported = None;
        }
    }

    /// Marks a child as ready when the call that started it succeeds.
    pub(crate) fn mark_child_ready(&mut self, call_id: &CallId) {
        if let Some(child) = self.facts.children.iter_mut().find(|child| child.call_id == *call_id) {
            child.ready = true;
        }
    }

    /// Returns the running children. Each holds a loan.
    pub fn live_children(&self) -> impl Iterator<Item = &OpenChild> {
        self.facts.children.iter().filter(|child| child.ended.is_none())
    }

    pub fn child(&self, session: SessionId) -> Option<&OpenChild> {
        self.facts.children.iter().find(|child| child.session == session)
    }

    /// Returns the running child with this name, else the newest one.
    pub fn child_by_name(&self, name: &PodName) -> Option<&OpenChild> {
        let mut named = self.facts.children.iter().rev().filter(|child| child.name == *name);
        let newest = named.clone().next();
        named.find(|child| child.ended.is_none()).or(newest)
    }

    /// Returns the scope of this session without lent parts.
    pub fn effective_scope(&self) -> Scope {
        let whole = self.facts.about.as_ref().map(|about| about.scope.clone()).unwrap_or_default();
        self.live_children().fold(whole, |scope, child| minke_policy::subtract_loan(&scope, &child.scope))
    }

    /// Returns the child that holds a path which this pod could otherwise write.
    pub fn loan_holder(&self, path: &str) -> Option<&OpenChild> {
        let writes =
            |scope: &Scope| minke_policy::access_level(scope, path) == minke_policy::AccessLevel::Write;
        if !self.facts.about.as_ref().is_some_and(|about| writes(&about.scope)) {
            return None;
        }
        let lends = |child: &&OpenChild| {
            self.facts
                .about
                .as_ref()
                .is_some_and(|about| !writes(&minke_policy::subtract_loan(&about.scope, &child.scope)))
        };
        self.live_children().find(lends)
    }
}
