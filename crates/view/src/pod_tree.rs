//! The tree of pods, sorted by urgency: pods that wait for an answer first, children below their parents.
//!
//! The caller fills the rows (`cli` from the registry).
//! Invariant: every row appears exactly once, whatever parents the rows name
//! (`every_pod_is_in_the_tree_once`).

use std::collections::BTreeMap;

use minke_record::{Millis, SessionId};

/// A running or known pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRow {
    pub session: SessionId,
    pub name: String,
    /// The session of the parent pod.
    pub parent: Option<SessionId>,
    /// `running`, `waiting`, `paused`, `idle`, `asleep`, `stopped` or `crashed`.
    pub state: String,
    /// The current activity as a text for people: `Bash cargo test`.
    pub activity: String,
    pub scope: String,
    pub model: String,
    pub tokens: u64,
    /// In micro-dollars. `None` if a price is unknown.
    pub cost_micros: Option<u64>,
    /// Number of open asks.
    pub asks: u32,
    /// A process runs the pod.
    pub is_live: bool,
    pub updated_at: Option<Millis>,
}

impl PodRow {
    /// Creates a row of which only the session and the name are known.
    pub fn new(session: SessionId, name: &str) -> PodRow {
        PodRow {
            session,
            name: name.to_owned(),
            parent: None,
            state: "idle".to_owned(),
            activity: String::new(),
            scope: String::new(),
            model: String::new(),
            tokens: 0,
            cost_micros: None,
            asks: 0,
            is_live: true,
            updated_at: None,
        }
    }

    /// Returns the urgency; smaller is more urgent.
    fn urgency(&self) -> u8 {
        match self.state.as_str() {
            _ if self.asks > 0 => 0,
            "crashed" | "interrupted" => 1,
            "running" | "waiting" => 2,
            "paused" => 3,
            _ if self.is_live => 4,
            _ => 5,
        }
    }
}

/// Pods in display order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodTree {
    tree_rows: Vec<TreeRow>,
}

/// A pod with its position in the tree.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    pub pod: PodRow,
    /// Number of ancestors.
    pub depth: usize,
    /// For each ancestor from the topmost on, and for the pod itself: whether a sibling follows. Used to draw
    /// the branches.
    pub has_next_sibling: Vec<bool>,
    /// The pod or one of its descendants waits for the user.
    pub subtree_needs_input: bool,
}

impl PodTree {
    /// Sorts rows into a tree. Ignores parents that are not in `rows` or that close a cycle.
    pub fn new(rows: Vec<PodRow>) -> PodTree {
        let pods: BTreeMap<SessionId, PodRow> = rows.into_iter().map(|row| (row.session, row)).collect();
        let parents: BTreeMap<SessionId, SessionId> = pods
            .values()
            .filter_map(|row| Some((row.session, row.parent.filter(|parent| pods.contains_key(parent))?)))
            .collect();
        let mut growing = TreeBuilder { children: BTreeMap::new(), pods, out: Vec::new() };
        let mut roots = Vec::new();
        for session in growing.pods.keys() {
            match parents.get(session).filter(|_| !has_cycle(*session, &parents)) {
                Some(parent) => growing.children.entry(*parent).or_default().push(*session),
                None => roots.push(*session),
            }
        }
        growing.sort_sessions(&mut roots);
        growing.add_rows(&roots, &mut Vec::new());
        PodTree { tree_rows: growing.out }
    }

    pub fn tree_rows(&self) -> &[TreeRow] {
        &self.tree_rows
    }

    /// Returns the number of open asks of all pods.
    pub fn open_ask_count(&self) -> u32 {
        self.tree_rows.iter().fold(0, |sum, row| sum.saturating_add(row.pod.asks))
    }
}

struct TreeBuilder {
    children: BTreeMap<SessionId, Vec<SessionId>>,
    pods: BTreeMap<SessionId, PodRow>,
    out: Vec<TreeRow>,
}

/// Depth limit, deeper than pods can be nested. Pods below it do not affect the urgency of their ancestors.
const MAX_DEPTH: usize = 64;

impl TreeBuilder {
    /// Returns the highest urgency among a pod and its descendants.
    fn subtree_urgency(&self, session: SessionId, depth: usize) -> u8 {
        let own = self.pods.get(&session).map_or(u8::MAX, PodRow::urgency);
        if depth >= MAX_DEPTH {
            return own;
        }
        let below = self.children.get(&session).into_iter().flatten();
        below.map(|child| self.subtree_urgency(*child, depth + 1)).fold(own, u8::min)
    }

    fn sort_sessions(&self, sessions: &mut [SessionId]) {
        let name = |session: &SessionId| self.pods.get(session).map(|pod| pod.name.clone());
        sessions.sort_by_cached_key(|session| (self.subtree_urgency(*session, 0), name(session), *session));
    }

    fn add_rows(&mut self, sessions: &[SessionId], more: &mut Vec<bool>) {
        for (at, session) in sessions.iter().enumerate() {
            let Some(pod) = self.pods.remove(session) else { continue };
            let mut below = self.children.remove(session).unwrap_or_default();
            self.sort_sessions(&mut below);
            let subtree_needs_input =
                pod.asks > 0 || below.iter().any(|child| self.subtree_urgency(*child, 0) == 0);
            more.push(at + 1 < sessions.len());
            self.out.push(TreeRow {
                pod,
                depth: more.len() - 1,
                has_next_sibling: more.clone(),
                subtree_needs_input,
            });
            self.add_rows(&below, more);
            more.pop();
        }
    }
}

/// Returns whether the ancestors of a pod lead back to it.
fn has_cycle(session: SessionId, parents: &BTreeMap<SessionId, SessionId>) -> bool {
    let mut at = session;
    for _ in 0..=parents.len() {
        match parents.get(&at) {
            Some(parent) if *parent == session => return true,
            Some(parent) => at = *parent,
            None => return false,
        }
    }
    // Leads into a cycle of other pods, which all count as roots.
    false
}
