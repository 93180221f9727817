//! Policy: decides whether an action is allowed, and in which sandbox it runs.
//!
//! Modules: scope arithmetic (`scope`), protected names and secret paths (`protected`), postures, sandbox
//! backends, the verdict on an action (`judge`), rules and their layers (`rules`), shell lines (`shell`), and
//! which calls may run concurrently (`schedule`). The crate does no I/O and compares paths as text; `files`
//! and `exec` resolve them.

mod backend;
mod broad_roots;
mod judge;
mod posture;
mod protected;
pub mod rules;
mod schedule;
mod scope;
pub mod shell;

pub use backend::SandboxBackend;
pub use broad_roots::{is_broad_root, read_only_in_broad_root};
pub use judge::{
    BROAD_ROOT_LAYER, PolicyContext, broad_root_grant, default_posture, is_host_granted, judge_action,
    stricter_verdict,
};
pub use posture::Posture;
pub use protected::{
    PROTECTED_NAMES, is_home_name, is_project_name, protected_name, protected_name_unless, secret_paths,
};
pub use rules::{
    DeniedPaths, LayeredRule, PolicyRule, RuleLayer, RuleSet, find_grant, propose_rule, stricter_judgement,
};
pub use schedule::{CallSlot, CallSlotState, MAX_RUNNING_CALLS, actions_conflict, startable_calls};
pub use scope::{
    AccessLevel, WriteOverlap, access_level, deny_inside_write, find_write_overlap, first_excess,
    first_invalid_rule, is_canonical, narrow_scope, return_loan, scope_contains, scope_listing,
    subtract_loan,
};
