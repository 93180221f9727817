//! The tree of pods in the order in which a person needs them: who waits for an answer first, children below parents.
//!
//! Its rows are plain: whoever knows the pods fills them (`cli` from the registry, a test from nothing).
//! Invariant: every row is there exactly once, whoever claims to be whose child (`every_pod_is_in_the_tree_once`).

use std::collections::BTreeMap;

use minke_record::{Millis, SessionId};

/// A pod, living or remembered.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRow {
    pub session: SessionId,
    pub name: String,
    /// The session of the pod above it.
    pub parent: Option<SessionId>,
    /// In a word: `running`, `waiting`, `paused`, `idle`, `asleep`, `stopped`, `crashed`.
    pub state: String,
    /// What it is doing, for people: `Bash cargo test`.
    pub activity: String,
    pub scope: String,
    pub model: String,
    pub tokens: u64,
    /// In micro-dollars; none if a price was not known.
    pub cost_micros: Option<u64>,
    /// Open questions.
    pub asks: u32,
    /// A process has it.
    pub live: bool,
    pub updated: Option<Millis>,
}

impl PodRow {
    /// One of which no more is known than who it is.
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
            live: true,
            updated: None,
        }
    }

    /// How urgent it is, smallest first.
    fn urgency(&self) -> u8 {
        match self.state.as_str() {
            _ if self.asks > 0 => 0,
            "crashed" | "interrupted" => 1,
            "running" | "waiting" => 2,
            "paused" => 3,
            _ if self.live => 4,
            _ => 5,
        }
    }
}

/// Pods in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tree {
    rows: Vec<TreeRow>,
}

/// A pod in its place.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeRow {
    pub pod: PodRow,
    /// How many are above it.
    pub depth: usize,
    /// For each pod above it, from the topmost on, whether more follow below that one; then for itself. What branches
    /// are drawn from.
    pub more: Vec<bool>,
    /// Somebody waits for a person: it, or one below it.
    pub needs_input: bool,
}

impl Tree {
    /// Puts rows in order. A parent that is not among them does not count, nor does one that closes a circle.
    pub fn new(rows: Vec<PodRow>) -> Tree {
        let pods: BTreeMap<SessionId, PodRow> = rows.into_iter().map(|row| (row.session, row)).collect();
        let parents: BTreeMap<SessionId, SessionId> = pods
            .values()
            .filter_map(|row| Some((row.session, row.parent.filter(|parent| pods.contains_key(parent))?)))
            .collect();
        let mut growing = Growing { children: BTreeMap::new(), pods, out: Vec::new() };
        let mut roots = Vec::new();
        for session in growing.pods.keys() {
            match parents.get(session).filter(|_| !is_circle(*session, &parents)) {
                Some(parent) => growing.children.entry(*parent).or_default().push(*session),
                None => roots.push(*session),
            }
        }
        growing.sorted(&mut roots);
        growing.put(&roots, &mut Vec::new());
        Tree { rows: growing.out }
    }

    pub fn rows(&self) -> &[TreeRow] {
        &self.rows
    }

    /// Open questions over all of them.
    pub fn asks(&self) -> u32 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.pod.asks))
    }
}

struct Growing {
    children: BTreeMap<SessionId, Vec<SessionId>>,
    pods: BTreeMap<SessionId, PodRow>,
    out: Vec<TreeRow>,
}

/// Deeper than pods are ever nested: what is below does not make those above it more urgent.
const DEPTH: usize = 64;

impl Growing {
    /// The most urgent below it, itself included.
    fn urgency(&self, session: SessionId, depth: usize) -> u8 {
        let own = self.pods.get(&session).map_or(u8::MAX, PodRow::urgency);
        if depth >= DEPTH {
            return own;
        }
        let below = self.children.get(&session).into_iter().flatten();
        below.map(|child| self.urgency(*child, depth + 1)).fold(own, u8::min)
    }

    fn sorted(&self, sessions: &mut [SessionId]) {
        let name = |session: &SessionId| self.pods.get(session).map(|pod| pod.name.clone());
        sessions.sort_by_cached_key(|session| (self.urgency(*session, 0), name(session), *session));
    }

    fn put(&mut self, sessions: &[SessionId], more: &mut Vec<bool>) {
        for (at, session) in sessions.iter().enumerate() {
            let Some(pod) = self.pods.remove(session) else { continue };
            let mut below = self.children.remove(session).unwrap_or_default();
            self.sorted(&mut below);
            let needs_input = pod.asks > 0 || below.iter().any(|child| self.urgency(*child, 0) == 0);
            more.push(at + 1 < sessions.len());
            self.out.push(TreeRow { pod, depth: more.len() - 1, more: more.clone(), needs_input });
            self.put(&below, more);
            more.pop();
        }
    }
}

/// Whether the pods above it lead back to it.
fn is_circle(session: SessionId, parents: &BTreeMap<SessionId, SessionId>) -> bool {
    let mut at = session;
    for _ in 0..=parents.len() {
        match parents.get(&at) {
            Some(parent) if *parent == session => return true,
            Some(parent) => at = *parent,
            None => return false,
        }
    }
    // It leads into a circle of others, who all count as having nobody above them.
    false
}
