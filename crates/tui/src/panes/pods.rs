//! Pods: the tree of all of them, who needs a person first.

use minke_record::SessionId;
use minke_view::{PodRow, Tree, TreeRow};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::pick::Pick;
use super::sheet::{Sheet, column, filtered, many};
use super::told;
use crate::paint::{Clean, Piece, Role, Theme};

/// The tree, and who is chosen in it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pods {
    tree: Tree,
    pick: Pick,
}

impl Pods {
    pub fn new(rows: Vec<PodRow>) -> Pods {
        Pods { tree: Tree::new(rows), pick: Pick::default() }
    }

    /// New rows; whoever was chosen stays chosen.
    pub fn set(&mut self, rows: Vec<PodRow>) {
        let chosen = self.chosen().map(|pod| pod.session);
        self.tree = Tree::new(rows);
        let at = chosen.and_then(|session| self.place_of(session));
        if let Some(at) = at {
            self.pick.to(at);
        }
    }

    fn place_of(&self, session: SessionId) -> Option<usize> {
        self.fitting().iter().position(|at| self.row(*at).is_some_and(|row| row.pod.session == session))
    }

    fn row(&self, at: usize) -> Option<&TreeRow> {
        self.tree.rows().get(at)
    }

    fn fitting(&self) -> Vec<usize> {
        let text = |row: &TreeRow| format!("{} {} {}", row.pod.name, row.pod.state, row.pod.activity);
        self.pick.fitting(self.tree.rows(), text)
    }

    pub fn chosen(&self) -> Option<&PodRow> {
        let fitting = self.fitting();
        let at = self.pick.at(fitting.len())?;
        fitting.get(at).and_then(|at| self.row(*at)).map(|row| &row.pod)
    }

    /// Goes by so many rows; up is negative.
    pub fn by(&mut self, steps: isize) {
        let rows = self.fitting().len();
        self.pick.by(steps, rows);
    }

    pub fn pick(&mut self) -> &mut Pick {
        &mut self.pick
    }

    pub fn draw(&self, buf: &mut Buffer, area: Rect, theme: &Theme) {
        let fitting = self.fitting();
        let live = self.tree.rows().iter().filter(|row| row.pod.live).count();
        let asks = match self.tree.asks() {
            0 => String::new(),
            1 => ", 1 question".to_owned(),
            asks => format!(", {asks} questions"),
        };
        let aside = format!("{} live{asks}{}", many(live, "pod"), filtered(&self.pick));
        let sheet = Sheet { title: "Pods", aside, theme };
        let area = sheet.begin(buf, area);
        if fitting.is_empty() {
            return sheet.nothing(
                buf,
                area,
                if self.pick.filter().is_empty() { "no pod lives" } else { "none fits" },
            );
        }
        // With a filter the tree is not whole, and its branches would lead nowhere.
        let whole = self.pick.filter().is_empty();
        sheet.rows(buf, area, (&self.pick, fitting.len()), |at, width| {
            let row = fitting.get(at).and_then(|at| self.row(*at));
            row.map(|row| pieces(row, width, theme, whole)).unwrap_or_default()
        });
    }
}

fn pieces(row: &TreeRow, width: u16, theme: &Theme, branches: bool) -> Vec<Piece> {
    let pod = &row.pod;
    let dim = theme.style(Role::Dim);
    let name_role = if pod.live { Role::Text } else { Role::Dim };
    let branch = if branches { branch(row, theme) } else { String::new() };
    let mut out = column(&format!("{branch}{}", pod.name), name_width(width), theme.style(name_role));
    out.push(Piece::own("  ", dim));
    let (state, role) = match pod.state.as_str() {
        _ if pod.asks == 1 => ("1 question".to_owned(), Role::Warn),
        _ if pod.asks > 1 => (format!("{} questions", pod.asks), Role::Warn),
        "crashed" | "failed" | "interrupted" => (pod.state.clone(), Role::Error),
        "running" => (pod.state.clone(), Role::Good),
        _ => (pod.state.clone(), Role::Dim),
    };
    out.extend(column(&state, 12, theme.style(role)));
    if width >= 70 {
        let cost = format!("{} {}", told::tokens(pod.tokens), told::cost(pod.cost_micros));
        out.extend(column(&cost, 20, dim));
    }
    out.push(Piece::new(Clean::line(&pod.activity), theme.style(Role::Text)));
    if width >= 100 && !pod.scope.is_empty() {
        out.push(Piece::new(Clean::line(&format!("  {}", pod.scope)), dim));
    }
    out
}

fn name_width(width: u16) -> usize {
    match width {
        0..50 => 16,
        50..100 => 24,
        _ => 32,
    }
}

/// The lines that lead from a parent to it.
fn branch(row: &TreeRow, theme: &Theme) -> String {
    if theme.plain {
        return if row.depth == 0 { String::new() } else { format!("level {}, ", row.depth) };
    }
    let mut out = String::new();
    // The topmost have no lines; deep ones are cut by the column.
    for (at, more) in row.more.iter().enumerate().skip(1) {
        out.push_str(match (at == row.depth, more) {
            (true, true) => "├ ",
            (true, false) => "└ ",
            (false, true) => "│ ",
            (false, false) => "  ",
        });
    }
    out
}
