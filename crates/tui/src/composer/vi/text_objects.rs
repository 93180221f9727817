//! Text objects: the word, quotation or brackets around a position.

use std::ops::Range;

use super::super::graphemes::{GraphemeKind, Graphemes};
use super::motions::is_same_word;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TextObject {
    kind: ObjectKind,
    /// Includes the surrounding blanks, quotation marks or brackets.
    with_surroundings: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectKind {
    Word { big: bool },
    Quoted(char),
    Between(char, char),
}

impl TextObject {
    pub(super) fn from_letter(letter: char, with_surroundings: bool) -> Option<TextObject> {
        let kind = match letter {
            'w' => ObjectKind::Word { big: false },
            'W' => ObjectKind::Word { big: true },
            '"' | '\'' | '`' => ObjectKind::Quoted(letter),
            '(' | ')' | 'b' => ObjectKind::Between('(', ')'),
            '[' | ']' => ObjectKind::Between('[', ']'),
            '{' | '}' | 'B' => ObjectKind::Between('{', '}'),
            '<' | '>' => ObjectKind::Between('<', '>'),
            _ => return None,
        };
        Some(TextObject { kind, with_surroundings })
    }

    /// Returns the units of the object, or `None` if there is none.
    pub(super) fn find_range(self, text: &str, units: &Graphemes, at: usize) -> Option<Range<usize>> {
        let looked = ObjectSearch { text, units };
        match self.kind {
            ObjectKind::Word { big } => looked.find_word(at, big, self.with_surroundings),
            ObjectKind::Quoted(mark) => looked.find_quoted(at, mark, self.with_surroundings),
            ObjectKind::Between(open, close) => looked.find_enclosed(at, open, close, self.with_surroundings),
        }
    }
}

struct ObjectSearch<'a> {
    text: &'a str,
    units: &'a Graphemes,
}

impl ObjectSearch<'_> {
    fn is_letter_at(&self, at: usize, letter: char) -> bool {
        let unit = self.units.get(at).filter(|unit| unit.kind != GraphemeKind::Attachment);
        let range = unit.and_then(|unit| self.text.get(unit.start..unit.end));
        range.is_some_and(|found| found.chars().eq([letter]))
    }

    fn count_blanks_after(&self, at: usize) -> usize {
        (at..self.units.len()).find(|at| !self.units.is_blank(*at)).unwrap_or(self.units.len())
    }

    fn count_blanks_before(&self, at: usize) -> usize {
        let solid = (0..at).rev().find(|at| !self.units.is_blank(*at));
        solid.map_or(0, |solid| solid + 1)
    }

    /// Returns the range of adjacent units of one kind.
    fn same_kind_run(&self, at: usize, big: bool) -> Range<usize> {
        if self.units.is_blank(at) {
            return self.count_blanks_before(at)..self.count_blanks_after(at);
        }
        let (mut start, mut end) = (at, at);
        while start > 0 && is_same_word(self.units, start - 1, big) {
            start -= 1;
        }
        while is_same_word(self.units, end, big) {
            end += 1;
        }
        start..end + 1
    }

    fn find_word(&self, at: usize, big: bool, with_surroundings: bool) -> Option<Range<usize>> {
        if at >= self.units.len() || self.units.is_break(at) {
            return None;
        }
        let run = self.same_kind_run(at, big);
        if !with_surroundings {
            return Some(run);
        }
        if self.units.is_blank(at) {
            // The blanks and the word after them.
            let behind = run.end < self.units.len() && !self.units.is_break(run.end);
            return Some(if behind { run.start..self.same_kind_run(run.end, big).end } else { run });
        }
        let end = self.count_blanks_after(run.end);
        let start = if end == run.end { self.count_blanks_before(run.start) } else { run.start };
        // Indentation does not belong to the word.
        let start = if start == self.units.line_start(at) && end == run.end { run.start } else { start };
        Some(start..end)
    }

    /// Quotation marks of a line form pairs.
    fn find_quoted(&self, at: usize, mark: char, with_surroundings: bool) -> Option<Range<usize>> {
        let line = self.units.line_start(at)..self.units.line_end(at);
        let mut marks = Vec::new();
        let mut escaped = false;
        for place in line {
            if !escaped && self.is_letter_at(place, mark) {
                marks.push(place);
            }
            escaped = !escaped && self.is_letter_at(place, '\\');
        }
        let pairs = marks.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)));
        let (open, close) = pairs.into_iter().find(|(_, close)| *close >= at)?;
        if !with_surroundings {
            return Some(open + 1..close);
        }
        let end = self.count_blanks_after(close + 1);
        let start = if end == close + 1 { self.count_blanks_before(open) } else { open };
        Some(start..end)
    }

    fn find_enclosed(
        &self,
        at: usize,
        open: char,
        close: char,
        with_surroundings: bool,
    ) -> Option<Range<usize>> {
        let mut depth = 0_usize;
        let start = (0..=at.min(self.units.len())).rev().find(|place| {
            if *place != at && self.is_letter_at(*place, close) {
                depth += 1;
            } else if self.is_letter_at(*place, open) {
                if depth == 0 {
                    return true;
                }
                depth -= 1;
            }
            false
        })?;
        let mut depth = 0_usize;
        let end = (start + 1..self.units.len()).find(|place| {
            if self.is_letter_at(*place, open) {
                depth += 1;
            } else if self.is_letter_at(*place, close) {
                if depth == 0 {
                    return true;
                }
                depth -= 1;
            }
            false
        })?;
        Some(if with_surroundings { start..end + 1 } else { start + 1..end })
    }
}
