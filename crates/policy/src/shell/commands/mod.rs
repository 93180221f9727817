//! Commands of a line: builtins, wrappers, scripts, redirects.

pub(super) mod builtin;
pub(super) mod code;
pub(super) mod compound;
pub(super) mod git;
pub(super) mod launch;
pub(super) mod redirect;
pub(super) mod scripts;
pub(super) mod simple;
pub(super) mod wrapper;
