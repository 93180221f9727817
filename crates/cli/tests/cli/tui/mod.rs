//! The terminal UI on a real terminal.

pub(crate) mod child_pods;
pub(crate) mod conversation;
pub(crate) mod history;
pub(crate) mod input;
pub(crate) mod navigation;
pub(crate) mod panes;
pub(crate) mod screen;
pub(crate) mod snapshots;
pub(crate) mod turns;
pub(crate) mod views;
