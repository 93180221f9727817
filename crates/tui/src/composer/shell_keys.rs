//! Line editing keys as in shells.
//!
//! A word consists of letters, digits and `_`; an attachment counts as a word. Ctrl-Y inserts text that
//! Ctrl-W, Ctrl-U, Ctrl-K or Alt-D has removed.

use super::graphemes::{GraphemeKind, Graphemes};
use super::text_buffer::{EditKind, TextBuffer};
use crate::event::{KeyPress, KeySymbol};

impl TextBuffer {
    /// Performs an editing key. With `step` all typed text joins one undo step; with `None` each word is a
    /// step.
    pub(super) fn handle_shell_key(&mut self, key: KeyPress, step: Option<EditKind>) {
        let units = self.graphemes();
        let at = self.grapheme_at_cursor(&units);
        let (start, end) = (units.line_start(at), units.line_end(at));
        let once = step.unwrap_or(EditKind::Single);
        match (key.symbol, key.ctrl, key.alt) {
            (KeySymbol::Char(letter), false, false) => self.insert_letter(letter, step),
            (KeySymbol::Left, false, false) | (KeySymbol::Char('b'), true, false) => {
                self.move_cursor(&units, at.saturating_sub(1))
            }
            (KeySymbol::Right, false, false) | (KeySymbol::Char('f'), true, false) => {
                self.move_cursor(&units, at + 1)
            }
            (KeySymbol::Home, false, _) | (KeySymbol::Char('a'), true, false) => {
                self.move_cursor(&units, start)
            }
            (KeySymbol::End, false, _) | (KeySymbol::Char('e'), true, false) => self.move_cursor(&units, end),
            (KeySymbol::Left, true, false) | (KeySymbol::Left | KeySymbol::Char('b'), false, true) => {
                self.move_cursor(&units, previous_word_start(&units, at));
            }
            (KeySymbol::Right, true, false) | (KeySymbol::Right | KeySymbol::Char('f'), false, true) => {
                self.move_cursor(&units, next_word_end(&units, at));
            }
            (KeySymbol::Backspace, false, false) | (KeySymbol::Char('h'), true, false) => {
                let step = step.unwrap_or(EditKind::Erasing);
                self.replace_range(step, units.byte_offset(at.saturating_sub(1))..units.byte_offset(at), "");
            }
            (KeySymbol::Delete, false, false) | (KeySymbol::Char('d'), true, false) => {
                let step = step.unwrap_or(EditKind::Erasing);
                self.replace_range(step, units.byte_offset(at)..units.byte_offset(at + 1), "");
            }
            (KeySymbol::Char('w'), true, false) => {
                self.cut_range(
                    once,
                    units.byte_offset(previous_blank_word(&units, at))..units.byte_offset(at),
                );
            }
            (KeySymbol::Backspace, false, true) | (KeySymbol::Backspace, true, false) => {
                self.cut_range(
                    once,
                    units.byte_offset(previous_word_start(&units, at))..units.byte_offset(at),
                );
            }
            (KeySymbol::Char('d') | KeySymbol::Delete, false, true) | (KeySymbol::Delete, true, false) => {
                self.cut_range(once, units.byte_offset(at)..units.byte_offset(next_word_end(&units, at)));
            }
            (KeySymbol::Char('u'), true, false) => {
                self.cut_range(once, units.byte_offset(start)..units.byte_offset(at));
            }
            (KeySymbol::Char('k'), true, false) => {
                // At the end of a line it removes the newline, as in shells.
                let to = if at == end { end + 1 } else { end };
                self.cut_range(once, units.byte_offset(at)..units.byte_offset(to));
            }
            (KeySymbol::Char('y'), true, false) => {
                let text = self.take_register().text;
                self.insert_text(once, &text);
            }
            _ => {}
        }
    }

    fn insert_letter(&mut self, letter: char, step: Option<EditKind>) {
        let mut bytes = [0; 4];
        // A new word starts a new undo step.
        if step.is_none() && letter.is_whitespace() {
            self.end_edit_step();
        }
        self.insert_text(step.unwrap_or(EditKind::Typing), letter.encode_utf8(&mut bytes));
    }

    fn move_cursor(&mut self, units: &Graphemes, to: usize) {
        self.move_to(units, to);
        self.end_edit_step();
    }
}

fn is_word_at(units: &Graphemes, at: usize) -> bool {
    matches!(units.kind_at(at), Some(GraphemeKind::Word | GraphemeKind::Attachment))
}

fn previous_word_start(units: &Graphemes, at: usize) -> usize {
    let mut to = at;
    while to > 0 && !is_word_at(units, to - 1) {
        to -= 1;
    }
    while to > 0 && is_word_at(units, to - 1) {
        to -= 1;
    }
    to
}

fn next_word_end(units: &Graphemes, at: usize) -> usize {
    let mut to = at;
    while to < units.len() && !is_word_at(units, to) {
        to += 1;
    }
    while to < units.len() && is_word_at(units, to) {
        to += 1;
    }
    to
}

/// Returns the position after the previous blank, as for Ctrl-W.
fn previous_blank_word(units: &Graphemes, at: usize) -> usize {
    let blank = |at: usize| units.is_blank(at) || units.is_break(at);
    let mut to = at;
    while to > 0 && blank(to - 1) {
        to -= 1;
    }
    while to > 0 && !blank(to - 1) {
        to -= 1;
    }
    to
}
