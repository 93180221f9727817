//! Effects of time: footer messages expire, animations advance. Also the functions that show messages.

use minke_record::Millis;

use super::session::AttachedSession;
use super::{App, QUIT_TWICE_MS};

/// Display time of a footer message.
const MESSAGE_MS: Millis = 6_000;
/// Start time of a message that does not expire.
pub(super) const STICKY_SINCE: Millis = Millis::MAX - MESSAGE_MS;
/// Interval of animations.
pub(super) const ANIMATION_MS: Millis = 250;

impl App {
    pub(super) fn handle_tick(&mut self) {
        let overlay = |at: Option<Millis>, most: Millis| at.is_some_and(|at| self.now >= at + most);
        if overlay(self.footer_message.as_ref().map(|(_, at)| *at), MESSAGE_MS) {
            self.footer_message = None;
            self.dirty = true;
        }
        if overlay(self.leave_pressed_at, QUIT_TWICE_MS) {
            self.leave_pressed_at = None;
            self.dirty = true;
        }
        if self.is_animated() {
            self.dirty = true;
        }
        self.request_missing();
    }

    /// Returns whether something on the screen changes with time.
    fn is_animated(&self) -> bool {
        self.joining.is_some() || self.session.as_ref().is_some_and(AttachedSession::is_animated)
    }

    /// Returns the milliseconds until the next tick.
    pub fn next_tick_ms(&self) -> Option<u64> {
        if self.is_text_missing() {
            return Some(1);
        }
        if self.is_animated() {
            return Some(ANIMATION_MS);
        }
        let message =
            self.footer_message.as_ref().filter(|(_, at)| *at != STICKY_SINCE).map(|(_, at)| at + MESSAGE_MS);
        let left = self.leave_pressed_at.map(|at| at + QUIT_TWICE_MS);
        let next = [message, left].into_iter().flatten().min()?;
        Some(next.saturating_sub(self.now).max(1))
    }

    /// Shows a message to the user.
    pub fn show_message(&mut self, text: String, now: Millis) {
        self.now = now;
        self.show_note(text);
    }

    /// Returns whether the screen has changed since the last call.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Shows a footer message for a while.
    pub(super) fn show_note(&mut self, text: impl Into<String>) {
        self.footer_message = Some((text.into(), self.now));
        self.dirty = true;
    }

    /// Removes an announcement that has taken effect.
    pub(super) fn clear_note(&mut self, text: &str) {
        if self.footer_message.as_ref().is_some_and(|(message, _)| message == text) {
            self.footer_message = None;
            self.dirty = true;
        }
    }

    /// Shows an error until the next key.
    pub(super) fn show_error(&mut self, why: impl Into<String>) {
        self.footer_message = Some((why.into(), STICKY_SINCE));
        self.dirty = true;
    }
}
