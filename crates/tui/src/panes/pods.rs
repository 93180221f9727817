//! The pane of all pods as a tree; pods that need the user come first.

use minke_record::SessionId;
use minke_view::{PodRow, PodTree, TreeRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::format;
use super::list_frame::{ListFrame, column_pieces, count_label, filter_label};
use super::selection::RowSelection;
use crate::paint::{Clean, StyleRole, StyledText, Theme};

/// The tree and its selection.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodsPane {
    tree: PodTree,
    selection: RowSelection,
}

impl PodsPane {
    pub fn new(rows: Vec<PodRow>) -> PodsPane {
        PodsPane { tree: PodTree::new(rows), selection: RowSelection::default() }
    }

    /// Replaces the rows and preserves the selection.
    pub fn set_rows(&mut self, rows: Vec<PodRow>) {
        let chosen = self.selected_pod().map(|pod| pod.session);
        self.tree = PodTree::new(rows);
        let at = chosen.and_then(|session| self.row_index(session));
        if let Some(at) = at {
            self.selection.select_row(at);
        }
    }

    fn row_index(&self, session: SessionId) -> Option<usize> {
        self.matching_rows()
            .iter()
            .position(|at| self.tree_row(*at).is_some_and(|row| row.pod.session == session))
    }

    fn tree_row(&self, at: usize) -> Option<&TreeRow> {
        self.tree.tree_rows().get(at)
    }

    fn matching_rows(&self) -> Vec<usize> {
        let text = |row: &TreeRow| format!("{} {} {}", row.pod.name, row.pod.state, row.pod.activity);
        self.selection.matching_rows(self.tree.tree_rows(), text)
    }

    pub fn selected_pod(&self) -> Option<&PodRow> {
        let fitting = self.matching_rows();
        let at = self.selection.selected_index(fitting.len())?;
        fitting.get(at).and_then(|at| self.tree_row(*at)).map(|row| &row.pod)
    }

    /// Moves the selection by rows; negative is up.
    pub fn move_selection(&mut self, steps: isize) {
        let rows = self.matching_rows().len();
        self.selection.move_by(steps, rows);
    }

    pub fn selection_mut(&mut self) -> &mut RowSelection {
        &mut self.selection
    }

    pub fn draw_pane(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let fitting = self.matching_rows();
        let live = self.tree.tree_rows().iter().filter(|row| row.pod.is_live).count();
        let asks = match self.tree.open_ask_count() {
            0 => String::new(),
            1 => ", 1 question".to_owned(),
            asks => format!(", {asks} questions"),
        };
        let detail = format!("{} live{asks}{}", count_label(live, "pod"), filter_label(&self.selection));
        let list_frame = ListFrame { title: "Pods", detail, theme };
        let area = list_frame.draw_title(buf, area);
        if fitting.is_empty() {
            return list_frame.draw_empty(
                buf,
                area,
                if self.selection.filter().is_empty() { "no running pods" } else { "no matches" },
            );
        }
        // With a filter the tree is incomplete, so branches would be misleading.
        let whole = self.selection.filter().is_empty();
        list_frame.draw_rows(buf, area, &self.selection, fitting.len(), |at, width| {
            let row = fitting.get(at).and_then(|at| self.tree_row(*at));
            row.map(|row| row_pieces(row, width, theme, whole)).unwrap_or_default()
        });
    }
}

fn row_pieces(row: &TreeRow, width: u16, theme: &Theme, branches: bool) -> Vec<StyledText> {
    let pod = &row.pod;
    let dim = theme.role_style(StyleRole::Dim);
    let name_role = if pod.is_live { StyleRole::Text } else { StyleRole::Dim };
    let branch = if branches { branch_text(row, theme) } else { String::new() };
    let mut out =
        column_pieces(&format!("{branch}{}", pod.name), name_columns(width), theme.role_style(name_role));
    out.push(StyledText::from_static("  ", dim));
    let (state, role) = match pod.state.as_str() {
        _ if pod.asks == 1 => ("1 question".to_owned(), StyleRole::Warn),
        _ if pod.asks > 1 => (format!("{} questions", pod.asks), StyleRole::Warn),
        "crashed" | "failed" | "interrupted" => (pod.state.clone(), StyleRole::Error),
        "running" => (pod.state.clone(), StyleRole::Good),
        _ => (pod.state.clone(), StyleRole::Dim),
    };
    out.extend(column_pieces(&state, 12, theme.role_style(role)));
    if width >= 70 {
        let cost =
            format!("{} {}", minke_text::format_count(pod.tokens), format::format_cost(pod.cost_micros));
        out.extend(column_pieces(&cost, 20, dim));
    }
    out.push(StyledText::new(Clean::from_prose_line(&pod.activity), theme.role_style(StyleRole::Text)));
    if width >= 100 && !pod.scope.is_empty() {
        out.push(StyledText::new(Clean::from_prose_line(&format!("  {}", pod.scope)), dim));
    }
    out
}

fn name_columns(width: u16) -> usize {
    match width {
        0..50 => 16,
        50..100 => 24,
        _ => 32,
    }
}

/// Returns the branch lines from the parent.
fn branch_text(row: &TreeRow, theme: &Theme) -> String {
    if theme.plain {
        return if row.depth == 0 { String::new() } else { format!("level {}, ", row.depth) };
    }
    let mut out = String::new();
    // Roots have no branches; deep ones are truncated by the column.
    for (at, more) in row.has_next_sibling.iter().enumerate().skip(1) {
        out.push_str(match (at == row.depth, more) {
            (true, true) => "├ ",
            (true, false) => "└ ",
            (false, true) => "│ ",
            (false, false) => "  ",
        });
    }
    out
}
