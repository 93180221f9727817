//! The family: what this pod knows of its children, folded from its log.
//!
//! Here: how a child enters and leaves the state, what its reports change, whom a name stands for, what is lent. Elsewhere:
//! calls about children and news of them (`children`), what a child may spend (`budget`).
//! Invariant: what children spent is booked once, whoever their parent is meanwhile (`kin` in `testkit`, the tree's
//! simulation).

use minke_record::{
    CallId, Child, ChildEnd, ChildOutcome, HowEnded, OpenAsk, OpenChild, PodEvent, PodName, Scope, SessionId,
    Spent,
};

use crate::state::State;

/// Questions of one child that are remembered; more are asked again when these are answered.
const ASKS: usize = 16;

impl State {
    /// A child begins to live, for the first time or again; or more is known of one that lives.
    pub(crate) fn child_began(&mut self, e: &Child) {
        let before = self.facts.children.iter().position(|child| child.session == e.session);
        let before = before.map(|at| self.facts.children.remove(at));
        if let Some(mut same) = before.clone().filter(|child| child.ended.is_none()) {
            same.clone.clone_from(&e.clone);
            return self.facts.children.push(same);
        }
        if before.is_none() && e.adopted_from.is_none() {
            let spawned = Spent { children: 1, ..Spent::default() };
            self.facts.children_spent = self.facts.children_spent.plus(&spawned);
        }
        let spent = before.as_ref().map(|child| child.spent).or(e.spent).unwrap_or_default();
        self.facts.children.push(OpenChild {
            session: e.session,
            name: e.name.clone(),
            call_id: e.call_id.clone(),
            scope: e.scope.clone(),
            budget: e.budget,
            adopted_from: e.adopted_from,
            clone: e.clone.clone(),
            ready: false,
            ended: None,
            lived: before.is_some() || e.adopted_from.is_some(),
            spent,
            reported: None,
            asks: before.map(|child| child.asks).unwrap_or_default(),
        });
    }

    /// A child has ended, or never began: then its name is free again.
    pub(crate) fn child_ended(&mut self, e: &ChildEnd) {
        let Some(at) = self.facts.children.iter().position(|child| child.session == e.session) else {
            return;
        };
        let spent = Spent { children: 0, ..e.spent.unwrap_or_default() };
        self.facts.children_spent = self.facts.children_spent.plus(&spent);
        let child = &mut self.facts.children[at];
        let never_began = e.outcome == ChildOutcome::FailedToStart && !child.lived;
        let adopted_from = child.adopted_from;
        child.spent = child.spent.plus(&spent);
        child.ended = Some(HowEnded { outcome: e.outcome.clone(), exit: e.exit });
        // What it did not spend is what it is given again when it is woken.
        if let Some(budget) = &mut child.budget {
            budget.tokens = budget.tokens.map(|tokens| tokens.saturating_sub(spent.tokens));
            budget.usd = budget.usd.map(|usd| (usd - spent.usd).max(0.0));
        }
        if never_began || e.outcome == ChildOutcome::Returned {
            self.facts.children.remove(at);
        }
        if never_began && adopted_from.is_none() {
            let count = &mut self.facts.children_spent.children;
            *count = count.saturating_sub(1);
        }
        // Its own parent, if it comes back, counts it once more: here it has been counted.
        let lender = self.facts.children.iter_mut().find(|child| Some(child.session) == adopted_from);
        if let Some(lender) = lender.filter(|_| e.outcome != ChildOutcome::Returned) {
            lender.spent = lender.spent.plus(&spent);
        }
    }

    /// What a report says about the child that it is from.
    pub(crate) fn child_reported(&mut self, from: SessionId, event: &PodEvent, seq: u64) {
        let Some(child) = self.facts.children.iter_mut().find(|child| child.session == from) else { return };
        child.ready = true;
        match event {
            PodEvent::TurnEnded { .. } | PodEvent::Errored { .. } => {
                child.reported = Some(seq);
                child.asks.clear();
            }
            PodEvent::Asked { ask, .. } => {
                if let Ok(ask) = serde_json::from_value::<OpenAsk>(ask.clone())
                    && child.asks.len() < ASKS
                    && child.asks.iter().all(|known| known.id != ask.id)
                {
                    child.asks.push(ask);
                }
            }
            PodEvent::ShutDown { .. } | PodEvent::ScopeSubDelegated { .. } | PodEvent::Unknown => {}
        }
    }

    /// Something is given to a child: what it reported before does not answer that.
    pub(crate) fn child_addressed(&mut self, name: &str) {
        let mut named = self.facts.children.iter_mut().rev();
        if let Some(child) = named.find(|child| child.name.as_str() == name) {
            child.reported = None;
        }
    }

    /// The call that started a child has ended well.
    pub(crate) fn child_is_ready(&mut self, call_id: &CallId) {
        if let Some(child) = self.facts.children.iter_mut().find(|child| child.call_id == *call_id) {
            child.ready = true;
        }
    }

    /// The children that hold a loan.
    pub fn live_children(&self) -> impl Iterator<Item = &OpenChild> {
        self.facts.children.iter().filter(|child| child.ended.is_none())
    }

    pub fn child(&self, session: SessionId) -> Option<&OpenChild> {
        self.facts.children.iter().find(|child| child.session == session)
    }

    /// The child of this name: the one that lives, else the newest.
    pub fn child_named(&self, name: &PodName) -> Option<&OpenChild> {
        let mut named = self.facts.children.iter().rev().filter(|child| child.name == *name);
        let newest = named.clone().next();
        named.find(|child| child.ended.is_none()).or(newest)
    }

    /// The scope of this session without what is lent.
    pub fn effective_scope(&self) -> Scope {
        let whole = self.facts.about.as_ref().map(|about| about.scope.clone()).unwrap_or_default();
        self.live_children().fold(whole, |scope, child| minke_policy::subtract(&scope, &child.scope))
    }

    /// The child that holds a path which this pod could write otherwise.
    pub fn lent_to(&self, path: &str) -> Option<&OpenChild> {
        let writes = |scope: &Scope| minke_policy::level(scope, path) == minke_policy::Level::Write;
        if !self.facts.about.as_ref().is_some_and(|about| writes(&about.scope)) {
            return None;
        }
        let lends = |child: &&OpenChild| {
            self.facts
                .about
                .as_ref()
                .is_some_and(|about| !writes(&minke_policy::subtract(&about.scope, &child.scope)))
        };
        self.live_children().find(lends)
    }
}
