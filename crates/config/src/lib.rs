//! The configuration of a pod: the files that a manifest is built from, and the trust of a workspace.

pub mod sources;
pub mod trust;
