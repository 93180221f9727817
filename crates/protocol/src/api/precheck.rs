//! The policy verdict on a call in the format of API clients, from the verdict that the pod acts on.

use minke_record::{Action, Judgement, PolicyVerdict, words};
use serde::{Deserialize, Serialize};

/// Name of the sandbox in verdicts of a pod that was started with `--unsandboxed`.
const UNSANDBOXED: &str = "off";
/// The action of a proposed rule.
const ALLOW_ACTION: &str = "allow";

words! {
    /// The kind of execution.
    pub enum ExecutionKind { Shell = "shell", Tool = "tool", Mcp = "mcp" }
}

words! {
    /// The policy verdict before an approval.
    pub enum Phase { Allowed = "allowed", NeedsApproval = "needs_approval", Forbidden = "forbidden" }
}

/// The policy verdict on a call before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Precheck {
    /// The shell command, or the name of another tool.
    pub command: String,
    pub cwd: String,
    pub execution_kind: ExecutionKind,
    /// Whether the call is not forbidden.
    pub allow: bool,
    pub requires_approval: bool,
    #[serde(default)]
    pub matched_rule: Option<String>,
    pub phase: Phase,
    pub reason: String,
    pub requirement: ApprovalRequirement,
}

/// The requirement for the call to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ApprovalRequirement {
    Skip {
        bypass_sandbox: bool,
        reason: String,
        #[serde(default)]
        proposed_execpolicy_amendment: Vec<String>,
    },
    NeedsApproval {
        reason: String,
        #[serde(default)]
        proposed_execpolicy_amendment: Vec<String>,
        #[serde(default)]
        proposed_network_policy_amendments: Vec<NetworkAmendment>,
    },
    Forbidden {
        reason: String,
    },
}

/// A proposed rule for a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NetworkAmendment {
    pub host: String,
    pub action: String,
}

/// Returns the shell command or the tool name, and the kind of execution.
pub(crate) fn call_subject<'a>(action: &'a Action, tool: &'a str) -> (&'a str, ExecutionKind) {
    match (&action.command, &action.mcp) {
        (Some(line), _) => (line, ExecutionKind::Shell),
        (None, Some(name)) => (name, ExecutionKind::Mcp),
        (None, None) => (tool, ExecutionKind::Tool),
    }
}

/// Converts a verdict for API clients. `always` is the rule that `approved_rule` would write.
pub fn build_precheck(
    verdict: &PolicyVerdict,
    action: &Action,
    tool: &str,
    cwd: &str,
    always: Option<&str>,
) -> Precheck {
    let (command, execution_kind) = call_subject(action, tool);
    let (allow, requires_approval, phase) = match verdict.outcome {
        Judgement::Allow => (true, false, Phase::Allowed),
        Judgement::Ask => (true, true, Phase::NeedsApproval),
        // An unknown judgement allows nothing.
        Judgement::Deny | Judgement::Other(_) => (false, false, Phase::Forbidden),
    };
    Precheck {
        command: command.to_owned(),
        cwd: cwd.to_owned(),
        execution_kind,
        allow,
        requires_approval,
        matched_rule: verdict.rule.clone(),
        phase,
        reason: verdict.reason.clone(),
        requirement: approval_requirement(verdict, always),
    }
}

/// Converts the same verdict to a requirement.
pub fn approval_requirement(verdict: &PolicyVerdict, always: Option<&str>) -> ApprovalRequirement {
    let reason = verdict.reason.clone();
    match verdict.outcome {
        Judgement::Allow => ApprovalRequirement::Skip {
            bypass_sandbox: verdict.sandbox.name() == Some(UNSANDBOXED),
            reason,
            proposed_execpolicy_amendment: Vec::new(),
        },
        Judgement::Ask => {
            let ProposedRules { commands, hosts } = ProposedRules::from_rule(always);
            ApprovalRequirement::NeedsApproval {
                reason,
                proposed_execpolicy_amendment: commands,
                proposed_network_policy_amendments: hosts,
            }
        }
        Judgement::Deny | Judgement::Other(_) => ApprovalRequirement::Forbidden { reason },
    }
}

/// The rule of `approved_rule` in the two older lists: allowed command prefixes and allowed hosts. Other
/// rules appear as text in the first list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ProposedRules {
    pub(crate) commands: Vec<String>,
    pub(crate) hosts: Vec<NetworkAmendment>,
}

impl ProposedRules {
    pub(crate) fn from_rule(always: Option<&str>) -> ProposedRules {
        let Some(rule) = always else { return ProposedRules::default() };
        let (command, host) = (rule_value(rule, "command"), rule_value(rule, "host"));
        match (command, host) {
            (None, Some(host)) => {
                let hosts = vec![NetworkAmendment { host, action: ALLOW_ACTION.to_owned() }];
                ProposedRules { hosts, ..ProposedRules::default() }
            }
            (command, _) => {
                let text = command.unwrap_or_else(|| rule.to_owned());
                ProposedRules { commands: vec![text], ..ProposedRules::default() }
            }
        }
    }
}

/// Returns the string value of a key in a one-line TOML rule.
fn rule_value(rule: &str, key: &str) -> Option<String> {
    let mut rest = rule.trim().trim_start_matches('{');
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_matches(|c: char| c == ',' || c.is_whitespace());
        let (value, behind) = parse_quoted(after.trim_start())?;
        if name == key {
            return Some(value);
        }
        rest = behind;
    }
}

/// Parses the quoted string at the start, and returns it with the rest.
fn parse_quoted(from: &str) -> Option<(String, &str)> {
    let mut letters = from.char_indices();
    let (_, quote) = letters.next().filter(|(_, first)| matches!(first, '"' | '\''))?;
    let mut value = String::new();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' if quote == '"' => value.push(match letters.next()?.1 {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            end if end == quote => return Some((value, from.get(at + end.len_utf8()..)?)),
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_by_its_keys() {
        for (rule, key, value) in [
            (r#"{ action = "allow", command = "cargo test" }"#, "command", Some("cargo test")),
            (r#"action = "allow", tool = "Bash", command = "a \"b\" \\c""#, "command", Some(r#"a "b" \c"#)),
            (r#"{ action = "allow", command = "x host = \"y\"" }"#, "host", None),
            (r"{ action = 'allow', host = '*.docs.rs' }", "host", Some("*.docs.rs")),
            ("call 0123", "command", None),
            ("{ action = [1], command = \"x\" }", "command", None),
            ("", "command", None),
        ] {
            assert_eq!(rule_value(rule, key).as_deref(), value, "{rule}");
        }
    }
}
