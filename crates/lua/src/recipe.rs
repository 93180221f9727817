//! The recipe: the settings that a profile requests.
//!
//! Here: the result of an evaluation and the line of each key. Elsewhere: reading tables (`table_reader`),
//! rejected content (`fields`), use of a recipe (`sources`, `manifest`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The longest slug in characters.
const MAX_SLUG_CHARS: usize = 64;

/// The settings that a profile requests. A recipe grants nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// The file that contains `profile { … }`.
    pub file: String,
    pub slug: Option<String>,
    pub description: Option<String>,
    /// The selector of the base profile.
    pub extends: Option<String>,
    pub scope: Option<WorkspaceAccess>,
    /// All other fields: unparsed sections of a manifest.
    pub fields: Map<String, Value>,
    /// The lines of the keys by dotted path. The empty path is the `profile` call.
    pub lines: BTreeMap<String, u32>,
    /// The output of the profile, shortened.
    pub printed: String,
}

impl Recipe {
    /// Returns the line of a key, or of its nearest enclosing key.
    pub fn line_of_key(&self, path: &str) -> Option<u32> {
        nearest_line(&self.lines, path)
    }
}

pub(crate) fn nearest_line(lines: &BTreeMap<String, u32>, path: &str) -> Option<u32> {
    let mut path = path;
    loop {
        if let Some(line) = lines.get(path) {
            return Some(*line);
        }
        match path.rsplit_once('.') {
            Some((around, _)) => path = around,
            None if path.is_empty() => return None,
            None => path = "",
        }
    }
}

/// The access of the agent to its workspace, the only part of a scope that a profile can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceAccess {
    Read,
    Write,
}

impl WorkspaceAccess {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkspaceAccess::Read => "read",
            WorkspaceAccess::Write => "write",
        }
    }
}

/// Returns whether `text` is 1–64 of `a-z0-9-` without a leading, trailing or double hyphen.
pub fn is_slug(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_SLUG_CHARS
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}
