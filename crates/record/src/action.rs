//! Actions: the effects of a call, its class, the policy verdict and the outcome; and scope rules, which
//! define the paths that a pod may use.

use serde::{Deserialize, Serialize};

use crate::compat::LoggedBackend;
use crate::string_enum::words;

words! {
    /// Whether a call may be repeated when its result is unknown.
    pub enum Class {
        /// No effect outside this pod's own log; may run again.
        Pure = "pure",
        /// The hashes in the preview show whether it took effect.
        Verifiable = "verifiable",
        /// Everything else: never repeated automatically.
        Once = "once",
    }
}

words! {
    /// How a call ended.
    pub enum Outcome {
        Done = "done",
        Failed = "failed",
        Refused = "refused",
        Invalid = "invalid",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
        Lost = "lost",
    }
}

/// The effects of a call. Paths are absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// The shell line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The commands that the line would run, formatted for the user; the policy parses the line itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Files of the scope that the line would run, with their state at inspection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<ExecutedScript>,
    /// A tool of an MCP server, `mcp__server__tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
    /// The pod that would get a message or be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(default)]
    pub side_effects: bool,
}

/// A file of the scope that a shell line would run: a program, or the script of an interpreter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutedScript {
    pub path: String,
    /// SHA-256 of its content; absent if it could not be read completely, and then `problem` contains the
    /// reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The target, if the path is a symbolic link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The content of a short text file: stored in asks and grants, so that a later ask can show the changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// In an ask: the changes since the user approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl ExecutedScript {
    /// Whether both are the same file with the same content, as far as known.
    pub fn is_same(&self, other: &ExecutedScript) -> bool {
        (&self.path, &self.hash, &self.leads_to, &self.problem)
            == (&other.path, &other.hash, &other.leads_to, &other.problem)
    }

    /// Only the file and its hash, as logged outside of asks.
    #[must_use]
    pub fn without_text(&self) -> ExecutedScript {
        ExecutedScript { text: None, change: None, ..self.clone() }
    }
}

/// The changes of a call, computed without side effects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preview {
    pub path: String,
    /// Hash of the file before; absent if it does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    pub after: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

words! {
    /// The decision of the policy.
    pub enum Judgement { Allow = "allow", Ask = "ask", Deny = "deny" }
}

/// The decision of the policy with its reason. Later steps may tighten it, never loosen it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyVerdict {
    pub outcome: Judgement,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    pub reason: String,
    /// The sandbox backend of a command.
    #[serde(flatten)]
    pub sandbox: LoggedBackend,
}

words! {
    /// Ordered: none < read < write; none means that there is no rule.
    pub enum Permission { Read = "read", Write = "write" }
}

/// One rule of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScopeRule {
    pub target: String,
    pub permission: Permission,
    #[serde(default = "yes")]
    pub recursive: bool,
}

fn yes() -> bool {
    true
}

/// The paths that a pod may read or write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scope {
    #[serde(default)]
    pub allow: Vec<ScopeRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<ScopeRule>,
}

impl Scope {
    /// Grants write access to one directory and everything below it.
    pub fn writable(target: impl Into<String>) -> Scope {
        let rule = ScopeRule { target: target.into(), permission: Permission::Write, recursive: true };
        Scope { allow: vec![rule], deny: Vec::new() }
    }

    /// One line: `read:/p, write:/q [non-recursive]`, or `(none)`.
    pub fn summary(&self) -> String {
        let rules: Vec<String> = self
            .allow
            .iter()
            .map(|r| {
                let depth = if r.recursive { "" } else { " [non-recursive]" };
                format!("{}:{}{depth}", r.permission, r.target)
            })
            .collect();
        if rules.is_empty() { "(none)".to_owned() } else { rules.join(", ") }
    }
}
