//! Effects of time: footer messages expire, animations advance. Also the functions that show messages.

use minke_record::Millis;

use super::session::AttachedSession;
use super::{App, QUIT_TWICE_MS};
use crate::app::{SessionLink, UiOutput};

/// Display time of a footer message.
const MESSAGE_MS: Millis = 6_000;
/// Start time of a message that does not expire.
pub(super) const STICKY_SINCE: Millis = Millis::MAX - MESSAGE_MS;
/// Interval of animations.
pub(super) const ANIMATION_MS: Millis = 250;

impl App {
    pub(super) fn handle_tick(&mut self) {
        let overlay = |at: Option<Millis>, most: Millis| at.is_some_and(|at| self.output.now >= at + most);
        if overlay(self.output.footer_message.as_ref().map(|(_, at)| *at), MESSAGE_MS) {
            self.output.footer_message = None;
            self.output.dirty = true;
        }
        if overlay(self.leave_pressed_at, QUIT_TWICE_MS) {
            self.leave_pressed_at = None;
            self.output.dirty = true;
        }
        if self.link.is_animated() {
            self.output.dirty = true;
        }
        self.link.request_missing(&mut self.output);
    }

    /// Returns the milliseconds until the next tick.
    pub fn next_tick_ms(&self) -> Option<u64> {
        if self.link.is_text_missing() {
            return Some(1);
        }
        if self.link.is_animated() {
            return Some(ANIMATION_MS);
        }
        let message = self
            .output
            .footer_message
            .as_ref()
            .filter(|(_, at)| *at != STICKY_SINCE)
            .map(|(_, at)| at + MESSAGE_MS);
        let left = self.leave_pressed_at.map(|at| at + QUIT_TWICE_MS);
        let next = [message, left].into_iter().flatten().min()?;
        Some(next.saturating_sub(self.output.now).max(1))
    }

    /// Shows a message to the user.
    pub fn show_message(&mut self, text: String, now: Millis) {
        self.output.now = now;
        self.output.show_note(text);
    }

    /// Returns whether the screen has changed since the last call.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.output.dirty)
    }
}

impl SessionLink {
    /// Returns whether something on the screen changes with time.
    pub(in crate::app) fn is_animated(&self) -> bool {
        self.joining.is_some() || self.session.as_ref().is_some_and(AttachedSession::is_animated)
    }
}

impl UiOutput {
    /// Shows a footer message for a while.
    pub(in crate::app) fn show_note(&mut self, text: impl Into<String>) {
        self.footer_message = Some((text.into(), self.now));
        self.dirty = true;
    }

    /// Removes an announcement that has taken effect.
    pub(in crate::app) fn clear_note(&mut self, text: &str) {
        if self.footer_message.as_ref().is_some_and(|(message, _)| message == text) {
            self.footer_message = None;
            self.dirty = true;
        }
    }

    /// Shows an error until the next key.
    pub(in crate::app) fn show_error(&mut self, why: impl Into<String>) {
        self.footer_message = Some((why.into(), STICKY_SINCE));
        self.dirty = true;
    }
}
