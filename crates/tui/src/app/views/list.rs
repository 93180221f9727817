//! A list of rows with a filter: models, skills, earlier inputs, choices for a locked directory.

use minke_record::{Millis, Position, SessionId};
use minke_text::format_age;
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use super::super::format::to_one_line;
use crate::backend::{ModelLine, WorkTarget};
use crate::panes::ThreadRow;

#[derive(Debug, Clone, PartialEq)]
pub(in crate::app) struct ListOverlay {
    pub(in crate::app) kind: ListKind,
    pub(in crate::app) rows: Vec<ListRow>,
    pub(in crate::app) filter: String,
    /// Index among the matching rows.
    pub(in crate::app) selected: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum ListKind {
    Models,
    Skills,
    Rewind {
        head: Position,
    },
    /// The choices if another pod has write access to the directory.
    ScopeConflict,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::app) struct ListRow {
    pub(in crate::app) text: String,
    /// Right-aligned and dimmed.
    pub(in crate::app) detail: String,
    pub(in crate::app) action: RowAction,
    /// A pod waits for the user.
    pub(in crate::app) urgent: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::app) enum RowAction {
    Session(SessionId),
    Model(String),
    Input(u64),
    /// A skill or a workflow.
    Skill(String),
    /// Start there instead.
    WorkAt(WorkTarget),
    /// Join the pod that has write access.
    Holder(SessionId),
    Tour,
    /// Not available; shows how to set it up.
    SetupHint(String),
}

impl ListOverlay {
    pub(in crate::app) fn new(kind: ListKind, rows: Vec<ListRow>) -> ListOverlay {
        ListOverlay { kind, rows, filter: String::new(), selected: 0 }
    }

    pub(in crate::app) fn list_title(&self) -> &'static str {
        match self.kind {
            ListKind::Models => "Models",
            ListKind::Skills => "Skills and workflows",
            ListKind::ScopeConflict => "Another pod writes here",
            ListKind::Rewind { .. } => "Rewind to",
        }
    }

    /// Returns the matching rows, the best first, or all rows in order without a filter.
    pub(in crate::app) fn matching_rows(&self) -> Vec<&ListRow> {
        if self.filter.trim().is_empty() {
            return self.rows.iter().collect();
        }
        matching_items(&self.filter, &self.rows, |row| format!("{} {}", row.text, row.detail))
    }

    /// Inserts rows before those that are not available, and preserves the selection.
    pub(in crate::app) fn insert_ready(&mut self, rows: Vec<ListRow>) {
        let chosen = self.selected_row().cloned();
        let known: Vec<ListRow> = rows.into_iter().filter(|row| !self.rows.contains(row)).collect();
        let at = self.rows.iter().position(|row| matches!(row.action, RowAction::SetupHint(_)));
        let at = at.unwrap_or(self.rows.len());
        self.rows.splice(at..at, known);
        let now = self.matching_rows().iter().position(|row| Some(*row) == chosen.as_ref());
        self.selected = now.unwrap_or(self.selected);
    }

    pub(in crate::app) fn selected_row(&self) -> Option<&ListRow> {
        self.matching_rows().get(self.selected).copied()
    }

    pub(in crate::app) fn move_selection(&mut self, forward: bool) {
        let many = self.matching_rows().len();
        self.selected = if forward {
            (self.selected + 1).min(many.saturating_sub(1))
        } else {
            self.selected.saturating_sub(1)
        };
    }
}

/// Returns the matching items, the best first.
pub(in crate::app) fn matching_items<'a, T>(
    filter: &str,
    all: &'a [T],
    text: impl Fn(&T) -> String,
) -> Vec<&'a T> {
    let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
    let pattern = Pattern::parse(filter, CaseMatching::Smart, Normalization::Smart);
    let mut letters = Vec::new();
    let mut scored: Vec<(u32, &T)> = all
        .iter()
        .filter_map(|one| {
            let text = text(one);
            let score = pattern.score(Utf32Str::new(&text, &mut letters), &mut matcher)?;
            Some((score, one))
        })
        .collect();
    scored.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    scored.into_iter().map(|(_, one)| one).collect()
}

/// Returns the row of a model. A row that is not ready shows how to set the model up.
pub(in crate::app) fn model_row(model: &ModelLine) -> ListRow {
    let action = match model.is_ready {
        true => RowAction::Model(model.reference.clone()),
        false => RowAction::SetupHint(format!("{}: {}", model.reference, model.note)),
    };
    ListRow { text: model.reference.clone(), detail: model.note.clone(), action, urgent: false }
}

pub(in crate::app) fn thread_rows(threads: &[ThreadRow], now: Millis) -> Vec<ListRow> {
    let row = |thread: &ThreadRow| ListRow {
        text: format!("{:<16}  {}", thread.name, to_one_line(&thread.summary)),
        detail: format!("{} {}", thread.state, format_age(thread.updated_at, now)),
        action: RowAction::Session(thread.session),
        urgent: false,
    };
    threads.iter().map(row).collect()
}
