//! Promises: each one on the page names the test that keeps it, and the test exists.
//!
//! Here: reading the lists in docs/internals/invariants.md and docs/reference/security.md and looking for the functions.
//! Elsewhere: keeping the promises (the tests so named).
//! Invariant: `every_promise_names_a_test_that_exists` in tests/house.rs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The heading under which the promises stand.
const HEADING: &str = "## Promises";

/// The pages that make promises.
pub const PAGES: [&str; 2] = ["docs/internals/invariants.md", "docs/reference/security.md"];

/// One numbered promise and the tests named in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    pub text: String,
    pub tests: Vec<String>,
}

/// Reads the numbered list of promises. A test is a back-quoted word with an underscore in it.
pub fn made(page: &str) -> Vec<Promise> {
    let mut promises: Vec<Promise> = Vec::new();
    let section = page.lines().skip_while(|line| !line.starts_with(HEADING)).skip(1);
    for line in section.take_while(|line| !line.starts_with("## ")) {
        let begins = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if begins {
            promises.push(Promise { text: String::new(), tests: Vec::new() });
        }
        let Some(promise) = promises.last_mut() else { continue };
        promise.text.push_str(line.trim());
        promise.text.push(' ');
        promise.tests.extend(quoted(line).filter(|word| is_test_name(word)).map(str::to_owned));
    }
    promises
}

fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_test_name(word: &str) -> bool {
    word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The names of all functions in the given files that stand under `#[test]` or `#[tokio::test]`,
/// or inside a `proptest!` block, where the attribute is written the same way.
pub fn tests_in(root: &Path, files: &[PathBuf]) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(root.join(file))?;
        names.extend(test_names(&text).map(str::to_owned));
    }
    Ok(names)
}

/// What is wrong with the promises of a page: one that names no test, or a test that does not exist.
pub fn complaints(page: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for promise in made(page) {
        if promise.tests.is_empty() {
            complaints.push(format!("this promise names no test: {}", promise.text));
        }
        for test in promise.tests.iter().filter(|test| !known.contains(*test)) {
            complaints.push(format!("no test is called `{test}`, which is to keep: {}", promise.text));
        }
    }
    complaints
}

/// Function names that follow a test attribute, other attributes in between allowed.
pub fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        }
        let head = line.strip_prefix("async ").unwrap_or(line);
        // Attributes and comments between the two may take several lines: the mark waits for a function.
        let name = head.strip_prefix("fn ").and_then(|rest| rest.split('(').next())?;
        std::mem::take(&mut marked).then_some(name)
    })
}
