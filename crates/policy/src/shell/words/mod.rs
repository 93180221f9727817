//! Words of a command line and their expansion.

pub(super) mod arithmetic;
pub(super) mod brace;
pub(super) mod env_vars;
pub(super) mod expand;
pub(super) mod word;
