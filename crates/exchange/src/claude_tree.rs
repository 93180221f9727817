//! Which lines of a Claude Code file are the conversation: the way from the newest leaf back to its root.
//!
//! A prompt that was changed begins another branch, a compaction another root, and a helper's work stands on side chains:
//! what is not on the way is counted and left behind. Calls that were made together may hang side by side; those that
//! belong to a line on the way, and their results, are taken along.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::claude::{is, text};
use crate::lines::{Lines, Object};
use crate::tally::Tally;
use crate::written::OWN_LINE;

/// Lines that are not part of the tree, and tell nothing that is missed.
const BESIDE: [&str; 8] = [
    "summary",
    "custom-title",
    "ai-title",
    "file-history-snapshot",
    "queue-operation",
    "last-prompt",
    "agent-name",
    "permission-mode",
];

struct Node<'l> {
    line: &'l Object,
    kind: &'l str,
    side: bool,
}

pub(crate) fn chosen<'l>(lines: &'l Lines, tally: &mut Tally) -> Vec<&'l Object> {
    let nodes: Vec<Node<'l>> = lines
        .objects
        .iter()
        .map(|line| Node {
            line,
            kind: text(line, "type").unwrap_or_default(),
            side: is(line, "isSidechain"),
        })
        .collect();
    // A file that holds nothing else is the conversation of a helper.
    let helpers = !nodes.iter().any(|node| speaks(node) && !node.side);
    let usable = |node: &Node<'_>| helpers || !node.side;
    let mut by_id: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.kind != OWN_LINE) {
        if let Some(id) = text(node.line, "uuid") {
            by_id.entry(id).or_insert(at);
        }
    }
    let leaf =
        nodes.iter().rposition(|node| speaks(node) && usable(node) && text(node.line, "uuid").is_some());
    let mut places = way(&nodes, &by_id, leaf);
    siblings(&nodes, &mut places, &usable);
    results(&nodes, &mut places, &usable);
    own(&nodes, &by_id, &mut places);
    leftovers(&nodes, &places, helpers, tally);
    let mut order: Vec<((i64, usize), &'l Object)> =
        places.into_iter().filter_map(|(at, place)| Some(((place, at), nodes.get(at)?.line))).collect();
    order.sort_by_key(|(key, _)| *key);
    order.into_iter().map(|(_, line)| line).collect()
}

fn speaks(node: &Node<'_>) -> bool {
    matches!(node.kind, "user" | "assistant")
}

/// The place of each line that is taken: what it stands after. Lines of the same place keep the order of the file.
type Places = BTreeMap<usize, i64>;

/// From the leaf back, each line once.
fn way(nodes: &[Node<'_>], by_id: &BTreeMap<&str, usize>, leaf: Option<usize>) -> Places {
    let mut back = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = leaf;
    while let Some(at) = next.filter(|at| seen.insert(*at)) {
        back.push(at);
        let parent = nodes.get(at).and_then(|node| text(node.line, "parentUuid"));
        next = parent.and_then(|parent| by_id.get(parent).copied());
    }
    back.into_iter().rev().zip(0..).collect()
}

fn message_id<'l>(node: &Node<'l>) -> Option<&'l str> {
    node.line.get("message")?.get("id")?.as_str().filter(|_| node.kind == "assistant")
}

/// Other lines of the same replies.
fn siblings(nodes: &[Node<'_>], places: &mut Places, usable: &dyn Fn(&Node<'_>) -> bool) {
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for (at, place) in places.iter() {
        if let Some(id) = nodes.get(*at).and_then(message_id) {
            let known = last.entry(id).or_insert(*place);
            *known = (*known).max(*place);
        }
    }
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| usable(node)) {
        if let Some(place) = message_id(node).and_then(|id| last.get(id)) {
            places.entry(at).or_insert(*place);
        }
    }
}

fn block_ids<'l>(node: &Node<'l>, kind: &str, member: &str) -> Vec<&'l str> {
    let content = node.line.get("message").and_then(|message| message.get("content"));
    let blocks = content.and_then(Value::as_array).into_iter().flatten();
    let of_kind = blocks.filter(|block| block.get("type").and_then(Value::as_str) == Some(kind));
    of_kind.filter_map(|block| block.get(member)?.as_str()).collect()
}

/// Results of calls that were taken, where they are not on the way themselves. They stand after the whole reply.
fn results(nodes: &[Node<'_>], places: &mut Places, usable: &dyn Fn(&Node<'_>) -> bool) {
    let mut replies: BTreeMap<&str, i64> = BTreeMap::new();
    let mut wanted: BTreeMap<&str, (i64, Option<&str>)> = BTreeMap::new();
    for (at, place) in places.iter() {
        let Some(node) = nodes.get(*at) else { continue };
        if let Some(id) = message_id(node) {
            let last = replies.entry(id).or_insert(*place);
            *last = (*last).max(*place);
        }
        for call in block_ids(node, "tool_use", "id") {
            wanted.insert(call, (*place, message_id(node)));
        }
    }
    for (at, _) in places.iter() {
        for call in
            nodes.get(*at).map(|node| block_ids(node, "tool_result", "tool_use_id")).unwrap_or_default()
        {
            wanted.remove(call);
        }
    }
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| usable(node)) {
        for call in block_ids(node, "tool_result", "tool_use_id") {
            if let Some((place, reply)) = wanted.remove(call) {
                let after = reply.and_then(|id| replies.get(id)).copied().unwrap_or(place);
                places.entry(at).or_insert(after);
            }
        }
    }
}

/// Our own lines, each after the one that it names.
fn own(nodes: &[Node<'_>], by_id: &BTreeMap<&str, usize>, places: &mut Places) {
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.kind == OWN_LINE) {
        let parent = text(node.line, "parentUuid");
        let place = match parent {
            None => Some(-1),
            Some(parent) => by_id.get(parent).and_then(|at| places.get(at)).copied(),
        };
        if let Some(place) = place {
            places.insert(at, place);
        }
    }
}

fn leftovers(nodes: &[Node<'_>], places: &Places, helpers: bool, tally: &mut Tally) {
    for (at, node) in nodes.iter().enumerate().filter(|(at, _)| !places.contains_key(at)) {
        debug_assert!(at < nodes.len());
        if node.side && !helpers {
            tally.count("line of a side chain");
        } else if speaks(node) {
            tally.count("line of another branch, or from before a compaction");
        } else if !BESIDE.contains(&node.kind) {
            tally.named("line of type", if node.kind.is_empty() { "?" } else { node.kind });
        }
    }
}
