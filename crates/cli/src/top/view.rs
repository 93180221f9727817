//! The picture of `top`: lines for a family, a selection and a size. Plain values, no terminal.
//!
//! Invariant: nothing that a pod calls itself can move the cursor, and no line is wider than the screen
//! (`a_frame_fits_and_is_clean`).

use std::cmp::Ordering;

use clap::ValueEnum;
use minke_record::SessionId;

use super::terminal::Size;
use crate::family::{Family, Member};
use crate::ps::{heading, names_width, tree_line};
use crate::screen::clean;

/// Lines that are no pods: the heading of the page, that of the columns, and the keys.
const FIXED_ROWS: usize = 3;
const KEYS: &str =
    "↑↓ choose · a attach · m message · x stop · sort: n name, s state, t tokens, c cost, g age · q quit";

/// What the pods are sorted by; children stay below their parents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Sort {
    #[default]
    Name,
    State,
    Tokens,
    Cost,
    Age,
}

impl Sort {
    pub(super) fn by_key(letter: char) -> Option<Sort> {
        match letter {
            'n' => Some(Sort::Name),
            's' => Some(Sort::State),
            't' => Some(Sort::Tokens),
            'c' => Some(Sort::Cost),
            'g' => Some(Sort::Age),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::State => "state",
            Sort::Tokens => "tokens",
            Sort::Cost => "cost",
            Sort::Age => "age",
        }
    }

    /// Names upward, counts downward: what is looked for comes first.
    fn order(self, a: &Member, b: &Member) -> Ordering {
        let first = match self {
            Sort::Name => Ordering::Equal,
            Sort::State => a.state.cmp(&b.state),
            Sort::Tokens => b.tokens().cmp(&a.tokens()),
            Sort::Cost => b.cost().total_cmp(&a.cost()),
            Sort::Age => b.age().cmp(&a.age()),
        };
        first.then_with(|| a.name.cmp(&b.name)).then_with(|| a.session.cmp(&b.session))
    }
}

/// What the keys mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Watching,
    /// A message to the selected pod.
    Typing(String),
    /// Whether the selected pod is really to be stopped.
    Stopping,
}

/// What is chosen and shown.
pub(super) struct View {
    sort: Sort,
    /// The other way round.
    reversed: bool,
    selected: Option<SessionId>,
    pub(super) mode: Mode,
    said: String,
}

impl View {
    pub(super) fn new(sort: Sort) -> View {
        View { sort, reversed: false, selected: None, mode: Mode::Watching, said: String::new() }
    }

    pub(super) fn say(&mut self, said: &str) {
        self.said = said.to_owned();
    }

    /// The same once more turns it round.
    pub(super) fn sort_by(&mut self, sort: Sort) {
        self.reversed = self.sort == sort && !self.reversed;
        self.sort = sort;
    }

    /// Brings a new look in order. Who was selected stays so; if it is gone, the first is.
    pub(super) fn settle(&mut self, family: &mut Family) {
        let (sort, reversed) = (self.sort, self.reversed);
        family.sort(|a, b| if reversed { sort.order(b, a) } else { sort.order(a, b) });
        if self.selected.is_none_or(|session| family.of(session).is_none()) {
            self.selected = family.members.first().map(|member| member.session);
            self.mode = Mode::Watching;
        }
    }

    pub(super) fn selected<'a>(&self, family: &'a Family) -> Option<&'a Member> {
        family.of(self.selected?)
    }

    /// Begins something with the selected pod.
    pub(super) fn begin(&mut self, family: &Family, mode: Mode) {
        if self.selected(family).is_some() {
            self.mode = mode;
        }
    }

    pub(super) fn move_by(&mut self, family: &Family, by: isize) {
        let last = family.members.len().saturating_sub(1);
        let to = self.at(family).saturating_add_signed(by).min(last);
        self.selected = family.members.get(to).map(|member| member.session);
    }

    fn at(&self, family: &Family) -> usize {
        family.members.iter().position(|member| Some(member.session) == self.selected).unwrap_or(0)
    }

    /// The lines of one frame.
    pub(super) fn frame(&self, family: &Family, size: Size) -> Vec<String> {
        let living = family.members.iter().filter(|member| member.lives()).count();
        let asks: usize = family.members.iter().map(Member::asks).sum();
        let turned = if self.reversed { ", turned round" } else { "" };
        let title = format!("minke top · {living} live · {asks} asks · by {}{turned}", self.sort.word());
        let width = names_width(family);
        let mut lines = vec![fit(&title, size.columns), fit(&heading(width), size.columns)];
        let room = size.rows.saturating_sub(FIXED_ROWS).max(1);
        let at = self.at(family);
        let first = (at + 1).saturating_sub(room);
        for (row, member) in family.members.iter().enumerate().skip(first).take(room) {
            let line = fit(&tree_line(family, member, width), size.columns);
            lines.push(if row == at { format!("\x1b[7m{line}\x1b[0m") } else { line });
        }
        if family.members.is_empty() {
            lines.push("no pod lives".to_owned());
        }
        lines.push(fit(&self.last_line(family), size.columns));
        lines
    }

    fn last_line(&self, family: &Family) -> String {
        let name = self.selected(family).map(|member| member.name.as_str()).unwrap_or_default();
        match &self.mode {
            Mode::Typing(text) => format!("to {name} (Enter sends, Esc does not): {text}▏"),
            Mode::Stopping => format!("stop {name} and everybody below it? (y/n)"),
            Mode::Watching if !self.said.is_empty() => format!("{} · {KEYS}", self.said),
            Mode::Watching => KEYS.to_owned(),
        }
    }
}

/// One clean line that is not wider than the screen.
fn fit(text: &str, columns: usize) -> String {
    clean(text).chars().map(|c| if c.is_control() { ' ' } else { c }).take(columns).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use minke_record::Ids;

    fn family(names: &[&str]) -> Family {
        let mut ids = Ids::new(1, 1);
        let members = names.iter().map(|name| Member::named(name, SessionId(ids.next_uuid()), None));
        Family { members: members.collect(), problems: Vec::new() }
    }

    #[test]
    fn a_frame_fits_and_is_clean() {
        let names: Vec<String> = (0..40).map(|number| format!("pod-{number:02}\u{1b}[2J\n")).collect();
        let mut family = family(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut view = View::new(Sort::Name);
        view.settle(&mut family);
        for (columns, rows) in [(80, 24), (20, 5), (1, 1)] {
            view.move_by(&family, isize::MIN);
            for _ in 0..50 {
                let lines = view.frame(&family, Size { columns, rows });
                assert!(lines.len() <= rows.max(FIXED_ROWS + 1), "{rows}: {lines:?}");
                let chosen: Vec<&String> = lines.iter().filter(|line| line.starts_with("\x1b[7m")).collect();
                assert_eq!(chosen.len(), 1, "who is selected is seen");
                for line in &lines {
                    let bare = line.strip_prefix("\x1b[7m").and_then(|line| line.strip_suffix("\x1b[0m"));
                    let bare = bare.unwrap_or(line);
                    assert!(!bare.chars().any(char::is_control), "{bare:?}");
                    assert!(bare.chars().count() <= columns, "{bare:?}");
                }
                view.move_by(&family, 1);
            }
            assert_eq!(view.selected(&family).unwrap().name, names[39]);
        }
    }

    #[test]
    fn the_selection_stays_with_its_pod() {
        let mut people = family(&["a", "b", "c"]);
        let mut view = View::new(Sort::Name);
        view.settle(&mut people);
        view.move_by(&people, 1);
        assert_eq!(view.selected(&people).unwrap().name, "b");
        view.sort_by(Sort::Name);
        view.settle(&mut people);
        let order: Vec<&str> = people.members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(
            (order.as_slice(), view.selected(&people).unwrap().name.as_str()),
            (&["c", "b", "a"][..], "b")
        );
        view.begin(&people, Mode::Stopping);
        people.members.retain(|member| member.name != "b");
        view.settle(&mut people);
        assert_eq!(view.selected(&people).unwrap().name, "c");
        assert_eq!(view.mode, Mode::Watching, "nobody else is stopped in its place");
    }
}
