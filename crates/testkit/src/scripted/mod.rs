//! Scripted tools, hooks and pods.

pub(crate) mod hooks;
pub(crate) mod pods;
pub(crate) mod tools;
