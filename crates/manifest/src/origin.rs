//! Origins of values, and problems with them.

use std::fmt;

use serde::Serialize;

/// A layer, lowest first: a higher one overrides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    Default,
    /// The initial configuration of an inheriting child.
    Parent,
    /// The user's `config.toml`.
    User,
    Profile,
    /// A profile of the workspace: it may only tighten permissions.
    Project,
    /// `.minke/config.toml`: may only tighten.
    Workspace,
    CommandLine,
}

/// The origin of a value.
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
    pub fn with_line(&self, line: Option<u32>) -> Origin {
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

/// A problem with one key, for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub origin: Origin,
    pub key: String,
    /// A message that names the key.
    pub message: String,
    /// How to fix it.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// Why there is no manifest; at least one problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestError {
    pub problems: Vec<ConfigProblem>,
}

impl ManifestError {
    /// Maximum number of shown problems.
    const MAX_SHOWN: usize = 20;

    pub(crate) fn single(problem: ConfigProblem) -> ManifestError {
        ManifestError { problems: vec![problem] }
    }
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> =
            self.problems.iter().take(ManifestError::MAX_SHOWN).map(ToString::to_string).collect();
        f.write_str(&shown.join("\n"))?;
        match self.problems.len().saturating_sub(ManifestError::MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl std::error::Error for ManifestError {}
