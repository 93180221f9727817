//! Text objects: the word, the quotation, the brackets around a place.

use std::ops::Range;

use super::super::units::{Kind, Units};
use super::motion::same_word;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Object {
    kind: Sort,
    /// With what is around it: blanks, quotation marks, brackets.
    around: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Word { big: bool },
    Quoted(char),
    Between(char, char),
}

impl Object {
    pub(super) fn named(letter: char, around: bool) -> Option<Object> {
        let kind = match letter {
            'w' => Sort::Word { big: false },
            'W' => Sort::Word { big: true },
            '"' | '\'' | '`' => Sort::Quoted(letter),
            '(' | ')' | 'b' => Sort::Between('(', ')'),
            '[' | ']' => Sort::Between('[', ']'),
            '{' | '}' | 'B' => Sort::Between('{', '}'),
            '<' | '>' => Sort::Between('<', '>'),
            _ => return None,
        };
        Some(Object { kind, around })
    }

    /// Its units; none if there is no such thing here.
    pub(super) fn find(self, text: &str, units: &Units, at: usize) -> Option<Range<usize>> {
        let looked = Looked { text, units };
        match self.kind {
            Sort::Word { big } => looked.word(at, big, self.around),
            Sort::Quoted(mark) => looked.quoted(at, mark, self.around),
            Sort::Between(open, close) => looked.between(at, (open, close), self.around),
        }
    }
}

struct Looked<'a> {
    text: &'a str,
    units: &'a Units,
}

impl Looked<'_> {
    fn is(&self, at: usize, letter: char) -> bool {
        let unit = self.units.get(at).filter(|unit| unit.kind != Kind::Chip);
        let found = unit.and_then(|unit| self.text.get(unit.start..unit.end));
        found.is_some_and(|found| found.chars().eq([letter]))
    }

    fn blanks_behind(&self, at: usize) -> usize {
        (at..self.units.len()).find(|at| !self.units.is_blank(*at)).unwrap_or(self.units.len())
    }

    fn blanks_before(&self, at: usize) -> usize {
        let solid = (0..at).rev().find(|at| !self.units.is_blank(*at));
        solid.map_or(0, |solid| solid + 1)
    }

    /// A run of one kind.
    fn run(&self, at: usize, big: bool) -> Range<usize> {
        if self.units.is_blank(at) {
            return self.blanks_before(at)..self.blanks_behind(at);
        }
        let (mut start, mut end) = (at, at);
        while start > 0 && same_word(self.units, start - 1, big) {
            start -= 1;
        }
        while same_word(self.units, end, big) {
            end += 1;
        }
        start..end + 1
    }

    fn word(&self, at: usize, big: bool, around: bool) -> Option<Range<usize>> {
        if at >= self.units.len() || self.units.is_break(at) {
            return None;
        }
        let run = self.run(at, big);
        if !around {
            return Some(run);
        }
        if self.units.is_blank(at) {
            // The blanks and the word behind them.
            let behind = run.end < self.units.len() && !self.units.is_break(run.end);
            return Some(if behind { run.start..self.run(run.end, big).end } else { run });
        }
        let end = self.blanks_behind(run.end);
        let start = if end == run.end { self.blanks_before(run.start) } else { run.start };
        // An indent is not the word's.
        let start = if start == self.units.line_start(at) && end == run.end { run.start } else { start };
        Some(start..end)
    }

    /// Marks of a line belong together two by two.
    fn quoted(&self, at: usize, mark: char, around: bool) -> Option<Range<usize>> {
        let line = self.units.line_start(at)..self.units.line_end(at);
        let mut marks = Vec::new();
        let mut escaped = false;
        for place in line {
            if !escaped && self.is(place, mark) {
                marks.push(place);
            }
            escaped = !escaped && self.is(place, '\\');
        }
        let pairs = marks.chunks_exact(2).filter_map(|pair| Some((*pair.first()?, *pair.last()?)));
        let (open, close) = pairs.into_iter().find(|(_, close)| *close >= at)?;
        if !around {
            return Some(open + 1..close);
        }
        let end = self.blanks_behind(close + 1);
        let start = if end == close + 1 { self.blanks_before(open) } else { open };
        Some(start..end)
    }

    fn between(&self, at: usize, (open, close): (char, char), around: bool) -> Option<Range<usize>> {
        let mut depth = 0_usize;
        let start = (0..=at.min(self.units.len())).rev().find(|place| {
            if *place != at && self.is(*place, close) {
                depth += 1;
            } else if self.is(*place, open) {
                if depth == 0 {
                    return true;
                }
                depth -= 1;
            }
            false
        })?;
        let mut depth = 0_usize;
        let end = (start + 1..self.units.len()).find(|place| {
            if self.is(*place, open) {
                depth += 1;
            } else if self.is(*place, close) {
                if depth == 0 {
                    return true;
                }
                depth -= 1;
            }
            false
        })?;
        Some(if around { start..end + 1 } else { start + 1..end })
    }
}
