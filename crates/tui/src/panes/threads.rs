//! Threads: conversations to go back to, with a look into the one that is chosen.

use minke_record::{Millis, SessionId};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::pick::Pick;
use super::sheet::{self, Sheet, above, below, column, filtered, many};
use super::told;
use crate::outside::Look;
use crate::paint::{Before, Break, Clean, Piece, Role, Theme, wrap};

/// One conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadRow {
    pub session: SessionId,
    pub name: String,
    /// What it is about: its first words, or where the words that were searched for stand.
    pub preview: String,
    pub state: String,
    pub cwd: String,
    pub updated: Millis,
    pub archived: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Threads {
    rows: Vec<ThreadRow>,
    pick: Pick,
    /// The rows were searched for by the words of the filter: all of them fit.
    searched: bool,
    /// The end of the one that was chosen last.
    seen: Option<Look>,
}

impl Threads {
    pub fn new(rows: Vec<ThreadRow>) -> Threads {
        Threads { rows, ..Threads::default() }
    }

    /// New rows; the chosen one stays chosen. `searched`: they are what was found for the filter.
    pub fn set(&mut self, rows: Vec<ThreadRow>, searched: bool) {
        let chosen = self.chosen().map(|row| row.session);
        self.rows = rows;
        self.searched = searched;
        let fitting = self.fitting();
        let is = |at: &usize| self.rows.get(*at).is_some_and(|row| Some(row.session) == chosen);
        if let Some(at) = fitting.iter().position(is) {
            self.pick.to(at);
        }
    }

    fn fitting(&self) -> Vec<usize> {
        if self.searched {
            return (0..self.rows.len()).collect();
        }
        self.pick.fitting(&self.rows, |row| format!("{} {} {}", row.name, row.preview, row.cwd))
    }

    pub fn chosen(&self) -> Option<&ThreadRow> {
        let fitting = self.fitting();
        fitting.get(self.pick.at(fitting.len())?).and_then(|at| self.rows.get(*at))
    }

    /// The one that is chosen, if its end is not known.
    pub fn unseen(&self) -> Option<SessionId> {
        let chosen = self.chosen()?.session;
        (self.seen.as_ref().map(|seen| seen.session) != Some(chosen)).then_some(chosen)
    }

    pub fn look_at(&mut self, look: Look) {
        self.seen = Some(look);
    }

    pub fn by(&mut self, steps: isize) {
        let rows = self.fitting().len();
        self.pick.by(steps, rows);
    }

    pub fn pick(&mut self) -> &mut Pick {
        &mut self.pick
    }

    pub fn draw(&self, buf: &mut Buffer, area: Rect, now: Millis, theme: &Theme) {
        let fitting = self.fitting();
        let aside = format!("{}{}", many(fitting.len(), "conversation"), filtered(&self.pick));
        let sheet = Sheet { title: "Threads", aside, theme };
        let area = sheet.begin(buf, area);
        if fitting.is_empty() {
            let text = if self.pick.filter().is_empty() { "no conversation here yet" } else { "none fits" };
            return sheet.nothing(buf, area, text);
        }
        // The look into the chosen one needs room that a short list can spare.
        let look = match area.height {
            0..14 => 0,
            14..26 => 8,
            _ => 14,
        };
        let list = above(area, area.height.saturating_sub(look));
        sheet.rows(buf, list, (&self.pick, fitting.len()), |at, width| {
            let row = fitting.get(at).and_then(|at| self.rows.get(*at));
            row.map(|row| pieces(row, width, now, theme)).unwrap_or_default()
        });
        if look > 0
            && let Some(row) = self.chosen()
        {
            self.look(row, buf, below(area, list.height), theme);
        }
    }

    fn look(&self, row: &ThreadRow, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let dim = theme.style(Role::Dim);
        let about = format!("{} · {} · {}", row.name, row.state, row.cwd);
        let mut lines = vec![ratatui::text::Line::default()];
        lines.push(crate::paint::cut(&[Piece::new(Clean::line(&about), dim)], area.width));
        let texts = match self.seen.as_ref().filter(|seen| seen.session == row.session) {
            // Of what was said less is shown than of what came of it.
            Some(seen) => vec![(&seen.said, Role::Accent, 3), (&seen.replied, Role::Text, usize::MAX)],
            None => vec![(&row.preview, Role::Text, usize::MAX)],
        };
        for (text, role, most) in texts {
            let style = theme.style(role);
            let words = Clean::words(text);
            let wrapped = words
                .lines()
                .take(usize::from(area.height))
                .flat_map(|line| {
                    wrap(&[Piece::new(line, style)], area.width, &Before::default(), Break::Words)
                })
                .take(most);
            lines.extend(wrapped.take(usize::from(area.height)));
        }
        sheet::lines(buf, area, &lines, 0);
    }
}

fn pieces(row: &ThreadRow, width: u16, now: Millis, theme: &Theme) -> Vec<Piece> {
    let dim = theme.style(Role::Dim);
    let name = if width < 50 { 12 } else { 20 };
    let mut out = column(&row.name, name, theme.style(if row.archived { Role::Dim } else { Role::Accent }));
    out.push(Piece::own("  ", dim));
    let state = if row.archived { "archived" } else { row.state.as_str() };
    if width >= 50 {
        out.extend(column(state, 12, dim));
        out.extend(column(&told::ago(row.updated, now), 9, dim));
    }
    out.push(Piece::new(Clean::line(&row.preview), theme.style(Role::Text)));
    out
}
