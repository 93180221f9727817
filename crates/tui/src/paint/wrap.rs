//! Wraps styled text by grapheme clusters.
//!
//! The only place that creates spans, so all displayed text is [`Clean`]. Joined emoji take two columns in
//! most terminals and more in some; they are placed where even those do not exceed the line.
//! Invariant: no line exceeds its width (`no_line_is_wider_than_the_screen`).

use std::borrow::Cow;

use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthChar;

use super::ascii::AsciiText;
use super::sanitize::Clean;

/// Text in one style.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StyledText {
    pub text: Clean,
    pub style: Style,
}

impl StyledText {
    pub fn new(text: Clean, style: Style) -> StyledText {
        StyledText { text, style }
    }

    pub fn from_static(text: &'static str, style: Style) -> StyledText {
        StyledText { text: Clean::from_static(text), style }
    }
}

/// The prefix of the first line and of the following lines.
#[derive(Debug, Clone, Default)]
pub struct LinePrefix {
    pub first: Vec<StyledText>,
    pub rest: Vec<StyledText>,
}

/// How to break a long line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrapMode {
    /// Between words, or inside of a word that is longer than a line.
    Words,
    /// Anywhere; for code, which keeps every space.
    Anywhere,
}

/// Breaks one line of text into lines of at most `width` columns.
pub fn wrap_line(text: &[StyledText], width: u16, before: &LinePrefix, mode: WrapMode) -> Vec<Line<'static>> {
    let width = usize::from(width).max(1);
    let (first, first_width) = fit_prefix(&before.first, width);
    let (rest, rest_width) = fit_prefix(&before.rest, width);
    let available = width - first_width.max(rest_width);
    let before = |at: usize, empty: bool| {
        let before = if at == 0 { &first } else { &rest };
        // A prefix without text needs no trailing space.
        let bare = || before.iter().rposition(|atom| !atom.is_space()).map_or(0, |last| last + 1);
        before.iter().take(if empty { bare() } else { before.len() })
    };
    if let Some(letters) = AsciiText::from_pieces(text) {
        let rows = letters.wrap_rows(available, mode);
        let lines = rows.into_iter().enumerate();
        return lines
            .map(|(at, row)| build_line(before(at, row.is_empty()), letters.styled_parts(row)))
            .collect();
    }
    let rows = match mode {
        WrapMode::Words => wrap_words(split_atoms(text), available),
        WrapMode::Anywhere => wrap_anywhere(split_atoms(text), available),
    };
    let lines = rows.iter().enumerate();
    lines.map(|(at, row)| build_line(before(at, row.is_empty()), row.iter().map(WrapAtom::as_part))).collect()
}

/// Truncates a line with `…`.
pub fn truncate_line(text: &[StyledText], width: u16) -> Line<'static> {
    let width = usize::from(width).max(1);
    let mut atoms = split_atoms(text);
    if atom_columns(&atoms) > width {
        let mut used = 0;
        let kept_width = atoms.iter().take_while(|atom| {
            let fits = used + atom.max_width < width;
            used += atom.width;
            fits
        });
        let keep = kept_width.count();
        let style = atoms.get(keep).map(|atom| atom.style).unwrap_or_default();
        atoms.truncate(keep);
        atoms.push(WrapAtom::new("…".into(), style));
    }
    build_line(atoms.iter(), std::iter::empty())
}

/// Returns the maximum number of columns in one line.
pub fn text_columns(text: &[StyledText]) -> usize {
    atom_columns(&split_atoms(text))
}

fn atom_columns(atoms: &[WrapAtom<'_>]) -> usize {
    let mut used = 0;
    let mut reach = 0;
    for atom in atoms {
        reach = reach.max(used + atom.max_width);
        used += atom.width;
    }
    reach
}

/// Adds a prefix to finished lines.
pub fn prefix_lines(lines: Vec<Line<'static>>, width: u16, before: &LinePrefix) -> Vec<Line<'static>> {
    let (first, _) = fit_prefix(&before.first, usize::from(width).max(1));
    let (rest, _) = fit_prefix(&before.rest, usize::from(width).max(1));
    let mut out = Vec::with_capacity(lines.len());
    for (at, laid) in lines.into_iter().enumerate() {
        let mut whole = build_line(if at == 0 { first.iter() } else { rest.iter() }, std::iter::empty());
        whole.spans.extend(laid.spans);
        out.push(whole);
    }
    out
}

/// Returns the columns left of a width after the prefix.
pub fn remaining_width(width: u16, before: &LinePrefix) -> u16 {
    let width = width.max(1);
    let used = fit_prefix(&before.first, width.into()).1.max(fit_prefix(&before.rest, width.into()).1);
    width - u16::try_from(used).unwrap_or(0)
}

/// A cell of a table row: its lines, width and alignment.
pub(super) struct CellColumn {
    pub(super) lines: Vec<Line<'static>>,
    pub(super) width: u16,
    pub(super) align: ColumnAlign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnAlign {
    Left,
    Middle,
    Right,
}

/// Joins columns side by side.
pub(super) fn join_columns(columns: Vec<CellColumn>, between: &StyledText) -> Vec<Line<'static>> {
    let rows = columns.iter().map(|column| column.lines.len()).max().unwrap_or(0);
    let mut out: Vec<Line<'static>> = vec![Line::default(); rows];
    let count = columns.len();
    for (at, column) in columns.into_iter().enumerate() {
        let mut cells = column.lines.into_iter();
        for row in &mut out {
            let cell = cells.next().unwrap_or_default();
            let free = usize::from(column.width).saturating_sub(line_width(&cell));
            let left = match column.align {
                ColumnAlign::Left => 0,
                ColumnAlign::Middle => free / 2,
                ColumnAlign::Right => free,
            };
            push_spaces(row, left);
            row.spans.extend(cell.spans);
            if at + 1 < count {
                push_spaces(row, free - left);
                row.spans.push(Span::styled(between.text.as_str().to_owned(), between.style));
            }
        }
    }
    out
}

/// Returns the columns of a line.
pub fn line_width(line: &Line<'_>) -> usize {
    line.spans.iter().flat_map(|span| span.content.graphemes(true)).map(|g| usize::from(g.cell_width())).sum()
}

fn push_spaces(row: &mut Line<'static>, count: usize) {
    if count > 0 {
        row.spans.push(Span::raw(" ".repeat(count)));
    }
}

/// A grapheme cluster.
#[derive(Debug, Clone)]
struct WrapAtom<'a> {
    text: Cow<'a, str>,
    style: Style,
    width: usize,
    /// Columns if a terminal shows each of its characters separately.
    max_width: usize,
}

impl<'a> WrapAtom<'a> {
    fn new(text: Cow<'a, str>, style: Style) -> WrapAtom<'a> {
        let width = usize::from(text.cell_width());
        // The emoji variation selector makes a narrow character wide.
        let alone = |c: char| if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(0) };
        let max_width = text.chars().map(alone).sum::<usize>().max(width);
        WrapAtom { text, style, width, max_width }
    }

    fn is_space(&self) -> bool {
        self.text == " "
    }

    fn as_part(&self) -> (&str, Style) {
        (&self.text, self.style)
    }
}

/// Returns whether each byte is a letter of one column.
pub(super) fn is_ascii_text(text: &str) -> bool {
    text.bytes().all(|b| (0x20..0x7f).contains(&b))
}

fn split_atoms(text: &[StyledText]) -> Vec<WrapAtom<'_>> {
    let mut atoms: Vec<WrapAtom<'_>> = Vec::new();
    for piece in text {
        if is_ascii_text(piece.text.as_str()) {
            let letters = piece.text.as_str().split_inclusive(|_| true);
            atoms.extend(letters.map(|c| WrapAtom {
                text: c.into(),
                style: piece.style,
                width: 1,
                max_width: 1,
            }));
            continue;
        }
        for grapheme in piece.text.as_str().graphemes(true) {
            if grapheme.contains(char::is_control) {
                // A remaining newline; other controls were removed before.
                atoms.push(WrapAtom::new(" ".into(), piece.style));
                continue;
            }
            // A cluster must not begin with a zero-width character, which would be drawn onto the preceding
            // column.
            let letter = grapheme.trim_start_matches(|c: char| c.width() == Some(0));
            let letter = if letter.is_empty() { grapheme } else { letter };
            let atom = WrapAtom::new(letter.into(), piece.style);
            if atom.width > 0 {
                atoms.push(atom);
            } else if let Some(last) = atoms.last_mut().filter(|last| !last.is_space()) {
                // A mark in a separate piece; without a preceding letter it is dropped.
                *last = WrapAtom::new(format!("{}{grapheme}", last.text).into(), last.style);
            }
        }
    }
    atoms
}

/// Truncates the prefix to leave space for the text.
fn fit_prefix(before: &[StyledText], width: usize) -> (Vec<WrapAtom<'_>>, usize) {
    /// Minimum columns for the text next to a prefix.
    const MIN_TEXT_COLUMNS: usize = 8;
    let atoms = split_atoms(before);
    let used: usize = atoms.iter().map(|atom| atom.width).sum();
    if used + MIN_TEXT_COLUMNS.min(width / 2 + 1) > width { (Vec::new(), 0) } else { (atoms, used) }
}

/// A letter wider than the line cannot be shown.
fn replace_wide_atom(atom: WrapAtom<'_>, available: usize) -> WrapAtom<'_> {
    if atom.max_width > available { WrapAtom::new("·".into(), atom.style) } else { atom }
}

fn wrap_anywhere(atoms: Vec<WrapAtom<'_>>, room: usize) -> Vec<Vec<WrapAtom<'_>>> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut used = 0;
    for atom in atoms {
        let atom = replace_wide_atom(atom, room);
        if used + atom.max_width > room {
            rows.push(std::mem::take(&mut row));
            used = 0;
        }
        used += atom.width;
        row.push(atom);
    }
    rows.push(row);
    rows
}

fn wrap_words(atoms: Vec<WrapAtom<'_>>, available: usize) -> Vec<Vec<WrapAtom<'_>>> {
    let mut rows: Vec<Vec<WrapAtom<'_>>> = Vec::new();
    let mut row: Vec<WrapAtom<'_>> = Vec::new();
    let mut used = 0;
    // The number of atoms up to the last possible break.
    let mut breaks = 0;
    // Spaces at a line break are dropped.
    let mut swallow = false;
    for atom in atoms {
        let atom = replace_wide_atom(atom, available);
        if atom.is_space() && swallow {
            continue;
        }
        swallow = false;
        if used + atom.max_width > available {
            if atom.is_space() {
                rows.push(trim_row(std::mem::take(&mut row)));
                (used, breaks, swallow) = (0, 0, true);
                continue;
            }
            let stays = if breaks > 0 && !row.iter().take(breaks).all(WrapAtom::is_space) {
                breaks
            } else {
                row.len()
            };
            let mut moved = row.split_off(stays);
            std::mem::swap(&mut row, &mut moved);
            rows.push(trim_row(moved));
            used = row.iter().map(|atom| atom.width).sum();
            breaks = 0;
            if used + atom.max_width > available {
                rows.push(std::mem::take(&mut row));
                used = 0;
            }
        }
        used += atom.width;
        // After a space and after a wide letter, as scripts with wide letters break anywhere.
        let breakable = atom.is_space() || atom.width > 1;
        row.push(atom);
        if breakable {
            breaks = row.len();
        }
    }
    rows.push(trim_row(row));
    rows
}

fn trim_row(mut row: Vec<WrapAtom<'_>>) -> Vec<WrapAtom<'_>> {
    while row.last().is_some_and(WrapAtom::is_space) {
        row.pop();
    }
    row
}

/// Joins adjacent atoms of the same style.
fn build_line<'a>(
    before: impl Iterator<Item = &'a WrapAtom<'a>>,
    parts: impl Iterator<Item = (&'a str, Style)>,
) -> Line<'static> {
    let mut spans: Vec<(String, Style)> = Vec::new();
    for (text, style) in before.map(WrapAtom::as_part).chain(parts) {
        match spans.last_mut() {
            Some((last, same)) if *same == style => last.push_str(text),
            _ => spans.push((text.to_owned(), style)),
        }
    }
    Line::from(spans.into_iter().map(|(text, style)| Span::styled(text, style)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::style::Modifier;

    use super::*;

    fn styled_pieces(texts: &[(String, bool)]) -> Vec<StyledText> {
        let style = |bold: bool| if bold { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        texts.iter().map(|(text, bold)| StyledText::new(Clean::from_prose_line(text), style(*bold))).collect()
    }

    proptest! {
        #[test]
        fn plain_letters_are_broken_as_any_others(
            texts in prop::collection::vec(("[ -~]{0,30}|[a-c ]{0,40}", any::<bool>()), 0..5),
            width in 1_u16..40,
            words in any::<bool>(),
        ) {
            let pieces = styled_pieces(&texts);
            let mode = if words { WrapMode::Words } else { WrapMode::Anywhere };
            let available = usize::from(width);
            let slow = match mode {
                WrapMode::Words => wrap_words(split_atoms(&pieces), available),
                WrapMode::Anywhere => wrap_anywhere(split_atoms(&pieces), available),
            };
            let slow: Vec<_> = slow.iter().map(|row| build_line(row.iter(), std::iter::empty())).collect();
            prop_assert_eq!(wrap_line(&pieces, width, &LinePrefix::default(), mode), slow);
            prop_assert!(AsciiText::from_pieces(&pieces).is_some());
        }
    }
}
