//! Children: pods that this one has spawned, and what is heard of them.
//!
//! Here: how a child enters and leaves the state, and what news of it lead to. Elsewhere: what hands are asked (`tree`), what
//! a child may spend (`budget`), reports of this pod to its own parent (`outbox`).

use minke_record::{
    Child, ChildEnd, ChildOutcome, HowEnded, OpenCall, OpenChild, OutboxAck, Outcome, PodsCall, Scope,
};

use crate::calls::Settled;
use crate::pod::{Making, Pod};
use crate::state::State;
use crate::tree::TreeNews;

impl State {
    /// A child begins to live, for the first time or again.
    pub(crate) fn child_began(&mut self, e: &Child) {
        let before = self.facts.children.iter().position(|child| child.session == e.session);
        let spent = before.map(|at| self.facts.children.remove(at).spent).unwrap_or_default();
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
            lived: before.is_some(),
            spent,
            reported: None,
            asks: Vec::new(),
        });
    }

    /// A child has ended, or never began: then its name is free again.
    pub(crate) fn child_ended(&mut self, e: &ChildEnd) {
        let Some(at) = self.facts.children.iter().position(|child| child.session == e.session) else {
            return;
        };
        let spent = e.spent.unwrap_or_default();
        self.facts.children_spent = self.facts.children_spent.plus(&spent);
        if e.outcome == ChildOutcome::FailedToStart && self.facts.children[at].spent == Default::default() {
            self.facts.children.remove(at);
            return;
        }
        let child = &mut self.facts.children[at];
        child.spent = child.spent.plus(&spent);
        child.ended = Some(HowEnded { outcome: e.outcome.clone(), exit: e.exit });
    }

    /// The children that hold a loan.
    pub fn live_children(&self) -> impl Iterator<Item = &OpenChild> {
        self.facts.children.iter().filter(|child| child.ended.is_none())
    }

    /// The scope of this session without what is lent.
    pub fn effective_scope(&self) -> Scope {
        let whole = self.facts.about.as_ref().map(|about| about.scope.clone()).unwrap_or_default();
        self.live_children().fold(whole, |scope, child| minke_policy::subtract(&scope, &child.scope))
    }
}

impl Pod {
    /// A call about other pods.
    pub(crate) fn pods_call(&mut self, m: &mut Making, call: &OpenCall, pods: PodsCall) {
        let message = format!("this version cannot do it yet: {pods:?}");
        self.settle_call_by(m, &call.call_id, Settled::error(Outcome::Failed, message), call.by.clone());
    }

    /// Something has come of an order to other pods, or has happened to one.
    pub(crate) fn tree_news(&mut self, m: &mut Making, news: TreeNews) {
        match news {
            TreeNews::Told { call_id, ended } | TreeNews::Read { call_id, ended, .. } => {
                self.call_ended(m, &call_id, ended);
            }
            TreeNews::Acked { seq } => {
                self.note(m, OutboxAck { seq });
            }
            TreeNews::Spawned { .. }
            | TreeNews::NotSpawned { .. }
            | TreeNews::Ended { .. }
            | TreeNews::Adopted { .. }
            | TreeNews::ParentThere
            | TreeNews::Scope { .. } => {}
        }
    }

    pub(crate) fn pods_waited_for(&mut self, _m: &mut Making, _number: u64) {}

    pub(crate) fn wall_is_over(&mut self, _m: &mut Making) {}
}
