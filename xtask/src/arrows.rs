//! Arrows between crates: those drawn in ARCHITECTURE.md against those that Cargo builds.
//!
//! Here: reading the table, reading Cargo's answer, the difference in both directions.
//! Elsewhere: the table itself (ARCHITECTURE.md).
//! Invariant: an arrow built and not drawn, and one drawn and not built, are both complaints
//! (`an_arrow_built_and_not_drawn_is_told`, `an_arrow_drawn_and_not_built_is_told`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// What one crate is drawn as.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Room {
    /// types, core, adapters, runtime, frontends, dev
    pub kind: String,
    pub uses: BTreeSet<String>,
    pub uses_in_tests: BTreeSet<String>,
}

/// Crates by short name (`record` for package `minke-record`).
pub type Plan = BTreeMap<String, Room>;

/// A disagreement between the page and Cargo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Complaint {
    CrateNotDrawn(String),
    CrateNotBuilt(String),
    ArrowNotDrawn { from: String, to: String, place: Place },
    ArrowNotBuilt { from: String, to: String, place: Place },
}

/// In which of a crate's two lists an arrow stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Code,
    Tests,
}

impl fmt::Display for Complaint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrateNotDrawn(name) => {
                write!(out, "crate `{name}` is built and has no row in ARCHITECTURE.md: draw it")
            }
            Self::CrateNotBuilt(name) => {
                write!(out, "crate `{name}` has a row in ARCHITECTURE.md and is not built: take the row out")
            }
            Self::ArrowNotDrawn { from, to, place } => write!(
                out,
                "`{from}` uses `{to}` ({place}) and ARCHITECTURE.md does not draw it: draw the arrow first, \
                 and say why in the same change"
            ),
            Self::ArrowNotBuilt { from, to, place } => write!(
                out,
                "ARCHITECTURE.md draws `{from}` using `{to}` ({place}) and Cargo does not build it: \
                 take it out of the table"
            ),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Code => "may use",
            Self::Tests => "in tests also",
        })
    }
}

/// The header of the table, by which it is found on the page.
const HEADER: [&str; 5] = ["crate", "kind", "one line", "may use", "in tests also"];

/// Reads the crate table of ARCHITECTURE.md.
pub fn drawn(page: &str) -> Result<Plan, String> {
    let mut rows = page.lines().skip_while(|line| cells(line) != HEADER).skip(2).peekable();
    if rows.peek().is_none() {
        return Err(format!("ARCHITECTURE.md has no table with the header | {} |", HEADER.join(" | ")));
    }
    let mut plan = Plan::new();
    for line in rows.take_while(|line| line.starts_with('|')) {
        let [name, kind, _, uses, uses_in_tests] = cells(line)[..] else {
            return Err(format!("this row of the crate table has not {} cells: {line}", HEADER.len()));
        };
        let room = Room { kind: kind.to_owned(), uses: names(uses), uses_in_tests: names(uses_in_tests) };
        if plan.insert(plain(name).to_owned(), room).is_some() {
            return Err(format!("the crate table has two rows for {name}"));
        }
    }
    Ok(plan)
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

fn names(cell: &str) -> BTreeSet<String> {
    cell.split(',')
        .map(|name| plain(name.trim()))
        .filter(|name| !matches!(*name, "" | "–"))
        .map(str::to_owned)
        .collect()
}

fn plain(name: &str) -> &str {
    name.trim_matches('`')
}

/// Reads the arrows out of `cargo metadata`. Kinds are unknown to Cargo and stay empty.
pub fn built(metadata: &Value) -> Result<Plan, String> {
    let packages = metadata["packages"].as_array().ok_or("`cargo metadata` lists no packages")?;
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut plan = Plan::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("a package without a name")?;
        let mut room = Room::default();
        for arrow in package["dependencies"].as_array().into_iter().flatten() {
            // A crate that names itself switches a feature on for its own tests; that is no arrow.
            let leads_out = |to: &&str| ours.contains(to) && *to != name;
            let Some(to) = arrow["name"].as_str().filter(leads_out) else { continue };
            match arrow["kind"].as_str() {
                Some("dev") => room.uses_in_tests.insert(short(to)),
                // Build scripts run code too, so their arrows count like any other.
                _ => room.uses.insert(short(to)),
            };
        }
        plan.insert(short(name), room);
    }
    Ok(plan)
}

fn short(package: &str) -> String {
    package.strip_prefix("minke-").unwrap_or(package).to_owned()
}

/// Everything on which the two plans differ, in the order of crates.
pub fn compare(drawn: &Plan, built: &Plan) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for name in drawn.keys().filter(|name| !built.contains_key(*name)) {
        complaints.push(Complaint::CrateNotBuilt(name.clone()));
    }
    for (name, room) in built {
        let Some(plan) = drawn.get(name) else {
            complaints.push(Complaint::CrateNotDrawn(name.clone()));
            continue;
        };
        differ(&mut complaints, name, Place::Code, [&plan.uses, &room.uses]);
        differ(&mut complaints, name, Place::Tests, [&plan.uses_in_tests, &room.uses_in_tests]);
    }
    complaints
}

fn differ(complaints: &mut Vec<Complaint>, from: &str, place: Place, plans: [&BTreeSet<String>; 2]) {
    let [drawn, built] = plans;
    let from = from.to_owned();
    for to in built.difference(drawn).cloned() {
        complaints.push(Complaint::ArrowNotDrawn { from: from.clone(), to, place });
    }
    for to in drawn.difference(built).cloned() {
        complaints.push(Complaint::ArrowNotBuilt { from: from.clone(), to, place });
    }
}
