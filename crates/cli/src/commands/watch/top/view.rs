//! Rendering of `top`: computes the lines from tree, selection and size, without a terminal.
//!
//! Invariant: the name of a pod cannot control the terminal, and no line is wider than the terminal
//! (`a_frame_fits_and_is_clean`).

use std::cmp::Ordering;

use clap::ValueEnum;
use minke_record::SessionId;

use super::terminal::ScreenSize;
use crate::commands::watch::ps::{name_column_width, tree_heading, tree_line};
use crate::output::sanitize_text;
use crate::render::pod_tree::{PodNode, PodTreeView};

/// Lines that are not pods: title, column headings and keys.
const FIXED_ROWS: usize = 3;
const KEY_HELP: &str =
    "↑↓ choose · a attach · m message · x stop · sort: n name, s state, t tokens, c cost, g age · q quit";

/// Sort order of siblings; children stay below their parents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum SortKey {
    #[default]
    Name,
    State,
    Tokens,
    Cost,
    Age,
}

impl SortKey {
    pub(super) fn from_key(letter: char) -> Option<SortKey> {
        match letter {
            'n' => Some(SortKey::Name),
            's' => Some(SortKey::State),
            't' => Some(SortKey::Tokens),
            'c' => Some(SortKey::Cost),
            'g' => Some(SortKey::Age),
            _ => None,
        }
    }

    fn label(self) -> &'static str {
        match self {
            SortKey::Name => "name",
            SortKey::State => "state",
            SortKey::Tokens => "tokens",
            SortKey::Cost => "cost",
            SortKey::Age => "age",
        }
    }

    /// Sorts names ascending and counts descending.
    fn compare(self, a: &PodNode, b: &PodNode) -> Ordering {
        let first = match self {
            SortKey::Name => Ordering::Equal,
            SortKey::State => a.state.cmp(&b.state),
            SortKey::Tokens => b.tokens().cmp(&a.tokens()),
            SortKey::Cost => b.cost().total_cmp(&a.cost()),
            SortKey::Age => b.age().cmp(&a.age()),
        };
        first.then_with(|| a.name.cmp(&b.name)).then_with(|| a.session.cmp(&b.session))
    }
}

/// Meaning of the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputMode {
    Browsing,
    /// Typing a message to the selected pod.
    Typing(String),
    /// Confirming the stop of the selected pod.
    ConfirmingStop,
}

/// Selection and settings of the view.
pub(super) struct TopView {
    sort: SortKey,
    /// Descending order.
    reversed: bool,
    selected: Option<SessionId>,
    pub(super) mode: InputMode,
    status_line: String,
}

impl TopView {
    pub(super) fn new(sort: SortKey) -> TopView {
        TopView {
            sort,
            reversed: false,
            selected: None,
            mode: InputMode::Browsing,
            status_line: String::new(),
        }
    }

    pub(super) fn set_status(&mut self, status: &str) {
        self.status_line = status.to_owned();
    }

    /// Changes the sort order; the same order again reverses it.
    pub(super) fn sort_by(&mut self, sort: SortKey) {
        self.reversed = self.sort == sort && !self.reversed;
        self.sort = sort;
    }

    /// Sorts a new tree. Keeps the selection; if that pod is gone, selects the first.
    pub(super) fn apply_tree(&mut self, tree: &mut PodTreeView) {
        let (sort, reversed) = (self.sort, self.reversed);
        tree.sort_siblings(|a, b| if reversed { sort.compare(b, a) } else { sort.compare(a, b) });
        if self.selected.is_none_or(|session| tree.find_node(session).is_none()) {
            self.selected = tree.nodes.first().map(|node| node.session);
            self.mode = InputMode::Browsing;
        }
    }

    pub(super) fn selected_node<'a>(&self, family: &'a PodTreeView) -> Option<&'a PodNode> {
        family.find_node(self.selected?)
    }

    /// Enters a mode for the selected pod.
    pub(super) fn enter_mode(&mut self, tree: &PodTreeView, mode: InputMode) {
        if self.selected_node(tree).is_some() {
            self.mode = mode;
        }
    }

    pub(super) fn move_selection(&mut self, family: &PodTreeView, by: isize) {
        let last = family.nodes.len().saturating_sub(1);
        let to = self.selected_index(family).saturating_add_signed(by).min(last);
        self.selected = family.nodes.get(to).map(|node| node.session);
    }

    fn selected_index(&self, tree: &PodTreeView) -> usize {
        tree.nodes.iter().position(|member| Some(member.session) == self.selected).unwrap_or(0)
    }

    /// Returns the lines of one frame.
    pub(super) fn render_frame(&self, family: &PodTreeView, size: ScreenSize) -> Vec<String> {
        let living = family.nodes.iter().filter(|node| node.is_live()).count();
        let asks: usize = family.nodes.iter().map(PodNode::open_asks).sum();
        let turned = if self.reversed { ", reversed" } else { "" };
        let title = format!("minke top · {living} live · {asks} asks · by {}{turned}", self.sort.label());
        let width = name_column_width(family);
        let mut lines = vec![fit_line(&title, size.columns), fit_line(&tree_heading(width), size.columns)];
        let room = size.rows.saturating_sub(FIXED_ROWS).max(1);
        let at = self.selected_index(family);
        let first = (at + 1).saturating_sub(room);
        for (row, node) in family.nodes.iter().enumerate().skip(first).take(room) {
            let line = fit_line(&tree_line(family, node, width), size.columns);
            lines.push(if row == at { format!("\x1b[7m{line}\x1b[0m") } else { line });
        }
        if family.nodes.is_empty() {
            lines.push("no live pods".to_owned());
        }
        lines.push(fit_line(&self.footer_line(family), size.columns));
        lines
    }

    fn footer_line(&self, tree: &PodTreeView) -> String {
        let name = self.selected_node(tree).map(|node| node.name.as_str()).unwrap_or_default();
        match &self.mode {
            InputMode::Typing(text) => format!("to {name} (Enter sends, Esc does not): {text}▏"),
            InputMode::ConfirmingStop => format!("stop {name} and all its descendants? (y/n)"),
            InputMode::Browsing if !self.status_line.is_empty() => {
                format!("{} · {KEY_HELP}", self.status_line)
            }
            InputMode::Browsing => KEY_HELP.to_owned(),
        }
    }
}

/// Returns sanitized text that fits the terminal width.
fn fit_line(text: &str, columns: usize) -> String {
    sanitize_text(text).chars().map(|c| if c.is_control() { ' ' } else { c }).take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::IdGenerator;

    fn sample_tree(names: &[&str]) -> PodTreeView {
        let mut ids = IdGenerator::new(1, 1);
        let members = names.iter().map(|name| PodNode::with_name(name, SessionId(ids.next_uuid()), None));
        PodTreeView { nodes: members.collect(), problems: Vec::new() }
    }

    #[test]
    fn a_frame_fits_and_is_clean() {
        let names: Vec<String> = (0..40).map(|number| format!("pod-{number:02}\u{1b}[2J\n")).collect();
        let mut tree = sample_tree(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut view = TopView::new(SortKey::Name);
        view.apply_tree(&mut tree);
        for (columns, rows) in [(80, 24), (20, 5), (1, 1)] {
            view.move_selection(&tree, isize::MIN);
            for _ in 0..50 {
                let lines = view.render_frame(&tree, ScreenSize { columns, rows });
                assert!(lines.len() <= rows.max(FIXED_ROWS + 1), "{rows}: {lines:?}");
                let chosen: Vec<&String> = lines.iter().filter(|line| line.starts_with("\x1b[7m")).collect();
                assert_eq!(chosen.len(), 1, "the selected pod is visible");
                for line in &lines {
                    let bare = line.strip_prefix("\x1b[7m").and_then(|line| line.strip_suffix("\x1b[0m"));
                    let bare = bare.unwrap_or(line);
                    assert!(!bare.chars().any(char::is_control), "{bare:?}");
                    assert!(bare.chars().count() <= columns, "{bare:?}");
                }
                view.move_selection(&tree, 1);
            }
            assert_eq!(view.selected_node(&tree).unwrap().name, names[39]);
        }
    }

    #[test]
    fn the_selection_stays_with_its_pod() {
        let mut people = sample_tree(&["a", "b", "c"]);
        let mut view = TopView::new(SortKey::Name);
        view.apply_tree(&mut people);
        view.move_selection(&people, 1);
        assert_eq!(view.selected_node(&people).unwrap().name, "b");
        view.sort_by(SortKey::Name);
        view.apply_tree(&mut people);
        let order: Vec<&str> = people.nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(
            (order.as_slice(), view.selected_node(&people).unwrap().name.as_str()),
            (&["c", "b", "a"][..], "b")
        );
        view.enter_mode(&people, InputMode::ConfirmingStop);
        people.nodes.retain(|node| node.name != "b");
        view.apply_tree(&mut people);
        assert_eq!(view.selected_node(&people).unwrap().name, "c");
        assert_eq!(view.mode, InputMode::Browsing, "another pod must not be stopped instead");
    }
}
