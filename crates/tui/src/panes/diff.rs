//! The pane of all file changes of a session.

use minke_view::{FileChanges, SessionChanges};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::list_frame::{self, ListFrame, area_above, area_below, count_label};
use super::selection::RowSelection;
use crate::paint::{self, Clean, StyleRole, StyledText, Theme, truncate_line};

/// The selected file and the scroll position.
#[derive(Debug, Clone, Default)]
pub struct DiffPane {
    changes: SessionChanges,
    selection: RowSelection,
    top_row: usize,
    /// The lines of the last drawn file.
    cached: Option<CachedDiff>,
}

#[derive(Debug, Clone)]
struct CachedDiff {
    file: usize,
    changes: usize,
    width: u16,
    theme: Theme,
    lines: Vec<Line<'static>>,
}

impl DiffPane {
    pub fn new(changes: SessionChanges) -> DiffPane {
        DiffPane { changes, ..DiffPane::default() }
    }

    /// Replaces the changes.
    pub fn set_changes(&mut self, changes: SessionChanges) {
        self.changes = changes;
        self.cached = None;
    }

    /// Moves the selection by files.
    pub fn move_file(&mut self, steps: isize) {
        self.selection.move_by(steps, self.changes.changed_files().len());
        self.top_row = 0;
    }

    /// Scrolls the file.
    pub fn scroll_by(&mut self, lines: isize) {
        self.top_row = self.top_row.saturating_add_signed(lines);
    }

    /// Returns the selected file.
    pub fn selected_file(&self) -> Option<&FileChanges> {
        let files = self.changes.changed_files();
        files.get(self.selection.selected_index(files.len())?)
    }

    pub fn draw_pane(&mut self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let files = self.changes.changed_files().len();
        let (added, removed) = self.changes.line_totals();
        let detail = format!("{}, +{added} -{removed}", count_label(files, "file"));
        let list_frame = ListFrame { title: "Changes", detail, theme };
        let area = list_frame.draw_title(buf, area);
        let Some(chosen) = self.selection.selected_index(files) else {
            return list_frame.draw_empty(buf, area, "this session has changed no files");
        };
        // On wide screens the files are next to the diff, else above it.
        let body = if area.width >= 100 {
            let list = Rect { width: 36, ..area };
            self.draw_file_list(&list_frame, buf, list);
            Rect { x: area.x.saturating_add(38), width: area.width.saturating_sub(38), ..area }
        } else {
            let rows = u16::try_from(files).unwrap_or(u16::MAX).min((area.height / 4).max(1));
            self.draw_file_list(&list_frame, buf, area_above(area, rows));
            area_below(area, rows.saturating_add(u16::from(area.height > 8)))
        };
        let count = self.selected_file().map_or(0, |file| file.changes.len());
        let key = (chosen, count, body.width, *theme);
        let fresh = |cached: &&CachedDiff| (cached.file, cached.changes, cached.width, cached.theme) == key;
        if self.cached.as_ref().filter(fresh).is_none() {
            let lines =
                self.selected_file().map(|file| file_lines(file, body.width, theme)).unwrap_or_default();
            let (file, changes, width, theme) = key;
            self.cached = Some(CachedDiff { file, changes, width, theme, lines });
        }
        let lines = self.cached.as_ref().map(|cached| cached.lines.as_slice()).unwrap_or_default();
        self.top_row = self.top_row.min(lines.len().saturating_sub(body.height.into()));
        list_frame::draw_lines(buf, body, lines, self.top_row);
    }

    fn draw_file_list(&self, list_frame: &ListFrame<'_>, buf: &mut Buffer, area: Rect) {
        let files = self.changes.changed_files();
        list_frame.draw_rows(buf, area, &self.selection, files.len(), |at, width| {
            files.get(at).map(|file| file_row(file, width, list_frame.theme)).unwrap_or_default()
        });
    }
}

fn file_row(file: &FileChanges, width: u16, theme: &Theme) -> Vec<StyledText> {
    let (added, removed) = file.changes.iter().fold((0_u64, 0_u64), |(added, removed), change| {
        (added.saturating_add(change.added), removed.saturating_add(change.removed))
    });
    let (plus, minus) = (format!("+{added}"), format!(" -{removed}"));
    let available = usize::from(width).saturating_sub(plus.len() + minus.len() + 1).max(8);
    // The end of a long path is more useful than its beginning.
    let path = Clean::from_prose_line(&file.path);
    let chars = path.as_str().chars().count();
    let visible = if chars > available {
        let end: String = path.as_str().chars().skip(chars - available + 1).collect();
        format!("…{end}")
    } else {
        path.as_str().to_owned()
    };
    let mut out = list_frame::column_pieces(&visible, available, theme.role_style(StyleRole::Text));
    out.push(StyledText::from_static(" ", theme.role_style(StyleRole::Text)));
    out.push(StyledText::new(Clean::from_prose_line(&plus), theme.role_style(StyleRole::Added)));
    out.push(StyledText::new(Clean::from_prose_line(&minus), theme.role_style(StyleRole::Removed)));
    out
}

fn file_lines(file: &FileChanges, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let dim = theme.role_style(StyleRole::Dim);
    let mut lines = Vec::new();
    for (at, change) in file.changes.iter().enumerate() {
        if at > 0 {
            lines.push(Line::default());
        }
        let about = format!("{} by {}, entry {}", file.path, change.caller, change.seq);
        lines.push(truncate_line(&[StyledText::new(Clean::from_prose_line(&about), dim)], width));
        match &change.diff {
            Some(diff) => lines.extend(paint::diff_lines(diff, width, theme, paint::MAX_DIFF_ROWS)),
            None => lines.push(truncate_line(
                &[StyledText::from_static("no line-by-line diff was captured", dim)],
                width,
            )),
        }
    }
    if file.omitted > 0 {
        let text = format!("… {} more changes", file.omitted);
        lines.push(truncate_line(
            &[StyledText::new(Clean::from_prose_line(&text), theme.role_style(StyleRole::Warn))],
            width,
        ));
    }
    lines
}
