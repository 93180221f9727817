//! Sandbox, approvals, secrets, hostile files, crashes and full disks.

pub(crate) mod approvals;
pub(crate) mod approved_scripts;
pub(crate) mod crash;
pub(crate) mod full_disk;
pub(crate) mod hooks;
pub(crate) mod older_version;
pub(crate) mod ordinary_commands;
pub(crate) mod repository;
pub(crate) mod sandboxed_tools;
pub(crate) mod scope_conflict;
pub(crate) mod secrets;
pub(crate) mod secrets_everywhere;
pub(crate) mod trust;
