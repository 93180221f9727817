//! What a pod reads at its start and what others write into a session without a live pod.

pub(crate) mod boot;
pub(crate) mod nested_instructions;
pub(crate) mod offline;
pub(crate) mod prompt_vars;
pub(crate) mod rules;
