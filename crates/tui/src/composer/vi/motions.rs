//! Motions: from one position in a text to another, in units.

use super::super::graphemes::{GraphemeKind, Graphemes};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Motion {
    Left,
    Right,
    Up,
    Down,
    Word {
        big: bool,
    },
    WordBack {
        big: bool,
    },
    WordEnd {
        big: bool,
    },
    LineStart,
    FirstLetter,
    LineEnd,
    /// The line with the number of the count, or the last one.
    Line,
    FirstLine,
    Paragraph,
    ParagraphBack,
    Find(CharFind),
    RepeatFind {
        reversed: bool,
    },
}

/// `f`, `F`, `t`, `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CharFind {
    pub(super) letter: char,
    pub(super) backward: bool,
    pub(super) is_till: bool,
}

/// How an operator treats the target of a motion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MotionExtent {
    /// Excludes the target.
    Exclusive,
    /// Includes the target.
    Inclusive,
    Linewise,
}

/// The start position and further inputs of a motion.
pub(super) struct MotionContext<'a> {
    pub(super) text: &'a str,
    pub(super) units: &'a Graphemes,
    pub(super) index: usize,
    pub(super) count: Option<usize>,
    /// The target column of vertical motions.
    pub(super) column: usize,
    /// An operator is pending, so the motion may go behind the last unit.
    pub(super) for_operator: bool,
    /// The last character search.
    pub(super) last_find: Option<CharFind>,
}

impl MotionContext<'_> {
    /// Returns the target of a motion, or `None` if it is impossible.
    pub(super) fn apply_motion(&self, motion: Motion) -> Option<(usize, MotionExtent)> {
        let (units, at) = (self.units, self.index);
        let times = self.count.unwrap_or(1);
        let to = match motion {
            Motion::Left => at.saturating_sub(times).max(units.line_start(at)),
            Motion::Right => {
                let most =
                    if self.for_operator { units.line_end(at) } else { units.last_cursor_position(at) };
                at.saturating_add(times).min(most)
            }
            Motion::Up => return self.move_lines(times, Graphemes::line_above),
            Motion::Down => return self.move_lines(times, Graphemes::line_below),
            Motion::Word { big } => self.repeat_step(times, |at| next_word_start(units, at, big)),
            Motion::WordBack { big } => self.repeat_step(times, |at| previous_word_start(units, at, big)),
            Motion::WordEnd { big } => self.repeat_step(times, |at| next_word_end(units, at, big)),
            Motion::LineStart => return Some((units.line_start(at), MotionExtent::Exclusive)),
            Motion::FirstLetter => {
                let first = units.first_nonblank(at).min(units.last_cursor_position(at));
                return Some((first, MotionExtent::Exclusive));
            }
            Motion::LineEnd => {
                let line = (1..times).try_fold(at, |at, _| units.line_below(at))?;
                let reach =
                    if units.is_empty_line(line) { MotionExtent::Exclusive } else { MotionExtent::Inclusive };
                return Some((units.last_cursor_position(line), reach));
            }
            Motion::Line => {
                let line =
                    self.count.map_or(units.line_start(units.len()), |number| line_by_number(units, number));
                return Some((
                    units.first_nonblank(line).min(units.last_cursor_position(line)),
                    MotionExtent::Linewise,
                ));
            }
            Motion::FirstLine => {
                let line = line_by_number(units, times);
                return Some((
                    units.first_nonblank(line).min(units.last_cursor_position(line)),
                    MotionExtent::Linewise,
                ));
            }
            Motion::Paragraph => self.repeat_step(times, |at| next_paragraph(units, at)),
            Motion::ParagraphBack => self.repeat_step(times, |at| previous_paragraph(units, at)),
            Motion::Find(find) => return self.find_letter(find, false),
            Motion::RepeatFind { reversed } => {
                let found = self.last_find?;
                return self.find_letter(CharFind { backward: found.backward != reversed, ..found }, true);
            }
        };
        let reach = match motion {
            Motion::WordEnd { .. } => MotionExtent::Inclusive,
            _ => MotionExtent::Exclusive,
        };
        (to != at).then_some((to, reach))
    }

    fn repeat_step(&self, times: usize, step: impl Fn(usize) -> usize) -> usize {
        let mut at = self.index;
        for _ in 0..times {
            let next = step(at);
            if next == at {
                break;
            }
            at = next;
        }
        at
    }

    fn move_lines(
        &self,
        times: usize,
        step: impl Fn(&Graphemes, usize) -> Option<usize>,
    ) -> Option<(usize, MotionExtent)> {
        let mut line = None;
        for _ in 0..times {
            let Some(next) = step(self.units, line.unwrap_or(self.index)) else { break };
            line = Some(next);
        }
        let line = line?;
        let to = self.units.index_in_column(line, self.column).min(self.units.last_cursor_position(line));
        Some((to, MotionExtent::Linewise))
    }

    fn find_letter(&self, find: CharFind, again: bool) -> Option<(usize, MotionExtent)> {
        let (start, end) = (self.units.line_start(self.index), self.units.line_end(self.index));
        let is = |at: usize| {
            let unit = self.units.get(at).filter(|unit| unit.kind != GraphemeKind::Attachment);
            let letter = unit.and_then(|unit| self.text.get(unit.start..unit.end));
            letter.is_some_and(|letter| letter.chars().eq([find.letter]))
        };
        let mut at = self.index;
        // A repeated `t` would stop at the same character.
        if find.is_till && again {
            at = if find.backward { at.saturating_sub(1) } else { at + 1 };
        }
        for _ in 0..self.count.unwrap_or(1) {
            at = match find.backward {
                false => (at + 1..end).find(|at| is(*at))?,
                true => (start..at).rev().find(|at| is(*at))?,
            };
        }
        Some(match (find.is_till, find.backward) {
            (false, false) => (at, MotionExtent::Inclusive),
            (true, false) => (at - 1, MotionExtent::Inclusive),
            (false, true) => (at, MotionExtent::Exclusive),
            (true, true) => (at + 1, MotionExtent::Exclusive),
        })
    }
}

/// Returns the start of a line by its number, at most the last one.
fn line_by_number(units: &Graphemes, number: usize) -> usize {
    let mut line = 0;
    for _ in 1..number {
        let Some(below) = units.line_below(line) else { break };
        line = below;
    }
    line
}

/// Returns whether the unit is neither a blank nor a newline.
fn is_nonblank(units: &Graphemes, at: usize) -> bool {
    !units.is_blank(at) && !units.is_break(at) && at < units.len()
}

/// Returns whether two adjacent units belong to one word.
pub(super) fn is_same_word(units: &Graphemes, at: usize, big: bool) -> bool {
    let (Some(one), Some(other)) = (units.kind_at(at), units.kind_at(at + 1)) else { return false };
    if !is_nonblank(units, at) || !is_nonblank(units, at + 1) {
        return false;
    }
    big || (one == other && one != GraphemeKind::Attachment)
}

fn next_word_start(units: &Graphemes, from: usize, big: bool) -> usize {
    let mut at = from;
    if is_nonblank(units, at) {
        while is_same_word(units, at, big) {
            at += 1;
        }
        at += 1;
    }
    while units.is_blank(at) || units.is_break(at) {
        at += 1;
        // An empty line counts as a word.
        if units.is_break(at) && units.is_break(at - 1) {
            break;
        }
    }
    at.min(units.len())
}

fn previous_word_start(units: &Graphemes, from: usize, big: bool) -> usize {
    let Some(mut at) = from.checked_sub(1) else { return 0 };
    while at > 0 && !is_nonblank(units, at) {
        if units.is_break(at) && units.is_break(at - 1) {
            return at;
        }
        at -= 1;
    }
    while at > 0 && is_same_word(units, at - 1, big) {
        at -= 1;
    }
    at
}

fn next_word_end(units: &Graphemes, from: usize, big: bool) -> usize {
    let mut at = from + 1;
    while units.is_blank(at) || units.is_break(at) {
        at += 1;
    }
    while is_same_word(units, at, big) {
        at += 1;
    }
    at.min(units.len().saturating_sub(1)).max(from)
}

/// Returns the next empty line after text, or the end.
fn next_paragraph(units: &Graphemes, from: usize) -> usize {
    let mut line = Some(units.line_start(from));
    while let Some(at) = line.filter(|at| units.is_empty_line(*at)) {
        line = units.line_below(at);
    }
    while let Some(at) = line.filter(|at| !units.is_empty_line(*at)) {
        line = units.line_below(at);
    }
    line.unwrap_or(units.len())
}

fn previous_paragraph(units: &Graphemes, from: usize) -> usize {
    let mut line = Some(units.line_start(from));
    while let Some(at) = line.filter(|at| units.is_empty_line(*at)) {
        line = units.line_above(at);
    }
    while let Some(at) = line.filter(|at| !units.is_empty_line(*at)) {
        line = units.line_above(at);
    }
    line.unwrap_or(0)
}
