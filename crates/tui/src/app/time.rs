//! What time does: words at the bottom go, what moves is drawn anew; and words for the person.

use minke_record::Millis;

use super::talk::Talk;
use super::{App, TWICE_MS};

/// How long a word at the bottom stays.
const SAID_MS: Millis = 6_000;
/// When something was said that does not go by itself.
pub(super) const STAYS: Millis = Millis::MAX - SAID_MS;
/// How often something that moves is drawn anew.
pub(super) const MOVES_MS: Millis = 250;

impl App {
    pub(super) fn tick(&mut self) {
        let over = |at: Option<Millis>, most: Millis| at.is_some_and(|at| self.now >= at + most);
        if over(self.said.as_ref().map(|(_, at)| *at), SAID_MS) {
            self.said = None;
            self.dirty = true;
        }
        if over(self.left_once, TWICE_MS) {
            self.left_once = None;
            self.dirty = true;
        }
        if self.moves() {
            self.dirty = true;
        }
        self.settle_beginnings();
    }

    /// Whether something on the screen changes by itself.
    fn moves(&self) -> bool {
        self.joining.is_some() || self.talk.as_ref().is_some_and(Talk::moves)
    }

    /// When it is to be told that time has passed.
    pub fn wants_tick(&self) -> Option<u64> {
        if self.is_lacking() {
            return Some(1);
        }
        if self.moves() {
            return Some(MOVES_MS);
        }
        let said = self.said.as_ref().filter(|(_, at)| *at != STAYS).map(|(_, at)| at + SAID_MS);
        let left = self.left_once.map(|at| at + TWICE_MS);
        let next = [said, left].into_iter().flatten().min()?;
        Some(next.saturating_sub(self.now).max(1))
    }

    /// Something that the person is to know.
    pub fn tell(&mut self, text: String, now: Millis) {
        self.now = now;
        self.say(text);
    }

    /// Whether the picture has changed since it was asked last.
    pub fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// A word at the bottom, for a while.
    pub(super) fn say(&mut self, text: impl Into<String>) {
        self.said = Some((text.into(), self.now));
        self.dirty = true;
    }

    /// What has come about need not be announced any longer.
    pub(super) fn unsay(&mut self, text: &str) {
        if self.said.as_ref().is_some_and(|(said, _)| said == text) {
            self.said = None;
            self.dirty = true;
        }
    }

    /// Why something did not come about: it stays until the person does something.
    pub(super) fn complain(&mut self, why: impl Into<String>) {
        self.said = Some((why.into(), STAYS));
        self.dirty = true;
    }
}
