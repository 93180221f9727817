//! Checks and repairs logs.

pub(crate) mod repair;
pub(crate) mod soundness;
pub(crate) mod verify;
