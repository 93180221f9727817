//! One line that is typed for something else than the conversation: words to another pod, a name, why not.
//!
//! What was being typed in the composer is kept and comes back. Invariant: words that could not be delivered come back
//! into the line (`a_message_that_could_not_be_delivered_comes_back`).

use minke_record::{AskId, Decision, InputSegment, SessionId};

use super::{App, Do, Pending};
use crate::composer::Draft;
use crate::event::Key;
use crate::keys::{Action, Place};
use crate::outside::Question;

/// What it is typed for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LineFor {
    Message { session: SessionId, name: String },
    Rename { session: SessionId },
    Note { session: SessionId, ask: AskId, decision: Decision },
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    what: LineFor,
    /// What was being typed before.
    kept: Draft,
}

impl Line {
    /// What stands before it.
    pub(super) fn prompt(&self) -> String {
        match &self.what {
            LineFor::Message { name, .. } => format!("to {name}: "),
            LineFor::Rename { .. } => "name: ".to_owned(),
            LineFor::Note { decision, .. } if decision.approves() => "answer: ".to_owned(),
            LineFor::Note { .. } => "no: ".to_owned(),
        }
    }

    pub(super) fn hint(&self) -> &'static str {
        match &self.what {
            LineFor::Message { .. } => "what is to be done?",
            LineFor::Rename { .. } => "letters, digits, `-` and `_`",
            LineFor::Note { decision, .. } if decision.approves() => "your answer",
            LineFor::Note { .. } => "why not? (may be empty)",
        }
    }

    /// What Enter does.
    pub(super) fn does(&self) -> &'static str {
        match &self.what {
            LineFor::Message { .. } => "send",
            LineFor::Rename { .. } => "rename",
            LineFor::Note { .. } => "answer",
        }
    }
}

impl App {
    pub(super) fn open_line(&mut self, what: LineFor, text: &str) {
        let kept = match self.line.take() {
            Some(line) => line.kept,
            None => self.composer.draft(),
        };
        self.composer.set(Draft { text: text.to_owned(), ..Draft::default() });
        self.popup = None;
        self.line = Some(Line { what, kept });
    }

    pub(super) fn line_key(&mut self, key: Key) {
        match self.setup.keys.action(Place::Composer, key) {
            Some(Action::Send) => self.line_done(),
            Some(Action::Pause) => drop(self.close_line()),
            Some(action @ (Action::Leave | Action::Suspend | Action::Redraw | Action::Editor)) => {
                self.act(action, key);
            }
            Some(Action::Newline) => self.composer.newline(),
            _ => self.composer.key(key),
        }
    }

    /// What was being typed before comes back.
    pub(super) fn close_line(&mut self) -> Option<LineFor> {
        let line = self.line.take()?;
        self.composer.set(line.kept);
        Some(line.what)
    }

    fn line_done(&mut self) {
        let text = self.composer.text().trim().to_owned();
        let words = match &self.line {
            Some(Line { what: LineFor::Message { .. }, .. }) => self.composer.take(),
            _ => None,
        };
        match self.close_line() {
            Some(LineFor::Message { session, name }) => {
                let Some(input) = words else { return };
                if let Some(newest) = self.composer.newest() {
                    self.doing.push(Do::AddPast(newest.to_owned()));
                }
                self.message(session, name, input);
            }
            Some(LineFor::Rename { session }) if !text.is_empty() => {
                self.ask(Question::Rename { session, name: text }, Pending::Changed);
            }
            Some(LineFor::Rename { .. }) | None => {}
            Some(LineFor::Note { session, ask, decision }) => {
                let note = Some(text).filter(|note| !note.is_empty());
                self.answer_there(session, ask, decision, note);
            }
        }
    }

    fn message(&mut self, session: SessionId, name: String, input: Vec<InputSegment>) {
        let pending = Pending::Message { session, name, input: input.clone() };
        self.ask(Question::Message { session, input }, pending);
    }

    /// It did not arrive: it can be sent again, unless another line is being typed. Then it is among the earlier inputs.
    pub(super) fn message_is_back(&mut self, session: SessionId, name: String, input: Vec<InputSegment>) {
        if self.line.is_none() {
            self.open_line(LineFor::Message { session, name }, "");
            self.composer.put_back(input);
        }
    }
}
