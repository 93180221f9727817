//! Subcommands, in the groups of `minke --help`.

pub(crate) mod approvals;
pub(crate) mod automation;
pub(crate) mod diagnostics;
pub(crate) mod run;
pub(crate) mod sessions;
pub(crate) mod setup;
pub(crate) mod watch;
