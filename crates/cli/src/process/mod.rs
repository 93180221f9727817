//! The process itself: memory, file modes, panics, standard streams.

pub(crate) mod hardening;
pub(crate) mod hidden_input;
pub(crate) mod panic;
pub(crate) mod stdio;
pub(crate) mod store;
pub(crate) mod umask;
