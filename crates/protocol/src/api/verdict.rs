//! Policy's word on a call, in the words of API clients. Pure: from the same verdict that the gate acts on.

use minke_record::{Action, Judgement, Verdict, words};
use serde::{Deserialize, Serialize};

/// The fence of a pod that was started with `--unsandboxed`, as verdicts name it.
const NO_FENCE: &str = "off";
/// What a proposed rule would say.
const ALLOW: &str = "allow";

words! {
    /// What kind of thing runs.
    pub enum ExecutionKind { Shell = "shell", Tool = "tool", Mcp = "mcp" }
}

words! {
    /// What comes of a call before anybody is asked.
    pub enum Phase { Allowed = "allowed", NeedsApproval = "needs_approval", Forbidden = "forbidden" }
}

/// What the gate says of a call before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Precheck {
    /// The shell line; of other calls the tool's name.
    pub command: String,
    pub cwd: String,
    pub execution_kind: ExecutionKind,
    /// Not forbidden.
    pub allow: bool,
    pub requires_approval: bool,
    #[serde(default)]
    pub matched_rule: Option<String>,
    pub phase: Phase,
    pub reason: String,
    pub requirement: Requirement,
}

/// What it takes for the call to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Requirement {
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

/// What is run: the line of a shell, else the tool's name; and its kind.
pub(crate) fn subject<'a>(action: &'a Action, tool: &'a str) -> (&'a str, ExecutionKind) {
    match (&action.command, &action.mcp) {
        (Some(line), _) => (line, ExecutionKind::Shell),
        (None, Some(name)) => (name, ExecutionKind::Mcp),
        (None, None) => (tool, ExecutionKind::Tool),
    }
}

/// The verdict on a call, as an API client sees it. `always` is the rule that `approved_rule` would write.
pub fn precheck(verdict: &Verdict, action: &Action, tool: &str, cwd: &str, always: Option<&str>) -> Precheck {
    let (command, execution_kind) = subject(action, tool);
    let (allow, requires_approval, phase) = match verdict.outcome {
        Judgement::Allow => (true, false, Phase::Allowed),
        Judgement::Ask => (true, true, Phase::NeedsApproval),
        // A word that we do not know allows nothing.
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
        requirement: requirement(verdict, always),
    }
}

/// What it takes, by the same verdict.
pub fn requirement(verdict: &Verdict, always: Option<&str>) -> Requirement {
    let reason = verdict.reason.clone();
    match verdict.outcome {
        Judgement::Allow => Requirement::Skip {
            bypass_sandbox: verdict.fence.as_deref() == Some(NO_FENCE),
            reason,
            proposed_execpolicy_amendment: Vec::new(),
        },
        Judgement::Ask => {
            let Proposal { commands, hosts } = Proposal::of(always);
            Requirement::NeedsApproval {
                reason,
                proposed_execpolicy_amendment: commands,
                proposed_network_policy_amendments: hosts,
            }
        }
        Judgement::Deny | Judgement::Other(_) => Requirement::Forbidden { reason },
    }
}

/// The rule that "always" would write, as the two older lists have it: what begins so may run, that host may be
/// reached. A rule of another kind stands as its own text in the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) commands: Vec<String>,
    pub(crate) hosts: Vec<NetworkAmendment>,
}

impl Proposal {
    pub(crate) fn of(always: Option<&str>) -> Proposal {
        let Some(rule) = always else { return Proposal::default() };
        let (command, host) = (value_of(rule, "command"), value_of(rule, "host"));
        match (command, host) {
            (None, Some(host)) => {
                let hosts = vec![NetworkAmendment { host, action: ALLOW.to_owned() }];
                Proposal { hosts, ..Proposal::default() }
            }
            (command, _) => {
                let text = command.unwrap_or_else(|| rule.to_owned());
                Proposal { commands: vec![text], ..Proposal::default() }
            }
        }
    }
}

/// The text that a rule in one line of TOML has for a key.
fn value_of(rule: &str, key: &str) -> Option<String> {
    let mut rest = rule.trim().trim_start_matches('{');
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_matches(|c: char| c == ',' || c.is_whitespace());
        let (value, behind) = text(after.trim_start())?;
        if name == key {
            return Some(value);
        }
        rest = behind;
    }
}

/// The quoted text at the beginning, and what follows it.
fn text(from: &str) -> Option<(String, &str)> {
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
            assert_eq!(value_of(rule, key).as_deref(), value, "{rule}");
        }
    }
}
