//! What an operator takes, and taking it.

use std::ops::Range;

use super::super::field::{Field, Step};
use super::super::units::Units;
use super::command::{Operator, Target};
use super::motion::{From, Motion, Reach, same_word};

/// A part of the text, in units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) units: Range<usize>,
    /// Whole lines, without the end of the last one.
    pub(super) lines: bool,
    /// Where the cursor is after it was copied.
    pub(super) to: usize,
}

impl Part {
    pub(super) fn whole_lines(self, units: &Units) -> Part {
        let last = self.units.end.saturating_sub(1).max(self.units.start);
        Part { units: units.line_start(self.units.start)..units.line_end(last), lines: true, to: self.to }
    }
}

impl Target {
    pub(super) fn motion(self) -> Option<Motion> {
        match self {
            Target::Motion(motion) => Some(motion),
            Target::Object(_) | Target::Lines => None,
        }
    }
}

/// The part that an operator is for; none if there is no such thing here.
pub(super) fn part_of(operator: Operator, target: Target, from: &From<'_>) -> Option<Part> {
    let (units, at) = (from.units, from.at);
    match target {
        Target::Lines => {
            let mut last = at;
            for _ in 1..from.count.unwrap_or(1) {
                last = units.below(last).unwrap_or(last);
            }
            Some(Part { units: units.line_start(at)..units.line_end(last), lines: true, to: at })
        }
        Target::Object(object) => {
            let found = object.find(from.text, units, at)?;
            Some(Part { to: found.start, units: found, lines: false })
        }
        Target::Motion(motion) => by_motion(operator, motion, from),
    }
}

fn by_motion(operator: Operator, motion: Motion, from: &From<'_>) -> Option<Part> {
    let (units, at) = (from.units, from.at);
    if let (Operator::Change, Motion::Word { big }) = (operator, motion)
        && !units.is_blank(at)
        && !units.is_break(at)
    {
        return Some(words(from, big));
    }
    let went = from.go(motion);
    // Changing nothing at the end of a line is typing there.
    let stays = operator == Operator::Change && motion == Motion::Right;
    let (to, reach) = went.or(stays.then_some((at, Reach::Before)))?;
    let (first, last) = (at.min(to), at.max(to));
    let part = match reach {
        Reach::With => Part { units: first..(last + 1).min(units.len()), lines: false, to: first },
        Reach::Lines => Part { units: units.line_start(first)..units.line_end(last), lines: true, to },
        Reach::Before => before(units, first..last, matches!(motion, Motion::Word { .. }))?,
    };
    Some(part)
}

/// `cw` leaves the blanks behind the word.
fn words(from: &From<'_>, big: bool) -> Part {
    let (units, at) = (from.units, from.at);
    let mut last = at;
    while same_word(units, last, big) {
        last += 1;
    }
    let more = from.count.unwrap_or(1).saturating_sub(1);
    if more > 0 {
        let next = From { at: last, count: Some(more), ..*from };
        last = next.go(Motion::WordEnd { big }).map_or(last, |(to, _)| to);
    }
    Part { units: at..(last + 1).min(units.len()), lines: false, to: at }
}

/// What ends at the beginning of a line ends with the line before.
fn before(units: &Units, range: Range<usize>, words: bool) -> Option<Part> {
    let Range { start, mut end } = range;
    if words {
        // The last word of a line is not joined with the next line.
        let blank = |at: usize| units.is_blank(at) || units.is_break(at);
        let solid = (start..end).rev().find(|at| !blank(*at)).map_or(start, |solid| solid + 1);
        end = (solid..end).find(|at| units.is_break(*at)).unwrap_or(end);
    } else if end > start && units.is_break(end - 1) && units.line_start(start) != end {
        if start <= units.first_letter(start) {
            return Some(Part { units: units.line_start(start)..end - 1, lines: true, to: start });
        }
        end -= 1;
    }
    Some(Part { units: start..end, lines: false, to: start })
}

/// Takes it: gone, gone and typed anew, or copied.
pub(super) fn operate(operator: Operator, part: Part, field: &mut Field, units: &Units) -> bool {
    let Part { units: range, lines, to } = part;
    let bytes = units.byte(range.start)..units.byte(range.end);
    if operator != Operator::Change && range.is_empty() && !lines {
        return false;
    }
    if !range.is_empty() || lines {
        field.copy(bytes.clone(), lines);
    }
    match operator {
        Operator::Yank => field.go(units, to),
        Operator::Change => {
            field.go(units, range.start);
            field.change(Step::Insertion, bytes, "");
        }
        Operator::Delete if lines => delete_lines(field, units, range),
        Operator::Delete => {
            field.change(Step::Alone, bytes, "");
        }
    }
    true
}

/// With the end of the last line, or where there is none with that of the line before.
fn delete_lines(field: &mut Field, units: &Units, range: Range<usize>) {
    let (start, end) = match (range.end < units.len(), range.start) {
        (true, start) => (start, range.end + 1),
        (false, 0) => (0, range.end),
        (false, start) => (start - 1, range.end),
    };
    field.change(Step::Alone, units.byte(start)..units.byte(end), "");
    let new = field.units();
    let line = new.at_byte(units.byte(range.start)).min(new.len());
    field.go(&new, new.first_letter(line).min(new.line_last(line)));
}
