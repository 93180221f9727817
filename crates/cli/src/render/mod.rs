//! Text that several subcommands print.

pub(crate) mod approval_view;
pub(crate) mod budget;
pub(crate) mod open_asks;
pub(crate) mod pod_tree;
pub(crate) mod transcript;
