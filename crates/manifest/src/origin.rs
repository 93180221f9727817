//! Origins: where a value comes from, and what is wrong with one, for people.

use std::fmt;

use serde::Serialize;

/// A layer, lowest first: a higher one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    Default,
    /// What a child begins with that inherits.
    Parent,
    /// The person's `config.toml`.
    User,
    Profile,
    /// A profile that the workspace brings along: what it says about permissions may tighten only.
    Project,
    /// `.minke/config.toml`: may tighten only.
    Workspace,
    CommandLine,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Origin {
    pub layer: LayerKind,
    /// The file, the profile (`builtin:coder`) or the option (`--set`); empty for defaults.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
}

impl Origin {
    pub fn new(layer: LayerKind, name: impl Into<String>) -> Origin {
        Origin { layer, name: name.into(), line: None }
    }

    pub const DEFAULT: Origin = Origin { layer: LayerKind::Default, name: String::new(), line: None };

    #[must_use]
    pub fn at(&self, line: Option<u32>) -> Origin {
        Origin { line, ..self.clone() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.layer, self.line) {
            (LayerKind::Default, _) => f.write_str("default"),
            (_, Some(line)) => write!(f, "{}:{line}", self.name),
            (_, None) => f.write_str(&self.name),
        }
    }
}

/// Something about one key that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub origin: Origin,
    pub key: String,
    /// Names the key.
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.what)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// Why there is no manifest; at least one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    pub problems: Vec<Problem>,
}

impl ManifestError {
    /// How many problems are told at once.
    const TOLD: usize = 20;

    pub(crate) fn one(problem: Problem) -> ManifestError {
        ManifestError { problems: vec![problem] }
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<String> =
            self.problems.iter().take(ManifestError::TOLD).map(ToString::to_string).collect();
        f.write_str(&told.join("\n"))?;
        match self.problems.len().saturating_sub(ManifestError::TOLD) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ManifestError {}
