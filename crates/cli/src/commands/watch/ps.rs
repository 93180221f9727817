//! `minke ps`: lists live pods by their scope leases; with `--tree`, as a tree.
//!
//! Elsewhere: collecting the facts (`pod_tree`), the live view (`top`).

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::context::CliContext;
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::budget::format_count as short_count;
use crate::render::pod_tree::{PodNode, PodTreeView, StateCache, TreeExtent, sleeping_node};

/// Maximum number of sessions without a pod that `--all` lists, newest first.
const MAX_SLEEPING: usize = 50;
/// Maximum length of a scope on its line.
const SCOPE_CHARS: usize = 60;

/// List live pods
#[derive(Debug, Args)]
pub(crate) struct PsArgs {
    /// Include the newest sessions without a live pod
    #[arg(long, short)]
    all: bool,
    /// List children below their parents, with ended ones
    #[arg(long, short, conflicts_with = "all")]
    tree: bool,
}

pub(crate) fn run(ps: &PsArgs, context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    if ps.tree {
        return print_tree(context, output);
    }
    let home = context.open_home()?;
    let mut cache = StateCache::default();
    let tree = PodTreeView::load(&home, TreeExtent::LivePods, &mut cache)?;
    for problem in &tree.problems {
        output.print_warning(problem);
    }
    let mut rows = tree.nodes;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    if ps.all {
        let living: Vec<_> = rows.iter().map(|row| row.session).collect();
        let sleepers = home.store.list_sessions()?.into_iter().rev().filter(|id| !living.contains(id));
        rows.extend(sleepers.take(MAX_SLEEPING).map(|id| sleeping_node(&home, id, None, &mut cache)));
    }
    if output.json {
        output.print_json(&rows.iter().map(PodNode::to_json).collect())?;
        return Ok(ExitKind::Success);
    }
    if rows.is_empty() {
        output.print_note("no live pods; `minke ps --all` lists the sessions");
        return Ok(ExitKind::Success);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
    output.print_line(&format!(
        "{:<width$}  {:<9} {:<8} {:>5} {:>9} {:>4}  SESSION",
        "NAME", "STATE", "ACTIVITY", "AGE", "TOKENS", "ASKS"
    ))?;
    rows.iter().try_for_each(|row| output.print_line(&pod_line(row, width)))?;
    Ok(ExitKind::Success)
}

fn pod_line(row: &PodNode, width: usize) -> String {
    let tokens = row.facts.as_ref().map_or_else(String::new, |_| row.tokens().to_string());
    format!(
        "{:<width$}  {:<9} {:<8} {:>5} {tokens:>9} {:>4}  s_{}",
        row.name,
        row.state,
        row.activity.as_deref().unwrap_or("–"),
        format_age(row.age()),
        row.open_asks(),
        row.session
    )
}

/// Prints the tree once.
pub(crate) fn print_tree(context: &CliContext, output: &CliOutput) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let tree = PodTreeView::load(&home, TreeExtent::WithEndedPods, &mut StateCache::default())?;
    for problem in &tree.problems {
        output.print_warning(problem);
    }
    if output.json {
        let rows = tree.nodes.iter().map(|node| tree_row_json(&tree, node));
        output.print_json(&rows.collect())?;
        return Ok(ExitKind::Success);
    }
    if tree.nodes.is_empty() {
        output.print_note("no live pods; `minke ps --all` lists the sessions");
        return Ok(ExitKind::Success);
    }
    let width = name_column_width(&tree);
    output.print_line(&tree_heading(width))?;
    tree.nodes.iter().try_for_each(|node| output.print_line(&tree_line(&tree, node, width)))?;
    Ok(ExitKind::Success)
}

/// Returns the row of a pod with its place in the tree.
fn tree_row_json(family: &PodTreeView, member: &PodNode) -> Value {
    let mut row = member.to_json();
    if let Some(row) = row.as_object_mut() {
        let children = family.children_of(member.session).map(|child| format!("s_{}", child.session));
        row.insert("children".to_owned(), children.collect());
        row.insert("depth".to_owned(), json!(family.depth_of(member)));
    }
    row
}

/// Returns the width of the name column with the tree lines.
pub(crate) fn name_column_width(tree: &PodTreeView) -> usize {
    let width = |node: &PodNode| node.name.chars().count() + 3 * tree.depth_of(node);
    tree.nodes.iter().map(width).max().unwrap_or(0).max(4)
}

pub(crate) fn tree_heading(width: usize) -> String {
    format!(
        "{:<width$}  {:<9} {:<8} {:>5} {:>7} {:>8} {:>4}  {:<20} SCOPE",
        "NAME", "STATE", "ACTIVITY", "AGE", "TOKENS", "COST", "ASKS", "LEFT"
    )
}

pub(crate) fn tree_line(tree: &PodTreeView, node: &PodNode, width: usize) -> String {
    let known = node.facts.as_ref();
    let name = format!("{}{}", tree.branch_prefix(node), node.name);
    let left = known.map(|known| known.budget.summarize_remaining()).filter(|words| !words.is_empty());
    let scope = node.scope.as_ref().map(minke_record::Scope::summary).unwrap_or_default();
    format!(
        "{name:<width$}  {:<9} {:<8} {:>5} {:>7} {:>8} {:>4}  {:<20} {}",
        node.state,
        node.activity.as_deref().unwrap_or("–"),
        format_age(node.age()),
        known.map_or_else(|| "?".to_owned(), |_| short_count(node.tokens())),
        format_cost(node),
        node.open_asks(),
        left.unwrap_or_else(|| "–".to_owned()),
        truncate_scope(&scope),
    )
}

/// Formats the cost, as far as prices are known.
fn format_cost(member: &PodNode) -> String {
    match &member.facts {
        Some(known) if known.usage.unknown_cost > 0 && known.usage.cost_usd == 0.0 => "?".to_owned(),
        Some(known) if known.usage.unknown_cost > 0 => format!("≥${:.3}", known.usage.cost_usd),
        Some(known) => format!("${:.3}", known.usage.cost_usd),
        None => "?".to_owned(),
    }
}

fn truncate_scope(text: &str) -> String {
    if text.chars().count() <= SCOPE_CHARS {
        return text.to_owned();
    }
    text.chars().take(SCOPE_CHARS - 1).chain(['…']).collect()
}

/// `12s`, `5m`, `3h`, `2d`.
pub(crate) fn format_age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
