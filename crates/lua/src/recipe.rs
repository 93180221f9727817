//! The recipe: what a profile asks for.
//!
//! Here: the value that an evaluation gives, and finding the line of a key. Elsewhere: how it is read (`reading`), what
//! is refused (`fields`), what comes of it (`sources`, `manifest`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Letters of a slug.
const SLUG_CHARS: usize = 64;

/// What a profile asks for. It grants nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Where `profile { … }` stands.
    pub file: String,
    pub slug: Option<String>,
    pub description: Option<String>,
    /// The selector of the profile below this one.
    pub extends: Option<String>,
    pub scope: Option<WorkspaceScope>,
    /// Every other field: sections of a manifest, not yet read.
    pub fields: Map<String, Value>,
    /// The lines on which keys stand, by their dotted paths; the empty path is the call of `profile`.
    pub lines: BTreeMap<String, u32>,
    /// What the profile printed, shortened.
    pub printed: String,
}

impl Recipe {
    /// The line of a key, or of the nearest one around it.
    pub fn line(&self, path: &str) -> Option<u32> {
        line_of(&self.lines, path)
    }
}

pub(crate) fn line_of(lines: &BTreeMap<String, u32>, path: &str) -> Option<u32> {
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

/// What the agent may do in its workspace. A profile says no more about scope than this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceScope {
    Read,
    Write,
}

impl WorkspaceScope {
    pub fn as_str(self) -> &'static str {
        match self {
            WorkspaceScope::Read => "read",
            WorkspaceScope::Write => "write",
        }
    }
}

/// 1–64 of `a-z0-9-`, no hyphen first, last or twice.
pub fn is_slug(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= SLUG_CHARS
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}
