//! The shape that all panes share: a title with a word at its right, rows below it, one of them chosen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;
use ratatui::widgets::Widget;

use super::pick::Pick;
use crate::paint::{Clean, Piece, Role, Theme, columns, cut};

/// A pane's picture.
pub(super) struct Sheet<'a> {
    pub(super) title: &'a str,
    /// What the title says beside it: how many, what is filtered for.
    pub(super) aside: String,
    pub(super) theme: &'a Theme,
}

impl Sheet<'_> {
    /// Draws the title and gives what is left.
    pub(super) fn begin(&self, buf: &mut Buffer, area: Rect) -> Rect {
        if area.is_empty() {
            return area;
        }
        let title = [
            Piece::new(Clean::line(self.title), self.theme.style(Role::Heading)),
            Piece::new(Clean::line(&format!("  {}", self.aside)), self.theme.style(Role::Dim)),
        ];
        put(buf, area, 0, cut(&title, area.width));
        let rule = u16::from(area.height > 6 && !self.theme.plain);
        if rule > 0 {
            let line = "─".repeat(area.width.into());
            put(buf, area, 1, Line::styled(line, self.theme.style(Role::Border)));
        }
        below(area, 1 + rule)
    }

    /// Draws rows of which one is chosen.
    pub(super) fn rows(
        &self,
        buf: &mut Buffer,
        area: Rect,
        (pick, rows): (&Pick, usize),
        mut row: impl FnMut(usize, u16) -> Vec<Piece>,
    ) {
        let chosen = pick.at(rows);
        // A mark beside the row says what the colour says.
        let room = area.width.saturating_sub(2);
        for (y, at) in (0..area.height).zip(pick.window(rows, area.height.into())) {
            let is_chosen = chosen == Some(at);
            let mark = match (is_chosen, self.theme.plain) {
                (true, true) => "> ",
                (true, false) => "› ",
                (false, _) => "  ",
            };
            let mut pieces = vec![Piece::own(mark, self.theme.style(Role::Accent))];
            pieces.extend(row(at, room));
            put(buf, area, y, cut(&pieces, area.width));
            if is_chosen {
                let line = Rect { y: area.y.saturating_add(y), height: 1, ..area };
                buf.set_style(line, self.theme.style(Role::Selected));
            }
        }
    }

    /// What stands where there is nothing to show.
    pub(super) fn nothing(&self, buf: &mut Buffer, area: Rect, text: &'static str) {
        put(buf, area, 0, cut(&[Piece::own(text, self.theme.style(Role::Dim))], area.width));
    }
}

/// Lines from a place on; gives how many there are.
pub(super) fn lines(buf: &mut Buffer, area: Rect, lines: &[Line<'static>], top: usize) {
    for (y, line) in (0..area.height).zip(lines.iter().skip(top)) {
        put(buf, area, y, line.clone());
    }
}

/// One line of an area.
pub(super) fn put(buf: &mut Buffer, area: Rect, y: u16, line: Line<'static>) {
    if y < area.height {
        line.render(Rect { y: area.y.saturating_add(y), height: 1, ..area }, buf);
    }
}

/// What is left of an area below so many lines.
pub(super) fn below(area: Rect, taken: u16) -> Rect {
    let taken = taken.min(area.height);
    Rect { y: area.y.saturating_add(taken), height: area.height - taken, ..area }
}

/// The first lines of an area.
pub(super) fn above(area: Rect, lines: u16) -> Rect {
    Rect { height: lines.min(area.height), ..area }
}

/// A text in so many columns: cut or filled up.
pub(super) fn column(text: &str, width: usize, style: Style) -> Vec<Piece> {
    let piece = Piece::new(Clean::line(text), style);
    let wide = columns(std::slice::from_ref(&piece));
    if wide <= width {
        let fill = Piece::new(Clean::line(&" ".repeat(width - wide)), style);
        return vec![piece, fill];
    }
    let short = cut(&[piece], u16::try_from(width).unwrap_or(u16::MAX));
    let text: String = short.spans.iter().map(|span| span.content.as_ref()).collect();
    let piece = Piece::new(Clean::line(&text), style);
    let wide = columns(std::slice::from_ref(&piece));
    vec![piece, Piece::new(Clean::line(&" ".repeat(width.saturating_sub(wide))), style)]
}

/// `3 pods`, `1 pod`.
pub(super) fn many(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Words about a filter, if there is one.
pub(super) fn filtered(pick: &Pick) -> String {
    if pick.filter().is_empty() { String::new() } else { format!(", filter: {}", pick.filter()) }
}
