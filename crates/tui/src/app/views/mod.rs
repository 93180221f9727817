//! What the screen shows.

pub(super) mod conversation;
pub(super) mod draw;
pub(super) mod footer;
pub(super) mod help;
pub(super) mod inbox;
pub(super) mod list;
pub(super) mod overlay;
pub(super) mod screen;
pub(super) mod settings;
pub(super) mod start_screen;
pub(super) mod status;
