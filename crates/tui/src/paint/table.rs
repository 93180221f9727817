//! Renders tables with columns as wide as necessary and possible. On narrow screens each row becomes a
//! record.

use ratatui::text::Line;

use super::sanitize::Clean;
use super::theme::{StyleRole, Theme};
use super::wrap::{
    CellColumn, ColumnAlign, LinePrefix, StyledText, WrapMode, join_columns, text_columns, wrap_line,
};

/// A parsed table.
#[derive(Default)]
pub(super) struct MarkdownTable {
    pub(super) alignments: Vec<ColumnAlign>,
    pub(super) head: Vec<Vec<StyledText>>,
    pub(super) rows: Vec<Vec<Vec<StyledText>>>,
}

/// Minimum width of a readable column.
const MIN_COLUMN_WIDTH: u16 = 6;
/// Columns of ` │ `.
const SEPARATOR_WIDTH: u16 = 3;

impl MarkdownTable {
    pub(super) fn table_lines(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        match self.column_widths(width).filter(|_| !theme.plain) {
            Some(widths) => self.grid_lines(&widths, theme),
            None => self.record_lines(width, theme),
        }
    }

    /// Returns the widths of the columns; the widest are reduced first.
    fn column_widths(&self, width: u16) -> Option<Vec<u16>> {
        let all = || std::iter::once(&self.head).chain(&self.rows);
        let count = self.head.len();
        let mut widths: Vec<u16> = vec![1; count];
        for row in all() {
            for (needs, cell) in widths.iter_mut().zip(row) {
                *needs = (*needs).max(u16::try_from(text_columns(cell)).unwrap_or(u16::MAX));
            }
        }
        let between = SEPARATOR_WIDTH.checked_mul(u16::try_from(count).ok()?.checked_sub(1)?)?;
        let available = width.checked_sub(between)?;
        let needed: u64 = widths.iter().map(|w| u64::from(*w)).sum();
        if needed <= u64::from(available) {
            return Some(widths);
        }
        let least: u64 = widths.iter().map(|w| u64::from((*w).min(MIN_COLUMN_WIDTH))).sum();
        if least > u64::from(available) {
            return None;
        }
        // Find the largest width limit that fits, and give the remaining columns to the first that need them.
        let sum = |limit: u16| widths.iter().map(|w| u64::from((*w).min(limit))).sum::<u64>();
        let mut limit = available.max(MIN_COLUMN_WIDTH);
        while limit > MIN_COLUMN_WIDTH && sum(limit) > u64::from(available) {
            limit -= 1;
        }
        let mut left = u64::from(available).saturating_sub(sum(limit));
        for w in &mut widths {
            if *w > limit {
                let more = u64::from(left > 0);
                left -= more;
                *w = limit + u16::from(more == 1);
            }
        }
        Some(widths)
    }

    fn grid_lines(&self, widths: &[u16], theme: &Theme) -> Vec<Line<'static>> {
        let border = theme.role_style(StyleRole::Border);
        let row = |cells: &[Vec<StyledText>]| {
            let cells = widths.iter().enumerate().map(|(at, width)| {
                let cell = cells.get(at).map(Vec::as_slice).unwrap_or_default();
                let align = self.alignments.get(at).copied().unwrap_or(ColumnAlign::Left);
                CellColumn {
                    lines: wrap_line(cell, *width, &LinePrefix::default(), WrapMode::Words),
                    width: *width,
                    align,
                }
            });
            join_columns(cells.collect(), &StyledText::from_static(" │ ", border))
        };
        let mut lines = row(&self.head);
        let rule = widths.iter().map(|width| {
            let dashes = "─".repeat(usize::from(*width));
            let piece = StyledText::new(Clean::from_prose_line(&dashes), border);
            CellColumn {
                lines: wrap_line(&[piece], *width, &LinePrefix::default(), WrapMode::Words),
                width: *width,
                align: ColumnAlign::Left,
            }
        });
        lines.extend(join_columns(rule.collect(), &StyledText::from_static("─┼─", border)));
        for cells in &self.rows {
            lines.extend(row(cells));
        }
        lines
    }

    fn record_lines(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let indent = LinePrefix {
            first: Vec::new(),
            rest: vec![StyledText::from_static("  ", theme.role_style(StyleRole::Text))],
        };
        for (at, row) in self.rows.iter().enumerate() {
            if at > 0 {
                lines.push(Line::default());
            }
            // Empty cells are omitted in a record, because a row may have thousands.
            let told =
                self.head.iter().zip(row).filter(|(_, cell)| cell.iter().any(|piece| !piece.text.is_empty()));
            for (name, cell) in told {
                let mut text = name.clone();
                text.push(StyledText::from_static(": ", theme.role_style(StyleRole::Heading)));
                text.extend(cell.iter().cloned());
                lines.extend(wrap_line(&text, width, &indent, WrapMode::Words));
            }
        }
        if self.rows.is_empty() {
            for name in &self.head {
                lines.extend(wrap_line(name, width, &indent, WrapMode::Words));
            }
        }
        lines
    }
}
