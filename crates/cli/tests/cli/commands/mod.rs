//! Subcommands, their output and their errors.

pub(crate) mod clean_output;
pub(crate) mod config;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod errors;
pub(crate) mod exec;
pub(crate) mod first_steps;
pub(crate) mod help;
pub(crate) mod images;
pub(crate) mod login;
pub(crate) mod output_shapes;
pub(crate) mod pods;
pub(crate) mod profiles;
pub(crate) mod prompts;
pub(crate) mod references;
pub(crate) mod replay;
pub(crate) mod small_task;
pub(crate) mod tour;
