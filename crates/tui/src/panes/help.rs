//! Help: what the keys and commands do, with words to look for.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::pick::Pick;
use super::sheet::{Sheet, column, filtered, many};
use crate::paint::{Clean, Piece, Role, Theme};

/// A key or a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpRow {
    /// `ctrl-p`, `/compact`.
    pub keys: String,
    pub says: String,
    /// Where it counts: `composer`, `list`; empty if everywhere.
    pub place: String,
    /// What `keys.toml` calls it; empty of commands.
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Help {
    rows: Vec<HelpRow>,
    pick: Pick,
}

impl Help {
    pub fn new(rows: Vec<HelpRow>) -> Help {
        Help { rows, pick: Pick::default() }
    }

    fn fitting(&self) -> Vec<usize> {
        self.pick.fitting(&self.rows, |row| format!("{} {} {} {}", row.keys, row.says, row.place, row.name))
    }

    pub fn by(&mut self, steps: isize) {
        let rows = self.fitting().len();
        self.pick.by(steps, rows);
    }

    pub fn pick(&mut self) -> &mut Pick {
        &mut self.pick
    }

    pub fn chosen(&self) -> Option<&HelpRow> {
        let fitting = self.fitting();
        fitting.get(self.pick.at(fitting.len())?).and_then(|at| self.rows.get(*at))
    }

    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let fitting = self.fitting();
        let aside =
            format!("{}{}; keys.toml gives others", many(fitting.len(), "line"), filtered(&self.pick));
        let sheet = Sheet { title: "Help", aside, theme };
        let area = sheet.begin(buf, area);
        if fitting.is_empty() {
            return sheet.nothing(buf, area, "none fits");
        }
        sheet.rows(buf, area, (&self.pick, fitting.len()), |at, width| {
            let row = fitting.get(at).and_then(|at| self.rows.get(*at));
            row.map(|row| pieces(row, width, theme)).unwrap_or_default()
        });
    }
}

fn pieces(row: &HelpRow, width: u16, theme: &Theme) -> Vec<Piece> {
    let dim = theme.style(Role::Dim);
    let keys = if width < 50 { 14 } else { 24 };
    let mut out = column(&row.keys, keys, theme.style(Role::Key));
    out.push(Piece::own("  ", dim));
    if width >= 70 {
        out.extend(column(&row.says, 32, theme.style(Role::Text)));
        out.extend(column(&row.place, 12, dim));
        out.push(Piece::new(Clean::line(&row.name), dim));
    } else {
        out.push(Piece::new(Clean::line(&row.says), theme.style(Role::Text)));
    }
    out
}
