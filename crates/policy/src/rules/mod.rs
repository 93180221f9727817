//! Rules: what people decided beforehand, in layers.
//!
//! Here: what a rule is. Elsewhere: reading rule files (`file`), which rules fit an action (`fit`), the verdict
//! (`crate::judge`).

use minke_record::Judgement;
use serde::{Deserialize, Serialize};

/// Who said it. The strictest word over all layers wins, so the order does not decide anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The machine's owner: `/etc/minke/policy.toml`.
    Managed,
    /// The person: `policy.toml`, configuration, command line.
    User,
    /// The repository: may only say ask and deny.
    Workspace,
}

/// One rule. All keys that it has must fit an action.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub action: Judgement,
    /// A kind of action: `Bash`, `Write`, `Read`, `WebFetch`, `SpawnPod`, `mcp__server__tool`; may end with `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The first words of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A glob of paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A host: `docs.rs`, or `*.example.org` for what is below a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Examples that the rule must fit, checked when the file is loaded.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Examples that it must not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_match: Vec<String>,
}

/// A rule and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placed {
    pub layer: Layer,
    /// `policy.toml:12`, `--set permissions.rule`, …
    pub origin: String,
    pub rule: Rule,
}

/// Every rule that holds for a pod, of all layers. It is in the pod's log before it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSet {
    pub rules: Vec<Placed>,
}
