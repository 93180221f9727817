//! Requests of API clients: a call, and the answer to an approval.

use minke_record::{Ask, CallId, Decision, ErrorCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::precheck::{ExecutionKind, ProposedRules};
use crate::event::Refusal;

/// The tool behind `local_shell`.
pub(crate) const SHELL_TOOL: &str = "Bash";

/// `tool/invoke`: the thread's pod makes the call under its policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolInvoke {
    /// Older clients omit it in the body; then the URL must contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    pub call: ApiCall,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}

impl ToolInvoke {
    /// Returns the requested working directory.
    pub fn requested_cwd(&self) -> Option<&str> {
        let own = match &self.call.payload {
            ToolPayload::LocalShell { params } => params.cwd.as_deref(),
            ToolPayload::Function { .. } | ToolPayload::Custom { .. } | ToolPayload::Mcp { .. } => None,
        };
        own.or(self.cwd.as_deref())
    }
}

/// A call in the form of API clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApiCall {
    pub name: String,
    pub payload: ToolPayload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_tool_call_id: Option<String>,
}

/// The tool and its arguments.
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

/// A shell command.
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
    /// Returns the tool name and the arguments as JSON text, as for `call_tool`.
    pub fn tool_and_arguments(&self) -> (String, String) {
        match &self.payload {
            ToolPayload::Function { arguments } => (self.name.clone(), arguments.clone()),
            ToolPayload::Custom { input } => (self.name.clone(), json!({ "input": input }).to_string()),
            ToolPayload::LocalShell { params } => {
                let mut arguments = json!({ "command": params.command });
                if let Some(limit) = params.timeout_ms {
                    #[expect(clippy::cast_precision_loss, reason = "limits are small enough")]
                    let seconds = limit as f64 / 1_000.0;
                    arguments["timeout"] = json!(seconds);
                }
                (SHELL_TOOL.to_owned(), arguments.to_string())
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

    /// Returns the client's own id of the call.
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

/// `approval/answer`: answers an approval request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalAnswer {
    pub approval_id: String,
    pub decision: LegacyDecision,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A decision: a string, or an object with the string as its `type`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LegacyDecision {
    Approved,
    ApprovedForSession,
    ApprovedRule,
    Denied,
    Abort,
    /// Older form of `approved_rule` for a command.
    ApprovedExecpolicyAmendment {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        proposed_execpolicy_amendment: Vec<String>,
    },
    /// Older form of `approved_rule` for a host.
    NetworkPolicyAmendment {
        host: String,
        action: String,
    },
}

impl<'de> Deserialize<'de> for LegacyDecision {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let consumed = Value::deserialize(deserializer)?;
        let text = |name: &str| consumed.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        let word = consumed.as_str().map(ToOwned::to_owned).or_else(|| text("type"));
        let missing = |name| <D::Error as serde::de::Error>::missing_field(name);
        Ok(match word.ok_or_else(|| missing("type"))?.as_str() {
            "approved" => LegacyDecision::Approved,
            "approved_for_session" => LegacyDecision::ApprovedForSession,
            "approved_rule" => LegacyDecision::ApprovedRule,
            "denied" => LegacyDecision::Denied,
            "abort" => LegacyDecision::Abort,
            "approved_execpolicy_amendment" => {
                let list =
                    consumed.get("proposed_execpolicy_amendment").cloned().unwrap_or_else(|| json!([]));
                let list = serde_json::from_value(list).map_err(serde::de::Error::custom)?;
                LegacyDecision::ApprovedExecpolicyAmendment { proposed_execpolicy_amendment: list }
            }
            "network_policy_amendment" => LegacyDecision::NetworkPolicyAmendment {
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

impl LegacyDecision {
    /// Returns all decisions that an ask accepts, including the older ones for its rule.
    pub fn available_for(ask: &Ask) -> Vec<LegacyDecision> {
        let offered = |word: &Decision| ask.options.iter().any(|option| option == word.as_str());
        let own = [
            (Decision::Approved, LegacyDecision::Approved),
            (Decision::ApprovedForSession, LegacyDecision::ApprovedForSession),
            (Decision::ApprovedRule, LegacyDecision::ApprovedRule),
            (Decision::Denied, LegacyDecision::Denied),
            (Decision::Abort, LegacyDecision::Abort),
        ];
        let mut all: Vec<LegacyDecision> =
            own.into_iter().filter(|(word, _)| offered(word)).map(|(_, decision)| decision).collect();
        if offered(&Decision::ApprovedRule) {
            let proposal = ProposedRules::from_rule(ask.subject.always.as_deref());
            if !proposal.commands.is_empty() {
                all.push(LegacyDecision::ApprovedExecpolicyAmendment {
                    proposed_execpolicy_amendment: Vec::new(),
                });
            }
            all.extend(proposal.hosts.into_iter().map(|amendment| LegacyDecision::NetworkPolicyAmendment {
                host: amendment.host,
                action: amendment.action,
            }));
        }
        all
    }

    /// Converts to a decision. An older decision is only valid for the rule that the ask shows.
    pub fn to_decision(&self, ask: &Ask) -> Result<Decision, Refusal> {
        let refused = |why: String| Err(Refusal::new(ErrorCode::InvalidRequest, why));
        let proposal = ProposedRules::from_rule(ask.subject.always.as_deref());
        match self {
            LegacyDecision::Approved => Ok(Decision::Approved),
            LegacyDecision::ApprovedForSession => Ok(Decision::ApprovedForSession),
            LegacyDecision::ApprovedRule => Ok(Decision::ApprovedRule),
            LegacyDecision::Denied => Ok(Decision::Denied),
            LegacyDecision::Abort => Ok(Decision::Abort),
            LegacyDecision::ApprovedExecpolicyAmendment { proposed_execpolicy_amendment: consumed } => {
                if proposal.commands.is_empty() {
                    return refused("this approval does not propose a rule for a command".to_owned());
                }
                if !consumed.is_empty() && *consumed != proposal.commands {
                    return refused(format!(
                        "this approval proposes {:?}, not {consumed:?}: only the shown rule can be added",
                        proposal.commands
                    ));
                }
                Ok(Decision::ApprovedRule)
            }
            LegacyDecision::NetworkPolicyAmendment { host, action } => {
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
