//! The style of the screen, and a view of the state for the lines at the bottom.

use std::path::{Path, PathBuf};

use minke_record::Millis;

use super::super::input::state::InputState;
use super::super::link::SessionLink;
use super::super::lists::ListState;
use crate::keys::KeyBindings;
use crate::paint::Theme;

/// Colours, key names and path names on the screen.
pub(in crate::app) struct ScreenStyle {
    pub(in crate::app) theme: Theme,
    pub(in crate::app) keys: KeyBindings,
    /// The user's home directory, shown as `~`.
    pub(in crate::app) home: Option<PathBuf>,
}

/// The state that the footer, the status line and the hints show.
pub(in crate::app) struct ScreenView<'a> {
    pub(in crate::app) style: &'a ScreenStyle,
    pub(in crate::app) input: &'a InputState,
    pub(in crate::app) link: &'a SessionLink,
    pub(in crate::app) lists: &'a ListState,
    pub(in crate::app) cwd: &'a Path,
    /// The message of the footer.
    pub(in crate::app) message: Option<&'a str>,
    pub(in crate::app) now: Millis,
    pub(in crate::app) read_only: bool,
    /// The next press of the quit key quits.
    pub(in crate::app) is_quit_pending: bool,
}
