//! Splits a text into units that are never cut: grapheme clusters, newlines and attachments.
//!
//! Positions in a text are indices of these units. Elsewhere: the text itself (`text_buffer`), motions
//! (`vi::motions`).

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

use super::attachments::Attachment;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GraphemeKind {
    LineBreak,
    Blank,
    /// Letters, digits and `_`.
    Word,
    Other,
    Attachment,
}

/// A unit with its byte range in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grapheme {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: GraphemeKind,
    /// Display columns.
    pub(super) width: usize,
}

/// All units of a text in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Graphemes {
    graphemes: Vec<Grapheme>,
    bytes: usize,
}

impl Graphemes {
    pub(super) fn split_text(text: &str, chips: &[Attachment]) -> Graphemes {
        let mut graphemes = Vec::with_capacity(text.len());
        let mut at = 0;
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let mark =
                chips.iter().map(|chip| chip.mark.as_str()).filter(|mark| starts_with_mark(rest, mark));
            if let Some(mark) = mark.max_by_key(|mark| mark.len()) {
                let end = at + mark.len();
                graphemes.push(Grapheme {
                    start: at,
                    end,
                    kind: GraphemeKind::Attachment,
                    width: mark.width(),
                });
                at = end;
                continue;
            }
            // Up to the next possible attachment; most texts have none.
            let plain = if chips.is_empty() { rest.len() } else { plain_length(rest) };
            for (offset, letter) in rest.get(..plain).unwrap_or(rest).grapheme_indices(true) {
                let start = at + offset;
                graphemes.push(Grapheme {
                    start,
                    end: start + letter.len(),
                    kind: letter_kind(letter),
                    width: letter_width(letter),
                });
            }
            at += plain;
        }
        Graphemes { graphemes, bytes: text.len() }
    }

    pub(super) fn len(&self) -> usize {
        self.graphemes.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<Grapheme> {
        self.graphemes.get(at).copied()
    }

    pub(super) fn kind_at(&self, at: usize) -> Option<GraphemeKind> {
        self.get(at).map(|unit| unit.kind)
    }

    pub(super) fn is_break(&self, at: usize) -> bool {
        self.kind_at(at) == Some(GraphemeKind::LineBreak)
    }

    pub(super) fn is_blank(&self, at: usize) -> bool {
        self.kind_at(at) == Some(GraphemeKind::Blank)
    }

    /// Returns the byte offset of a unit, or the end of the text.
    pub(super) fn byte_offset(&self, at: usize) -> usize {
        self.get(at).map_or(self.bytes, |unit| unit.start)
    }

    /// Returns the unit that begins at a byte or contains it.
    pub(super) fn index_at_byte(&self, byte: usize) -> usize {
        self.graphemes.partition_point(|unit| unit.end <= byte)
    }

    pub(super) fn line_start(&self, at: usize) -> usize {
        let before = self.graphemes.get(..at.min(self.len())).unwrap_or_default();
        before.iter().rposition(|unit| unit.kind == GraphemeKind::LineBreak).map_or(0, |next| next + 1)
    }

    /// Returns the newline of the line, or the end of the text.
    pub(super) fn line_end(&self, at: usize) -> usize {
        let from = at.min(self.len());
        let rest = self.graphemes.get(from..).unwrap_or_default();
        rest.iter()
            .position(|unit| unit.kind == GraphemeKind::LineBreak)
            .map_or(self.len(), |next| from + next)
    }

    /// Returns the last position of a cursor that must be on a unit.
    pub(super) fn last_cursor_position(&self, at: usize) -> usize {
        let start = self.line_start(at);
        self.line_end(at).saturating_sub(1).max(start)
    }

    pub(super) fn first_nonblank(&self, at: usize) -> usize {
        let (start, end) = (self.line_start(at), self.line_end(at));
        (start..end).find(|at| !self.is_blank(*at)).unwrap_or(end)
    }

    pub(super) fn is_empty_line(&self, at: usize) -> bool {
        self.line_start(at) == self.line_end(at)
    }

    /// Returns the columns before a unit in its line.
    pub(super) fn column_of(&self, at: usize) -> usize {
        let line = self.graphemes.get(self.line_start(at)..at.min(self.len())).unwrap_or_default();
        line.iter().map(|unit| unit.width).sum()
    }

    /// Returns the unit in a column of a line, or the end of the line.
    pub(super) fn index_in_column(&self, line: usize, column: usize) -> usize {
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

    /// Returns the start of the previous line.
    pub(super) fn line_above(&self, at: usize) -> Option<usize> {
        self.line_start(at).checked_sub(1).map(|end| self.line_start(end))
    }

    /// Returns the start of the next line.
    pub(super) fn line_below(&self, at: usize) -> Option<usize> {
        let end = self.line_end(at);
        (end < self.len()).then_some(end + 1)
    }
}

/// Returns the columns of a grapheme; invisible characters have a replacement.
fn letter_width(letter: &str) -> usize {
    match letter {
        "\n" => 0,
        "\t" => 4,
        _ => letter.width().max(1),
    }
}

fn letter_kind(letter: &str) -> GraphemeKind {
    match letter.chars().next() {
        Some('\n') => GraphemeKind::LineBreak,
        Some(first) if first.is_whitespace() => GraphemeKind::Blank,
        Some(first) if first.is_alphanumeric() || first == '_' => GraphemeKind::Word,
        _ => GraphemeKind::Other,
    }
}

fn starts_with_mark(rest: &str, mark: &str) -> bool {
    !mark.is_empty() && rest.starts_with(mark)
}

/// Returns the distance to the next bracket of an attachment, at least one grapheme.
fn plain_length(rest: &str) -> usize {
    let skip = rest.chars().next().map_or(0, char::len_utf8);
    let next = rest.get(skip..).and_then(|rest| rest.find('['));
    next.map_or(rest.len(), |found| skip + found)
}
