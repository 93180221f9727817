//! Purity: crates of the kinds types and core depend on no async runtime, and their `clippy.toml` bans
//! clocks, files, variables and tasks.
//!
//! Here: checking Cargo's graph and each crate's `clippy.toml`. Elsewhere: detecting banned calls (clippy,
//! with that file).
//! Invariant: `types_and_core_are_pure` in tests/house.rs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::arrows::CratePlan;

/// Packages of async runtimes.
const RUNTIMES: [&str; 3] = ["tokio", "async-std", "smol"];

/// The minimum bans of a pure crate.
pub const REQUIRED_BANS: [&str; 8] = [
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "std::thread::spawn",
    "std::env::var",
    "std::fs::read",
    "std::fs::write",
    "std::fs::File::open",
    "std::fs::File::create",
];

/// The crates that must be pure, according to their kind.
pub fn pure_crates(plan: &CratePlan) -> Vec<&str> {
    plan.iter()
        .filter(|(_, room)| matches!(room.kind.as_str(), "types" | "core"))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// Reports async runtimes in the dependencies of `crates`.
pub fn find_runtimes(metadata: &Value, crates: &[&str]) -> Result<Vec<String>, String> {
    let names: BTreeMap<&str, &str> = array_items(&metadata["packages"])
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect();
    let below: BTreeMap<&str, Vec<&str>> = array_items(&metadata["resolve"]["nodes"])
        .filter_map(|node| Some((node["id"].as_str()?, normal_dependencies(node))))
        .collect();
    let mut complaints = Vec::new();
    for name in crates {
        let package = format!("minke-{name}");
        let id = names.iter().find(|(_, known)| **known == package).map(|(id, _)| *id);
        let id = id.ok_or_else(|| format!("Cargo does not know the package `{package}`"))?;
        let mut seen = BTreeSet::new();
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            if seen.insert(id) {
                open.extend(below.get(id).into_iter().flatten());
            }
        }
        for found in seen.iter().filter_map(|id| names.get(id)).filter(|found| RUNTIMES.contains(found)) {
            complaints.push(format!("`{name}` is drawn as pure and has `{found}` below it"));
        }
    }
    Ok(complaints)
}

fn array_items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The normal dependencies of a node (without those of tests and build scripts).
fn normal_dependencies(node: &Value) -> Vec<&str> {
    array_items(&node["deps"])
        .filter(|dep| array_items(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null()))
        .filter_map(|dep| dep["pkg"].as_str())
        .collect()
}

/// Reports bans missing in the `clippy.toml` of a pure crate.
pub fn missing_bans(root: &Path, crates: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in crates {
        let path = root.join("crates").join(name).join("clippy.toml");
        match fs::read_to_string(&path) {
            Ok(text) => complaints.extend(absent_bans(&text).map(|ban| {
                format!(
                    "crates/{name}/clippy.toml does not ban `{ban}`: copy the line from another pure crate"
                )
            })),
            Err(why) => complaints
                .push(format!("could not read crates/{name}/clippy.toml, which a pure crate needs: {why}")),
        }
    }
    complaints
}

/// The bans that a `clippy.toml` lacks; comments do not count.
pub fn absent_bans(text: &str) -> impl Iterator<Item = &'static str> {
    let live: Vec<String> =
        text.lines().filter(|line| !line.trim_start().starts_with('#')).map(str::to_owned).collect();
    REQUIRED_BANS.into_iter().filter(move |ban| !live.iter().any(|line| line.contains(&format!("\"{ban}\""))))
}
