//! Actions and what is said of them: what a call would touch, its class, policy's verdict, how it ended; and scope
//! rules, which say which paths a pod may touch.

use serde::{Deserialize, Serialize};

use crate::words::words;

words! {
    /// What may be done when a call was started and its result is not known.
    pub enum Class {
        /// No effect outside this pod's own log; may run again.
        Pure = "pure",
        /// The hashes in the preview say whether it happened.
        Verifiable = "verifiable",
        /// Everything else: never run again by the machine.
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

/// What a call would touch. Paths are absolute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// A shell line, as it is given to the shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The commands that the line would really run, in words for a person; policy reads the line itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Files of the scope that the line would run, as they were when the call was looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scripts: Vec<Script>,
    /// A tool of an MCP server, `mcp__server__tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<String>,
    /// Another pod that would be told or started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    #[serde(default)]
    pub side_effects: bool,
}

/// A file of the scope that a shell line would run: a program, or the script of an interpreter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Script {
    pub path: String,
    /// SHA-256 of its content; absent if it could not be read whole, and then `problem` says why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The file that it really is, if a link leads there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Its content where it is a short text: in questions and grants, so that a later question can show what changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// In a question: what has changed since a person approved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
}

impl Script {
    /// Whether both are the same file with the same content, as far as that is known.
    pub fn is_same(&self, other: &Script) -> bool {
        (&self.path, &self.hash, &self.leads_to, &self.problem)
            == (&other.path, &other.hash, &other.leads_to, &other.problem)
    }

    /// The file and its hash alone, as a log names it where nobody is asked.
    #[must_use]
    pub fn without_text(&self) -> Script {
        Script { text: None, change: None, ..self.clone() }
    }
}

/// What a call would change, found by reading only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Preview {
    pub path: String,
    /// Hash of the file before; absent if there is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    pub after: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
}

words! {
    /// Policy's word.
    pub enum Judgement { Allow = "allow", Ask = "ask", Deny = "deny" }
}

/// Policy's word on an action, with its reason. It may tighten on its way and never loosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    pub outcome: Judgement,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
}

words! {
    /// The lattice none < read < write; none is the absence of a rule.
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

/// Which paths a pod may read or write.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Scope {
    #[serde(default)]
    pub allow: Vec<ScopeRule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<ScopeRule>,
}

impl Scope {
    /// Write on one directory and everything below it.
    pub fn write(target: impl Into<String>) -> Scope {
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
