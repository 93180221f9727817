//! Declares the manifest of a new pod, from files, profile and options.

pub(crate) mod budget;
pub(crate) mod config;
pub(crate) mod models;
pub(crate) mod profiles;
pub(crate) mod protected_paths;
pub(crate) mod settings;
pub(crate) mod timezone;
