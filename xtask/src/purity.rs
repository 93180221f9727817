//! Purity: types and core crates depend on no async runtime and carry the bans that keep clocks, files,
//! variables and tasks out.
//!
//! Here: reading Cargo's graph and each crate's `clippy.toml`.
//! Elsewhere: catching a banned call (clippy, with that file).
//! Invariant: `types_and_core_are_pure` in tests/house.rs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::arrows::Plan;

/// Packages that bring a runtime, and with it clocks, files and tasks.
const RUNTIMES: [&str; 3] = ["tokio", "async-std", "smol"];

/// What the `clippy.toml` of a pure crate must ban at least.
pub const BANS: [&str; 8] = [
    "std::time::SystemTime::now",
    "std::time::Instant::now",
    "std::thread::spawn",
    "std::env::var",
    "std::fs::read",
    "std::fs::write",
    "std::fs::File::open",
    "std::fs::File::create",
];

/// The crates that must be pure, by the kind they are drawn with.
pub fn pure_crates(plan: &Plan) -> Vec<&str> {
    plan.iter()
        .filter(|(_, room)| matches!(room.kind.as_str(), "types" | "core"))
        .map(|(name, _)| name.as_str())
        .collect()
}

/// A runtime somewhere below one of `crates`, as readable complaints.
pub fn runtimes_below(metadata: &Value, crates: &[&str]) -> Result<Vec<String>, String> {
    let names: BTreeMap<&str, &str> = list(&metadata["packages"])
        .filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?)))
        .collect();
    let below: BTreeMap<&str, Vec<&str>> = list(&metadata["resolve"]["nodes"])
        .filter_map(|node| Some((node["id"].as_str()?, normal_below(node))))
        .collect();
    let mut complaints = Vec::new();
    for name in crates {
        let package = format!("minke-{name}");
        let id = names.iter().find(|(_, known)| **known == package).map(|(id, _)| *id);
        let id = id.ok_or_else(|| format!("Cargo knows no package `{package}`"))?;
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

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The packages that the node's own code uses (neither its tests nor its build script).
fn normal_below(node: &Value) -> Vec<&str> {
    list(&node["deps"])
        .filter(|dep| list(&dep["dep_kinds"]).any(|kind| kind["kind"].is_null()))
        .filter_map(|dep| dep["pkg"].as_str())
        .collect()
}

/// Bans that the `clippy.toml` of a pure crate lacks, as readable complaints.
pub fn missing_bans(root: &Path, crates: &[&str]) -> Vec<String> {
    let mut complaints = Vec::new();
    for name in crates {
        let path = root.join("crates").join(name).join("clippy.toml");
        match fs::read_to_string(&path) {
            Ok(text) => complaints.extend(lacking(&text).map(|ban| {
                format!(
                    "crates/{name}/clippy.toml does not ban `{ban}`: copy the line from another pure crate"
                )
            })),
            Err(why) => complaints.push(format!(
                "crates/{name}/clippy.toml cannot be read ({why}): a pure crate needs its bans"
            )),
        }
    }
    complaints
}

/// The bans that a `clippy.toml` lacks; commented lines do not count.
pub fn lacking(text: &str) -> impl Iterator<Item = &'static str> {
    let live: Vec<String> =
        text.lines().filter(|line| !line.trim_start().starts_with('#')).map(str::to_owned).collect();
    BANS.into_iter().filter(move |ban| !live.iter().any(|line| line.contains(&format!("\"{ban}\""))))
}
