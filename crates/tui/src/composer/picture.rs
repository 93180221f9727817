//! The picture of a field: its units in rows, what is selected, and where the cursor is.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Span;
use unicode_segmentation::UnicodeSegmentation;

use super::Composer;
use super::field::Field;
use super::units::Kind;

/// How it is drawn.
pub(crate) struct Placed<'a> {
    pub(crate) hint: &'a str,
    pub(crate) text: Style,
    pub(crate) dim: Style,
    pub(crate) selected: Style,
    /// It has the focus.
    pub(crate) cursor: bool,
}

/// One letter at its place.
struct Cell<'a> {
    letter: &'a str,
    row: usize,
    column: usize,
    selected: bool,
}

/// A text in rows of some width.
struct Laid<'a> {
    cells: Vec<Cell<'a>>,
    rows: usize,
    /// Row and column.
    cursor: (usize, usize),
}

fn lay(field: &Field, width: usize, selected: Option<Range<usize>>) -> Laid<'_> {
    let mut laid = Laid { cells: Vec::new(), rows: 1, cursor: (0, 0) };
    let (mut row, mut column) = (0, 0);
    let units = field.units();
    let mut cursor = None;
    for unit in (0..units.len()).filter_map(|at| units.get(at)) {
        let chosen = selected.as_ref().is_some_and(|range| range.contains(&unit.start));
        let here = unit.start == field.cursor();
        if unit.kind == Kind::Break {
            cursor = cursor.or(here.then_some((row, column)));
            (row, column) = (row + 1, 0);
            continue;
        }
        // A chip may be longer than a row.
        for letter in field.part(unit.start..unit.end).graphemes(true) {
            let (letter, wide) = shown(letter);
            if column + wide > width {
                (row, column) = (row + 1, 0);
            }
            cursor = cursor.or(here.then_some((row, column)));
            laid.cells.push(Cell { letter, row, column, selected: chosen });
            column += wide;
        }
    }
    laid.rows = row + 1;
    laid.cursor = cursor.unwrap_or((row, column));
    // The cursor behind a full row is in the next one.
    if laid.cursor.1 >= width {
        laid.cursor = (laid.cursor.0 + 1, 0);
        laid.rows = laid.rows.max(laid.cursor.0 + 1);
    }
    laid
}

/// What of a letter is shown, and its columns.
fn shown(letter: &str) -> (&str, usize) {
    match letter {
        "\t" => ("    ", 4),
        _ => match Span::raw(letter).width() {
            0 => ("·", 1),
            wide => (letter, wide),
        },
    }
}

impl Composer {
    /// How many rows the text takes at a width.
    pub(crate) fn rows(&self, width: u16) -> u16 {
        let laid = lay(&self.field, usize::from(width.max(1)), None);
        u16::try_from(laid.rows).unwrap_or(u16::MAX)
    }

    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>, area: Rect, place: Placed<'_>) {
        let selected = self.selected();
        let laid = lay(&self.field, usize::from(area.width.max(1)), selected);
        let high = usize::from(area.height);
        // The cursor is seen, and the rest moves no more than it must.
        let top = self.top.min(laid.cursor.0).max((laid.cursor.0 + 1).saturating_sub(high));
        let top = top.min(laid.rows.saturating_sub(high));
        let at = |row: usize, column: usize| {
            let x = area.x.saturating_add(u16::try_from(column).unwrap_or(u16::MAX));
            let y = area.y.saturating_add(u16::try_from(row.saturating_sub(top)).unwrap_or(u16::MAX));
            Position { x: x.min(area.right().saturating_sub(1)), y: y.min(area.bottom().saturating_sub(1)) }
        };
        if self.field.text().is_empty() {
            // Behind the cursor's place.
            let area = Rect { x: area.x.saturating_add(1), width: area.width.saturating_sub(1), ..area };
            frame.render_widget(Span::styled(place.hint.to_owned(), place.dim), area);
        }
        for cell in laid.cells.iter().filter(|cell| (top..top + high).contains(&cell.row)) {
            let Position { x, y } = at(cell.row, cell.column);
            let style = if cell.selected { place.selected } else { place.text };
            let room = usize::from(area.right().saturating_sub(x));
            frame.buffer_mut().set_stringn(x, y, cell.letter, room, style);
        }
        if place.cursor {
            let (row, column) = laid.cursor;
            frame.set_cursor_position(at(row, column));
        }
        self.top = top;
    }
}
