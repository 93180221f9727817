//! Diff: everything that a session has changed, one file after the other.

use minke_view::{Changes, FileChanges};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::pick::Pick;
use super::sheet::{self, Sheet, above, below, many};
use crate::paint::{self, Clean, Piece, Role, Theme, cut};

/// Which file is looked at, and how far it is scrolled.
#[derive(Debug, Clone, Default)]
pub struct DiffPane {
    changes: Changes,
    pick: Pick,
    top: usize,
    /// The lines of the file that was drawn last.
    drawn: Option<Drawn>,
}

#[derive(Debug, Clone)]
struct Drawn {
    file: usize,
    changes: usize,
    width: u16,
    theme: Theme,
    lines: Vec<Line<'static>>,
}

impl DiffPane {
    pub fn new(changes: Changes) -> DiffPane {
        DiffPane { changes, ..DiffPane::default() }
    }

    /// More was changed.
    pub fn set(&mut self, changes: Changes) {
        self.changes = changes;
        self.drawn = None;
    }

    /// Goes by so many files.
    pub fn by_files(&mut self, steps: isize) {
        self.pick.by(steps, self.changes.files().len());
        self.top = 0;
    }

    /// Scrolls the file.
    pub fn by(&mut self, lines: isize) {
        self.top = self.top.saturating_add_signed(lines);
    }

    /// The file that is looked at.
    pub fn chosen(&self) -> Option<&FileChanges> {
        let files = self.changes.files();
        files.get(self.pick.at(files.len())?)
    }

    pub fn draw(&mut self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let files = self.changes.files().len();
        let (added, removed) = self.changes.lines();
        let aside = format!("{}, +{added} -{removed}", many(files, "file"));
        let sheet = Sheet { title: "Changes", aside, theme };
        let area = sheet.begin(buf, area);
        let Some(chosen) = self.pick.at(files) else {
            return sheet.nothing(buf, area, "this session has changed no files");
        };
        // Where there is room the files stand beside the diff, else above it.
        let body = if area.width >= 100 {
            let list = Rect { width: 36, ..area };
            self.list(&sheet, buf, list);
            Rect { x: area.x.saturating_add(38), width: area.width.saturating_sub(38), ..area }
        } else {
            let rows = u16::try_from(files).unwrap_or(u16::MAX).min((area.height / 4).max(1));
            self.list(&sheet, buf, above(area, rows));
            below(area, rows.saturating_add(u16::from(area.height > 8)))
        };
        let count = self.chosen().map_or(0, |file| file.changes.len());
        let key = (chosen, count, body.width, *theme);
        let fresh = |drawn: &&Drawn| (drawn.file, drawn.changes, drawn.width, drawn.theme) == key;
        if self.drawn.as_ref().filter(fresh).is_none() {
            let lines = self.chosen().map(|file| file_lines(file, body.width, theme)).unwrap_or_default();
            let (file, changes, width, theme) = key;
            self.drawn = Some(Drawn { file, changes, width, theme, lines });
        }
        let lines = self.drawn.as_ref().map(|drawn| drawn.lines.as_slice()).unwrap_or_default();
        self.top = self.top.min(lines.len().saturating_sub(body.height.into()));
        sheet::lines(buf, body, lines, self.top);
    }

    fn list(&self, sheet: &Sheet<'_>, buf: &mut Buffer, area: Rect) {
        let files = self.changes.files();
        sheet.rows(buf, area, (&self.pick, files.len()), |at, width| {
            files.get(at).map(|file| file_row(file, width, sheet.theme)).unwrap_or_default()
        });
    }
}

fn file_row(file: &FileChanges, width: u16, theme: &Theme) -> Vec<Piece> {
    let (added, removed) = file.changes.iter().fold((0_u64, 0_u64), |(added, removed), change| {
        (added.saturating_add(change.added), removed.saturating_add(change.removed))
    });
    let (plus, minus) = (format!("+{added}"), format!(" -{removed}"));
    let room = usize::from(width).saturating_sub(plus.len() + minus.len() + 1).max(8);
    // Of a long path the end says more than the beginning.
    let path = Clean::line(&file.path);
    let chars = path.as_str().chars().count();
    let shown = if chars > room {
        let end: String = path.as_str().chars().skip(chars - room + 1).collect();
        format!("…{end}")
    } else {
        path.as_str().to_owned()
    };
    let mut out = sheet::column(&shown, room, theme.style(Role::Text));
    out.push(Piece::own(" ", theme.style(Role::Text)));
    out.push(Piece::new(Clean::line(&plus), theme.style(Role::Added)));
    out.push(Piece::new(Clean::line(&minus), theme.style(Role::Removed)));
    out
}

fn file_lines(file: &FileChanges, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let dim = theme.style(Role::Dim);
    let mut lines = Vec::new();
    for (at, change) in file.changes.iter().enumerate() {
        if at > 0 {
            lines.push(Line::default());
        }
        let about = format!("{} by {}, entry {}", file.path, change.by, change.seq);
        lines.push(cut(&[Piece::new(Clean::line(&about), dim)], width));
        match &change.diff {
            Some(diff) => lines.extend(paint::diff(diff, width, theme, paint::ROWS)),
            None => {
                lines.push(cut(&[Piece::own("what it changed was not captured line by line", dim)], width))
            }
        }
    }
    if file.left_out > 0 {
        let text = format!("… {} more changes", file.left_out);
        lines.push(cut(&[Piece::new(Clean::line(&text), theme.style(Role::Warn))], width));
    }
    lines
}
