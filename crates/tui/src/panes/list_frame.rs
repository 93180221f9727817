//! The common layout of panes: a title with details at the right, and rows with a selection.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::selection::RowSelection;
use crate::paint::{Clean, StyleRole, StyledText, Theme, text_columns, truncate_line};

/// The layout of a pane.
pub(super) struct ListFrame<'a> {
    pub(super) title: &'a str,
    /// Details next to the title: count and filter.
    pub(super) detail: String,
    pub(super) theme: &'a Theme,
}

impl ListFrame<'_> {
    /// Draws the title and returns the remaining area.
    pub(super) fn draw_title(&self, buf: &mut Buffer, area: Rect) -> Rect {
        if area.is_empty() {
            return area;
        }
        let title = [
            StyledText::new(Clean::from_prose_line(self.title), self.theme.role_style(StyleRole::Heading)),
            StyledText::new(
                Clean::from_prose_line(&format!("  {}", self.detail)),
                self.theme.role_style(StyleRole::Dim),
            ),
        ];
        draw_line(buf, area, 0, truncate_line(&title, area.width));
        let rule = u16::from(area.height > 6 && !self.theme.plain);
        if rule > 0 {
            let line = "─".repeat(area.width.into());
            draw_line(buf, area, 1, Line::styled(line, self.theme.role_style(StyleRole::Border)));
        }
        area_below(area, 1 + rule)
    }

    /// Draws rows with a selection.
    pub(super) fn draw_rows(
        &self,
        buf: &mut Buffer,
        area: Rect,
        selection: &RowSelection,
        rows: usize,
        mut row: impl FnMut(usize, u16) -> Vec<StyledText>,
    ) {
        let chosen = selection.selected_index(rows);
        // A mark repeats the information of the colour.
        let available = area.width.saturating_sub(2);
        for (y, at) in (0..area.height).zip(selection.visible_rows(rows, area.height.into())) {
            let is_chosen = chosen == Some(at);
            let mark = match (is_chosen, self.theme.plain) {
                (true, true) => "> ",
                (true, false) => "› ",
                (false, _) => "  ",
            };
            let mut pieces = vec![StyledText::from_static(mark, self.theme.role_style(StyleRole::Accent))];
            pieces.extend(row(at, available));
            draw_line(buf, area, y, truncate_line(&pieces, area.width));
            if is_chosen {
                let line = Rect { y: area.y.saturating_add(y), height: 1, ..area };
                buf.set_style(line, self.theme.role_style(StyleRole::Selected));
            }
        }
    }

    /// Draws the text of an empty pane.
    pub(super) fn draw_empty(&self, buf: &mut Buffer, area: Rect, text: &'static str) {
        draw_line(
            buf,
            area,
            0,
            truncate_line(
                &[StyledText::from_static(text, self.theme.role_style(StyleRole::Dim))],
                area.width,
            ),
        );
    }
}

/// Draws lines from an index on. Returns the number of drawn lines.
pub(super) fn draw_lines(buf: &mut Buffer, area: Rect, lines: &[Line<'static>], top: usize) {
    for (y, line) in (0..area.height).zip(lines.iter().skip(top)) {
        draw_line(buf, area, y, line.clone());
    }
}

/// Draws one line of an area.
pub(super) fn draw_line(buf: &mut Buffer, area: Rect, y: u16, line: Line<'static>) {
    if y < area.height {
        line.render(Rect { y: area.y.saturating_add(y), height: 1, ..area }, buf);
    }
}

/// Returns the area below a number of lines.
pub(super) fn area_below(area: Rect, used: u16) -> Rect {
    let taken = used.min(area.height);
    Rect { y: area.y.saturating_add(taken), height: area.height - taken, ..area }
}

/// Returns the first lines of an area.
pub(super) fn area_above(area: Rect, lines: u16) -> Rect {
    Rect { height: lines.min(area.height), ..area }
}

/// Truncates or pads a text to a number of columns.
pub(super) fn column_pieces(text: &str, width: usize, style: Style) -> Vec<StyledText> {
    let piece = StyledText::new(Clean::from_prose_line(text), style);
    let wide = text_columns(std::slice::from_ref(&piece));
    if wide <= width {
        let fill = StyledText::new(Clean::from_prose_line(&" ".repeat(width - wide)), style);
        return vec![piece, fill];
    }
    let short = truncate_line(&[piece], u16::try_from(width).unwrap_or(u16::MAX));
    let text: String = short.spans.iter().map(|span| span.content.as_ref()).collect();
    let piece = StyledText::new(Clean::from_prose_line(&text), style);
    let wide = text_columns(std::slice::from_ref(&piece));
    vec![piece, StyledText::new(Clean::from_prose_line(&" ".repeat(width.saturating_sub(wide))), style)]
}

/// Formats `3 pods`, `1 pod`.
pub(super) fn count_label(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Describes the filter, if there is one.
pub(super) fn filter_label(selection: &RowSelection) -> String {
    if selection.filter().is_empty() { String::new() } else { format!(", filter: {}", selection.filter()) }
}
