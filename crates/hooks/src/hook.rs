//! A hook: when it is called, what is done then, and how long that may take.
//!
//! Elsewhere: how one is read (`load`), asked (`steer`) and told what happened (`observe`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::GlobMatcher;
use minke_record::hex;
use sha2::{Digest, Sha256};

use crate::event::Event;

/// Who wrote it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    User,
    Workspace,
}

impl Layer {
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::User => "user",
            Layer::Workspace => "workspace",
        }
    }
}

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    /// A shell line, inside the pod's fence.
    Command(String),
    /// A POST to https, or to this machine.
    Http(String),
    /// A line appended to this file.
    File(PathBuf),
    /// A line to this socket.
    Socket(PathBuf),
    /// A strict hook that could not be read: it says no, with this reason, until somebody mends it.
    Broken(String),
}

impl Handler {
    pub fn kind(&self) -> &'static str {
        match self {
            Handler::Command(_) => "command",
            Handler::Http(_) => "http",
            Handler::File(_) => "file",
            Handler::Socket(_) => "socket",
            Handler::Broken(_) => "broken",
        }
    }

    /// What it does it with. Of an address only the host: the rest may be a key.
    pub fn target(&self) -> String {
        match self {
            Handler::Command(line) => line.clone(),
            Handler::Http(url) => crate::http::host_of(url),
            Handler::File(path) | Handler::Socket(path) => path.display().to_string(),
            Handler::Broken(why) => why.clone(),
        }
    }

    /// Whether it can be asked, which takes an answer.
    pub(crate) fn answers(&self) -> bool {
        matches!(self, Handler::Command(_) | Handler::Http(_) | Handler::Broken(_))
    }
}

/// What must fit besides the event. Each list fits if one of its patterns does; an empty one always.
#[derive(Debug, Clone, Default)]
pub struct When {
    pub(crate) tool: Vec<GlobMatcher>,
    pub(crate) path: Vec<GlobMatcher>,
    /// Only jobs whose mandate names it, and of those only ends and pauses.
    pub(crate) named: bool,
}

impl When {
    pub(crate) fn fits(&self, tool: Option<&str>, paths: &[String], cwd: &Path) -> bool {
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

    /// In words, as it was written.
    pub fn shown(&self) -> String {
        let list = |key: &str, globs: &[GlobMatcher]| {
            let words: Vec<&str> = globs.iter().map(|glob| glob.glob().glob()).collect();
            (!words.is_empty()).then(|| format!("{key} {}", words.join(" or ")))
        };
        let named = self.named.then(|| "job named".to_owned());
        let all = [list("tool", &self.tool), list("path", &self.path), named];
        all.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// One hook.
#[derive(Debug, Clone)]
pub struct Hook {
    pub event: Event,
    /// As people call it: its own name, or event, file and line.
    pub name: String,
    pub handler: Handler,
    pub when: When,
    pub timeout: Duration,
    /// If it gives no verdict, that is a no.
    pub strict: bool,
    pub layer: Layer,
    pub file: PathBuf,
    pub line: usize,
}

impl Hook {
    /// Whether it is asked at its event; else it is told afterwards.
    pub fn steers(&self) -> bool {
        self.event.steers() && self.handler.answers()
    }

    /// Names its cursor: the same hook keeps its place, another one in its stead begins anew.
    pub(crate) fn id(&self) -> String {
        let mut hash = Sha256::new();
        for part in [self.layer.as_str(), self.event.as_str(), self.handler.kind()] {
            hash.update(part);
            hash.update([0]);
        }
        hash.update(match &self.handler {
            Handler::Command(text) | Handler::Http(text) | Handler::Broken(text) => text.as_bytes().to_vec(),
            Handler::File(path) | Handler::Socket(path) => path.to_string_lossy().into_owned().into_bytes(),
        });
        hash.update(self.when.shown());
        let hash: String = hex(&hash.finalize()).chars().take(ID_DIGITS).collect();
        format!("{}-{hash}", self.event)
    }
}

/// Enough that no two hooks of one person share a cursor.
const ID_DIGITS: usize = 16;
