//! The pod tree: live pods, their parents and children, and ended pods that the logs still name.
//!
//! Here: a snapshot of all pods as a tree. Scope leases tell which pods are live. Usage, asks and children
//! come from the log, or from the tally that a pod wrote for the same log length, so a pod that hangs is
//! shown like any other (`what_ps_shows_comes_from_the_log_when_the_pod_says_less`). Elsewhere: its output
//! (`ps`, `top`).
//! Invariants: a live pod is a child of the pod that currently lends its scope, and every pod appears once,
//! even if the logs contain a cycle (`a_circle_in_the_logs_is_walked_once`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use minke_client::UserHome;
use minke_pod::State;
use minke_record::{Millis, OpenChild, Scope, SessionId, SessionUsage};
use minke_registry::{LivePod, LogTotals, RuntimeDir};
use serde_json::{Value, json};

use crate::context::now_millis;
use crate::error::CliError;
use crate::render::budget::BudgetTotals;

/// Maximum number of ended pods in a tree.
const MAX_ENDED: usize = 1_000;
/// Size of one read of a log.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// A live or ended pod.
#[derive(Debug, Clone)]
pub(crate) struct PodNode {
    pub(crate) name: String,
    pub(crate) session: SessionId,
    /// State in `minke ps`: a run state, or `starting`, `stuck`, `stopped`, `slept`, `crashed`.
    pub(crate) state: String,
    pub(crate) activity: Option<String>,
    pub(crate) waiting: Option<Value>,
    pub(crate) pid: Option<u32>,
    pub(crate) parent: Option<SessionId>,
    /// Its current scope, without the parts that it has lent.
    pub(crate) scope: Option<Scope>,
    /// Facts from its log; `None` if the log cannot be read (`log verify` prints the reason).
    pub(crate) facts: Option<PodFacts>,
}

/// Facts from the log of a session.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodFacts {
    pub(crate) name: Option<String>,
    pub(crate) created: Millis,
    pub(crate) scope: Option<Scope>,
    pub(crate) parent: Option<SessionId>,
    pub(crate) usage: SessionUsage,
    pub(crate) open_asks: usize,
    pub(crate) running: bool,
    pub(crate) budget: BudgetTotals,
    pub(crate) children: Vec<OpenChild>,
    pub(crate) archived: bool,
}

/// A snapshot of all pods.
#[derive(Debug, Default)]
pub(crate) struct PodTreeView {
    /// Parents before children, siblings by name.
    pub(crate) nodes: Vec<PodNode>,
    pub(crate) problems: Vec<String>,
}

/// Whether ended pods are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeExtent {
    LivePods,
    /// Also parents and children that have ended.
    WithEndedPods,
}

/// Replayed states of logs, so that the next snapshot reads only new entries.
#[derive(Default)]
pub(crate) struct StateCache {
    states: BTreeMap<SessionId, State>,
}

impl StateCache {
    /// Returns the facts of a session, up to the end of its log.
    pub(crate) fn pod_facts(&mut self, home: &UserHome, session: SessionId) -> Option<PodFacts> {
        self.session_state(home, session).map(facts_from_state)
    }

    fn session_state(&mut self, home: &UserHome, session: SessionId) -> Option<&State> {
        let reader = home.store.open_reader(session).ok()?;
        let Some(state) = self.states.get_mut(&session) else {
            let replay = reader.read_replay().ok()?;
            let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
            return Some(self.states.entry(session).or_insert(state));
        };
        let head = reader.head_position().ok()??;
        let mut from = Some(state.next_seq).filter(|next| *next <= head.seq);
        while let Some(seq) = from {
            let page = reader.read_page(seq, PAGE_ENTRIES, PAGE_BYTES).ok()?;
            page.entries.iter().for_each(|sealed| state.apply_entry(&sealed.entry));
            from = page.next_seq;
        }
        self.states.get(&session)
    }

    /// Drops the states of sessions that are not in the tree.
    fn retain_nodes(&mut self, nodes: &[PodNode]) {
        let seen: BTreeSet<SessionId> = nodes.iter().map(|node| node.session).collect();
        self.states.retain(|session, _| seen.contains(session));
    }
}

impl PodTreeView {
    pub(crate) fn load(
        home: &UserHome,
        extent: TreeExtent,
        cache: &mut StateCache,
    ) -> Result<PodTreeView, CliError> {
        let look = RuntimeDir::new(&home.paths).take_snapshot()?;
        let mut nodes: Vec<PodNode> = look.live.iter().map(|live| live_node(home, live, cache)).collect();
        if extent == TreeExtent::WithEndedPods {
            add_ended_pods(home, &mut nodes, cache);
        }
        cache.retain_nodes(&nodes);
        Ok(PodTreeView { nodes: sort_tree(nodes, compare_names), problems: look.problems })
    }

    /// Sorts siblings; children stay after their parents.
    pub(crate) fn sort_siblings(&mut self, by: impl Fn(&PodNode, &PodNode) -> Ordering) {
        self.nodes = sort_tree(std::mem::take(&mut self.nodes), by);
    }

    pub(crate) fn find_node(&self, session: SessionId) -> Option<&PodNode> {
        self.nodes.iter().find(|node| node.session == session)
    }

    pub(crate) fn children_of(&self, session: SessionId) -> impl Iterator<Item = &PodNode> {
        self.nodes.iter().filter(move |member| member.parent == Some(session))
    }

    /// Returns the number of ancestors in the tree.
    pub(crate) fn depth_of(&self, node: &PodNode) -> usize {
        self.ancestors(node).count()
    }

    /// Iterates over the ancestors in the tree, starting with the parent.
    fn ancestors(&self, member: &PodNode) -> impl Iterator<Item = &PodNode> {
        let mut seen = BTreeSet::from([member.session]);
        let mut next = member.parent;
        std::iter::from_fn(move || {
            let parent = self.find_node(next?)?;
            next = parent.parent;
            seen.insert(parent.session).then_some(parent)
        })
    }

    /// Returns a pod and its descendants, parents first.
    pub(crate) fn subtree(&self, session: SessionId) -> Vec<&PodNode> {
        let is_below = |node: &&PodNode| {
            node.session == session || self.ancestors(node).any(|above| above.session == session)
        };
        self.nodes.iter().filter(is_below).collect()
    }

    /// Returns the tree lines before the name of a pod: `│  └─ `.
    pub(crate) fn branch_prefix(&self, node: &PodNode) -> String {
        let mut marks: Vec<&str> = Vec::new();
        let mut at = node;
        for parent in self.ancestors(node) {
            let last = self.children_of(parent.session).last().is_some_and(|last| last.session == at.session);
            marks.push(match (marks.is_empty(), last) {
                (true, true) => "└─ ",
                (true, false) => "├─ ",
                (false, true) => "   ",
                (false, false) => "│  ",
            });
            at = parent;
        }
        marks.into_iter().rev().collect()
    }
}

fn live_node(home: &UserHome, live: &LivePod, cache: &mut StateCache) -> PodNode {
    let status = live.status.as_ref();
    PodNode {
        name: live.row.name.to_string(),
        session: live.row.session,
        state: live.state_label().to_owned(),
        activity: status.and_then(|status| status.activity.clone()),
        waiting: status.and_then(|status| status.waiting.as_ref()).map(|waiting| json!(waiting)),
        pid: Some(live.row.pid),
        // A pod whose lender has ended, with all ancestors, is still its child.
        parent: live.row.parent.or(live.row.lender),
        scope: Some(live.row.effective_scope()),
        facts: tallied_facts(home, live).or_else(|| cache.pod_facts(home, live.row.session)),
    }
}

/// Returns the facts that a live pod wrote about its log, if the log has not grown since. This avoids reading
/// the logs of a thousand idle pods; the log of a pod that hangs is still read.
fn tallied_facts(home: &UserHome, live: &LivePod) -> Option<PodFacts> {
    let tally = current_tally(home, live)?;
    Some(PodFacts {
        name: Some(live.row.name.to_string()),
        created: tally.created,
        scope: Some(live.row.scope.clone()),
        parent: live.row.lender,
        usage: tally.usage.clone(),
        open_asks: tally.asks,
        running: false,
        budget: BudgetTotals { granted: tally.granted, spent: tally.spent, remaining: tally.left },
        children: Vec::new(),
        archived: tally.archived,
    })
}

/// Returns the tally of a pod, if it matches the current log.
pub(crate) fn current_tally<'l>(home: &UserHome, live: &'l LivePod) -> Option<&'l LogTotals> {
    let tally = live.status.as_ref()?.tally.as_ref()?;
    let stamp = home.store.log_stamp(live.row.session).ok()?;
    ((stamp.file, stamp.bytes) == (tally.file, tally.bytes)).then_some(tally)
}

/// Returns the node of a session without a pod. `ended` is the parent's record of it.
pub(crate) fn sleeping_node(
    home: &UserHome,
    session: SessionId,
    ended: Option<&OpenChild>,
    cache: &mut StateCache,
) -> PodNode {
    let facts = cache.pod_facts(home, session);
    let outcome = ended.and_then(|child| child.ended.as_ref()).map(|ended| ended.outcome.as_str());
    let state = match &facts {
        None => "unreadable",
        // The log contains an open run, and no process works on it.
        Some(known) if known.running => "crashed",
        Some(_) => outcome.unwrap_or("stopped"),
    };
    let name = facts.as_ref().and_then(|known| known.name.clone());
    PodNode {
        name: name.or_else(|| ended.map(|child| child.name.to_string())).unwrap_or_else(|| "?".to_owned()),
        session,
        state: state.to_owned(),
        activity: None,
        waiting: None,
        pid: None,
        parent: facts.as_ref().and_then(|known| known.parent),
        scope: facts.as_ref().and_then(|known| known.scope.clone()),
        facts,
    }
}

/// Adds ended parents and children.
fn add_ended_pods(home: &UserHome, nodes: &mut Vec<PodNode>, cache: &mut StateCache) {
    let mut seen: BTreeSet<SessionId> = nodes.iter().map(|node| node.session).collect();
    let living = nodes.len();
    let mut at = 0;
    while at < nodes.len() && nodes.len() < living + MAX_ENDED {
        if let Some(parent) = nodes[at].parent.filter(|parent| seen.insert(*parent)) {
            nodes.push(sleeping_node(home, parent, None, cache));
        }
        let (parent, children) = match &nodes[at].facts {
            Some(known) => (nodes[at].session, known.children.clone()),
            None => (nodes[at].session, Vec::new()),
        };
        for child in &children {
            if seen.insert(child.session) {
                let node = sleeping_node(home, child.session, Some(child), cache);
                nodes.push(PodNode { parent: Some(parent), ..node });
            }
        }
        at += 1;
    }
}

fn compare_names(a: &PodNode, b: &PodNode) -> Ordering {
    a.name.cmp(&b.name).then(a.session.cmp(&b.session))
}

/// Orders parents before children. Members of a cycle follow their first member.
fn sort_tree(nodes: Vec<PodNode>, by: impl Fn(&PodNode, &PodNode) -> Ordering) -> Vec<PodNode> {
    let known: BTreeSet<SessionId> = nodes.iter().map(|node| node.session).collect();
    let mut below: BTreeMap<Option<SessionId>, Vec<PodNode>> = BTreeMap::new();
    let mut sorted = nodes;
    sorted.sort_by(by);
    for member in sorted {
        let parent = member.parent.filter(|parent| known.contains(parent));
        below.entry(parent).or_default().push(member);
    }
    let mut order = Vec::new();
    let mut open: Vec<PodNode> = below.remove(&None).unwrap_or_default();
    open.reverse();
    loop {
        while let Some(node) = open.pop() {
            let mut children = below.remove(&Some(node.session)).unwrap_or_default();
            children.reverse();
            open.extend(children);
            order.push(node);
        }
        // The remaining nodes belong to cycles.
        match below.pop_first() {
            Some((_, children)) => open.extend(children),
            None => return order,
        }
    }
}

fn facts_from_state(state: &State) -> PodFacts {
    let facts = &state.facts;
    let about = facts.about.as_ref();
    PodFacts {
        name: facts.name.as_ref().map(ToString::to_string),
        created: about.map_or(0, |about| about.created),
        scope: about.map(|about| about.scope.clone()),
        parent: about.and_then(|about| about.parent.as_ref()).map(|parent| parent.session),
        usage: facts.usage.clone(),
        open_asks: facts.asks.len(),
        running: facts.run.is_some(),
        budget: BudgetTotals::from_state(state),
        children: facts.children.clone(),
        archived: facts.archived,
    }
}

impl PodNode {
    pub(crate) fn is_live(&self) -> bool {
        self.pid.is_some()
    }

    pub(crate) fn age(&self) -> Duration {
        let created = self.facts.as_ref().map(|known| known.created);
        Duration::from_millis(created.map_or(0, |created| now_millis().saturating_sub(created)))
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.facts.as_ref().map_or(0, |known| known.usage.input + known.usage.output)
    }

    pub(crate) fn cost(&self) -> f64 {
        self.facts.as_ref().map_or(0.0, |known| known.usage.cost_usd)
    }

    pub(crate) fn open_asks(&self) -> usize {
        self.facts.as_ref().map_or(0, |known| known.open_asks)
    }

    /// Returns the row of `ps --json`.
    pub(crate) fn to_json(&self) -> Value {
        let known = self.facts.as_ref();
        let mut row = json!({
            "name": self.name,
            "session": format!("s_{}", self.session),
            "state": self.state,
            "activity": self.activity,
            "pid": self.pid,
            "parent": self.parent.map(|parent| format!("s_{parent}")),
            "scope": self.scope,
            "usage": known.map(|known| &known.usage),
            "budget": known.map(|known| known.budget.to_json()),
            "asks": self.open_asks(),
        });
        if let (Some(waiting), Some(row)) = (&self.waiting, row.as_object_mut()) {
            row.insert("waiting".to_owned(), waiting.clone());
        }
        row
    }
}

#[cfg(test)]
impl PodNode {
    pub(crate) fn with_name(name: &str, session: SessionId, parent: Option<SessionId>) -> PodNode {
        let (name, state) = (name.to_owned(), "idle".to_owned());
        let (activity, waiting, scope, facts) = (None, None, None, None);
        PodNode { name, session, state, activity, waiting, pid: Some(1), parent, scope, facts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::IdGenerator;

    fn sample_node(name: &str, session: SessionId, parent: Option<SessionId>) -> PodNode {
        PodNode::with_name(name, session, parent)
    }

    fn draw_names(nodes: Vec<PodNode>) -> Vec<String> {
        let tree = PodTreeView { nodes: sort_tree(nodes, compare_names), problems: Vec::new() };
        let draw = |node: &PodNode| format!("{}{}", tree.branch_prefix(node), node.name);
        tree.nodes.iter().map(draw).collect()
    }

    #[test]
    fn a_tree_is_drawn_with_parents_above_children() {
        let mut ids = IdGenerator::new(1, 1);
        let [root, left, right, leaf, gone] = std::array::from_fn(|_| SessionId(ids.next_uuid()));
        let nodes = vec![
            sample_node("leaf", leaf, Some(left)),
            sample_node("right", right, Some(root)),
            sample_node("left", left, Some(root)),
            sample_node("root", root, None),
            sample_node("orphan", SessionId(ids.next_uuid()), Some(gone)),
        ];
        assert_eq!(draw_names(nodes.clone()), ["orphan", "root", "├─ left", "│  └─ leaf", "└─ right"]);
        let tree = PodTreeView { nodes: sort_tree(nodes, compare_names), problems: Vec::new() };
        let names = |session| tree.subtree(session).iter().map(|m| m.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(root), ["root", "left", "leaf", "right"]);
        assert_eq!(names(left), ["left", "leaf"]);
        assert_eq!(names(gone), ["orphan"; 0]);
    }

    #[test]
    fn a_circle_in_the_logs_is_walked_once() {
        let mut ids = IdGenerator::new(1, 1);
        let [a, b, alone] = std::array::from_fn(|_| SessionId(ids.next_uuid()));
        let nodes = vec![
            sample_node("a", a, Some(b)),
            sample_node("b", b, Some(a)),
            sample_node("c", alone, Some(alone)),
        ];
        let tree = PodTreeView { nodes: sort_tree(nodes, compare_names), problems: Vec::new() };
        assert_eq!(tree.nodes.len(), 3);
        for node in &tree.nodes {
            assert!(tree.depth_of(node) <= 1);
            assert!(tree.branch_prefix(node).chars().count() <= 3);
        }
        assert_eq!(tree.subtree(a).len(), 2);
    }
}
