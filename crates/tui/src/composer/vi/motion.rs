//! Motions: from a place in a text to another one, counted in units.

use super::super::units::{Kind, Units};

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
    /// The line whose number is the count, or the last one.
    Line,
    FirstLine,
    Paragraph,
    ParagraphBack,
    Find(Find),
    FindAgain {
        turned: bool,
    },
}

/// `f`, `F`, `t`, `T`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Find {
    pub(super) letter: char,
    pub(super) back: bool,
    pub(super) till: bool,
}

/// What an operator takes up to where a motion goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Not what is there.
    Before,
    /// That, too.
    With,
    Lines,
}

/// From where, and how.
pub(super) struct From<'a> {
    pub(super) text: &'a str,
    pub(super) units: &'a Units,
    pub(super) at: usize,
    pub(super) count: Option<usize>,
    /// The column that one comes from, going up and down.
    pub(super) column: usize,
    /// An operator waits for it: it may go behind the last letter.
    pub(super) operating: bool,
    /// What was looked for last.
    pub(super) found: Option<Find>,
}

impl From<'_> {
    /// Where a motion goes; none if it cannot.
    pub(super) fn go(&self, motion: Motion) -> Option<(usize, Reach)> {
        let (units, at) = (self.units, self.at);
        let times = self.count.unwrap_or(1);
        let to = match motion {
            Motion::Left => at.saturating_sub(times).max(units.line_start(at)),
            Motion::Right => {
                let most = if self.operating { units.line_end(at) } else { units.line_last(at) };
                at.saturating_add(times).min(most)
            }
            Motion::Up => return self.lines(times, Units::above),
            Motion::Down => return self.lines(times, Units::below),
            Motion::Word { big } => self.repeat(times, |at| next_word(units, at, big)),
            Motion::WordBack { big } => self.repeat(times, |at| word_before(units, at, big)),
            Motion::WordEnd { big } => self.repeat(times, |at| word_end(units, at, big)),
            Motion::LineStart => return Some((units.line_start(at), Reach::Before)),
            Motion::FirstLetter => {
                let first = units.first_letter(at).min(units.line_last(at));
                return Some((first, Reach::Before));
            }
            Motion::LineEnd => {
                let line = (1..times).try_fold(at, |at, _| units.below(at))?;
                let reach = if units.is_empty_line(line) { Reach::Before } else { Reach::With };
                return Some((units.line_last(line), reach));
            }
            Motion::Line => {
                let line = self.count.map_or(units.line_start(units.len()), |number| line(units, number));
                return Some((units.first_letter(line).min(units.line_last(line)), Reach::Lines));
            }
            Motion::FirstLine => {
                let line = line(units, times);
                return Some((units.first_letter(line).min(units.line_last(line)), Reach::Lines));
            }
            Motion::Paragraph => self.repeat(times, |at| paragraph(units, at)),
            Motion::ParagraphBack => self.repeat(times, |at| paragraph_before(units, at)),
            Motion::Find(find) => return self.find(find, false),
            Motion::FindAgain { turned } => {
                let found = self.found?;
                return self.find(Find { back: found.back != turned, ..found }, true);
            }
        };
        let reach = match motion {
            Motion::WordEnd { .. } => Reach::With,
            _ => Reach::Before,
        };
        (to != at).then_some((to, reach))
    }

    fn repeat(&self, times: usize, step: impl Fn(usize) -> usize) -> usize {
        let mut at = self.at;
        for _ in 0..times {
            let next = step(at);
            if next == at {
                break;
            }
            at = next;
        }
        at
    }

    fn lines(&self, times: usize, step: impl Fn(&Units, usize) -> Option<usize>) -> Option<(usize, Reach)> {
        let mut line = None;
        for _ in 0..times {
            let Some(next) = step(self.units, line.unwrap_or(self.at)) else { break };
            line = Some(next);
        }
        let line = line?;
        let to = self.units.in_column(line, self.column).min(self.units.line_last(line));
        Some((to, Reach::Lines))
    }

    fn find(&self, find: Find, again: bool) -> Option<(usize, Reach)> {
        let (start, end) = (self.units.line_start(self.at), self.units.line_end(self.at));
        let is = |at: usize| {
            let unit = self.units.get(at).filter(|unit| unit.kind != Kind::Chip);
            let letter = unit.and_then(|unit| self.text.get(unit.start..unit.end));
            letter.is_some_and(|letter| letter.chars().eq([find.letter]))
        };
        let mut at = self.at;
        // Looking again for what one stands before would stay there.
        if find.till && again {
            at = if find.back { at.saturating_sub(1) } else { at + 1 };
        }
        for _ in 0..self.count.unwrap_or(1) {
            at = match find.back {
                false => (at + 1..end).find(|at| is(*at))?,
                true => (start..at).rev().find(|at| is(*at))?,
            };
        }
        Some(match (find.till, find.back) {
            (false, false) => (at, Reach::With),
            (true, false) => (at - 1, Reach::With),
            (false, true) => (at, Reach::Before),
            (true, true) => (at + 1, Reach::Before),
        })
    }
}

/// The beginning of a line by its number, at most the last one.
fn line(units: &Units, number: usize) -> usize {
    let mut line = 0;
    for _ in 1..number {
        let Some(below) = units.below(line) else { break };
        line = below;
    }
    line
}

/// Something that is neither a blank nor the end of a line stands there.
fn is_solid(units: &Units, at: usize) -> bool {
    !units.is_blank(at) && !units.is_break(at) && at < units.len()
}

/// Whether two units that stand beside each other belong to one word.
pub(super) fn same_word(units: &Units, at: usize, big: bool) -> bool {
    let (Some(one), Some(other)) = (units.kind(at), units.kind(at + 1)) else { return false };
    if !is_solid(units, at) || !is_solid(units, at + 1) {
        return false;
    }
    big || (one == other && one != Kind::Chip)
}

fn next_word(units: &Units, from: usize, big: bool) -> usize {
    let mut at = from;
    if is_solid(units, at) {
        while same_word(units, at, big) {
            at += 1;
        }
        at += 1;
    }
    while units.is_blank(at) || units.is_break(at) {
        at += 1;
        // An empty line is a word.
        if units.is_break(at) && units.is_break(at - 1) {
            break;
        }
    }
    at.min(units.len())
}

fn word_before(units: &Units, from: usize, big: bool) -> usize {
    let Some(mut at) = from.checked_sub(1) else { return 0 };
    while at > 0 && !is_solid(units, at) {
        if units.is_break(at) && units.is_break(at - 1) {
            return at;
        }
        at -= 1;
    }
    while at > 0 && same_word(units, at - 1, big) {
        at -= 1;
    }
    at
}

fn word_end(units: &Units, from: usize, big: bool) -> usize {
    let mut at = from + 1;
    while units.is_blank(at) || units.is_break(at) {
        at += 1;
    }
    while same_word(units, at, big) {
        at += 1;
    }
    at.min(units.len().saturating_sub(1)).max(from)
}

/// The next empty line behind something, or the end.
fn paragraph(units: &Units, from: usize) -> usize {
    let mut line = Some(units.line_start(from));
    while let Some(at) = line.filter(|at| units.is_empty_line(*at)) {
        line = units.below(at);
    }
    while let Some(at) = line.filter(|at| !units.is_empty_line(*at)) {
        line = units.below(at);
    }
    line.unwrap_or(units.len())
}

fn paragraph_before(units: &Units, from: usize) -> usize {
    let mut line = Some(units.line_start(from));
    while let Some(at) = line.filter(|at| units.is_empty_line(*at)) {
        line = units.above(at);
    }
    while let Some(at) = line.filter(|at| !units.is_empty_line(*at)) {
        line = units.above(at);
    }
    line.unwrap_or(0)
}
