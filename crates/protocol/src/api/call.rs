//! What API clients send: a call, and the answer to one that waits.

use minke_record::{Ask, CallId, Decision, ErrorCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::verdict::{ExecutionKind, Proposal};
use crate::event::Refusal;

/// Our tool behind `local_shell`.
pub(crate) const SHELL: &str = "Bash";

/// `tool/invoke`: the thread's pod runs it, through its own gate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolInvoke {
    /// Older clients name none in the body; then the address must.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    pub call: ApiCall,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl ToolInvoke {
    /// Where it is to run, if the client says so.
    pub fn wanted_cwd(&self) -> Option<&str> {
        let own = match &self.call.payload {
            ToolPayload::LocalShell { params } => params.cwd.as_deref(),
            ToolPayload::Function { .. } | ToolPayload::Custom { .. } | ToolPayload::Mcp { .. } => None,
        };
        own.or(self.cwd.as_deref())
    }
}

/// A call as a client writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApiCall {
    pub name: String,
    pub payload: ToolPayload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_tool_call_id: Option<String>,
}

/// What is called, and with what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolPayload {
    /// `arguments` is JSON text.
    Function {
        arguments: String,
    },
    Custom {
        input: String,
    },
    LocalShell {
        params: LocalShell,
    },
    Mcp {
        server: String,
        tool: String,
        /// JSON text, or the JSON itself.
        #[serde(default)]
        raw_arguments: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        raw_tool_call_id: Option<String>,
    },
}

/// A shell line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LocalShell {
    pub command: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

impl ApiCall {
    /// The name of our tool, and its arguments as JSON text: what `call_tool` takes.
    pub fn tool(&self) -> (String, String) {
        match &self.payload {
            ToolPayload::Function { arguments } => (self.name.clone(), arguments.clone()),
            ToolPayload::Custom { input } => (self.name.clone(), json!({ "input": input }).to_string()),
            ToolPayload::LocalShell { params } => {
                let mut arguments = json!({ "command": params.command });
                if let Some(limit) = params.timeout_ms {
                    #[expect(clippy::cast_precision_loss, reason = "no limit is so long that it matters")]
                    let seconds = limit as f64 / 1_000.0;
                    arguments["timeout"] = json!(seconds);
                }
                (SHELL.to_owned(), arguments.to_string())
            }
            ToolPayload::Mcp { server, tool, raw_arguments, .. } => {
                let arguments = match raw_arguments {
                    Value::String(text) => text.clone(),
                    Value::Null => "{}".to_owned(),
                    other => other.to_string(),
                };
                (format!("mcp__{server}__{tool}"), arguments)
            }
        }
    }

    pub fn execution_kind(&self) -> ExecutionKind {
        match &self.payload {
            ToolPayload::Function { .. } | ToolPayload::Custom { .. } => ExecutionKind::Tool,
            ToolPayload::LocalShell { .. } => ExecutionKind::Shell,
            ToolPayload::Mcp { .. } => ExecutionKind::Mcp,
        }
    }

    /// The id that the client gave the call itself.
    pub fn call_id(&self) -> Option<CallId> {
        let inner = match &self.payload {
            ToolPayload::Mcp { raw_tool_call_id, .. } => raw_tool_call_id.as_ref(),
            ToolPayload::Function { .. } | ToolPayload::Custom { .. } | ToolPayload::LocalShell { .. } => {
                None
            }
        };
        self.raw_tool_call_id.as_ref().or(inner).map(|id| CallId(id.clone()))
    }
}

/// `approval/answer`: goes on with a call that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalAnswer {
    pub approval_id: String,
    pub decision: OlderDecision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A decision: a word, or an object with the word as its `type`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum OlderDecision {
    Approved,
    ApprovedForSession,
    ApprovedRule,
    Denied,
    Abort,
    /// Older: `approved_rule` for a command.
    ApprovedExecpolicyAmendment {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        proposed_execpolicy_amendment: Vec<String>,
    },
    /// Older: `approved_rule` for a host.
    NetworkPolicyAmendment {
        host: String,
        action: String,
    },
}

impl<'de> Deserialize<'de> for OlderDecision {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(deserializer)?;
        let text = |name: &str| given.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let word = given.as_str().map(ToOwned::to_owned).or_else(|| text("type"));
        let missing = |name| <D::Error as serde::de::Error>::missing_field(name);
        Ok(match word.ok_or_else(|| missing("type"))?.as_str() {
            "approved" => OlderDecision::Approved,
            "approved_for_session" => OlderDecision::ApprovedForSession,
            "approved_rule" => OlderDecision::ApprovedRule,
            "denied" => OlderDecision::Denied,
            "abort" => OlderDecision::Abort,
            "approved_execpolicy_amendment" => {
                let list = given.get("proposed_execpolicy_amendment").cloned().unwrap_or_else(|| json!([]));
                let list = serde_json::from_value(list).map_err(serde::de::Error::custom)?;
                OlderDecision::ApprovedExecpolicyAmendment { proposed_execpolicy_amendment: list }
            }
            "network_policy_amendment" => OlderDecision::NetworkPolicyAmendment {
                host: text("host").ok_or_else(|| missing("host"))?,
                action: text("action").ok_or_else(|| missing("action"))?,
            },
            other => {
                return Err(serde::de::Error::custom(format!(
                    "`{other}` is no decision: there are approved, approved_for_session, approved_rule, denied, \
                     abort, approved_execpolicy_amendment, network_policy_amendment"
                )));
            }
        })
    }
}

impl OlderDecision {
    /// Every decision that an ask takes, the older ones for its rule included.
    pub fn available(ask: &Ask) -> Vec<OlderDecision> {
        let offered = |word: &Decision| ask.options.iter().any(|option| option == word.as_str());
        let own = [
            (Decision::Approved, OlderDecision::Approved),
            (Decision::ApprovedForSession, OlderDecision::ApprovedForSession),
            (Decision::ApprovedRule, OlderDecision::ApprovedRule),
            (Decision::Denied, OlderDecision::Denied),
            (Decision::Abort, OlderDecision::Abort),
        ];
        let mut all: Vec<OlderDecision> =
            own.into_iter().filter(|(word, _)| offered(word)).map(|(_, decision)| decision).collect();
        if offered(&Decision::ApprovedRule) {
            let proposal = Proposal::of(ask.subject.always.as_deref());
            if !proposal.commands.is_empty() {
                all.push(OlderDecision::ApprovedExecpolicyAmendment {
                    proposed_execpolicy_amendment: Vec::new(),
                });
            }
            all.extend(proposal.hosts.into_iter().map(|amendment| OlderDecision::NetworkPolicyAmendment {
                host: amendment.host,
                action: amendment.action,
            }));
        }
        all
    }

    /// The decision in our own words. An older one counts only for the rule that the ask shows.
    pub fn for_ask(&self, ask: &Ask) -> Result<Decision, Refusal> {
        let refused = |why: String| Err(Refusal::new(ErrorCode::InvalidRequest, why));
        let proposal = Proposal::of(ask.subject.always.as_deref());
        match self {
            OlderDecision::Approved => Ok(Decision::Approved),
            OlderDecision::ApprovedForSession => Ok(Decision::ApprovedForSession),
            OlderDecision::ApprovedRule => Ok(Decision::ApprovedRule),
            OlderDecision::Denied => Ok(Decision::Denied),
            OlderDecision::Abort => Ok(Decision::Abort),
            OlderDecision::ApprovedExecpolicyAmendment { proposed_execpolicy_amendment: given } => {
                if proposal.commands.is_empty() {
                    return refused("this approval proposes no rule for a command".to_owned());
                }
                if !given.is_empty() && *given != proposal.commands {
                    return refused(format!(
                        "this approval proposes {:?}, not {given:?}: only the shown rule can be added",
                        proposal.commands
                    ));
                }
                Ok(Decision::ApprovedRule)
            }
            OlderDecision::NetworkPolicyAmendment { host, action } => {
                let shown = proposal.hosts.iter().any(|one| one.host == *host && one.action == *action);
                if !shown {
                    return refused(format!(
                        "this approval proposes no rule `{action}` for the host `{host}`: only the shown rule can be \
                         added"
                    ));
                }
                Ok(Decision::ApprovedRule)
            }
        }
    }
}
