//! Start runs: `exec`, `attach`, `spawn`.

pub(crate) mod attach;
pub(crate) mod exec;
pub(crate) mod spawn;
