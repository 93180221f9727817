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
        let aside = match self.pick.filter().is_empty() {
            true if area.width < 50 => "type to search".to_owned(),
            true => "type to search; keys.toml gives other keys".to_owned(),
            false => format!("{}{}", many(fitting.len(), "line"), filtered(&self.pick)),
        };
        let sheet = Sheet { title: "Help", aside, theme };
        let area = sheet.begin(buf, area);
        if fitting.is_empty() {
            return sheet.nothing(buf, area, "none fits");
        }
        // As wide as the widest of all, so that nothing moves while one searches, but not most of the line.
        let widest = self.rows.iter().map(|row| row.keys.chars().count()).max().unwrap_or(0);
        let keys = widest.min(usize::from(area.width) * 2 / 5);
        sheet.rows(buf, area, (&self.pick, fitting.len()), |at, width| {
            let row = fitting.get(at).and_then(|at| self.rows.get(*at));
            row.map(|row| pieces(row, (keys, width), theme)).unwrap_or_default()
        });
    }
}

/// Columns of what is said and where it counts, where there is room for all of it.
const SAYS: usize = 20;
const PLACE: usize = 10;

fn pieces(row: &HelpRow, (keys, width): (usize, u16), theme: &Theme) -> Vec<Piece> {
    let dim = theme.style(Role::Dim);
    let mut out = column(&whole_keys(&row.keys, keys), keys, theme.style(Role::Key));
    out.push(Piece::own("  ", dim));
    if width >= 70 && !row.name.is_empty() {
        out.extend(column(&row.says, SAYS, theme.style(Role::Text)));
        out.extend(column(&row.place, PLACE, dim));
        out.push(Piece::new(Clean::line(&row.name), dim));
    } else {
        out.push(Piece::new(Clean::line(&row.says), theme.style(Role::Text)));
    }
    out
}

/// Those keys that have room; half of a key's name is none.
fn whole_keys(keys: &str, room: usize) -> String {
    let mut out = String::new();
    for key in keys.split(", ") {
        let gap = if out.is_empty() { 0 } else { 2 };
        if !out.is_empty() && out.chars().count() + gap + key.chars().count() > room {
            break;
        }
        out.push_str(if gap == 0 { "" } else { ", " });
        out.push_str(key);
    }
    out
}
