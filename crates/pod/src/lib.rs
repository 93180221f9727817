//! The pod's state machine.
//!
//! `Pod::step` takes one input and returns entries to write, events to show and effects to run. Durable state
//! changes only in `State::apply_entry`, so replaying the log restores the pod. The crate uses no clock,
//! disk, socket, task or randomness.

mod apply;
mod audit;
mod budget;
mod calls;
mod children;
mod clients;
mod engine;
mod environment;
mod exit;
mod input;
mod job;
mod pod;
mod run;
mod session;
mod state;
mod status;
mod step;
mod step_builder;
mod table;

pub use audit::Audit;
pub use budget::{BUDGET_KEY as BUDGET, is_budget_spent};
pub use calls::commands::UNDO_TOOL;
pub use calls::gate::{HOOK_REWRITE_SUFFIX, ParentLimits, REWRITTEN_PREFIX};
pub use children::messages::{ChildCommand, ChildEvent, DescendantState, OutgoingMessage, SpawnRequest};
pub use children::state::HeldBudget;
pub use engine::NETWORK_DOMAIN;
pub use input::*;
pub use job::DEADLINE_REASON;
pub use job::schedule::ScheduleEvent;
pub use minke_thread::JobAction;
pub use pod::Pod;
pub use run::reply_end::{FILTERED_MESSAGE, REFUSED_MESSAGE};
pub use run::rewind::{RewindPoint, RewindScan};
pub use run::{COSTS_KEY, UNREAD_PREFIX};
pub use session::nested_instructions::shown_instructions;
pub use session::offline::{
    ForkRequest, InitialTask, NewSession, OfflineEdit, OfflineWriter, StepDraft, StepSeed,
    apply_offline_edit, fork_session, new_session,
};
pub use session::prompt_vars::{CATALOG_KEY, prompt_variables};
pub use session::rules::RULES_KEY;
pub use state::State;
pub use step::*;
pub use table::{Disposition, MethodKind, disposition};
