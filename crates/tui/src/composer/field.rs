//! The field: a text with a cursor, its chips, what was taken away last, and the way back.
//!
//! Every change of the text goes through `change`, so that every change can be undone.
//! Invariant: the cursor stands between two units, and chips are whole or gone
//! (`any_keys_keep_the_text_whole`, `undo_all_the_way_gives_back_the_beginning`).

use std::collections::VecDeque;
use std::ops::Range;

use super::chips::{Chip, unique};
use super::units::Units;

/// The longest text; more is better in a file.
pub(super) const TEXT_MOST: usize = 3 * 1024 * 1024;
/// Steps back, and the bytes that they may take together.
const STEPS: usize = 500;
const STEP_BYTES: usize = 8 * 1024 * 1024;

/// Changes of one kind that follow each other are one step back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Alone,
    Typing,
    Rubbing,
    /// Everything between two changes of the mode.
    Insertion,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Moment {
    text: String,
    cursor: usize,
}

/// Something that was taken away or copied, for putting it back.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Taken {
    pub(super) text: String,
    /// Whole lines.
    pub(super) lines: bool,
    chips: Vec<Chip>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Field {
    text: String,
    /// In bytes.
    cursor: usize,
    /// Those of the text, and those that a step back would bring again.
    chips: Vec<Chip>,
    pub(super) taken: Taken,
    past: VecDeque<Moment>,
    future: Vec<Moment>,
    open: Option<Step>,
    /// Why something was not done.
    trouble: Option<String>,
}

impl Field {
    /// Another text; there is no way back to the one before. The cursor is at its end.
    pub(super) fn begin(&mut self, text: String, chips: Vec<Chip>) {
        let taken = std::mem::take(&mut self.taken);
        *self = Field { cursor: text.len(), text, chips, taken, ..Field::default() };
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// A part of the text; nothing, if there is no such part.
    pub(super) fn part(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    pub(super) fn chips(&self) -> &[Chip] {
        &self.chips
    }

    /// Those that stand in the text.
    pub(super) fn standing(&self) -> Vec<Chip> {
        self.chips.iter().filter(|chip| self.text.contains(&chip.mark)).cloned().collect()
    }

    pub(super) fn units(&self) -> Units {
        Units::of(&self.text, &self.chips)
    }

    /// The unit that the cursor stands before.
    pub(super) fn at(&self, units: &Units) -> usize {
        units.at_byte(self.cursor)
    }

    /// Goes before a unit.
    pub(super) fn go(&mut self, units: &Units, at: usize) {
        self.cursor = units.byte(at);
    }

    /// What is typed next is another step.
    pub(super) fn close_step(&mut self) {
        self.open = None;
    }

    pub(super) fn trouble(&mut self) -> Option<String> {
        self.trouble.take()
    }

    /// Puts a text in the place of a part; the cursor is behind it. Says whether something changed.
    pub(super) fn change(&mut self, step: Step, part: Range<usize>, with: &str) -> bool {
        if self.part(part.clone()) == with {
            return false;
        }
        if self.text.len() - part.len().min(self.text.len()) + with.len() > TEXT_MOST {
            self.trouble = Some(format!(
                "a text holds at most {TEXT_MOST} bytes: put it into a file and name it with @"
            ));
            return false;
        }
        let (Some(before), Some(after)) = (self.text.get(..part.start), self.text.get(part.end..)) else {
            return false;
        };
        let changed = [before, with, after].concat();
        let cursor = part.start + with.len();
        let had = Moment { text: std::mem::replace(&mut self.text, changed), cursor: self.cursor };
        self.cursor = cursor;
        self.future.clear();
        if step == Step::Alone || self.open != Some(step) {
            self.past.push_back(had);
            self.forget();
        }
        self.open = Some(step);
        self.snap();
        true
    }

    /// Letters that come to stand beside each other may become one; the cursor is not left between them.
    fn snap(&mut self) {
        let units = self.units();
        let at = self.at(&units);
        if units.byte(at) != self.cursor {
            // Behind it: what was typed last is before the cursor.
            self.cursor = units.byte(at + 1);
        }
    }

    /// The oldest steps go when there are too many.
    fn forget(&mut self) {
        let mut bytes: usize = self.past.iter().map(|moment| moment.text.len()).sum();
        while self.past.len() > STEPS || (bytes > STEP_BYTES && self.past.len() > 1) {
            bytes -= self.past.pop_front().map_or(0, |moment| moment.text.len());
        }
        let (past, future, text) = (&self.past, &self.future, &self.text);
        let stands = |chip: &Chip| {
            let mut texts = past.iter().chain(future.iter()).map(|moment| &moment.text).chain([text]);
            texts.any(|text| text.contains(&chip.mark))
        };
        // A chip that no step back would bring again is not needed.
        if !self.chips.is_empty() {
            self.chips.retain(stands);
        }
    }

    pub(super) fn undo(&mut self) -> bool {
        let Some(moment) = self.past.pop_back() else { return false };
        let here = self.become_of(moment);
        self.future.push(here);
        true
    }

    pub(super) fn redo(&mut self) -> bool {
        let Some(moment) = self.future.pop() else { return false };
        let here = self.become_of(moment);
        self.past.push_back(here);
        true
    }

    fn become_of(&mut self, moment: Moment) -> Moment {
        self.open = None;
        let cursor = std::mem::replace(&mut self.cursor, moment.cursor);
        let text = std::mem::replace(&mut self.text, moment.text);
        self.snap();
        Moment { text, cursor }
    }

    pub(super) fn insert(&mut self, step: Step, text: &str) -> bool {
        self.change(step, self.cursor..self.cursor, text)
    }

    /// A chip where the cursor is.
    pub(super) fn insert_chip(&mut self, step: Step, chip: Chip) {
        let mark = chip.mark.clone();
        self.chips.push(chip);
        if !self.insert(step, &mark) {
            self.chips.retain(|chip| chip.mark != mark);
        }
    }

    /// Remembers a part of the text for putting it back.
    pub(super) fn copy(&mut self, part: Range<usize>, lines: bool) {
        let text = self.part(part).to_owned();
        let chips = self.chips.iter().filter(|chip| text.contains(&chip.mark)).cloned().collect();
        self.taken = Taken { text, lines, chips };
    }

    /// Takes a part of the text away and remembers it.
    pub(super) fn cut(&mut self, step: Step, part: Range<usize>) -> bool {
        if part.is_empty() {
            return false;
        }
        self.copy(part.clone(), false);
        self.change(step, part, "")
    }

    /// What was taken away last, with its chips in reach. One whose name has another chip here gets another name.
    pub(super) fn back(&mut self) -> Taken {
        let mut taken = self.taken.clone();
        for chip in taken.chips.drain(..) {
            match self.chips.iter().find(|here| here.mark == chip.mark) {
                Some(here) if here.segment == chip.segment => {}
                Some(_) => {
                    let name = chip.mark.trim_start_matches('[').trim_end_matches(']');
                    let mark = unique(name, &self.chips);
                    taken.text = taken.text.replace(&chip.mark, &mark);
                    self.chips.push(Chip { mark, segment: chip.segment });
                }
                None => self.chips.push(chip),
            }
        }
        taken
    }
}
