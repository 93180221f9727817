//! Wraps ASCII text by counting bytes, as a fast path for most model output.
//!
//! Elsewhere: other text (`wrap`), by graphemes, with the same result
//! (`plain_letters_are_broken_as_any_others`).

use std::borrow::Cow;
use std::ops::Range;

use ratatui::style::Style;

use super::wrap::{StyledText, WrapMode, is_ascii_text};

/// A text of ASCII letters.
pub(super) struct AsciiText<'a> {
    text: Cow<'a, str>,
    /// The end of each style.
    styles: Vec<(usize, Style)>,
}

impl<'a> AsciiText<'a> {
    /// Returns `None` for any other character.
    pub(super) fn from_pieces(pieces: &'a [StyledText]) -> Option<AsciiText<'a>> {
        if !pieces.iter().all(|piece| is_ascii_text(piece.text.as_str())) {
            return None;
        }
        let mut end = 0;
        let styles = pieces.iter().filter(|piece| !piece.text.is_empty()).map(|piece| {
            end += piece.text.as_str().len();
            (end, piece.style)
        });
        let styles = styles.collect();
        let text = match pieces {
            [one] => Cow::Borrowed(one.text.as_str()),
            many => Cow::Owned(many.iter().map(|piece| piece.text.as_str()).collect()),
        };
        Some(AsciiText { text, styles })
    }

    /// Returns the rows of at most `room` columns, at least one.
    pub(super) fn wrap_rows(&self, available: usize, mode: WrapMode) -> Vec<Range<usize>> {
        let room = available.max(1);
        let bytes = self.text.as_bytes();
        let mut rows = Vec::with_capacity(bytes.len() / room + 1);
        let mut from = 0;
        while bytes.len() - from > room {
            let (row, next) = match mode {
                WrapMode::Anywhere => (from..from + room, from + room),
                WrapMode::Words => next_row(bytes, from, from + room),
            };
            rows.push(row);
            from = next;
        }
        rows.push(match mode {
            WrapMode::Anywhere => from..bytes.len(),
            WrapMode::Words => trim_row(bytes, from..bytes.len()),
        });
        rows
    }

    /// Returns the styled parts of a row.
    pub(super) fn styled_parts(&self, row: Range<usize>) -> impl Iterator<Item = (&str, Style)> {
        let first = self.styles.partition_point(|(end, _)| *end <= row.start);
        let mut from = row.start;
        self.styles.iter().skip(first).map_while(move |(end, style)| {
            let to = row.end.min(*end);
            let part = self.text.get(from..to).filter(|_| from < row.end)?;
            from = to;
            Some((part, *style))
        })
    }
}

/// Returns a row of words that ends at `full` at the latest, and the start of the next row.
fn next_row(bytes: &[u8], from: usize, full: usize) -> (Range<usize>, usize) {
    let is_space = |at: &usize| bytes.get(*at) == Some(&b' ');
    if is_space(&full) {
        // Spaces at a line break are dropped.
        let next = (full..bytes.len()).find(|at| !is_space(at)).unwrap_or(bytes.len());
        return (trim_row(bytes, from..full), next);
    }
    let space = (from..full).rev().find(is_space);
    let words = space.map(|space| (trim_row(bytes, from..space), space + 1));
    // A word that is longer than a line is broken.
    words.filter(|(row, _)| !row.is_empty()).unwrap_or_else(|| (trim_row(bytes, from..full), full))
}

fn trim_row(bytes: &[u8], row: Range<usize>) -> Range<usize> {
    let end = row.clone().rev().find(|at| bytes.get(*at) != Some(&b' ')).map_or(row.start, |last| last + 1);
    row.start..end
}
