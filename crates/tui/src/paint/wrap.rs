//! Wrap: from pieces of text to lines that fit, by what a reader sees as one letter.
//!
//! The only place that makes spans: what is not [`Clean`] cannot come this far. Pictures that are joined to one take
//! two columns in most terminals and more in some; they stand only where even those do not run over the line's end.
//! Invariant: no line is wider than it may be (`no_line_is_wider_than_the_screen`).

use std::borrow::Cow;

use ratatui::buffer::CellWidth;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthChar;

use super::harmless::Clean;
use super::letters::Letters;

/// Text in one style.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    pub text: Clean,
    pub style: Style,
}

impl Piece {
    pub fn new(text: Clean, style: Style) -> Piece {
        Piece { text, style }
    }

    pub fn own(text: &'static str, style: Style) -> Piece {
        Piece { text: Clean::own(text), style }
    }
}

/// What stands before the first line and before those that follow.
#[derive(Debug, Clone, Default)]
pub struct Before {
    pub first: Vec<Piece>,
    pub rest: Vec<Piece>,
}

/// How a line that is too long is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Break {
    /// Between words; inside of a word only if it is longer than a line.
    Words,
    /// Anywhere: code keeps every one of its spaces.
    Anywhere,
}

/// Breaks one line of text into lines of at most `width` columns.
pub fn wrap(text: &[Piece], width: u16, before: &Before, how: Break) -> Vec<Line<'static>> {
    let width = usize::from(width).max(1);
    let (first, first_width) = fitting(&before.first, width);
    let (rest, rest_width) = fitting(&before.rest, width);
    let room = width - first_width.max(rest_width);
    let before = |at: usize, empty: bool| {
        let before = if at == 0 { &first } else { &rest };
        // What stands before nothing needs no space behind it.
        let bare = || before.iter().rposition(|atom| !atom.is_space()).map_or(0, |last| last + 1);
        before.iter().take(if empty { bare() } else { before.len() })
    };
    if let Some(letters) = Letters::of(text) {
        let rows = letters.rows(room, how);
        let lines = rows.into_iter().enumerate();
        return lines.map(|(at, row)| line(before(at, row.is_empty()), letters.parts(row))).collect();
    }
    let rows = match how {
        Break::Words => by_words(atoms(text), room),
        Break::Anywhere => anywhere(atoms(text), room),
    };
    let lines = rows.iter().enumerate();
    lines.map(|(at, row)| line(before(at, row.is_empty()), row.iter().map(Atom::part))).collect()
}

/// One line, cut with `…` where it is too long.
pub fn cut(text: &[Piece], width: u16) -> Line<'static> {
    let width = usize::from(width).max(1);
    let mut atoms = atoms(text);
    if reach(&atoms) > width {
        let mut taken = 0;
        let keep = atoms.iter().take_while(|atom| {
            let fits = taken + atom.reach < width;
            taken += atom.width;
            fits
        });
        let keep = keep.count();
        let style = atoms.get(keep).map(|atom| atom.style).unwrap_or_default();
        atoms.truncate(keep);
        atoms.push(Atom::new("…".into(), style));
    }
    line(atoms.iter(), std::iter::empty())
}

/// How many columns it takes in one line, at the most.
pub fn columns(text: &[Piece]) -> usize {
    reach(&atoms(text))
}

fn reach(atoms: &[Atom<'_>]) -> usize {
    let mut taken = 0;
    let mut reach = 0;
    for atom in atoms {
        reach = reach.max(taken + atom.reach);
        taken += atom.width;
    }
    reach
}

/// Puts what stands before them in front of lines that are laid out already.
pub fn indent(lines: Vec<Line<'static>>, width: u16, before: &Before) -> Vec<Line<'static>> {
    let (first, _) = fitting(&before.first, usize::from(width).max(1));
    let (rest, _) = fitting(&before.rest, usize::from(width).max(1));
    let mut out = Vec::with_capacity(lines.len());
    for (at, laid) in lines.into_iter().enumerate() {
        let mut whole = line(if at == 0 { first.iter() } else { rest.iter() }, std::iter::empty());
        whole.spans.extend(laid.spans);
        out.push(whole);
    }
    out
}

/// The columns that are left beside what stands before a line.
pub fn room(width: u16, before: &Before) -> u16 {
    let width = width.max(1);
    let taken = fitting(&before.first, width.into()).1.max(fitting(&before.rest, width.into()).1);
    width - u16::try_from(taken).unwrap_or(0)
}

/// A column of a table: its laid-out cell, its width, and whether its text stands at the right or in the middle.
pub(super) struct Column {
    pub(super) lines: Vec<Line<'static>>,
    pub(super) width: u16,
    pub(super) side: Side,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Left,
    Middle,
    Right,
}

/// Sets columns beside each other.
pub(super) fn beside(columns: Vec<Column>, between: &Piece) -> Vec<Line<'static>> {
    let rows = columns.iter().map(|column| column.lines.len()).max().unwrap_or(0);
    let mut out: Vec<Line<'static>> = vec![Line::default(); rows];
    let count = columns.len();
    for (at, column) in columns.into_iter().enumerate() {
        let mut cells = column.lines.into_iter();
        for row in &mut out {
            let cell = cells.next().unwrap_or_default();
            let free = usize::from(column.width).saturating_sub(width_of(&cell));
            let left = match column.side {
                Side::Left => 0,
                Side::Middle => free / 2,
                Side::Right => free,
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

/// The columns that a line takes.
pub fn width_of(line: &Line<'_>) -> usize {
    line.spans.iter().flat_map(|span| span.content.graphemes(true)).map(|g| usize::from(g.cell_width())).sum()
}

fn push_spaces(row: &mut Line<'static>, count: usize) {
    if count > 0 {
        row.spans.push(Span::raw(" ".repeat(count)));
    }
}

/// What a reader sees as one letter.
#[derive(Debug, Clone)]
struct Atom<'a> {
    text: Cow<'a, str>,
    style: Style,
    width: usize,
    /// What it takes where a terminal shows each of its characters on its own.
    reach: usize,
}

impl<'a> Atom<'a> {
    fn new(text: Cow<'a, str>, style: Style) -> Atom<'a> {
        let width = usize::from(text.cell_width());
        // The selector of pictures makes a narrow sign wide.
        let alone = |c: char| if c == '\u{fe0f}' { 1 } else { c.width().unwrap_or(0) };
        let reach = text.chars().map(alone).sum::<usize>().max(width);
        Atom { text, style, width, reach }
    }

    fn is_space(&self) -> bool {
        self.text == " "
    }

    fn part(&self) -> (&str, Style) {
        (&self.text, self.style)
    }
}

/// Whether each byte is a letter of one column.
pub(super) fn is_plain(text: &str) -> bool {
    text.bytes().all(|b| (0x20..0x7f).contains(&b))
}

fn atoms(text: &[Piece]) -> Vec<Atom<'_>> {
    let mut atoms: Vec<Atom<'_>> = Vec::new();
    for piece in text {
        if is_plain(piece.text.as_str()) {
            let letters = piece.text.as_str().split_inclusive(|_| true);
            atoms.extend(letters.map(|c| Atom { text: c.into(), style: piece.style, width: 1, reach: 1 }));
            continue;
        }
        for grapheme in piece.text.as_str().graphemes(true) {
            if grapheme.contains(char::is_control) {
                // A line feed that nobody split at; the text's other controls are gone.
                atoms.push(Atom::new(" ".into(), piece.style));
                continue;
            }
            // What takes no column itself would be drawn onto the column before: a letter never begins with it.
            let letter = grapheme.trim_start_matches(|c: char| c.width() == Some(0));
            let letter = if letter.is_empty() { grapheme } else { letter };
            let atom = Atom::new(letter.into(), piece.style);
            if atom.width > 0 {
                atoms.push(atom);
            } else if let Some(last) = atoms.last_mut().filter(|last| !last.is_space()) {
                // A mark that came in a piece of its own; without a letter before it there is nothing to see.
                *last = Atom::new(format!("{}{grapheme}", last.text).into(), last.style);
            }
        }
    }
    atoms
}

/// As much of what stands before a line as leaves room for the text.
fn fitting(before: &[Piece], width: usize) -> (Vec<Atom<'_>>, usize) {
    /// Below this a column of text is not worth its frame.
    const ROOM: usize = 8;
    let atoms = atoms(before);
    let taken: usize = atoms.iter().map(|atom| atom.width).sum();
    if taken + ROOM.min(width / 2 + 1) > width { (Vec::new(), 0) } else { (atoms, taken) }
}

/// A letter that is wider than the whole line cannot be shown.
fn narrowed(atom: Atom<'_>, room: usize) -> Atom<'_> {
    if atom.reach > room { Atom::new("·".into(), atom.style) } else { atom }
}

fn anywhere(atoms: Vec<Atom<'_>>, room: usize) -> Vec<Vec<Atom<'_>>> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut taken = 0;
    for atom in atoms {
        let atom = narrowed(atom, room);
        if taken + atom.reach > room {
            rows.push(std::mem::take(&mut row));
            taken = 0;
        }
        taken += atom.width;
        row.push(atom);
    }
    rows.push(row);
    rows
}

fn by_words(atoms: Vec<Atom<'_>>, room: usize) -> Vec<Vec<Atom<'_>>> {
    let mut rows: Vec<Vec<Atom<'_>>> = Vec::new();
    let mut row: Vec<Atom<'_>> = Vec::new();
    let mut taken = 0;
    // Where the row may be broken: how many of its atoms stay.
    let mut breaks = 0;
    // Spaces at which a line was broken are gone.
    let mut swallow = false;
    for atom in atoms {
        let atom = narrowed(atom, room);
        if atom.is_space() && swallow {
            continue;
        }
        swallow = false;
        if taken + atom.reach > room {
            if atom.is_space() {
                rows.push(trimmed(std::mem::take(&mut row)));
                (taken, breaks, swallow) = (0, 0, true);
                continue;
            }
            let stays =
                if breaks > 0 && !row.iter().take(breaks).all(Atom::is_space) { breaks } else { row.len() };
            let mut moved = row.split_off(stays);
            std::mem::swap(&mut row, &mut moved);
            rows.push(trimmed(moved));
            taken = row.iter().map(|atom| atom.width).sum();
            breaks = 0;
            if taken + atom.reach > room {
                rows.push(std::mem::take(&mut row));
                taken = 0;
            }
        }
        taken += atom.width;
        // After a space, and after a wide letter: scripts that have those break between any two.
        let breakable = atom.is_space() || atom.width > 1;
        row.push(atom);
        if breakable {
            breaks = row.len();
        }
    }
    rows.push(trimmed(row));
    rows
}

fn trimmed(mut row: Vec<Atom<'_>>) -> Vec<Atom<'_>> {
    while row.last().is_some_and(Atom::is_space) {
        row.pop();
    }
    row
}

/// Neighbours of one style become one.
fn line<'a>(
    before: impl Iterator<Item = &'a Atom<'a>>,
    parts: impl Iterator<Item = (&'a str, Style)>,
) -> Line<'static> {
    let mut spans: Vec<(String, Style)> = Vec::new();
    for (text, style) in before.map(Atom::part).chain(parts) {
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

    fn styled(texts: &[(String, bool)]) -> Vec<Piece> {
        let style = |bold: bool| if bold { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        texts.iter().map(|(text, bold)| Piece::new(Clean::line(text), style(*bold))).collect()
    }

    proptest! {
        #[test]
        fn plain_letters_are_broken_as_any_others(
            texts in prop::collection::vec(("[ -~]{0,30}|[a-c ]{0,40}", any::<bool>()), 0..5),
            width in 1_u16..40,
            words in any::<bool>(),
        ) {
            let pieces = styled(&texts);
            let how = if words { Break::Words } else { Break::Anywhere };
            let room = usize::from(width);
            let slow = match how {
                Break::Words => by_words(atoms(&pieces), room),
                Break::Anywhere => anywhere(atoms(&pieces), room),
            };
            let slow: Vec<_> = slow.iter().map(|row| line(row.iter(), std::iter::empty())).collect();
            prop_assert_eq!(wrap(&pieces, width, &Before::default(), how), slow);
            prop_assert!(Letters::of(&pieces).is_some());
        }
    }
}
