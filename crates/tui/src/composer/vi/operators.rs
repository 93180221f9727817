//! Operators and their ranges.

use std::ops::Range;

use super::super::graphemes::Graphemes;
use super::super::text_buffer::{EditKind, TextBuffer};
use super::motions::{Motion, MotionContext, MotionExtent, is_same_word};
use super::parse::{OperatorTarget, ViOperator};

/// A range of units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EditRange {
    pub(super) units: Range<usize>,
    /// Complete lines without the last newline.
    pub(super) is_linewise: bool,
    /// Cursor position after copying.
    pub(super) cursor_after_copy: usize,
}

impl EditRange {
    pub(super) fn extend_to_lines(self, units: &Graphemes) -> EditRange {
        let last = self.units.end.saturating_sub(1).max(self.units.start);
        EditRange {
            units: units.line_start(self.units.start)..units.line_end(last),
            is_linewise: true,
            cursor_after_copy: self.cursor_after_copy,
        }
    }
}

impl OperatorTarget {
    pub(super) fn as_motion(self) -> Option<Motion> {
        match self {
            OperatorTarget::Motion(motion) => Some(motion),
            OperatorTarget::Object(_) | OperatorTarget::Lines => None,
        }
    }
}

/// Returns the range of an operator, or `None` if there is none.
pub(super) fn operator_range(
    operator: ViOperator,
    target: OperatorTarget,
    from: &MotionContext<'_>,
) -> Option<EditRange> {
    let (units, at) = (from.units, from.index);
    match target {
        OperatorTarget::Lines => {
            let mut last = at;
            for _ in 1..from.count.unwrap_or(1) {
                last = units.line_below(last).unwrap_or(last);
            }
            Some(EditRange {
                units: units.line_start(at)..units.line_end(last),
                is_linewise: true,
                cursor_after_copy: at,
            })
        }
        OperatorTarget::Object(object) => {
            let found = object.find_range(from.text, units, at)?;
            Some(EditRange { cursor_after_copy: found.start, units: found, is_linewise: false })
        }
        OperatorTarget::Motion(motion) => motion_range(operator, motion, from),
    }
}

fn motion_range(operator: ViOperator, motion: Motion, from: &MotionContext<'_>) -> Option<EditRange> {
    let (units, at) = (from.units, from.index);
    if let (ViOperator::Change, Motion::Word { big }) = (operator, motion)
        && !units.is_blank(at)
        && !units.is_break(at)
    {
        return Some(change_word_range(from, big));
    }
    let went = from.apply_motion(motion);
    // Changing nothing at the end of a line inserts there.
    let stays = operator == ViOperator::Change && motion == Motion::Right;
    let (cursor_after_copy, reach) = went.or(stays.then_some((at, MotionExtent::Exclusive)))?;
    let (first, last) = (at.min(cursor_after_copy), at.max(cursor_after_copy));
    let part = match reach {
        MotionExtent::Inclusive => EditRange {
            units: first..(last + 1).min(units.len()),
            is_linewise: false,
            cursor_after_copy: first,
        },
        MotionExtent::Linewise => EditRange {
            units: units.line_start(first)..units.line_end(last),
            is_linewise: true,
            cursor_after_copy,
        },
        MotionExtent::Exclusive => {
            trim_line_break(units, first..last, matches!(motion, Motion::Word { .. }))?
        }
    };
    Some(part)
}

/// `cw` keeps the blanks after the word.
fn change_word_range(from: &MotionContext<'_>, big: bool) -> EditRange {
    let (units, at) = (from.units, from.index);
    let mut last = at;
    while is_same_word(units, last, big) {
        last += 1;
    }
    let more = from.count.unwrap_or(1).saturating_sub(1);
    if more > 0 {
        let next = MotionContext { index: last, count: Some(more), ..*from };
        last = next.apply_motion(Motion::WordEnd { big }).map_or(last, |(to, _)| to);
    }
    EditRange { units: at..(last + 1).min(units.len()), is_linewise: false, cursor_after_copy: at }
}

/// A range that ends at the start of a line ends with the previous line.
fn trim_line_break(units: &Graphemes, range: Range<usize>, words: bool) -> Option<EditRange> {
    let Range { start, mut end } = range;
    if words {
        // The last word of a line is not joined with the next line.
        let blank = |at: usize| units.is_blank(at) || units.is_break(at);
        let solid = (start..end).rev().find(|at| !blank(*at)).map_or(start, |solid| solid + 1);
        end = (solid..end).find(|at| units.is_break(*at)).unwrap_or(end);
    } else if end > start && units.is_break(end - 1) && units.line_start(start) != end {
        if start <= units.first_nonblank(start) {
            return Some(EditRange {
                units: units.line_start(start)..end - 1,
                is_linewise: true,
                cursor_after_copy: start,
            });
        }
        end -= 1;
    }
    Some(EditRange { units: start..end, is_linewise: false, cursor_after_copy: start })
}

/// Deletes, changes or copies a range.
pub(super) fn apply_operator(
    operator: ViOperator,
    part: EditRange,
    field: &mut TextBuffer,
    units: &Graphemes,
) -> bool {
    let EditRange { units: range, is_linewise, cursor_after_copy } = part;
    let bytes = units.byte_offset(range.start)..units.byte_offset(range.end);
    if operator != ViOperator::Change && range.is_empty() && !is_linewise {
        return false;
    }
    if !range.is_empty() || is_linewise {
        field.copy_range(bytes.clone(), is_linewise);
    }
    match operator {
        ViOperator::Yank => field.move_to(units, cursor_after_copy),
        ViOperator::Change => {
            field.move_to(units, range.start);
            field.replace_range(EditKind::Insertion, bytes, "");
        }
        ViOperator::Delete if is_linewise => delete_lines(field, units, range),
        ViOperator::Delete => {
            field.replace_range(EditKind::Single, bytes, "");
        }
    }
    true
}

/// Deletes lines with the last newline, or with the newline before them at the end of the text.
fn delete_lines(field: &mut TextBuffer, units: &Graphemes, range: Range<usize>) {
    let (start, end) = match (range.end < units.len(), range.start) {
        (true, start) => (start, range.end + 1),
        (false, 0) => (0, range.end),
        (false, start) => (start - 1, range.end),
    };
    field.replace_range(EditKind::Single, units.byte_offset(start)..units.byte_offset(end), "");
    let new = field.graphemes();
    let line = new.index_at_byte(units.byte_offset(range.start)).min(new.len());
    field.move_to(&new, new.first_nonblank(line).min(new.last_cursor_position(line)));
}
