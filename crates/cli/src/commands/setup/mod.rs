//! Keys, configuration, profiles and skills.

pub(crate) mod config;
pub(crate) mod init;
pub(crate) mod login;
pub(crate) mod models;
pub(crate) mod profile;
pub(crate) mod prompt;
pub(crate) mod skills;
