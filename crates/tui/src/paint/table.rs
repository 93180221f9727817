//! Table: columns as wide as they need and the screen allows; where it is too narrow, each row is told as a record.

use ratatui::text::Line;

use super::harmless::Clean;
use super::theme::{Role, Theme};
use super::wrap::{Before, Break, Column, Piece, Side, beside, columns, wrap};

/// A table as it was read.
#[derive(Default)]
pub(super) struct Table {
    pub(super) sides: Vec<Side>,
    pub(super) head: Vec<Vec<Piece>>,
    pub(super) rows: Vec<Vec<Vec<Piece>>>,
}

/// Narrower than this a column is not worth reading.
const COLUMN: u16 = 6;
/// The columns of ` │ `.
const BETWEEN: u16 = 3;

impl Table {
    pub(super) fn lines(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        match self.widths(width).filter(|_| !theme.plain) {
            Some(widths) => self.grid(&widths, theme),
            None => self.records(width, theme),
        }
    }

    /// Columns get what they need; if that is too much, the widest give first.
    fn widths(&self, width: u16) -> Option<Vec<u16>> {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let count = self.head.len();
        let mut widths: Vec<u16> = vec![1; count];
        for row in all() {
            for (needs, cell) in widths.iter_mut().zip(row) {
                *needs = (*needs).max(u16::try_from(columns(cell)).unwrap_or(u16::MAX));
            }
        }
        let between = BETWEEN.checked_mul(u16::try_from(count).ok()?.checked_sub(1)?)?;
        let room = width.checked_sub(between)?;
        let needed: u64 = widths.iter().map(|w| u64::from(*w)).sum();
        if needed <= u64::from(room) {
            return Some(widths);
        }
        let least: u64 = widths.iter().map(|w| u64::from((*w).min(COLUMN))).sum();
        if least > u64::from(room) {
            return None;
        }
        // The greatest limit under which all fit, found from above; what is left over goes to the first that want it.
        let sum = |limit: u16| widths.iter().map(|w| u64::from((*w).min(limit))).sum::<u64>();
        let mut limit = room.max(COLUMN);
        while limit > COLUMN && sum(limit) > u64::from(room) {
            limit -= 1;
        }
        let mut left = u64::from(room).saturating_sub(sum(limit));
        for w in &mut widths {
            if *w > limit {
                let more = u64::from(left > 0);
                left -= more;
                *w = limit + u16::from(more == 1);
            }
        }
        Some(widths)
    }

    fn grid(&self, widths: &[u16], theme: &Theme) -> Vec<Line<'static>> {
        let border = theme.style(Role::Border);
        let row = |cells: &[Vec<Piece>]| {
            let cells = widths.iter().enumerate().map(|(at, width)| {
                let cell = cells.get(at).map(Vec::as_slice).unwrap_or_default();
                let side = self.sides.get(at).copied().unwrap_or(Side::Left);
                Column { lines: wrap(cell, *width, &Before::default(), Break::Words), width: *width, side }
            });
            beside(cells.collect(), &Piece::own(" │ ", border))
        };
        let mut lines = row(&self.head);
        let rule = widths.iter().map(|width| {
            let dashes = "─".repeat(usize::from(*width));
            let piece = Piece::new(Clean::line(&dashes), border);
            Column {
                lines: wrap(&[piece], *width, &Before::default(), Break::Words),
                width: *width,
                side: Side::Left,
            }
        });
        lines.extend(beside(rule.collect(), &Piece::own("─┼─", border)));
        for cells in &self.rows {
            lines.extend(row(cells));
        }
        lines
    }

    fn records(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let indent = Before { first: Vec::new(), rest: vec![Piece::own("  ", theme.style(Role::Text))] };
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                lines.push(Line::default());
            }
            // An empty cell says nothing in a record; a row can have thousands that nobody wrote.
            let told =
                self.head.iter().zip(row).filter(|(_, cell)| cell.iter().any(|piece| !piece.text.is_empty()));
            for (name, cell) in told {
                let mut text = name.clone();
                text.push(Piece::own(": ", theme.style(Role::Heading)));
                text.extend(cell.iter().cloned());
                lines.extend(wrap(&text, width, &indent, Break::Words));
            }
        }
        if self.rows.is_empty() {
            for name in &self.head {
                lines.extend(wrap(name, width, &indent, Break::Words));
            }
        }
        lines
    }
}
