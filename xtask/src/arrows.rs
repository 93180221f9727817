//! Dependencies between crates: compares the table in ARCHITECTURE.md with Cargo.
//!
//! Here: parsing the table, parsing Cargo's output, the difference in both directions. Elsewhere: the table
//! (ARCHITECTURE.md).
//! Invariant: a dependency missing on either side is reported (`an_arrow_built_and_not_drawn_is_told`,
//! `an_arrow_drawn_and_not_built_is_told`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

/// The table row of one crate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrateRow {
    /// types, core, adapters, runtime, frontends, dev
    pub kind: String,
    pub uses: BTreeSet<String>,
    pub uses_in_tests: BTreeSet<String>,
}

/// Crates by short name (`record` for package `minke-record`).
pub type CratePlan = BTreeMap<String, CrateRow>;

/// A difference between the page and Cargo.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanMismatch {
    CrateNotDrawn(String),
    CrateNotBuilt(String),
    ArrowNotDrawn { from: String, to: String, place: ArrowList },
    ArrowNotBuilt { from: String, to: String, place: ArrowList },
}

/// The list of a row that contains a dependency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrowList {
    Code,
    Tests,
}

impl fmt::Display for PlanMismatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrateNotDrawn(name) => {
                write!(out, "crate `{name}` has no row in ARCHITECTURE.md: add one")
            }
            Self::CrateNotBuilt(name) => {
                write!(out, "crate `{name}` has a row in ARCHITECTURE.md but does not exist: remove the row")
            }
            Self::ArrowNotDrawn { from, to, place } => write!(
                out,
                "`{from}` uses `{to}` ({place}), which is missing in ARCHITECTURE.md: add it there first, \
                 with the reason in the same change"
            ),
            Self::ArrowNotBuilt { from, to, place } => write!(
                out,
                "ARCHITECTURE.md lists `{to}` for `{from}` ({place}), but Cargo has no such dependency: \
                 remove it from the table"
            ),
        }
    }
}

impl fmt::Display for ArrowList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Code => "may use",
            Self::Tests => "in tests also",
        })
    }
}

/// The header that identifies the table on the page.
const HEADER: [&str; 5] = ["crate", "kind", "one line", "may use", "in tests also"];

/// Reads the crate table of ARCHITECTURE.md.
pub fn read_page_plan(page: &str) -> Result<CratePlan, String> {
    let mut rows = page.lines().skip_while(|line| table_cells(line) != HEADER).skip(2).peekable();
    if rows.peek().is_none() {
        return Err(format!("ARCHITECTURE.md has no table with the header | {} |", HEADER.join(" | ")));
    }
    let mut plan = CratePlan::new();
    for line in rows.take_while(|line| line.starts_with('|')) {
        let [name, kind, _, uses, uses_in_tests] = table_cells(line)[..] else {
            return Err(format!("this row of the crate table does not have {} cells: {line}", HEADER.len()));
        };
        let room = CrateRow {
            kind: kind.to_owned(),
            uses: crate_names(uses),
            uses_in_tests: crate_names(uses_in_tests),
        };
        if plan.insert(plain_name(name).to_owned(), room).is_some() {
            return Err(format!("the crate table has two rows for {name}"));
        }
    }
    Ok(plan)
}

fn table_cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

fn crate_names(cell: &str) -> BTreeSet<String> {
    cell.split(',')
        .map(|name| plain_name(name.trim()))
        .filter(|name| !matches!(*name, "" | "–"))
        .map(str::to_owned)
        .collect()
}

fn plain_name(name: &str) -> &str {
    name.trim_matches('`')
}

/// Reads the dependencies from `cargo metadata`. Cargo does not know kinds, so they stay empty.
pub fn read_cargo_plan(metadata: &Value) -> Result<CratePlan, String> {
    let packages = metadata["packages"].as_array().ok_or("`cargo metadata` lists no packages")?;
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut plan = CratePlan::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("a package without a name")?;
        let mut room = CrateRow::default();
        for arrow in package["dependencies"].as_array().into_iter().flatten() {
            // A crate that depends on itself enables a feature for its own tests; that is not a dependency.
            let leads_out = |to: &&str| ours.contains(to) && *to != name;
            let Some(to) = arrow["name"].as_str().filter(leads_out) else { continue };
            match arrow["kind"].as_str() {
                Some("dev") => room.uses_in_tests.insert(short_name(to)),
                // Build scripts run code too, so their dependencies count.
                _ => room.uses.insert(short_name(to)),
            };
        }
        plan.insert(short_name(name), room);
    }
    Ok(plan)
}

fn short_name(package: &str) -> String {
    package.strip_prefix("minke-").unwrap_or(package).to_owned()
}

/// All differences between the two plans, in the order of crates.
pub fn compare_plans(drawn: &CratePlan, built: &CratePlan) -> Vec<PlanMismatch> {
    let mut complaints = Vec::new();
    for name in drawn.keys().filter(|name| !built.contains_key(*name)) {
        complaints.push(PlanMismatch::CrateNotBuilt(name.clone()));
    }
    for (name, room) in built {
        let Some(plan) = drawn.get(name) else {
            complaints.push(PlanMismatch::CrateNotDrawn(name.clone()));
            continue;
        };
        compare_arrows(&mut complaints, name, ArrowList::Code, [&plan.uses, &room.uses]);
        compare_arrows(&mut complaints, name, ArrowList::Tests, [&plan.uses_in_tests, &room.uses_in_tests]);
    }
    complaints
}

fn compare_arrows(
    complaints: &mut Vec<PlanMismatch>,
    from: &str,
    place: ArrowList,
    plans: [&BTreeSet<String>; 2],
) {
    let [drawn, built] = plans;
    let from = from.to_owned();
    for to in built.difference(drawn).cloned() {
        complaints.push(PlanMismatch::ArrowNotDrawn { from: from.clone(), to, place });
    }
    for to in drawn.difference(built).cloned() {
        complaints.push(PlanMismatch::ArrowNotBuilt { from: from.clone(), to, place });
    }
}
