//! The help pane: keys and commands with a search.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::list_frame::{ListFrame, column_pieces, count_label, filter_label};
use super::selection::RowSelection;
use crate::paint::{Clean, StyleRole, StyledText, Theme};

/// A key or a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpRow {
    /// `ctrl-p`, `/compact`.
    pub keys: String,
    pub description: String,
    /// Its context: `composer`, `list`; empty if everywhere.
    pub context: String,
    /// Name in `keys.toml`; empty for commands.
    pub config_name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HelpPane {
    rows: Vec<HelpRow>,
    selection: RowSelection,
}

impl HelpPane {
    pub fn new(rows: Vec<HelpRow>) -> HelpPane {
        HelpPane { rows, selection: RowSelection::default() }
    }

    fn matching_rows(&self) -> Vec<usize> {
        self.selection.matching_rows(&self.rows, |row| {
            format!("{} {} {} {}", row.keys, row.description, row.context, row.config_name)
        })
    }

    pub fn move_selection(&mut self, steps: isize) {
        let rows = self.matching_rows().len();
        self.selection.move_by(steps, rows);
    }

    pub fn selection_mut(&mut self) -> &mut RowSelection {
        &mut self.selection
    }

    pub fn selected_row(&self) -> Option<&HelpRow> {
        let fitting = self.matching_rows();
        fitting.get(self.selection.selected_index(fitting.len())?).and_then(|at| self.rows.get(*at))
    }

    pub fn draw_pane(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let fitting = self.matching_rows();
        let detail = match self.selection.filter().is_empty() {
            true if area.width < 50 => "type to search".to_owned(),
            true => "type to search; keys.toml changes keys".to_owned(),
            false => format!("{}{}", count_label(fitting.len(), "line"), filter_label(&self.selection)),
        };
        let list_frame = ListFrame { title: "Help", detail, theme };
        let area = list_frame.draw_title(buf, area);
        if fitting.is_empty() {
            return list_frame.draw_empty(buf, area, "no matches");
        }
        // As wide as the widest row, so that the columns do not move while searching, but limited.
        let widest = self.rows.iter().map(|row| row.keys.chars().count()).max().unwrap_or(0);
        let keys = widest.min(usize::from(area.width) * 2 / 5);
        list_frame.draw_rows(buf, area, &self.selection, fitting.len(), |at, width| {
            let row = fitting.get(at).and_then(|at| self.rows.get(*at));
            row.map(|row| row_pieces(row, keys, width, theme)).unwrap_or_default()
        });
    }
}

/// Columns of the description and the context where there is space for both.
const DESCRIPTION_COLUMNS: usize = 20;
const CONTEXT_COLUMNS: usize = 10;

fn row_pieces(row: &HelpRow, keys: usize, width: u16, theme: &Theme) -> Vec<StyledText> {
    let dim = theme.role_style(StyleRole::Dim);
    let mut out = column_pieces(&fitting_keys(&row.keys, keys), keys, theme.role_style(StyleRole::Key));
    out.push(StyledText::from_static("  ", dim));
    if width >= 70 && !row.config_name.is_empty() {
        out.extend(column_pieces(&row.description, DESCRIPTION_COLUMNS, theme.role_style(StyleRole::Text)));
        out.extend(column_pieces(&row.context, CONTEXT_COLUMNS, dim));
        out.push(StyledText::new(Clean::from_prose_line(&row.config_name), dim));
    } else {
        out.push(StyledText::new(
            Clean::from_prose_line(&row.description),
            theme.role_style(StyleRole::Text),
        ));
    }
    out
}

/// Returns the keys that fit completely.
fn fitting_keys(keys: &str, available: usize) -> String {
    let mut out = String::new();
    for key in keys.split(", ") {
        let gap = if out.is_empty() { 0 } else { 2 };
        if !out.is_empty() && out.chars().count() + gap + key.chars().count() > available {
            break;
        }
        out.push_str(if gap == 0 { "" } else { ", " });
        out.push_str(key);
    }
    out
}
