//! The family: what this pod knows of its children, folded from its log.
//!
//! Here: how a child enters and leaves the state, what its reports change, whom a name stands for, what is lent. Elsewhere:
//! calls about children and news of them (`children`), what a child may spend (`budget`).
//! Invariant: what children spent is booked once, whoever their parent is meanwhile (`kin` in `testkit`, the tree's
//! simulation).

use minke_record::{
    CallId, Child, ChildEnd, ChildOutcome, ChildSpent, HowEnded, OpenAsk, OpenChild, Paid, PodEvent, PodName,
    Scope, SessionId, Spent,
};

use crate::state::State;
use crate::tree::KinKnown;

/// Questions of one child that are remembered; more are asked again when these are answered.
const ASKS: usize = 16;
/// How many pods are followed upward: more than any tree is deep, should readings lead in a circle.
const LINE: usize = 64;

/// What children that live may still spend: it is neither spent nor left.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Held {
    pub tokens: u64,
    pub usd: f64,
}

impl Held {
    #[must_use]
    pub fn plus(&self, other: &Held) -> Held {
        Held { tokens: self.tokens.saturating_add(other.tokens), usd: self.usd + other.usd }
    }
}

impl State {
    /// A child begins to live, for the first time or again; or more is known of one that lives.
    pub(crate) fn child_began(&mut self, e: &Child) {
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
            let spawned = Spent { children: 1, ..Spent::default() };
            self.facts.children_spent = self.facts.children_spent.plus(&spawned);
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

    /// A child has ended, or never began: then its name is free again.
    pub(crate) fn child_ended(&mut self, e: &ChildEnd) {
        let Some(at) = self.facts.children.iter().position(|child| child.session == e.session) else {
            return;
        };
        let child = &mut self.facts.children[at];
        let never_began = e.outcome == ChildOutcome::FailedToStart && !child.lived;
        let adopted_from = child.adopted_from;
        child.ended = Some(HowEnded { outcome: e.outcome.clone(), exit: e.exit });
        if never_began || e.outcome == ChildOutcome::Returned {
            self.facts.children.remove(at);
        }
        if never_began && adopted_from.is_none() {
            let count = &mut self.facts.children_spent.children;
            *count = count.saturating_sub(1);
        }
    }

    /// What pods below have spent: the newest reading of each counts.
    pub(crate) fn children_paid(&mut self, e: &ChildSpent) {
        for paid in &e.paid {
            let newest = self.facts.paid.get(&paid.session).is_none_or(|known| known.read_to <= paid.read_to);
            if newest {
                self.facts.paid.insert(paid.session, *paid);
            }
        }
        let spawned = Spent { children: self.facts.children_spent.children, ..Spent::default() };
        self.facts.children_spent = self
            .facts
            .paid
            .values()
            .fold(spawned, |sum, paid| sum.plus(&Spent { children: 0, ..paid.spent }));
    }

    /// Whether one session was spawned below another, or is it, as far as this pod has read of them.
    fn is_below(&self, session: SessionId, top: SessionId) -> bool {
        let mut at = session;
        for _ in 0..=LINE {
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

    /// What a pod below this one has spent, with everything below it, as far as it was read.
    pub fn spent_by(&self, session: SessionId) -> Spent {
        let below = self.facts.paid.values().filter(|paid| self.is_below(paid.session, session));
        below.fold(Spent::default(), |sum, paid| sum.plus(&paid.spent))
    }

    /// The readings of everybody below a child, without its own.
    pub(crate) fn paid_below(&self, session: SessionId) -> Vec<Paid> {
        let others = self.facts.paid.values().filter(|paid| paid.session != session);
        others.filter(|paid| self.is_below(paid.session, session)).copied().collect()
    }

    /// What a child that lives can still spend of its budget: nothing of this pod's own if another child that lives has
    /// it in its budget.
    pub fn held_by(&self, child: &OpenChild) -> Held {
        let above = |other: &OpenChild| child.line.contains(&other.session);
        if child.ended.is_some() || self.live_children().any(above) {
            return Held::default();
        }
        self.open_to(child)
    }

    /// What is left of a child's budget, whoever it belongs to.
    pub fn open_to(&self, child: &OpenChild) -> Held {
        let budget = child.budget.unwrap_or_default();
        let spent = self.spent_by(child.session);
        Held {
            tokens: budget.tokens.map_or(0, |all| all.saturating_sub(spent.tokens)),
            usd: budget.usd.map_or(0.0, |all| (all - spent.usd).max(0.0)),
        }
    }

    /// Children that were adopted from below another one, and are that one's again when it is back.
    pub fn theirs(&self, of: SessionId) -> impl Iterator<Item = &OpenChild> {
        self.live_children().filter(move |other| other.line.contains(&of))
    }

    /// What a child that is woken is told of those below it.
    pub fn kin_known(&self, session: SessionId) -> KinKnown {
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
        KinKnown { paid: self.paid_below(session), children: self.theirs(session).map(known).collect() }
    }

    /// What all children that live can still spend.
    pub fn held(&self) -> Held {
        self.live_children().fold(Held::default(), |sum, child| sum.plus(&self.held_by(child)))
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
