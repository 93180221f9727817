//! Tool calls in the format of the host's API clients, with the names that older clients know.
//!
//! Here: requests (`call`), the policy verdict (`precheck`), messages (`frame`), and their derivation from
//! the entries of a call, in the order of `spec/09-policy.md` (`fold`). Elsewhere: transport (`host`),
//! decisions (`policy`), execution (`pod`).
//! Invariant: every phase and frame is made from an entry, in the order of the table
//! (`each_outcome_comes_in_the_order_of_the_table`).

mod call;
mod fold;
mod frame;
mod precheck;

pub use call::{ApiCall, ApprovalAnswer, LegacyDecision, LocalShell, ToolInvoke, ToolPayload};
pub use fold::{CallDescription, CallFold, SequencedEvent, fold_call_entries};
pub use frame::{
    ApiEvent, ApiFrame, ApiOutput, ApprovalPhase, ExecApprovalRequest, InvokeResult, InvokeStatus, ToolPhase,
};
pub use precheck::{
    ApprovalRequirement, ExecutionKind, NetworkAmendment, Phase, Precheck, approval_requirement,
    build_precheck,
};
