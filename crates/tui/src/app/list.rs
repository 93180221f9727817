//! A list of rows with a filter: models, skills, inputs to go back to, what to do about a directory that is held.

use minke_record::{Millis, Position, SessionId};
use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

use super::words::{ago, one_line};
use crate::outside::{ModelLine, Where};
use crate::panes::ThreadRow;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct List {
    pub(super) kind: ListKind,
    pub(super) rows: Vec<Row>,
    pub(super) filter: String,
    /// Of the rows that fit the filter.
    pub(super) at: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListKind {
    Models,
    Skills,
    Rewind {
        head: Position,
    },
    /// What to do about a directory that somebody else holds.
    Held,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) text: String,
    /// At the right, dimmed.
    pub(super) aside: String,
    pub(super) means: Means,
    /// Somebody waits for the person there.
    pub(super) urgent: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Means {
    Session(SessionId),
    Model(String),
    Input(u64),
    /// A skill or a workflow.
    Skill(String),
    /// Begin there instead.
    Work(Where),
    /// Join the one who holds the directory.
    Holder(SessionId),
    Tour,
    /// It cannot be had as it is; this is how it could be.
    How(String),
}

impl List {
    pub(super) fn new(kind: ListKind, rows: Vec<Row>) -> List {
        List { kind, rows, filter: String::new(), at: 0 }
    }

    pub(super) fn title(&self) -> &'static str {
        match self.kind {
            ListKind::Models => "Models",
            ListKind::Skills => "Skills and workflows",
            ListKind::Held => "Somebody else writes here",
            ListKind::Rewind { .. } => "Back to",
        }
    }

    /// Rows that fit what was typed, the best first; without a filter as they are.
    pub(super) fn fitting(&self) -> Vec<&Row> {
        if self.filter.trim().is_empty() {
            return self.rows.iter().collect();
        }
        fitting(&self.filter, &self.rows, |row| format!("{} {}", row.text, row.aside))
    }

    /// Rows behind those that can be chosen already, before those that cannot; the chosen one stays chosen.
    pub(super) fn add_ready(&mut self, rows: Vec<Row>) {
        let chosen = self.chosen().cloned();
        let known: Vec<Row> = rows.into_iter().filter(|row| !self.rows.contains(row)).collect();
        let at = self.rows.iter().position(|row| matches!(row.means, Means::How(_)));
        let at = at.unwrap_or(self.rows.len());
        self.rows.splice(at..at, known);
        let now = self.fitting().iter().position(|row| Some(*row) == chosen.as_ref());
        self.at = now.unwrap_or(self.at);
    }

    pub(super) fn chosen(&self) -> Option<&Row> {
        self.fitting().get(self.at).copied()
    }

    pub(super) fn by(&mut self, forward: bool) {
        let many = self.fitting().len();
        self.at = if forward { (self.at + 1).min(many.saturating_sub(1)) } else { self.at.saturating_sub(1) };
    }
}

/// The best fits first.
pub(super) fn fitting<'a, T>(filter: &str, all: &'a [T], text: impl Fn(&T) -> String) -> Vec<&'a T> {
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

/// A model, and whether it can be asked. One that is not ready says how it becomes so.
pub(super) fn model_row(model: &ModelLine) -> Row {
    let means = match model.ready {
        true => Means::Model(model.reference.clone()),
        false => Means::How(format!("{}: {}", model.reference, model.note)),
    };
    Row { text: model.reference.clone(), aside: model.note.clone(), means, urgent: false }
}

pub(super) fn thread_rows(threads: &[ThreadRow], now: Millis) -> Vec<Row> {
    let row = |thread: &ThreadRow| Row {
        text: format!("{:<16}  {}", thread.name, one_line(&thread.preview)),
        aside: format!("{} {}", thread.state, ago(thread.updated, now)),
        means: Means::Session(thread.session),
        urgent: false,
    };
    threads.iter().map(row).collect()
}
