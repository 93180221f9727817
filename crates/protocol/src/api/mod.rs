//! The API view of a call: what clients of the host see of a tool call, in the names that older clients know.
//!
//! Here: what they send (`call`), policy's word in their words (`verdict`), what they are told (`frame`), and the one
//! fold from a call's entries to that, in the order of `spec/09-policy.md` (`fold`). Elsewhere: carrying it (the host),
//! deciding (`policy`), running (`pod`).
//! Invariant: every phase and frame is made from an entry, in the order of the table
//! (`each_outcome_comes_in_the_order_of_the_table`).

mod call;
mod fold;
mod frame;
mod verdict;

pub use call::{ApiCall, ApprovalAnswer, LocalShell, OlderDecision, ToolInvoke, ToolPayload};
pub use fold::{CallFold, CallView, Told, told};
pub use frame::{
    ApiEvent, ApiFrame, ApiOutput, ApprovalPhase, ExecApprovalRequest, InvokeResult, InvokeStatus, ToolPhase,
};
pub use verdict::{ExecutionKind, NetworkAmendment, Phase, Precheck, Requirement, precheck, requirement};
