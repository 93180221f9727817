//! Jobs, the host and hooks.

pub(crate) mod hooks;
pub(crate) mod host;
pub(crate) mod job;
