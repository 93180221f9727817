//! The family: who lives, who spawned whom, and those that are remembered although they live no more.
//!
//! Here: one look at the machine, as a tree. Who lives is said by the scope leases; what a pod has used, asked and spawned
//! comes from its log, or from what the pod wrote of a log of just that length, so that a pod that hangs is seen like the
//! others (`what_ps_shows_comes_from_the_log_when_the_pod_says_less`). Elsewhere: the pictures of it (`ps`, `top`).
//! Invariants: a live pod stands below the one that has lent its scope now, and every pod stands once, in whatever circle
//! the logs may speak of (`a_circle_in_the_logs_is_walked_once`).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use minke_client::Home;
use minke_pod::State;
use minke_record::{Millis, OpenChild, Scope, SessionId, Usage};
use minke_registry::{Live, Runtime, Tally};
use serde_json::{Value, json};

use crate::around::now;
use crate::budget::Purse;
use crate::failure::Failure;

/// How many pods that live no more a look remembers.
const REMEMBERED: usize = 1_000;
/// A page of a log that is read at once.
const PAGE_ENTRIES: usize = 1_000;
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// One pod, live or remembered.
#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) session: SessionId,
    /// As `minke ps` shows it: a state, or `starting`, `stuck`, `stopped`, `slept`, `crashed`.
    pub(crate) state: String,
    pub(crate) activity: Option<String>,
    pub(crate) waiting: Option<Value>,
    pub(crate) pid: Option<u32>,
    pub(crate) parent: Option<SessionId>,
    /// What it may touch now: without what it has lent.
    pub(crate) scope: Option<Scope>,
    /// What its log says; nothing, if that cannot be read (`log verify` says why).
    pub(crate) known: Option<Known>,
}

/// What a look takes from a log.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) name: Option<String>,
    pub(crate) created: Millis,
    pub(crate) scope: Option<Scope>,
    pub(crate) parent: Option<SessionId>,
    pub(crate) usage: Usage,
    pub(crate) asks: usize,
    pub(crate) running: bool,
    pub(crate) purse: Purse,
    pub(crate) children: Vec<OpenChild>,
    pub(crate) archived: bool,
}

/// Everybody.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// Parents before children, siblings by name.
    pub(crate) members: Vec<Member>,
    pub(crate) problems: Vec<String>,
}

/// Whether pods that live no more belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Living,
    /// Also children that a member remembers.
    Remembered,
}

/// Logs that were read, so that the next look reads only what is new.
#[derive(Default)]
pub(crate) struct Folds {
    states: BTreeMap<SessionId, State>,
}

impl Folds {
    /// What a session's log says by now.
    pub(crate) fn known(&mut self, home: &Home, session: SessionId) -> Option<Known> {
        self.state(home, session).map(known)
    }

    fn state(&mut self, home: &Home, session: SessionId) -> Option<&State> {
        let reader = home.store.reader(session).ok()?;
        let Some(state) = self.states.get_mut(&session) else {
            let replay = reader.replay().ok()?;
            let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
            return Some(self.states.entry(session).or_insert(state));
        };
        let head = reader.head().ok()??;
        let mut from = Some(state.next_seq).filter(|next| *next <= head.seq);
        while let Some(seq) = from {
            let page = reader.page(seq, PAGE_ENTRIES, PAGE_BYTES).ok()?;
            page.entries.iter().for_each(|sealed| state.apply(&sealed.entry));
            from = page.next_seq;
        }
        self.states.get(&session)
    }

    /// Those that nobody looks at any more need not be kept.
    fn keep(&mut self, members: &[Member]) {
        let seen: BTreeSet<SessionId> = members.iter().map(|member| member.session).collect();
        self.states.retain(|session, _| seen.contains(session));
    }
}

impl Family {
    pub(crate) fn look(home: &Home, reach: Reach, folds: &mut Folds) -> Result<Family, Failure> {
        let look = Runtime::new(&home.paths).look()?;
        let mut members: Vec<Member> = look.live.iter().map(|live| living(home, live, folds)).collect();
        if reach == Reach::Remembered {
            remember(home, &mut members, folds);
        }
        folds.keep(&members);
        Ok(Family { members: in_order(members, by_name), problems: look.problems })
    }

    /// Sorts siblings; children stay below their parents.
    pub(crate) fn sort(&mut self, by: impl Fn(&Member, &Member) -> Ordering) {
        self.members = in_order(std::mem::take(&mut self.members), by);
    }

    pub(crate) fn of(&self, session: SessionId) -> Option<&Member> {
        self.members.iter().find(|member| member.session == session)
    }

    pub(crate) fn children(&self, session: SessionId) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.parent == Some(session))
    }

    /// How many members are above this one.
    pub(crate) fn depth(&self, member: &Member) -> usize {
        self.above(member).count()
    }

    /// From its parent upward, as far as they are members.
    fn above(&self, member: &Member) -> impl Iterator<Item = &Member> {
        let mut seen = BTreeSet::from([member.session]);
        let mut next = member.parent;
        std::iter::from_fn(move || {
            let parent = self.of(next?)?;
            next = parent.parent;
            seen.insert(parent.session).then_some(parent)
        })
    }

    /// A pod and everybody below it, parents first.
    pub(crate) fn below(&self, session: SessionId) -> Vec<&Member> {
        let is_below = |member: &&Member| {
            member.session == session || self.above(member).any(|above| above.session == session)
        };
        self.members.iter().filter(is_below).collect()
    }

    /// The lines that lead to a member, drawn before its name: `│  └─ `.
    pub(crate) fn branches(&self, member: &Member) -> String {
        let mut marks: Vec<&str> = Vec::new();
        let mut at = member;
        for parent in self.above(member) {
            let last = self.children(parent.session).last().is_some_and(|last| last.session == at.session);
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

fn living(home: &Home, live: &Live, folds: &mut Folds) -> Member {
    let status = live.status.as_ref();
    Member {
        name: live.row.name.to_string(),
        session: live.row.session,
        state: live.state().to_owned(),
        activity: status.and_then(|status| status.activity.clone()),
        waiting: status.and_then(|status| status.waiting.as_ref()).map(|waiting| json!(waiting)),
        pid: Some(live.row.pid),
        // One whose lender is gone, with all above it, is still its child.
        parent: live.row.parent.or(live.row.lender),
        scope: Some(live.row.effective()),
        known: tallied(home, live).or_else(|| folds.known(home, live.row.session)),
    }
}

/// What a live pod says that its log comes to, if the log is no longer than it was then. A thousand idle pods are shown
/// without reading a thousand logs, and one that hangs is still read.
fn tallied(home: &Home, live: &Live) -> Option<Known> {
    let tally = tally(home, live)?;
    Some(Known {
        name: Some(live.row.name.to_string()),
        created: tally.created,
        scope: Some(live.row.scope.clone()),
        parent: live.row.lender,
        usage: tally.usage.clone(),
        asks: tally.asks,
        running: false,
        purse: Purse { granted: tally.granted, spent: tally.spent, left: tally.left },
        children: Vec::new(),
        archived: tally.archived,
    })
}

/// A pod's tally, if it still holds.
pub(crate) fn tally<'l>(home: &Home, live: &'l Live) -> Option<&'l Tally> {
    let tally = live.status.as_ref()?.tally.as_ref()?;
    let stamp = home.store.stamp(live.row.session).ok()?;
    ((stamp.file, stamp.bytes) == (tally.file, tally.bytes)).then_some(tally)
}

/// A session without a pod. `ended` is what its parent knows of its end.
pub(crate) fn sleeping(
    home: &Home,
    session: SessionId,
    ended: Option<&OpenChild>,
    folds: &mut Folds,
) -> Member {
    let known = folds.known(home, session);
    let outcome = ended.and_then(|child| child.ended.as_ref()).map(|ended| ended.outcome.as_str());
    let state = match &known {
        None => "unreadable",
        // A run that nobody works on and that nobody has ended.
        Some(known) if known.running => "crashed",
        Some(_) => outcome.unwrap_or("stopped"),
    };
    let name = known.as_ref().and_then(|known| known.name.clone());
    Member {
        name: name.or_else(|| ended.map(|child| child.name.to_string())).unwrap_or_else(|| "?".to_owned()),
        session,
        state: state.to_owned(),
        activity: None,
        waiting: None,
        pid: None,
        parent: known.as_ref().and_then(|known| known.parent),
        scope: known.as_ref().and_then(|known| known.scope.clone()),
        known,
    }
}

/// Adds the parents and children of members that live no more.
fn remember(home: &Home, members: &mut Vec<Member>, folds: &mut Folds) {
    let mut seen: BTreeSet<SessionId> = members.iter().map(|member| member.session).collect();
    let living = members.len();
    let mut at = 0;
    while at < members.len() && members.len() < living + REMEMBERED {
        if let Some(parent) = members[at].parent.filter(|parent| seen.insert(*parent)) {
            members.push(sleeping(home, parent, None, folds));
        }
        let (parent, children) = match &members[at].known {
            Some(known) => (members[at].session, known.children.clone()),
            None => (members[at].session, Vec::new()),
        };
        for child in &children {
            if seen.insert(child.session) {
                let member = sleeping(home, child.session, Some(child), folds);
                members.push(Member { parent: Some(parent), ..member });
            }
        }
        at += 1;
    }
}

fn by_name(a: &Member, b: &Member) -> Ordering {
    a.name.cmp(&b.name).then(a.session.cmp(&b.session))
}

/// Parents before children. Who stands in a circle stands where its first member does.
fn in_order(members: Vec<Member>, by: impl Fn(&Member, &Member) -> Ordering) -> Vec<Member> {
    let known: BTreeSet<SessionId> = members.iter().map(|member| member.session).collect();
    let mut below: BTreeMap<Option<SessionId>, Vec<Member>> = BTreeMap::new();
    let mut sorted = members;
    sorted.sort_by(by);
    for member in sorted {
        let parent = member.parent.filter(|parent| known.contains(parent));
        below.entry(parent).or_default().push(member);
    }
    let mut order = Vec::new();
    let mut open: Vec<Member> = below.remove(&None).unwrap_or_default();
    open.reverse();
    loop {
        while let Some(member) = open.pop() {
            let mut children = below.remove(&Some(member.session)).unwrap_or_default();
            children.reverse();
            open.extend(children);
            order.push(member);
        }
        // What is left stands in a circle.
        match below.pop_first() {
            Some((_, children)) => open.extend(children),
            None => return order,
        }
    }
}

fn known(state: &State) -> Known {
    let facts = &state.facts;
    let about = facts.about.as_ref();
    Known {
        name: facts.name.as_ref().map(ToString::to_string),
        created: about.map_or(0, |about| about.created),
        scope: about.map(|about| about.scope.clone()),
        parent: about.and_then(|about| about.parent.as_ref()).map(|parent| parent.session),
        usage: facts.usage.clone(),
        asks: facts.asks.len(),
        running: facts.run.is_some(),
        purse: Purse::of(state),
        children: facts.children.clone(),
        archived: facts.archived,
    }
}

impl Member {
    pub(crate) fn lives(&self) -> bool {
        self.pid.is_some()
    }

    pub(crate) fn age(&self) -> Duration {
        let created = self.known.as_ref().map(|known| known.created);
        Duration::from_millis(created.map_or(0, |created| now().saturating_sub(created)))
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.known.as_ref().map_or(0, |known| known.usage.input + known.usage.output)
    }

    pub(crate) fn cost(&self) -> f64 {
        self.known.as_ref().map_or(0.0, |known| known.usage.cost_usd)
    }

    pub(crate) fn asks(&self) -> usize {
        self.known.as_ref().map_or(0, |known| known.asks)
    }

    /// The row of `ps --json`.
    pub(crate) fn json(&self) -> Value {
        let known = self.known.as_ref();
        let mut row = json!({
            "name": self.name,
            "session": format!("s_{}", self.session),
            "state": self.state,
            "activity": self.activity,
            "pid": self.pid,
            "parent": self.parent.map(|parent| format!("s_{parent}")),
            "scope": self.scope,
            "usage": known.map(|known| &known.usage),
            "budget": known.map(|known| known.purse.json()),
            "asks": self.asks(),
        });
        if let (Some(waiting), Some(row)) = (&self.waiting, row.as_object_mut()) {
            row.insert("waiting".to_owned(), waiting.clone());
        }
        row
    }
}

#[cfg(test)]
impl Member {
    pub(crate) fn named(name: &str, session: SessionId, parent: Option<SessionId>) -> Member {
        let (name, state) = (name.to_owned(), "idle".to_owned());
        let (activity, waiting, scope, known) = (None, None, None, None);
        Member { name, session, state, activity, waiting, pid: Some(1), parent, scope, known }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::Ids;

    fn member(name: &str, session: SessionId, parent: Option<SessionId>) -> Member {
        Member::named(name, session, parent)
    }

    fn drawn(members: Vec<Member>) -> Vec<String> {
        let family = Family { members: in_order(members, by_name), problems: Vec::new() };
        let draw = |member: &Member| format!("{}{}", family.branches(member), member.name);
        family.members.iter().map(draw).collect()
    }

    #[test]
    fn a_tree_is_drawn_with_parents_above_children() {
        let mut ids = Ids::new(1, 1);
        let [root, left, right, leaf, gone] = std::array::from_fn(|_| SessionId(ids.next_uuid()));
        let members = vec![
            member("leaf", leaf, Some(left)),
            member("right", right, Some(root)),
            member("left", left, Some(root)),
            member("root", root, None),
            member("orphan", SessionId(ids.next_uuid()), Some(gone)),
        ];
        assert_eq!(drawn(members.clone()), ["orphan", "root", "├─ left", "│  └─ leaf", "└─ right"]);
        let family = Family { members: in_order(members, by_name), problems: Vec::new() };
        let names = |session| family.below(session).iter().map(|m| m.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names(root), ["root", "left", "leaf", "right"]);
        assert_eq!(names(left), ["left", "leaf"]);
        assert_eq!(names(gone), ["orphan"; 0]);
    }

    #[test]
    fn a_circle_in_the_logs_is_walked_once() {
        let mut ids = Ids::new(1, 1);
        let [a, b, alone] = std::array::from_fn(|_| SessionId(ids.next_uuid()));
        let members = vec![member("a", a, Some(b)), member("b", b, Some(a)), member("c", alone, Some(alone))];
        let family = Family { members: in_order(members, by_name), problems: Vec::new() };
        assert_eq!(family.members.len(), 3);
        for member in &family.members {
            assert!(family.depth(member) <= 1);
            assert!(family.branches(member).chars().count() <= 3);
        }
        assert_eq!(family.below(a).len(), 2);
    }
}
