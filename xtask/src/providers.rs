//! Providers: nobody but `llm` knows their names.
//!
//! A session moves from one provider to another because the rest of the program cannot tell them apart. The names are
//! those of the embedded catalog and of the wire formats, so a new provider is looked for from its first day.
//! Invariant: no source file outside `llm` holds one (`no_code_outside_llm_names_a_provider`). Tests may: they say which
//! provider they play.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The provider inside the binary is no secret: its scripts are part of the command line.
const OUR_OWN: &str = "scripted";
/// Names of wire formats and of firms that are no entry of the catalog.
const MORE: [&str; 5] = ["openai", "anthropic", "gemini", "claude", "gpt-"];

/// Programs that are called like a provider.
const PROGRAMS: [&str; 1] = ["claude code"];

/// The names that are looked for: the catalog's tables and a few more.
pub fn names(catalog: &str) -> Vec<String> {
    let tables = catalog.lines().filter_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']'));
    let first = tables.map(|table| table.split('.').next().unwrap_or(table).trim_matches('"').to_owned());
    let mut names: Vec<String> = first.filter(|name| name != OUR_OWN).collect();
    names.extend(MORE.map(str::to_owned));
    names.sort();
    names.dedup();
    names
}

/// Every line of code outside `llm` that holds a name.
pub fn named(root: &Path, files: &[PathBuf], names: &[String]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_looked_at(file)) {
        let text = fs::read_to_string(root.join(file))?;
        for (number, line) in (1..).zip(text.lines()) {
            // From here to the end of a file are its tests.
            if line.trim() == "#[cfg(test)]" {
                break;
            }
            if let Some(name) = name_in(line, names) {
                found.push(format!("{}:{number} names `{name}`", file.display()));
            }
        }
    }
    Ok(found)
}

fn is_looked_at(file: &Path) -> bool {
    let in_src = file.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
    in_src
        && file.starts_with("crates")
        && !file.starts_with("crates/llm")
        // The files of other programs bear their names.
        && !file.starts_with("crates/exchange")
        && !file.starts_with("crates/testkit")
}

/// A whole word of the line, whatever its case; not the name of a hidden directory or of a text.
pub fn name_in<'n>(line: &str, names: &'n [String]) -> Option<&'n str> {
    let line = line.to_lowercase();
    let inside = |c: char| c.is_ascii_alphanumeric();
    names.iter().map(String::as_str).find(|name| {
        line.match_indices(*name).any(|(at, _)| {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let after = line.get(at + name.len()..).and_then(|text| text.chars().next());
            // A directory of that name is somebody's files, not a provider; so is a text, and a program is none either.
            before != Some('.')
                && !line
                    .get(at..)
                    .is_some_and(|rest| PROGRAMS.iter().any(|program| rest.starts_with(program)))
                && !line.get(at + name.len()..).is_some_and(|rest| rest.starts_with(".md"))
                && !before.is_some_and(inside)
                && (name.ends_with('-') || !after.is_some_and(inside))
        })
    })
}
