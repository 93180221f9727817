//! Policy rules and their layers.
//!
//! This module has the rule type and its one-line form. Submodules: parsing rule files (`rule_file`) and
//! writing them (`append`), matching commands (`command`, with the facts about commands in `command_table`),
//! matching the parts of an action (`matching`, with possible paths in `file_words` and `path_pattern`, and
//! indirect commands in `indirect`), proposing the rule for an "always" answer (`propose`), and grants
//! (`grant`). `crate::judge` computes the verdict.

mod append;
mod command;
mod command_table;
mod denied_paths;
mod file_words;
mod grant;
mod indirect;
mod matching;
mod operand;
mod path_pattern;
mod propose;
mod rule_file;

use minke_record::Judgement;
use serde::{Deserialize, Serialize};

pub use append::{AppendRuleError, append_rule};
pub use denied_paths::DeniedPaths;
pub use grant::find_grant;
pub(crate) use matching::{
    ActionPart, RedirectCheck, RuleDecision, action_parts, check_redirect, decide_part,
    first_restricting_rule,
};
pub use propose::propose_rule;
pub use rule_file::{InvalidRules, MAX_FILE_BYTES, MAX_RULES, MAX_VALUE_CHARS, RuleProblem};

/// The origin of a rule. The strictest decision of all layers counts, so their order has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleLayer {
    /// The administrator of the machine: `/etc/minke/policy.toml`.
    Managed,
    /// The user: `policy.toml`, configuration, command line.
    User,
    /// The repository. Its rules may only ask and deny.
    Workspace,
}

impl RuleLayer {
    pub const ALL: [RuleLayer; 3] = [RuleLayer::Managed, RuleLayer::User, RuleLayer::Workspace];

    /// Returns the name of the layer in verdicts and lists.
    pub fn as_str(self) -> &'static str {
        match self {
            RuleLayer::Managed => "managed",
            RuleLayer::User => "user",
            RuleLayer::Workspace => "workspace",
        }
    }
}

/// One rule. It matches an action if all of its keys match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    pub action: Judgement,
    /// A kind of action: `Bash`, `Write`, `Read`, `WebFetch`, `SpawnPod`, `mcp__server__tool`; may end with
    /// `*`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The first words of a command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// A glob of paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A host: `docs.rs`, or `*.example.org` for all subdomains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Examples that the rule must match, checked when the file is loaded.
    #[serde(default, rename = "match", skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Examples that the rule must not match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_match: Vec<String>,
}

impl PolicyRule {
    fn new(action: Judgement) -> PolicyRule {
        PolicyRule {
            action,
            tool: None,
            command: None,
            path: None,
            host: None,
            matches: Vec::new(),
            not_match: Vec::new(),
        }
    }

    /// Creates the least specific rule, for `default_action`.
    pub fn for_all_tools(action: Judgement) -> PolicyRule {
        PolicyRule { tool: Some("*".to_owned()), ..PolicyRule::new(action) }
    }

    /// Creates a rule about commands that begin with these words.
    pub fn for_command(action: Judgement, words: &str) -> PolicyRule {
        PolicyRule { command: Some(words.to_owned()), ..PolicyRule::new(action) }
    }

    /// Parses one rule: `{ action = "allow", command = "cargo test" }`, with or without the braces.
    pub fn parse(text: &str) -> Result<PolicyRule, RuleProblem> {
        rule_file::parse_single_rule(text)
    }

    /// Checks the rule; the error names an unknown tool, keys that exclude each other, or a wrong example.
    pub fn validate(&self) -> Result<(), String> {
        rule_file::check_rule(self)
    }

    /// Returns the rule as one line of TOML, without its examples.
    pub fn to_toml_line(&self) -> String {
        let keys = [
            ("action", Some(self.action.as_str())),
            ("tool", self.tool.as_deref()),
            ("command", self.command.as_deref()),
            ("path", self.path.as_deref()),
            ("host", self.host.as_deref()),
        ];
        let pairs =
            keys.into_iter().filter_map(|(key, value)| Some(format!("{key} = {}", toml_string(value?))));
        format!("{{ {} }}", pairs.collect::<Vec<String>>().join(", "))
    }

    /// Returns whether two rules have the same conditions, whatever their actions.
    fn has_same_conditions(&self, other: &PolicyRule) -> bool {
        self.tool == other.tool
            && self.command == other.command
            && self.path == other.path
            && self.host == other.host
    }
}

/// Returns a TOML string on one line.
fn toml_string(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            other if other.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(other))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Returns the strictness of a decision.
pub(crate) fn strictness(word: &Judgement) -> u8 {
    match word {
        Judgement::Allow => 0,
        Judgement::Ask => 1,
        // Treat an unknown decision as the strictest.
        Judgement::Deny | Judgement::Other(_) => 2,
    }
}

/// Returns the stricter of two decisions.
pub fn stricter_judgement(a: Judgement, b: Judgement) -> Judgement {
    if strictness(&b) > strictness(&a) { b } else { a }
}

/// A rule with its layer and origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayeredRule {
    pub layer: RuleLayer,
    /// `policy.toml:12`, `--set permissions.rule`, …
    pub origin: String,
    pub rule: PolicyRule,
}

/// All rules of all layers that apply to a pod. The pod logs them before it uses them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleSet {
    pub rules: Vec<LayeredRule>,
}

impl RuleSet {
    /// Parses a rule file and returns the rules with their warnings. Any error rejects the whole file,
    /// because ignoring a restricting rule would loosen the policy.
    pub fn parse(
        layer: RuleLayer,
        origin: &str,
        text: &str,
    ) -> Result<(RuleSet, Vec<RuleProblem>), InvalidRules> {
        rule_file::parse_rule_file(layer, origin, text)
    }
}
