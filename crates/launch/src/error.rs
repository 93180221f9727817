//! Errors of declaring and creating a session.
//!
//! Here: the error and its kind. Elsewhere: its exit code (`cli`), its API code (`host`).

use std::fmt::{self, Display};

use minke_registry::{PathsError, RegistryError};
use minke_session::StoreError;
use thiserror::Error;

/// The kind of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupRefusalKind {
    /// The options or the configuration are wrong.
    Invalid,
    /// Another pod is in the way; a retry may succeed later.
    Conflict,
    /// The disk failed.
    Storage,
    /// Something else failed.
    Failed,
}

/// The reason why a session is not declared or created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupRefusal {
    pub kind: SetupRefusalKind,
    /// The error code for programs, if it is not the usual one of the kind.
    pub code: Option<&'static str>,
    pub message: String,
    pub reasons: Vec<String>,
    pub hint: Option<String>,
}

impl SetupRefusal {
    pub fn new(kind: SetupRefusalKind, message: impl Display) -> SetupRefusal {
        SetupRefusal { kind, code: None, message: message.to_string(), reasons: Vec::new(), hint: None }
    }

    /// Returns a refusal of wrong options or configuration.
    pub fn invalid(message: impl Display) -> SetupRefusal {
        SetupRefusal::new(SetupRefusalKind::Invalid, message)
    }

    #[must_use]
    pub fn with_code(mut self, code: &'static str) -> SetupRefusal {
        self.code = Some(code);
        self
    }

    #[must_use]
    pub fn with_reason(mut self, why: impl Display) -> SetupRefusal {
        self.reasons.push(why.to_string());
        self
    }

    #[must_use]
    pub fn with_hint(mut self, hint: impl Display) -> SetupRefusal {
        self.hint = Some(hint.to_string());
        self
    }
}

/// Message, reasons and hint on a single line.
impl Display for SetupRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.reasons.iter().try_for_each(|why| write!(f, ": {why}"))?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {hint}"))
    }
}

impl std::error::Error for SetupRefusal {}

/// The error of a session that is not declared or created.
#[derive(Debug, Error)]
pub enum SetupError {
    #[error(transparent)]
    Refused(#[from] SetupRefusal),
    #[error(transparent)]
    Paths(#[from] PathsError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Store(#[from] StoreError),
}
