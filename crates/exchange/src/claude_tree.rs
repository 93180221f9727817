//! Selects the lines of a Claude Code file that form the conversation: the path from the newest leaf to its root.
//!
//! An edited prompt begins another branch, a compaction another root, and the work of a subagent is on side chains:
//! lines outside the path are counted and omitted. Parallel calls may be siblings; those that belong to a line of the
//! path are included, with their results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::claude::{is_flag_set, text_member};
use crate::lines::{JsonLines, JsonObject};
use crate::omissions::OmissionCounts;
use crate::own_member::OWN_LINE_TYPE;

/// Line types outside the tree, without relevant content.
const NON_TREE_LINES: [&str; 8] = [
    "summary",
    "custom-title",
    "ai-title",
    "file-history-snapshot",
    "queue-operation",
    "last-prompt",
    "agent-name",
    "permission-mode",
];

struct TreeNode<'l> {
    line: &'l JsonObject,
    kind: &'l str,
    is_sidechain: bool,
}

pub(crate) fn chosen_lines<'l>(lines: &'l JsonLines, omissions: &mut OmissionCounts) -> Vec<&'l JsonObject> {
    let nodes: Vec<TreeNode<'l>> = lines
        .objects
        .iter()
        .map(|line| TreeNode {
            line,
            kind: text_member(line, "type").unwrap_or_default(),
            is_sidechain: is_flag_set(line, "isSidechain"),
        })
        .collect();
    // A file with only side chains is the conversation of a subagent.
    let helpers = !nodes.iter().any(|node| is_message(node) && !node.is_sidechain);
    let usable = |node: &TreeNode<'_>| helpers || !node.is_sidechain;
    let mut by_id: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.kind != OWN_LINE_TYPE) {
        if let Some(id) = text_member(node.line, "uuid") {
            by_id.entry(id).or_insert(at);
        }
    }
    let leaf = nodes
        .iter()
        .rposition(|node| is_message(node) && usable(node) && text_member(node.line, "uuid").is_some());
    let mut places = path_to_root(&nodes, &by_id, leaf);
    add_siblings(&nodes, &mut places, &usable);
    add_results(&nodes, &mut places, &usable);
    add_own_lines(&nodes, &by_id, &mut places);
    count_leftovers(&nodes, &places, helpers, omissions);
    let mut order: Vec<((i64, usize), &'l JsonObject)> =
        places.into_iter().filter_map(|(at, place)| Some(((place, at), nodes.get(at)?.line))).collect();
    order.sort_by_key(|(key, _)| *key);
    order.into_iter().map(|(_, line)| line).collect()
}

fn is_message(node: &TreeNode<'_>) -> bool {
    matches!(node.kind, "user" | "assistant")
}

/// The sort key of each included line: the line that it follows. Lines with the same key keep the order of the file.
type LineOrder = BTreeMap<usize, i64>;

/// Returns the path from the leaf to the root, each line once.
fn path_to_root(nodes: &[TreeNode<'_>], by_id: &BTreeMap<&str, usize>, leaf: Option<usize>) -> LineOrder {
    let mut back = Vec::new();
    let mut seen = BTreeSet::new();
    let mut next = leaf;
    while let Some(at) = next.filter(|at| seen.insert(*at)) {
        back.push(at);
        let parent = nodes.get(at).and_then(|node| text_member(node.line, "parentUuid"));
        next = parent.and_then(|parent| by_id.get(parent).copied());
    }
    back.into_iter().rev().zip(0..).collect()
}

fn message_id<'l>(node: &TreeNode<'l>) -> Option<&'l str> {
    node.line.get("message")?.get("id")?.as_str().filter(|_| node.kind == "assistant")
}

/// Adds other lines of the same replies.
fn add_siblings(nodes: &[TreeNode<'_>], places: &mut LineOrder, usable: &dyn Fn(&TreeNode<'_>) -> bool) {
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

fn block_ids<'l>(node: &TreeNode<'l>, kind: &str, member: &str) -> Vec<&'l str> {
    let content = node.line.get("message").and_then(|message| message.get("content"));
    let blocks = content.and_then(Value::as_array).into_iter().flatten();
    let of_kind = blocks.filter(|block| block.get("type").and_then(Value::as_str) == Some(kind));
    of_kind.filter_map(|block| block.get(member)?.as_str()).collect()
}

/// Adds results of included calls that are outside the path. They follow the whole reply.
fn add_results(nodes: &[TreeNode<'_>], places: &mut LineOrder, usable: &dyn Fn(&TreeNode<'_>) -> bool) {
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

/// Adds Minke's own lines, each after the line that it names.
fn add_own_lines(nodes: &[TreeNode<'_>], by_id: &BTreeMap<&str, usize>, places: &mut LineOrder) {
    for (at, node) in nodes.iter().enumerate().filter(|(_, node)| node.kind == OWN_LINE_TYPE) {
        let parent = text_member(node.line, "parentUuid");
        let place = match parent {
            None => Some(-1),
            Some(parent) => by_id.get(parent).and_then(|at| places.get(at)).copied(),
        };
        if let Some(place) = place {
            places.insert(at, place);
        }
    }
}

fn count_leftovers(
    nodes: &[TreeNode<'_>],
    places: &LineOrder,
    helpers: bool,
    omissions: &mut OmissionCounts,
) {
    for (at, node) in nodes.iter().enumerate().filter(|(at, _)| !places.contains_key(at)) {
        debug_assert!(at < nodes.len());
        if node.is_sidechain && !helpers {
            omissions.count_one("line of a side chain");
        } else if is_message(node) {
            omissions.count_one("line of another branch, or from before a compaction");
        } else if !NON_TREE_LINES.contains(&node.kind) {
            omissions.count_named("line of type", if node.kind.is_empty() { "?" } else { node.kind });
        }
    }
}
