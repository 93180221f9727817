//! Policy: may this be done, and inside which fence.
//!
//! Here: scope arithmetic (`scope`), protected names and masked secrets (`protected`), postures, tiers, the verdict on an
//! action (`judge`), which calls may run beside each other (`schedule`). Rules, layers and shell lines come with their own
//! issue. Pure: paths are compared as they are written; resolving them is a hand's work (`files`, `exec`).

mod posture;
mod tier;

pub use posture::Posture;
pub use tier::Tier;
