//! Keys of a line as people know them from shells.
//!
//! What a word is: letters, digits and `_`; a chip is one, too. What Ctrl-W, Ctrl-U, Ctrl-K and Alt-D take away comes back
//! with Ctrl-Y.

use super::field::{Field, Step};
use super::units::{Kind, Units};
use crate::event::{Code, Key};

impl Field {
    /// Does what a key means in a line. `step` joins what is typed into one step back; None: as words.
    pub(super) fn shell_key(&mut self, key: Key, step: Option<Step>) {
        let units = self.units();
        let at = self.at(&units);
        let (start, end) = (units.line_start(at), units.line_end(at));
        let once = step.unwrap_or(Step::Alone);
        match (key.code, key.ctrl, key.alt) {
            (Code::Char(letter), false, false) => self.typed(letter, step),
            (Code::Left, false, false) | (Code::Char('b'), true, false) => {
                self.walk(&units, at.saturating_sub(1))
            }
            (Code::Right, false, false) | (Code::Char('f'), true, false) => self.walk(&units, at + 1),
            (Code::Home, false, _) | (Code::Char('a'), true, false) => self.walk(&units, start),
            (Code::End, false, _) | (Code::Char('e'), true, false) => self.walk(&units, end),
            (Code::Left, true, false) | (Code::Left | Code::Char('b'), false, true) => {
                self.walk(&units, word_before(&units, at));
            }
            (Code::Right, true, false) | (Code::Right | Code::Char('f'), false, true) => {
                self.walk(&units, word_behind(&units, at));
            }
            (Code::Backspace, false, false) | (Code::Char('h'), true, false) => {
                let step = step.unwrap_or(Step::Rubbing);
                self.change(step, units.byte(at.saturating_sub(1))..units.byte(at), "");
            }
            (Code::Delete, false, false) | (Code::Char('d'), true, false) => {
                let step = step.unwrap_or(Step::Rubbing);
                self.change(step, units.byte(at)..units.byte(at + 1), "");
            }
            (Code::Char('w'), true, false) => {
                self.cut(once, units.byte(blank_before(&units, at))..units.byte(at));
            }
            (Code::Backspace, false, true) | (Code::Backspace, true, false) => {
                self.cut(once, units.byte(word_before(&units, at))..units.byte(at));
            }
            (Code::Char('d') | Code::Delete, false, true) | (Code::Delete, true, false) => {
                self.cut(once, units.byte(at)..units.byte(word_behind(&units, at)));
            }
            (Code::Char('u'), true, false) => {
                self.cut(once, units.byte(start)..units.byte(at));
            }
            (Code::Char('k'), true, false) => {
                // At the end of a line its end goes, as in a shell's editor.
                let to = if at == end { end + 1 } else { end };
                self.cut(once, units.byte(at)..units.byte(to));
            }
            (Code::Char('y'), true, false) => {
                let text = self.back().text;
                self.insert(once, &text);
            }
            _ => {}
        }
    }

    fn typed(&mut self, letter: char, step: Option<Step>) {
        let mut bytes = [0; 4];
        // A new word is a new step.
        if step.is_none() && letter.is_whitespace() {
            self.close_step();
        }
        self.insert(step.unwrap_or(Step::Typing), letter.encode_utf8(&mut bytes));
    }

    fn walk(&mut self, units: &Units, to: usize) {
        self.go(units, to);
        self.close_step();
    }
}

fn is_word(units: &Units, at: usize) -> bool {
    matches!(units.kind(at), Some(Kind::Word | Kind::Chip))
}

fn word_before(units: &Units, at: usize) -> usize {
    let mut to = at;
    while to > 0 && !is_word(units, to - 1) {
        to -= 1;
    }
    while to > 0 && is_word(units, to - 1) {
        to -= 1;
    }
    to
}

fn word_behind(units: &Units, at: usize) -> usize {
    let mut to = at;
    while to < units.len() && !is_word(units, to) {
        to += 1;
    }
    while to < units.len() && is_word(units, to) {
        to += 1;
    }
    to
}

/// Up to the blank before, as Ctrl-W counts words.
fn blank_before(units: &Units, at: usize) -> usize {
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
