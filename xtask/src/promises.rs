//! Promises: each promise on a page names an existing test.
//!
//! Here: parsing the lists in docs/internals/invariants.md and docs/reference/security.md and finding the
//! functions. Elsewhere: the tests.
//! Invariant: `every_promise_names_a_test_that_exists` in tests/house.rs.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The heading of the list of promises.
const HEADING: &str = "## Promises";

/// The pages with promises.
pub const PAGES: [&str; 2] = ["docs/internals/invariants.md", "docs/reference/security.md"];

/// One numbered promise and the tests named in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PagePromise {
    pub text: String,
    pub tests: Vec<String>,
}

/// Parses the numbered list of promises. A test is a back-quoted word with an underscore in it.
pub fn read_promises(page: &str) -> Vec<PagePromise> {
    let mut promises: Vec<PagePromise> = Vec::new();
    let section = page.lines().skip_while(|line| !line.starts_with(HEADING)).skip(1);
    for line in section.take_while(|line| !line.starts_with("## ")) {
        let begins = line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
        if begins {
            promises.push(PagePromise { text: String::new(), tests: Vec::new() });
        }
        let Some(promise) = promises.last_mut() else { continue };
        promise.text.push_str(line.trim());
        promise.text.push(' ');
        promise.tests.extend(quoted_words(line).filter(|word| is_test_name(word)).map(str::to_owned));
    }
    promises
}

fn quoted_words(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn is_test_name(word: &str) -> bool {
    word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The names of all functions in the given files with a `#[test]` or `#[tokio::test]` attribute, also inside
/// a `proptest!` block.
pub fn find_tests(root: &Path, files: &[PathBuf]) -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(root.join(file))?;
        names.extend(test_names(&text).map(str::to_owned));
    }
    Ok(names)
}

/// The problems of the promises on a page: no named test, or a test that does not exist.
pub fn promise_problems(page: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for promise in read_promises(page) {
        if promise.tests.is_empty() {
            complaints.push(format!("this promise names no test: {}", promise.text));
        }
        for test in promise.tests.iter().filter(|test| !known.contains(*test)) {
            complaints.push(format!("no test is named `{test}`, in the promise: {}", promise.text));
        }
    }
    complaints
}

/// The names of functions with a test attribute; other attributes may follow it.
pub fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            marked = true;
        }
        let head = line.strip_prefix("async ").unwrap_or(line);
        // Other attributes and comments may follow over several lines.
        let name = head.strip_prefix("fn ").and_then(|rest| rest.split('(').next())?;
        std::mem::take(&mut marked).then_some(name)
    })
}
