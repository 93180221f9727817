//! `minke ps`: live pods, by their scope leases and never by guess; with `--tree`, who spawned whom.
//!
//! Elsewhere: what is known of a pod (`family`), the same all the time (`top`).

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use crate::around::Surroundings;
use crate::budget::short as short_count;
use crate::failure::{Exit, Failure};
use crate::family::{Family, Folds, Member, Reach, sleeping};
use crate::screen::Screen;

/// How many sessions without a pod `--all` lists, newest first.
const SLEEPING: usize = 50;
/// How much of a scope a line shows.
const SCOPE_CHARS: usize = 60;

#[derive(Debug, Args)]
pub(crate) struct Ps {
    /// Also the newest sessions on which no pod lives
    #[arg(long, short)]
    all: bool,
    /// Children below their parents, those that have stopped or crashed included
    #[arg(long, short, conflicts_with = "all")]
    tree: bool,
}

pub(crate) fn run(ps: &Ps, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    if ps.tree {
        return tree(around, screen);
    }
    let home = around.home()?;
    let mut folds = Folds::default();
    let family = Family::look(&home, Reach::Living, &mut folds)?;
    for problem in &family.problems {
        screen.warn(problem);
    }
    let mut rows = family.members;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    if ps.all {
        let living: Vec<_> = rows.iter().map(|row| row.session).collect();
        let sleepers = home.store.list()?.into_iter().rev().filter(|id| !living.contains(id));
        rows.extend(sleepers.take(SLEEPING).map(|id| sleeping(&home, id, None, &mut folds)));
    }
    if screen.json {
        screen.object(&rows.iter().map(Member::json).collect())?;
        return Ok(Exit::Done);
    }
    if rows.is_empty() {
        screen.note("no pod lives; `minke ps --all` lists the sessions");
        return Ok(Exit::Done);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
    screen.line(&format!(
        "{:<width$}  {:<9} {:<8} {:>5} {:>9} {:>4}  SESSION",
        "NAME", "STATE", "ACTIVITY", "AGE", "TOKENS", "ASKS"
    ))?;
    rows.iter().try_for_each(|row| screen.line(&line(row, width)))?;
    Ok(Exit::Done)
}

fn line(row: &Member, width: usize) -> String {
    let tokens = row.known.as_ref().map_or_else(String::new, |_| row.tokens().to_string());
    format!(
        "{:<width$}  {:<9} {:<8} {:>5} {tokens:>9} {:>4}  s_{}",
        row.name,
        row.state,
        row.activity.as_deref().unwrap_or("–"),
        short(row.age()),
        row.asks(),
        row.session
    )
}

/// The tree, once.
pub(crate) fn tree(around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let family = Family::look(&home, Reach::Remembered, &mut Folds::default())?;
    for problem in &family.problems {
        screen.warn(problem);
    }
    if screen.json {
        let rows = family.members.iter().map(|member| tree_row(&family, member));
        screen.object(&rows.collect())?;
        return Ok(Exit::Done);
    }
    if family.members.is_empty() {
        screen.note("no pod lives; `minke ps --all` lists the sessions");
        return Ok(Exit::Done);
    }
    let width = names_width(&family);
    screen.line(&heading(width))?;
    family.members.iter().try_for_each(|member| screen.line(&tree_line(&family, member, width)))?;
    Ok(Exit::Done)
}

/// A row of the list, with its place in the tree.
fn tree_row(family: &Family, member: &Member) -> Value {
    let mut row = member.json();
    if let Some(row) = row.as_object_mut() {
        let children = family.children(member.session).map(|child| format!("s_{}", child.session));
        row.insert("children".to_owned(), children.collect());
        row.insert("depth".to_owned(), json!(family.depth(member)));
    }
    row
}

/// How wide the names are with the lines before them.
pub(crate) fn names_width(family: &Family) -> usize {
    let width = |member: &Member| member.name.chars().count() + 3 * family.depth(member);
    family.members.iter().map(width).max().unwrap_or(0).max(4)
}

pub(crate) fn heading(width: usize) -> String {
    format!(
        "{:<width$}  {:<9} {:<8} {:>5} {:>7} {:>8} {:>4}  {:<20} SCOPE",
        "NAME", "STATE", "ACTIVITY", "AGE", "TOKENS", "COST", "ASKS", "LEFT"
    )
}

pub(crate) fn tree_line(family: &Family, member: &Member, width: usize) -> String {
    let known = member.known.as_ref();
    let name = format!("{}{}", family.branches(member), member.name);
    let left = known.map(|known| known.purse.words()).filter(|words| !words.is_empty());
    let scope = member.scope.as_ref().map(minke_record::Scope::summary).unwrap_or_default();
    format!(
        "{name:<width$}  {:<9} {:<8} {:>5} {:>7} {:>8} {:>4}  {:<20} {}",
        member.state,
        member.activity.as_deref().unwrap_or("–"),
        short(member.age()),
        known.map_or_else(|| "?".to_owned(), |_| short_count(member.tokens())),
        cost(member),
        member.asks(),
        left.unwrap_or_else(|| "–".to_owned()),
        cut(&scope),
    )
}

/// What it has cost, as far as prices are known.
fn cost(member: &Member) -> String {
    match &member.known {
        Some(known) if known.usage.unknown_cost > 0 && known.usage.cost_usd == 0.0 => "?".to_owned(),
        Some(known) if known.usage.unknown_cost > 0 => format!("≥${:.3}", known.usage.cost_usd),
        Some(known) => format!("${:.3}", known.usage.cost_usd),
        None => "?".to_owned(),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= SCOPE_CHARS {
        return text.to_owned();
    }
    text.chars().take(SCOPE_CHARS - 1).chain(['…']).collect()
}

/// `12s`, `5m`, `3h`, `2d`.
pub(crate) fn short(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}
