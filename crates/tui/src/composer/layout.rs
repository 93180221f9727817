//! Lays out and draws the text buffer: rows, selection and cursor.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::text::Span;
use unicode_segmentation::UnicodeSegmentation;

use super::Composer;
use super::graphemes::GraphemeKind;
use super::text_buffer::TextBuffer;

/// Display settings.
pub(crate) struct ComposerStyle<'a> {
    pub(crate) hint: &'a str,
    pub(crate) text: Style,
    pub(crate) dim: Style,
    pub(crate) selected: Style,
    /// The composer has the focus.
    pub(crate) has_cursor: bool,
}

/// A grapheme at its position.
struct LayoutCell<'a> {
    letter: &'a str,
    row: usize,
    column: usize,
    selected: bool,
}

/// A text laid out in rows.
struct TextLayout<'a> {
    cells: Vec<LayoutCell<'a>>,
    rows: usize,
    /// Row and column.
    cursor: (usize, usize),
}

fn layout_text(field: &TextBuffer, width: usize, selected: Option<Range<usize>>) -> TextLayout<'_> {
    let mut laid = TextLayout { cells: Vec::new(), rows: 1, cursor: (0, 0) };
    let (mut row, mut column) = (0, 0);
    let units = field.graphemes();
    let mut cursor = None;
    for unit in (0..units.len()).filter_map(|at| units.get(at)) {
        let chosen = selected.as_ref().is_some_and(|range| range.contains(&unit.start));
        let here = unit.start == field.cursor_byte();
        if unit.kind == GraphemeKind::LineBreak {
            cursor = cursor.or(here.then_some((row, column)));
            (row, column) = (row + 1, 0);
            continue;
        }
        // An attachment may be longer than a row.
        for letter in field.text_range(unit.start..unit.end).graphemes(true) {
            let (letter, wide) = visible_letter(letter);
            if column + wide > width {
                (row, column) = (row + 1, 0);
            }
            cursor = cursor.or(here.then_some((row, column)));
            laid.cells.push(LayoutCell { letter, row, column, selected: chosen });
            column += wide;
        }
    }
    laid.rows = row + 1;
    laid.cursor = cursor.unwrap_or((row, column));
    // Behind a full row the cursor moves to the next one.
    if laid.cursor.1 >= width {
        laid.cursor = (laid.cursor.0 + 1, 0);
        laid.rows = laid.rows.max(laid.cursor.0 + 1);
    }
    laid
}

/// Returns the displayed form of a grapheme and its columns.
fn visible_letter(letter: &str) -> (&str, usize) {
    match letter {
        "\t" => ("    ", 4),
        _ => match Span::raw(letter).width() {
            0 => ("·", 1),
            wide => (letter, wide),
        },
    }
}

impl Composer {
    /// Returns the number of rows at a width.
    pub(crate) fn row_count(&self, width: u16) -> u16 {
        let laid = layout_text(&self.buffer, usize::from(width.max(1)), None);
        u16::try_from(laid.rows).unwrap_or(u16::MAX)
    }

    pub(crate) fn draw_composer(&mut self, frame: &mut Frame<'_>, area: Rect, place: ComposerStyle<'_>) {
        let selected = self.selected_range();
        let laid = layout_text(&self.buffer, usize::from(area.width.max(1)), selected);
        let high = usize::from(area.height);
        // Keeps the cursor visible with minimal scrolling.
        let top = self.top_row.min(laid.cursor.0).max((laid.cursor.0 + 1).saturating_sub(high));
        let top = top.min(laid.rows.saturating_sub(high));
        let at = |row: usize, column: usize| {
            let x = area.x.saturating_add(u16::try_from(column).unwrap_or(u16::MAX));
            let y = area.y.saturating_add(u16::try_from(row.saturating_sub(top)).unwrap_or(u16::MAX));
            Position { x: x.min(area.right().saturating_sub(1)), y: y.min(area.bottom().saturating_sub(1)) }
        };
        if self.buffer.text().is_empty() {
            // After the column of the cursor.
            let area = Rect { x: area.x.saturating_add(1), width: area.width.saturating_sub(1), ..area };
            frame.render_widget(Span::styled(place.hint.to_owned(), place.dim), area);
        }
        for cell in laid.cells.iter().filter(|cell| (top..top + high).contains(&cell.row)) {
            let Position { x, y } = at(cell.row, cell.column);
            let style = if cell.selected { place.selected } else { place.text };
            let available = usize::from(area.right().saturating_sub(x));
            frame.buffer_mut().set_stringn(x, y, cell.letter, available, style);
        }
        if place.has_cursor {
            let (row, column) = laid.cursor;
            frame.set_cursor_position(at(row, column));
        }
        self.top_row = top;
    }
}
