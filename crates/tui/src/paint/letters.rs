//! Letters: lines of text whose every byte is a letter of one column, broken by counting.
//!
//! Most of what a model says is that. Elsewhere: any other text (`wrap`), letter by letter, to the same lines
//! (`plain_letters_are_broken_as_any_others`).

use std::borrow::Cow;
use std::ops::Range;

use ratatui::style::Style;

use super::wrap::{Break, Piece, is_plain};

/// A text of plain letters.
pub(super) struct Letters<'a> {
    text: Cow<'a, str>,
    /// Where each style ends.
    styles: Vec<(usize, Style)>,
}

impl<'a> Letters<'a> {
    /// None if there is any other letter in it.
    pub(super) fn of(pieces: &'a [Piece]) -> Option<Letters<'a>> {
        if !pieces.iter().all(|piece| is_plain(piece.text.as_str())) {
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
        Some(Letters { text, styles })
    }

    /// The rows of at most `room` columns, of which there is at least one.
    pub(super) fn rows(&self, room: usize, how: Break) -> Vec<Range<usize>> {
        let room = room.max(1);
        let bytes = self.text.as_bytes();
        let mut rows = Vec::with_capacity(bytes.len() / room + 1);
        let mut from = 0;
        while bytes.len() - from > room {
            let (row, next) = match how {
                Break::Anywhere => (from..from + room, from + room),
                Break::Words => broken(bytes, from, from + room),
            };
            rows.push(row);
            from = next;
        }
        rows.push(match how {
            Break::Anywhere => from..bytes.len(),
            Break::Words => trimmed(bytes, from..bytes.len()),
        });
        rows
    }

    /// What of each style stands in a row.
    pub(super) fn parts(&self, row: Range<usize>) -> impl Iterator<Item = (&str, Style)> {
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

/// A row of words that ends at `full` at the latest, where more follows; and where the next one begins.
fn broken(bytes: &[u8], from: usize, full: usize) -> (Range<usize>, usize) {
    let is_space = |at: &usize| bytes.get(*at) == Some(&b' ');
    if is_space(&full) {
        // Spaces at which a line was broken are gone.
        let next = (full..bytes.len()).find(|at| !is_space(at)).unwrap_or(bytes.len());
        return (trimmed(bytes, from..full), next);
    }
    let space = (from..full).rev().find(is_space);
    let words = space.map(|space| (trimmed(bytes, from..space), space + 1));
    // A word that is longer than a line is broken.
    words.filter(|(row, _)| !row.is_empty()).unwrap_or_else(|| (trimmed(bytes, from..full), full))
}

fn trimmed(bytes: &[u8], row: Range<usize>) -> Range<usize> {
    let end = row.clone().rev().find(|at| bytes.get(*at) != Some(&b' ')).map_or(row.start, |last| last + 1);
    row.start..end
}
