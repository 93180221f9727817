//! Providers: only `llm` and its server for tests, `mock-llm`, contain their names.
//!
//! A session can move between providers because the rest of the program does not distinguish them. The names
//! are taken from the embedded catalog and the wire formats, so a new provider is checked automatically.
//! Invariant: no other source file contains a provider name (`no_code_outside_llm_names_a_provider`).
//! Tests are exempt: they name the provider that they simulate.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The built-in provider is exempt: its scripts are part of the command line.
const OWN_PROVIDER: &str = "scripted";
/// Names of wire formats and companies that are not in the catalog.
const EXTRA_NAMES: [&str; 5] = ["openai", "anthropic", "gemini", "claude", "gpt-"];

/// Programs whose names contain a provider.
const PROGRAMS: [&str; 1] = ["claude code"];

/// The names to search for: the catalog's tables and a few more.
pub fn provider_names(catalog: &str) -> Vec<String> {
    let tables = catalog.lines().filter_map(|line| line.trim().strip_prefix('[')?.strip_suffix(']'));
    let first = tables.map(|table| table.split('.').next().unwrap_or(table).trim_matches('"').to_owned());
    let mut names: Vec<String> = first.filter(|name| name != OWN_PROVIDER).collect();
    names.extend(EXTRA_NAMES.map(str::to_owned));
    names.sort();
    names.dedup();
    names
}

/// Every line of code outside `llm` and `mock-llm` that contains a name.
pub fn lines_with_names(root: &Path, files: &[PathBuf], names: &[String]) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_checked_file(file)) {
        let text = fs::read_to_string(root.join(file))?;
        for (number, line) in (1..).zip(text.lines()) {
            // The rest of the file is its tests.
            if line.trim() == "#[cfg(test)]" {
                break;
            }
            if let Some(name) = find_name(line, names) {
                found.push(format!("{}:{number} names `{name}`", file.display()));
            }
        }
    }
    Ok(found)
}

fn is_checked_file(file: &Path) -> bool {
    let in_src = file.components().nth(2).is_some_and(|part| part.as_os_str() == "src");
    in_src
        && file.starts_with("crates")
        && !file.starts_with("crates/llm")
        && !file.starts_with("crates/mock-llm")
        // The files of other programs contain their names.
        && !file.starts_with("crates/exchange")
        && !file.starts_with("crates/testkit")
}

/// Finds a name as a whole word, ignoring case; not the name of a hidden directory or of a text file.
pub fn find_name<'n>(line: &str, names: &'n [String]) -> Option<&'n str> {
    let line = line.to_lowercase();
    let inside = |c: char| c.is_ascii_alphanumeric();
    names.iter().map(String::as_str).find(|name| {
        line.match_indices(*name).any(|(at, _)| {
            let before = line.get(..at).and_then(|text| text.chars().next_back());
            let after = line.get(at + name.len()..).and_then(|text| text.chars().next());
            // Directories, text files and programs of that name are not providers.
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
