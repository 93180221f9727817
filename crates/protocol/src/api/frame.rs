//! Messages to API clients about a call: frames, phases and the result of `tool/invoke`.

use minke_record::{AskId, CallId, ErrorCode, words};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::LegacyDecision;
use super::precheck::{ExecutionKind, NetworkAmendment, Precheck};

/// A frame about a call.
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

/// The output of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ApiOutput {
    Function {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        body: Option<String>,
        success: bool,
        /// Blob with the full output if `body` is truncated; see `read_blob`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<String>,
    },
    Mcp {
        result: Value,
    },
}

/// A request for approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecApprovalRequest {
    pub call_id: CallId,
    pub approval_id: String,
    pub turn_id: String,
    pub command: String,
    pub cwd: String,
    pub reason: String,
    /// Always absent: connections have no approvals of their own.
    #[serde(default)]
    pub network_approval_context: Option<Value>,
    #[serde(default)]
    pub proposed_execpolicy_amendment: Vec<String>,
    #[serde(default)]
    pub proposed_network_policy_amendments: Vec<NetworkAmendment>,
    /// Always empty: calls cannot request additional permissions.
    #[serde(default)]
    pub additional_permissions: Vec<Value>,
    pub available_decisions: Vec<LegacyDecision>,
}

words! {
    /// The phase of a call.
    pub enum ToolPhase {
        Precheck = "precheck",
        Dispatching = "dispatching",
        Completed = "completed",
        Failed = "failed",
    }
}

words! {
    /// The phase of an approval.
    pub enum ApprovalPhase { Requested = "requested", Approved = "approved", Denied = "denied" }
}

/// An event about a call: the lines that event hooks receive.
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
    /// The status of `tool/invoke`.
    pub enum InvokeStatus {
        Completed = "completed",
        Failed = "failed",
        Denied = "denied",
        ApprovalRequired = "approval_required",
        Timeout = "timeout",
        Cancelled = "cancelled",
    }
}

/// The result of `tool/invoke`. After `approval_required` another result follows when the call has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct InvokeResult {
    pub ok: bool,
    pub status: InvokeStatus,
    pub execution_kind: ExecutionKind,
    pub response_id: String,
    /// Absent if the call ended before the policy check.
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
    /// Returns the ask of an approval, if the id is valid.
    pub fn ask_id(approval_id: &str) -> Option<AskId> {
        serde_json::from_value(json!(approval_id)).ok()
    }
}
