//! The pane of threads, with a preview of the selected one.

use minke_record::{Millis, SessionId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::list_frame::{self, ListFrame, area_above, area_below, column_pieces, count_label, filter_label};
use super::selection::RowSelection;
use crate::backend::ThreadPreview;
use crate::paint::{Clean, LinePrefix, StyleRole, StyledText, Theme, WrapMode, wrap_line};

/// A thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadRow {
    pub session: SessionId,
    pub name: String,
    /// The first words, or the text around the search match.
    pub summary: String,
    pub state: String,
    pub cwd: String,
    pub updated_at: Millis,
    pub is_archived: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadsPane {
    rows: Vec<ThreadRow>,
    selection: RowSelection,
    /// The rows are search results for the filter, so all of them match.
    is_search_result: bool,
    /// The preview of the thread that was selected last.
    preview: Option<ThreadPreview>,
}

impl ThreadsPane {
    pub fn new(rows: Vec<ThreadRow>) -> ThreadsPane {
        ThreadsPane { rows, ..ThreadsPane::default() }
    }

    /// Replaces the rows and preserves the selection. `searched`: the rows are search results for the filter.
    pub fn set_rows(&mut self, rows: Vec<ThreadRow>, searched: bool) {
        let chosen = self.selected_thread().map(|row| row.session);
        self.rows = rows;
        self.is_search_result = searched;
        let fitting = self.matching_rows();
        let is = |at: &usize| self.rows.get(*at).is_some_and(|row| Some(row.session) == chosen);
        if let Some(at) = fitting.iter().position(is) {
            self.selection.select_row(at);
        }
    }

    fn matching_rows(&self) -> Vec<usize> {
        if self.is_search_result {
            return (0..self.rows.len()).collect();
        }
        self.selection.matching_rows(&self.rows, |row| format!("{} {} {}", row.name, row.summary, row.cwd))
    }

    pub fn selected_thread(&self) -> Option<&ThreadRow> {
        let fitting = self.matching_rows();
        fitting.get(self.selection.selected_index(fitting.len())?).and_then(|at| self.rows.get(*at))
    }

    /// Returns the selected thread if its preview is missing.
    pub fn missing_preview(&self) -> Option<SessionId> {
        let chosen = self.selected_thread()?.session;
        (self.preview.as_ref().map(|seen| seen.session) != Some(chosen)).then_some(chosen)
    }

    pub fn set_preview(&mut self, look: ThreadPreview) {
        self.preview = Some(look);
    }

    pub fn move_selection(&mut self, steps: isize) {
        let rows = self.matching_rows().len();
        self.selection.move_by(steps, rows);
    }

    pub fn selection_mut(&mut self) -> &mut RowSelection {
        &mut self.selection
    }

    pub fn draw_pane(&self, buf: &mut Buffer, area: Rect, now: Millis, theme: &Theme) {
        let fitting = self.matching_rows();
        let detail =
            format!("{}{}", count_label(fitting.len(), "conversation"), filter_label(&self.selection));
        let list_frame = ListFrame { title: "Threads", detail, theme };
        let area = list_frame.draw_title(buf, area);
        if fitting.is_empty() {
            let text = if self.selection.filter().is_empty() { "no threads yet" } else { "no matches" };
            return list_frame.draw_empty(buf, area, text);
        }
        // The preview uses space that a short list does not need.
        let look = match area.height {
            0..14 => 0,
            14..26 => 8,
            _ => 14,
        };
        let list = area_above(area, area.height.saturating_sub(look));
        list_frame.draw_rows(buf, list, &self.selection, fitting.len(), |at, width| {
            let row = fitting.get(at).and_then(|at| self.rows.get(*at));
            row.map(|row| row_pieces(row, width, now, theme)).unwrap_or_default()
        });
        if look > 0
            && let Some(row) = self.selected_thread()
        {
            self.draw_preview(row, buf, area_below(area, list.height), theme);
        }
    }

    fn draw_preview(&self, row: &ThreadRow, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let dim = theme.role_style(StyleRole::Dim);
        let about = format!("{} · {} · {}", row.name, row.state, row.cwd);
        let mut lines = vec![ratatui::text::Line::default()];
        lines.push(crate::paint::truncate_line(
            &[StyledText::new(Clean::from_prose_line(&about), dim)],
            area.width,
        ));
        let texts = match self.preview.as_ref().filter(|seen| seen.session == row.session) {
            // Show fewer lines of the input than of the reply.
            Some(seen) => vec![
                (&seen.last_input, StyleRole::Accent, 3),
                (&seen.last_reply, StyleRole::Text, usize::MAX),
            ],
            None => vec![(&row.summary, StyleRole::Text, usize::MAX)],
        };
        for (text, role, most) in texts {
            let style = theme.role_style(role);
            let words = Clean::from_prose(text);
            let wrapped = words
                .split_lines()
                .take(usize::from(area.height))
                .flat_map(|line| {
                    wrap_line(
                        &[StyledText::new(line, style)],
                        area.width,
                        &LinePrefix::default(),
                        WrapMode::Words,
                    )
                })
                .take(most);
            lines.extend(wrapped.take(usize::from(area.height)));
        }
        list_frame::draw_lines(buf, area, &lines, 0);
    }
}

fn row_pieces(row: &ThreadRow, width: u16, now: Millis, theme: &Theme) -> Vec<StyledText> {
    let dim = theme.role_style(StyleRole::Dim);
    let name = if width < 50 { 12 } else { 20 };
    let mut out = column_pieces(
        &row.name,
        name,
        theme.role_style(if row.is_archived { StyleRole::Dim } else { StyleRole::Accent }),
    );
    out.push(StyledText::from_static("  ", dim));
    let state = if row.is_archived { "archived" } else { row.state.as_str() };
    if width >= 50 {
        out.extend(column_pieces(state, 12, dim));
        out.extend(column_pieces(&minke_text::format_age(row.updated_at, now), 9, dim));
    }
    out.push(StyledText::new(Clean::from_prose_line(&row.summary), theme.role_style(StyleRole::Text)));
    out
}
