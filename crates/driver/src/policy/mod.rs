//! Inputs of policy decisions: rule files, hooks, denied paths and network settings.

pub(crate) mod denied_paths;
pub(crate) mod hooks;
pub(crate) mod inputs;
pub(crate) mod network_config;
pub(crate) mod rules;
