//! The pane of settings and their values.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::list_frame::{ListFrame, area_above, column_pieces, draw_line};
use super::selection::RowSelection;
use crate::paint::{Clean, StyleRole, StyledText, Theme, truncate_line};

/// A setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRow {
    pub name: String,
    pub value: String,
    /// The allowed values in order.
    pub allowed_values: Vec<String>,
    pub description: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SettingsPane {
    rows: Vec<SettingRow>,
    selection: RowSelection,
}

impl SettingsPane {
    pub fn new(rows: Vec<SettingRow>) -> SettingsPane {
        SettingsPane { rows, selection: RowSelection::default() }
    }

    pub fn setting_rows(&self) -> &[SettingRow] {
        &self.rows
    }

    pub fn move_selection(&mut self, steps: isize) {
        self.selection.move_by(steps, self.rows.len());
    }

    pub fn selected_setting(&self) -> Option<&SettingRow> {
        self.rows.get(self.selection.selected_index(self.rows.len())?)
    }

    /// Selects the next or previous value of the selected setting, cyclically. Returns the changed setting,
    /// or `None` if there is no other value.
    pub fn cycle_value(&mut self, forward: bool) -> Option<&SettingRow> {
        let at = self.selection.selected_index(self.rows.len())?;
        let row = self.rows.get_mut(at)?;
        let many = row.allowed_values.len();
        let now = row.allowed_values.iter().position(|choice| *choice == row.value);
        let next = match (now, forward) {
            (Some(now), true) => (now + 1) % many.max(1),
            (Some(now), false) => now.checked_sub(1).unwrap_or(many.saturating_sub(1)),
            (None, _) => 0,
        };
        let choice = row.allowed_values.get(next).filter(|choice| **choice != row.value)?;
        row.value = choice.clone();
        Some(row)
    }

    pub fn draw_pane(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let list_frame = ListFrame { title: "Settings", detail: "changes are saved".to_owned(), theme };
        let area = list_frame.draw_title(buf, area);
        let narrow = area.width < 50 && area.height > 3;
        let rows = if narrow { area.height - 1 } else { area.height };
        list_frame.draw_rows(buf, area_above(area, rows), &self.selection, self.rows.len(), |at, width| {
            self.rows.get(at).map(|row| row_pieces(row, width, narrow, theme)).unwrap_or_default()
        });
        // On narrow screens the description of the selected setting is below.
        if let Some(row) = self.selected_setting().filter(|_| narrow) {
            let says =
                [StyledText::new(Clean::from_prose_line(&row.description), theme.role_style(StyleRole::Dim))];
            draw_line(buf, area, rows, truncate_line(&says, area.width));
        }
    }
}

fn row_pieces(row: &SettingRow, width: u16, narrow: bool, theme: &Theme) -> Vec<StyledText> {
    let dim = theme.role_style(StyleRole::Dim);
    let name = if width < 50 { 12 } else { 20 };
    let mut out = column_pieces(&row.name, name, theme.role_style(StyleRole::Text));
    out.push(StyledText::from_static("  ", dim));
    out.extend(column_pieces(&row.value, 14, theme.role_style(StyleRole::Accent)));
    if !narrow {
        out.push(StyledText::from_static("  ", dim));
        out.push(StyledText::new(Clean::from_prose_line(&row.description), dim));
    }
    out
}
