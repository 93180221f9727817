//! Policy: may this be done, and inside which fence.
//!
//! Here: scope arithmetic (`scope`), protected names and masked secrets (`protected`), postures, tiers, the verdict on an
//! action (`judge`), which calls may run beside each other (`schedule`). Rules, layers and shell lines come with their own
//! issue. Pure: paths are compared as they are written; resolving them is a hand's work (`files`, `exec`).

mod judge;
mod posture;
mod protected;
mod schedule;
mod scope;
mod tier;

pub use judge::{Judging, default_posture, is_granted, judge};
pub use posture::Posture;
pub use protected::{NAMES, protected, protected_unless, secrets};
pub use schedule::{AT_ONCE, Slot, SlotState, conflicts, startable};
pub use scope::{
    Level, Overlap, add_back, bad_rule, contains, deny_inside_write, first_excess, is_canonical, level,
    listing, narrow, overlaps_write, subtract,
};
pub use tier::Tier;
