//! Policy: may this be done, and inside which fence.
//!
//! Here: scope arithmetic (`scope`), protected names and masked secrets (`protected`), postures, tiers, the verdict on an
//! action (`judge`), rules and their layers (`rules`), shell lines (`shell`), which calls may run beside each other
//! (`schedule`). Pure: paths are compared as they are written; resolving them is a hand's work (`files`, `exec`).

mod broad;
mod judge;
mod posture;
mod protected;
pub mod rules;
mod schedule;
mod scope;
pub mod shell;
mod tier;

pub use broad::{is_broad, kept_in_broad};
pub use judge::{
    BROAD_ROOT, Judging, broad_root_grant, default_posture, is_granted, judge, strictest_verdict,
};
pub use posture::Posture;
pub use protected::{NAMES, is_of_home, is_of_project, protected, protected_unless, secrets};
pub use rules::{DeniedPaths, Layer, Placed, Rule, RuleSet, granted, propose, strictest};
pub use schedule::{AT_ONCE, Slot, SlotState, conflicts, startable};
pub use scope::{
    Level, Overlap, add_back, bad_rule, contains, deny_inside_write, first_excess, is_canonical, level,
    listing, narrow, overlaps_write, subtract,
};
pub use tier::Tier;
