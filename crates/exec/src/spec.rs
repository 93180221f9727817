//! The access that a sandbox gives to a command, and why a command does not start.
//!
//! Here: plain types that every part of this crate shares. Elsewhere: the sandbox itself (`sandbox`), the profile for
//! macOS (`seatbelt`).

use std::path::PathBuf;
use std::sync::Arc;

use minke_git::{RepositoryScanner, RepositorySurvey, SurveyArea};
use minke_policy::{DeniedPaths, SandboxBackend};
use minke_record::Scope;

use crate::env::EnvRules;

/// The access of a pod's commands at this moment.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// The effective scope; lent parts are read-only in it.
    pub scope: Scope,
    /// `sandbox.mode = "read_only"`: no write access at all.
    pub read_only: bool,
    /// The pod's own directories.
    pub dirs: PodDirs,
    /// Hidden regardless of the scope: secrets of the home directory and Minke's runtime, config and data directories,
    /// except for `dirs` and for grants inside them.
    pub masked: Vec<PathBuf>,
    /// Protected names that the user made writable.
    pub lifted: Vec<PathBuf>,
    pub network: NetworkAccess,
    pub env: EnvRules,
    pub findings: ScopeFindings,
}

/// Known facts about the scope's directory trees.
#[derive(Debug, Clone, Default)]
pub struct ScopeFindings {
    /// Paths that deny rules exclude for every tool.
    pub denied: Option<Arc<DeniedPaths>>,
    /// The current repositories and denied paths. Without a survey, the sandbox scans for them itself.
    pub survey: Option<Arc<RepositorySurvey>>,
}

impl SandboxSpec {
    /// Returns the current repositories and denied paths of the scope.
    pub(crate) fn survey(&self) -> Arc<RepositorySurvey> {
        self.findings
            .survey
            .clone()
            .unwrap_or_else(|| Arc::new(RepositoryScanner::default().scan_area(self.survey_area())))
    }

    /// Returns the area that a survey covers.
    pub fn survey_area(&self) -> SurveyArea<'_> {
        SurveyArea { scope: &self.scope, denied: self.findings.denied.as_ref() }
    }

    /// Returns the paths that a sandboxed command could write, except the pod's own directories. `None` without a
    /// sandbox.
    pub fn write_scope(&self, backend: SandboxBackend) -> Option<Scope> {
        match backend {
            SandboxBackend::Off => None,
            _ if self.read_only => Some(Scope::default()),
            _ => Some(self.scope.clone()),
        }
    }
}

/// The pod's own directories.
#[derive(Debug, Clone)]
pub struct PodDirs {
    /// `TMPDIR`; mounted as `/tmp` where the backend can mount.
    pub tmp: PathBuf,
    /// Readable directory of spilled output.
    pub output: PathBuf,
    /// The lock file that every running sandbox holds shared.
    pub lock_file: PathBuf,
    /// `sandbox.writable_tmp`.
    pub writable_tmp: bool,
}

/// Network access of commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkAccess {
    Off,
    /// Only the pod's proxy, which listens on this socket.
    Proxy {
        socket: PathBuf,
    },
}

/// Why a command did not start. No part of it has run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("could not run the command: no sandbox works on this machine: {why}")]
    Unavailable { why: String },
    #[error("could not run the command: the sandbox ({backend}) cannot enforce this scope: {why}")]
    CannotExpress { backend: SandboxBackend, why: String },
    #[error("could not run the command: setting up the sandbox failed: {why}")]
    SetupFailed { why: String },
    #[error("could not start the command: {why}")]
    CommandFailed { why: String },
}

impl SandboxError {
    pub(crate) fn setup_failed(what: &str, why: impl std::fmt::Display) -> SandboxError {
        SandboxError::SetupFailed { why: format!("{what}: {why}") }
    }
}
