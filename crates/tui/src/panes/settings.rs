//! Settings: what can be chosen, and between what.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::pick::Pick;
use super::sheet::{Sheet, above, column, put};
use crate::paint::{Clean, Piece, Role, Theme, cut};

/// Something that can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: String,
    pub value: String,
    /// What it can be, in order.
    pub choices: Vec<String>,
    pub says: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    rows: Vec<Setting>,
    pick: Pick,
}

impl Settings {
    pub fn new(rows: Vec<Setting>) -> Settings {
        Settings { rows, pick: Pick::default() }
    }

    pub fn rows(&self) -> &[Setting] {
        &self.rows
    }

    pub fn by(&mut self, steps: isize) {
        self.pick.by(steps, self.rows.len());
    }

    pub fn chosen(&self) -> Option<&Setting> {
        self.rows.get(self.pick.at(self.rows.len())?)
    }

    /// The next choice of the chosen setting, or the one before, round and round. Gives the setting as it is now; none
    /// if there is nothing else to choose.
    pub fn turn(&mut self, forward: bool) -> Option<&Setting> {
        let at = self.pick.at(self.rows.len())?;
        let row = self.rows.get_mut(at)?;
        let many = row.choices.len();
        let now = row.choices.iter().position(|choice| *choice == row.value);
        let next = match (now, forward) {
            (Some(now), true) => (now + 1) % many.max(1),
            (Some(now), false) => now.checked_sub(1).unwrap_or(many.saturating_sub(1)),
            (None, _) => 0,
        };
        let choice = row.choices.get(next).filter(|choice| **choice != row.value)?;
        row.value = choice.clone();
        Some(row)
    }

    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let sheet = Sheet { title: "Settings", aside: "changes are kept".to_owned(), theme };
        let area = sheet.begin(buf, area);
        let narrow = area.width < 50 && area.height > 3;
        let rows = if narrow { area.height - 1 } else { area.height };
        sheet.rows(buf, above(area, rows), (&self.pick, self.rows.len()), |at, width| {
            self.rows.get(at).map(|row| pieces(row, width, narrow, theme)).unwrap_or_default()
        });
        // Where there is no room beside it, what the chosen one is for stands below.
        if let Some(row) = self.chosen().filter(|_| narrow) {
            let says = [Piece::new(Clean::line(&row.says), theme.style(Role::Dim))];
            put(buf, area, rows, cut(&says, area.width));
        }
    }
}

fn pieces(row: &Setting, width: u16, narrow: bool, theme: &Theme) -> Vec<Piece> {
    let dim = theme.style(Role::Dim);
    let name = if width < 50 { 12 } else { 20 };
    let mut out = column(&row.name, name, theme.style(Role::Text));
    out.push(Piece::own("  ", dim));
    out.extend(column(&row.value, 14, theme.style(Role::Accent)));
    if !narrow {
        out.push(Piece::own("  ", dim));
        out.push(Piece::new(Clean::line(&row.says), dim));
    }
    out
}
