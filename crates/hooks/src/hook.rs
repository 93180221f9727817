//! A hook: its event, its handler, and its timeout.
//!
//! Elsewhere: parsing (`load`), asking (`steer`), observing (`observers`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::GlobMatcher;
use minke_record::to_hex;
use sha2::{Digest, Sha256};

use crate::event::HookEvent;

/// The file that defines the hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookLayer {
    User,
    Workspace,
}

impl HookLayer {
    pub fn as_str(self) -> &'static str {
        match self {
            HookLayer::User => "user",
            HookLayer::Workspace => "workspace",
        }
    }
}

/// What the hook does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookHandler {
    /// A shell line, inside the pod's sandbox.
    Command(String),
    /// A POST to https, or to localhost.
    Http(String),
    /// A line appended to this file.
    File(PathBuf),
    /// A line sent to this socket.
    Socket(PathBuf),
    /// A strict hook that could not be parsed: it denies with this reason until it is fixed.
    Invalid(String),
}

impl HookHandler {
    pub fn kind_name(&self) -> &'static str {
        match self {
            HookHandler::Command(_) => "command",
            HookHandler::Http(_) => "http",
            HookHandler::File(_) => "file",
            HookHandler::Socket(_) => "socket",
            HookHandler::Invalid(_) => "broken",
        }
    }

    /// The target of the handler; only the host of a URL, because the rest may contain a secret.
    pub fn describe_target(&self) -> String {
        match self {
            HookHandler::Command(line) => line.clone(),
            HookHandler::Http(url) => crate::http::url_origin(url),
            HookHandler::File(path) | HookHandler::Socket(path) => path.display().to_string(),
            HookHandler::Invalid(why) => why.clone(),
        }
    }

    /// Whether the handler can return an answer.
    pub(crate) fn can_answer(&self) -> bool {
        matches!(self, HookHandler::Command(_) | HookHandler::Http(_) | HookHandler::Invalid(_))
    }
}

/// Conditions besides the event. Each list matches if one of its patterns does; an empty list always matches.
#[derive(Debug, Clone, Default)]
pub struct HookCondition {
    pub(crate) tool: Vec<GlobMatcher>,
    pub(crate) path: Vec<GlobMatcher>,
    /// Only the ends and pauses of jobs whose mandate names the hook.
    pub(crate) named_jobs_only: bool,
}

impl HookCondition {
    pub(crate) fn is_match(&self, tool: Option<&str>, paths: &[String], cwd: &Path) -> bool {
        let tool_fits =
            self.tool.is_empty() || tool.is_some_and(|tool| self.tool.iter().any(|glob| glob.is_match(tool)));
        let path_fits = |path: &String| {
            let path = Path::new(path);
            let below = path.strip_prefix(cwd).ok();
            self.path
                .iter()
                .any(|glob| glob.is_match(path) || below.is_some_and(|below| glob.is_match(below)))
        };
        tool_fits && (self.path.is_empty() || paths.iter().any(path_fits))
    }

    /// The condition as text.
    pub fn describe_condition(&self) -> String {
        let list = |key: &str, globs: &[GlobMatcher]| {
            let words: Vec<&str> = globs.iter().map(|glob| glob.glob().glob()).collect();
            (!words.is_empty()).then(|| format!("{key} {}", words.join(" or ")))
        };
        let named = self.named_jobs_only.then(|| "job named".to_owned());
        let all = [list("tool", &self.tool), list("path", &self.path), named];
        all.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// A configured hook.
#[derive(Debug, Clone)]
pub struct Hook {
    pub event: HookEvent,
    /// The display name: its own name, or event, file and line.
    pub name: String,
    pub handler: HookHandler,
    pub when: HookCondition,
    pub timeout: Duration,
    /// A missing verdict counts as a denial.
    pub strict: bool,
    pub layer: HookLayer,
    pub file: PathBuf,
    pub line: usize,
}

impl Hook {
    /// Whether it runs before its event; otherwise it is notified afterwards.
    pub fn is_steering(&self) -> bool {
        self.event.can_steer() && self.handler.can_answer()
    }

    /// The name of its cursor: an unchanged hook keeps its position, a changed one starts anew.
    pub(crate) fn cursor_id(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.layer.as_str(), self.event.as_str(), self.handler.kind_name()] {
            hash.update(part);
            hash.update([0]);
        }
        hash.update(match &self.handler {
            HookHandler::Command(text) | HookHandler::Http(text) | HookHandler::Invalid(text) => {
                text.as_bytes().to_vec()
            }
            HookHandler::File(path) | HookHandler::Socket(path) => {
                path.to_string_lossy().into_owned().into_bytes()
            }
        });
        hash.update(self.when.describe_condition());
        let hash: String = to_hex(&hash.finalize()).chars().take(ID_DIGITS).collect();
        format!("{}-{hash}", self.event)
    }
}

/// Enough to avoid collisions between the hooks of one user.
const ID_DIGITS: usize = 16;
