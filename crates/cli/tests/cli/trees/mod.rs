//! Pods with children, many clients and many pods.

pub(crate) mod child_pods;
pub(crate) mod idle_pods;
pub(crate) mod many_clients;
pub(crate) mod parent_asks;
pub(crate) mod spawn_killed;
pub(crate) mod tree;
pub(crate) mod tree_commands;
