//! The pane of open asks of all pods, with the card of the selected one.

use minke_record::{AskId, AskKind, Millis, SessionId};
use minke_view::{AskCard, Block, BlockBody, BlockId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::list_frame::{self, ListFrame, area_above, area_below, column_pieces, count_label};
use super::selection::RowSelection;
use crate::paint::{self, Clean, StyleRole, StyledText, Theme, truncate_line};

/// An open ask and its pod.
#[derive(Debug, Clone, PartialEq)]
pub struct AskRow {
    pub session: SessionId,
    pub pod: String,
    /// Time of the ask.
    pub asked_at: Millis,
    pub card_lines: AskCard,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct AsksPane {
    rows: Vec<AskRow>,
    selection: RowSelection,
    /// Scroll position of the card.
    top_row: usize,
}

impl AsksPane {
    pub fn new(rows: Vec<AskRow>) -> AsksPane {
        AsksPane { rows, ..AsksPane::default() }
    }

    /// Replaces the rows and preserves the selection, so that an answer never goes to another ask.
    pub fn set_rows(&mut self, rows: Vec<AskRow>) {
        let chosen = self.selected_row().map(|row| row.card_lines.ask.id);
        self.rows = rows;
        let is = |row: &AskRow| Some(row.card_lines.ask.id) == chosen;
        match self.rows.iter().position(is) {
            Some(at) => self.selection.select_row(at),
            None => self.top_row = 0,
        }
    }

    pub fn selected_row(&self) -> Option<&AskRow> {
        self.rows.get(self.selection.selected_index(self.rows.len())?)
    }

    pub fn select_ask(&mut self, ask: AskId) {
        if let Some(at) = self.rows.iter().position(|row| row.card_lines.ask.id == ask) {
            self.selection.select_row(at);
            self.top_row = 0;
        }
    }

    pub fn move_selection(&mut self, steps: isize) {
        self.selection.move_by(steps, self.rows.len());
        self.top_row = 0;
    }

    /// Scrolls the card.
    pub fn scroll_card(&mut self, lines: isize) {
        self.top_row = self.top_row.saturating_add_signed(lines);
    }

    pub fn draw_pane(&mut self, buf: &mut Buffer, area: Rect, now: Millis, theme: &Theme) {
        let list_frame =
            ListFrame { title: "Questions", detail: count_label(self.rows.len(), "open question"), theme };
        let area = list_frame.draw_title(buf, area);
        if self.rows.is_empty() {
            return list_frame.draw_empty(buf, area, "no open questions");
        }
        let card = self.card_lines(area.width, theme);
        // Show the whole card if possible, because the decision depends on it.
        let target = u16::try_from(card.len()).unwrap_or(u16::MAX).saturating_add(1);
        let most = area.height.saturating_sub(target).min(area.height / 3).max(1);
        let rows = u16::try_from(self.rows.len()).unwrap_or(u16::MAX).min(most);
        list_frame.draw_rows(buf, area_above(area, rows), &self.selection, self.rows.len(), |at, width| {
            self.rows.get(at).map(|row| row_pieces(row, width, now, theme)).unwrap_or_default()
        });
        let available = area_below(area, rows.saturating_add(u16::from(area.height > 8)));
        self.draw_card(&card, buf, available, theme);
    }

    fn card_lines(&self, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let Some(row) = self.selected_row() else { return Vec::new() };
        let id = BlockId { seq: 0, part: 0, live: true };
        let block = Block { id, version: 0, ts: 0, body: BlockBody::Ask(Box::new(row.card_lines.clone())) };
        paint::block_lines(&block, width, theme, true)
    }

    /// Draws the card. One that does not fit is scrolled and shows the number of hidden lines.
    fn draw_card(&mut self, card: &[Line<'static>], buf: &mut Buffer, area: Rect, theme: &Theme) {
        let available = usize::from(area.height);
        let seen = if card.len() <= available { available } else { available.saturating_sub(1) };
        let hidden = card.len().saturating_sub(seen);
        self.top_row = self.top_row.min(hidden);
        let rows = u16::try_from(seen).unwrap_or(area.height);
        list_frame::draw_lines(buf, area_above(area, rows), card, self.top_row);
        if hidden > 0 {
            let words = format!("{} hidden: scroll", count_label(hidden, "line"));
            let words = [StyledText::new(Clean::from_prose_line(&words), theme.role_style(StyleRole::Warn))];
            list_frame::draw_line(buf, area, rows, truncate_line(&words, area.width));
        }
    }
}

fn row_pieces(row: &AskRow, width: u16, now: Millis, theme: &Theme) -> Vec<StyledText> {
    let subject = &row.card_lines.ask.subject;
    let name = if width < 50 { 12 } else { 20 };
    let mut out = column_pieces(&row.pod, name, theme.role_style(StyleRole::Accent));
    out.push(StyledText::from_static("  ", theme.role_style(StyleRole::Dim)));
    let what = match &row.card_lines.ask.ask {
        AskKind::Approval => subject.tool.as_deref().unwrap_or("a call"),
        AskKind::Question => "question",
        AskKind::Elicitation => "a server asks",
        AskKind::Other(word) => word,
    };
    out.extend(column_pieces(what, 14, theme.role_style(StyleRole::Warn)));
    if width >= 60 {
        out.extend(column_pieces(
            &minke_text::format_age(row.asked_at, now),
            9,
            theme.role_style(StyleRole::Dim),
        ));
    }
    let action = subject.action.as_ref();
    let command = action.and_then(|action| action.command.as_deref());
    let path = action.and_then(|action| action.writes.first()).map(String::as_str);
    let text = command.or(path).or(subject.text.as_deref()).unwrap_or_default();
    out.push(StyledText::new(Clean::from_exact_line(text), theme.role_style(StyleRole::Text)));
    out
}
