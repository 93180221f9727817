//! Declares and creates sessions, and edits those without a live pod.

pub(crate) mod create;
pub(crate) mod offline;
pub(crate) mod protected_paths;
pub(crate) mod references;
pub(crate) mod scope_conflict;
pub(crate) mod secret_check;
pub(crate) mod session_factory;
pub(crate) mod settings;
pub(crate) mod timezone;
