//! What a text is made of: units that nothing tears apart. A letter with everything that belongs to it, the end of a line,
//! a chip.
//!
//! Places in a text are counted in units here. Elsewhere: the text itself (`field`), motions (`vi::motion`).

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::chips::Chip;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Break,
    Blank,
    /// Letters, digits and `_`.
    Word,
    Other,
    Chip,
}

/// One of them, by its place in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: Kind,
    /// Columns that it takes.
    pub(super) width: usize,
}

/// All of a text, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Units {
    list: Vec<Unit>,
    bytes: usize,
}

impl Units {
    pub(super) fn of(text: &str, chips: &[Chip]) -> Units {
        let mut list = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let mark = chips.iter().map(|chip| chip.mark.as_str()).filter(|mark| begins(rest, mark));
            if let Some(mark) = mark.max_by_key(|mark| mark.len()) {
                let end = at + mark.len();
                list.push(Unit { start: at, end, kind: Kind::Chip, width: mark.width() });
                at = end;
                continue;
            }
            // Up to the next thing that could be a chip; there is none in most texts.
            let plain = if chips.is_empty() { rest.len() } else { plain(rest) };
            for (offset, letter) in rest.get(..plain).unwrap_or(rest).grapheme_indices(true) {
                let start = at + offset;
                list.push(Unit {
                    start,
                    end: start + letter.len(),
                    kind: kind(letter),
                    width: width(letter),
                });
            }
            at += plain;
        }
        Units { list, bytes: text.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<Unit> {
        self.list.get(at).copied()
    }

    pub(super) fn kind(&self, at: usize) -> Option<Kind> {
        self.get(at).map(|unit| unit.kind)
    }

    pub(super) fn is_break(&self, at: usize) -> bool {
        self.kind(at) == Some(Kind::Break)
    }

    pub(super) fn is_blank(&self, at: usize) -> bool {
        self.kind(at) == Some(Kind::Blank)
    }

    /// Where a unit begins in the text; behind the last one, the end.
    pub(super) fn byte(&self, at: usize) -> usize {
        self.get(at).map_or(self.bytes, |unit| unit.start)
    }

    /// The unit that begins at a byte, or in which it lies.
    pub(super) fn at_byte(&self, byte: usize) -> usize {
        self.list.partition_point(|unit| unit.end <= byte)
    }

    pub(super) fn line_start(&self, at: usize) -> usize {
        let before = self.list.get(..at.min(self.len())).unwrap_or_default();
        before.iter().rposition(|unit| unit.kind == Kind::Break).map_or(0, |found| found + 1)
    }

    /// The unit that ends the line, or the end of the text.
    pub(super) fn line_end(&self, at: usize) -> usize {
        let from = at.min(self.len());
        let rest = self.list.get(from..).unwrap_or_default();
        rest.iter().position(|unit| unit.kind == Kind::Break).map_or(self.len(), |found| from + found)
    }

    /// Where a cursor that stands on something stands at most.
    pub(super) fn line_last(&self, at: usize) -> usize {
        let start = self.line_start(at);
        self.line_end(at).saturating_sub(1).max(start)
    }

    pub(super) fn first_letter(&self, at: usize) -> usize {
        let (start, end) = (self.line_start(at), self.line_end(at));
        (start..end).find(|at| !self.is_blank(*at)).unwrap_or(end)
    }

    pub(super) fn is_empty_line(&self, at: usize) -> bool {
        self.line_start(at) == self.line_end(at)
    }

    /// The columns before a unit in its line.
    pub(super) fn column(&self, at: usize) -> usize {
        let line = self.list.get(self.line_start(at)..at.min(self.len())).unwrap_or_default();
        line.iter().map(|unit| unit.width).sum()
    }

    /// The unit of a line that stands in a column, or the end of the line.
    pub(super) fn in_column(&self, line: usize, column: usize) -> usize {
        let (start, end) = (self.line_start(line), self.line_end(line));
        let mut used = 0;
        for at in start..end {
            used += self.get(at).map_or(0, |unit| unit.width);
            if used > column {
                return at;
            }
        }
        end
    }

    /// The beginning of the line above.
    pub(super) fn above(&self, at: usize) -> Option<usize> {
        self.line_start(at).checked_sub(1).map(|end| self.line_start(end))
    }

    /// The beginning of the line below.
    pub(super) fn below(&self, at: usize) -> Option<usize> {
        let end = self.line_end(at);
        (end < self.len()).then_some(end + 1)
    }
}

/// How many columns a letter takes; whatever is nothing by itself is shown as something.
fn width(letter: &str) -> usize {
    match letter {
        "\n" => 0,
        "\t" => 4,
        _ => letter.width().max(1),
    }
}

fn kind(letter: &str) -> Kind {
    match letter.chars().next() {
        Some('\n') => Kind::Break,
        Some(first) if first.is_whitespace() => Kind::Blank,
        Some(first) if first.is_alphanumeric() || first == '_' => Kind::Word,
        _ => Kind::Other,
    }
}

fn begins(rest: &str, mark: &str) -> bool {
    !mark.is_empty() && rest.starts_with(mark)
}

/// How far it is to the next chip's bracket, at least one letter.
fn plain(rest: &str) -> usize {
    let skip = rest.chars().next().map_or(0, char::len_utf8);
    let found = rest.get(skip..).and_then(|rest| rest.find('['));
    found.map_or(rest.len(), |found| skip + found)
}
