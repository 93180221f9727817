//! What API clients are told of a call: frames, phases of its life, and the result of `tool/invoke`.

use minke_record::{AskId, CallId, ErrorCode, words};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::OlderDecision;
use super::verdict::{ExecutionKind, NetworkAmendment, Precheck};

/// A frame of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum ApiFrame {
    ToolCallStart {
        response_id: String,
        call_id: CallId,
        tool_name: String,
        #[serde(default)]
        arguments: Value,
    },
    ToolCallResult {
        response_id: String,
        call_id: CallId,
        tool_name: String,
        output: ApiOutput,
    },
    ExecApprovalRequest {
        request: Box<ExecApprovalRequest>,
    },
    Error {
        response_id: String,
        #[serde(default = "tool_error")]
        code: ErrorCode,
        message: String,
    },
}

fn tool_error() -> ErrorCode {
    ErrorCode::ToolError
}

/// What a tool said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ApiOutput {
    Function {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        success: bool,
        /// The whole of it, where `body` is only a part: `read_blob` gives it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<String>,
    },
    Mcp {
        result: Value,
    },
}

/// Somebody is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecApprovalRequest {
    pub call_id: CallId,
    pub approval_id: String,
    pub turn_id: String,
    pub command: String,
    pub cwd: String,
    pub reason: String,
    /// Nothing is asked about a connection itself.
    #[serde(default)]
    pub network_approval_context: Option<Value>,
    #[serde(default)]
    pub proposed_execpolicy_amendment: Vec<String>,
    #[serde(default)]
    pub proposed_network_policy_amendments: Vec<NetworkAmendment>,
    /// No call asks for more than the pod has.
    #[serde(default)]
    pub additional_permissions: Vec<Value>,
    pub available_decisions: Vec<OlderDecision>,
}

words! {
    /// Where a call stands.
    pub enum ToolPhase {
        Precheck = "precheck",
        Dispatching = "dispatching",
        Completed = "completed",
        Failed = "failed",
    }
}

words! {
    /// Where an approval stands.
    pub enum ApprovalPhase { Requested = "requested", Approved = "approved", Denied = "denied" }
}

/// What happens to a call, in order: the lines that event hooks get.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ApiEvent {
    ToolLifecycle {
        response_id: String,
        tool_name: String,
        phase: ToolPhase,
        payload: Value,
    },
    ApprovalLifecycle {
        approval_id: String,
        phase: ApprovalPhase,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    GenericEventFrame {
        frame: ApiFrame,
    },
}

words! {
    /// What came of `tool/invoke`.
    pub enum InvokeStatus {
        Completed = "completed",
        Failed = "failed",
        Denied = "denied",
        ApprovalRequired = "approval_required",
        Timeout = "timeout",
        Cancelled = "cancelled",
    }
}

/// The result of `tool/invoke`. One that says `approval_required` is followed by another when the call has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InvokeResult {
    pub ok: bool,
    pub status: InvokeStatus,
    pub execution_kind: ExecutionKind,
    pub response_id: String,
    /// Absent if the call never came so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precheck: Option<Precheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<ApiOutput>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<String>,
    #[serde(default)]
    pub events: Vec<ApiFrame>,
}

impl ExecApprovalRequest {
    /// The ask that the answer goes to, if the id is one of ours.
    pub fn ask(approval_id: &str) -> Option<AskId> {
        serde_json::from_value(json!(approval_id)).ok()
    }
}
