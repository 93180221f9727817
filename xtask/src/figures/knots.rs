//! Knots: top-level modules of one crate that can all reach each other by imports.

use std::collections::{BTreeMap, BTreeSet};

use super::Figure;
use super::items::SourceFile;

/// The production lines of the largest knot; all knots of the workspace, largest first.
#[expect(clippy::cast_precision_loss, reason = "lines of code are far below the limit")]
pub(super) fn figure(files: &[SourceFile]) -> Figure {
    let mut packages: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.module.is_some()) {
        packages.entry(&file.package).or_default().push(file);
    }
    let mut knots: Vec<(usize, String)> =
        packages.iter().flat_map(|(package, files)| knots_of(package, files)).collect();
    knots.sort_by_key(|(lines, _)| std::cmp::Reverse(*lines));
    let value = knots.first().map_or(0, |(lines, _)| *lines) as f64;
    Figure { value, places: knots.into_iter().map(|(lines, modules)| format!("{lines} {modules}")).collect() }
}

fn knots_of(package: &str, files: &[&SourceFile]) -> Vec<(usize, String)> {
    let mut lines: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files {
        if let Some(top) = top_module(file) {
            *lines.entry(top).or_default() += file.lines;
        }
    }
    let uses = uses_of(files, &lines);
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        lines.keys().map(|module| (*module, reachable(&uses, module))).collect();
    let mut done: BTreeSet<&str> = BTreeSet::new();
    let mut knots = Vec::new();
    for module in lines.keys() {
        if done.contains(module) {
            continue;
        }
        let knot: Vec<&str> = lines
            .keys()
            .filter(|other| reach[*module].contains(**other) && reach[**other].contains(*module))
            .copied()
            .collect();
        done.extend(&knot);
        if knot.len() > 1 {
            let size = knot.iter().map(|module| lines[*module]).sum();
            knots.push((size, format!("{package}: {}", knot.join(" "))));
        }
    }
    knots
}

fn top_module(file: &SourceFile) -> Option<&str> {
    file.module.as_ref().and_then(|module| module.first()).map(String::as_str)
}

/// Which top-level modules each top-level module imports, through re-exports of the crate root too.
fn uses_of<'a>(
    files: &[&'a SourceFile],
    lines: &BTreeMap<&'a str, usize>,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let root_names: BTreeMap<&str, &str> = files
        .iter()
        .filter(|file| file.module.as_ref().is_some_and(Vec::is_empty))
        .flat_map(|file| &file.reexports)
        .filter_map(|(name, path)| {
            let first = path.iter().find(|segment| !matches!(segment.as_str(), "crate" | "self"))?;
            Some((name.as_str(), first.as_str()))
        })
        .collect();
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        let Some(top) = top_module(file) else { continue };
        let depth = file.module.as_ref().map_or(0, Vec::len);
        for path in &file.paths {
            let supers = path.iter().take_while(|segment| *segment == "super").count();
            let at_root =
                path.first().is_some_and(|segment| segment == "crate") || (supers > 0 && supers == depth);
            let Some(name) = path.get(supers.max(1)).filter(|_| at_root) else { continue };
            let target = root_names.get(name.as_str()).copied().unwrap_or(name);
            if let Some((module, _)) = lines.get_key_value(target)
                && *module != top
            {
                uses.entry(top).or_default().insert(module);
            }
        }
    }
    uses
}

fn reachable<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = uses.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = open.pop() {
        if let Some((key, _)) = uses.get_key_value(module) {
            if reached.insert(*key) {
                open.extend(uses[key].iter().copied());
            }
        } else {
            reached
                .insert(uses.values().flatten().find(|name| **name == module).copied().unwrap_or_default());
        }
    }
    reached
}
