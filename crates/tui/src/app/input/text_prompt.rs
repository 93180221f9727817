//! A single-line prompt for a message to another pod, a name or a reason.
//!
//! The draft in the composer is saved and restored. Invariant: an undelivered message returns to the prompt
//! (`a_message_that_could_not_be_delivered_comes_back`).

use minke_record::{AskId, Decision, InputSegment, SessionId};

use super::super::{App, AppEffect, PendingReply};
use crate::app::{InputState, UiOutput};
use crate::backend::BackendRequest;
use crate::composer::ComposerDraft;
use crate::event::KeyPress;
use crate::keys::{Action, KeyContext};

/// The purpose of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::app) enum PromptPurpose {
    Message { session: SessionId, name: String },
    Rename { session: SessionId },
    Note { session: SessionId, ask: AskId, decision: Decision },
}

#[derive(Debug, Clone, PartialEq)]
pub(in crate::app) struct TextPrompt {
    purpose: PromptPurpose,
    /// The previous draft.
    saved_draft: ComposerDraft,
}

impl TextPrompt {
    /// Returns the prefix of the line.
    pub(in crate::app) fn label(&self) -> String {
        match &self.purpose {
            PromptPurpose::Message { name, .. } => format!("to {name}: "),
            PromptPurpose::Rename { .. } => "name: ".to_owned(),
            PromptPurpose::Note { decision, .. } if decision.is_approval() => "answer: ".to_owned(),
            PromptPurpose::Note { .. } => "no: ".to_owned(),
        }
    }

    pub(in crate::app) fn placeholder(&self) -> &'static str {
        match &self.purpose {
            PromptPurpose::Message { .. } => "type a message",
            PromptPurpose::Rename { .. } => "letters, digits, `-` and `_`",
            PromptPurpose::Note { decision, .. } if decision.is_approval() => "your answer",
            PromptPurpose::Note { .. } => "why not? (may be empty)",
        }
    }

    /// Returns the label of the Enter key.
    pub(in crate::app) fn enter_label(&self) -> &'static str {
        match &self.purpose {
            PromptPurpose::Message { .. } => "send",
            PromptPurpose::Rename { .. } => "rename",
            PromptPurpose::Note { .. } => "answer",
        }
    }
}

impl InputState {
    pub(in crate::app) fn open_prompt(&mut self, purpose: PromptPurpose, text: &str) {
        let draft = match self.text_prompt.take() {
            Some(line) => line.saved_draft,
            None => self.composer.to_draft(),
        };
        self.composer.set_draft(ComposerDraft { text: text.to_owned(), ..ComposerDraft::default() });
        self.popup = None;
        self.text_prompt = Some(TextPrompt { purpose, saved_draft: draft });
    }

    /// Closes the prompt and restores the previous draft.
    pub(in crate::app) fn close_prompt(&mut self) -> Option<PromptPurpose> {
        let line = self.text_prompt.take()?;
        self.composer.set_draft(line.saved_draft);
        Some(line.purpose)
    }

    /// Restores an undelivered message for another attempt, unless another prompt is open. Then it is in the
    /// history.
    pub(in crate::app) fn restore_message(
        &mut self,
        session: SessionId,
        name: String,
        input: Vec<InputSegment>,
    ) {
        if self.text_prompt.is_none() {
            self.open_prompt(PromptPurpose::Message { session, name }, "");
            self.composer.restore_input(input);
        }
    }
}

impl App {
    pub(in crate::app) fn handle_prompt_key(&mut self, key: KeyPress) {
        match self.style.keys.action_for(KeyContext::Composer, key) {
            Some(Action::Send) => self.submit_prompt(),
            Some(Action::Pause) => drop(self.input.close_prompt()),
            Some(action @ (Action::Leave | Action::Suspend | Action::Redraw | Action::Editor)) => {
                self.run_action(action, key);
            }
            Some(Action::Newline) => self.input.composer.insert_newline(),
            _ => self.input.composer.handle_key(key),
        }
    }

    fn submit_prompt(&mut self) {
        let text = self.input.composer.text().trim().to_owned();
        let words = match &self.input.text_prompt {
            Some(TextPrompt { purpose: PromptPurpose::Message { .. }, .. }) => {
                self.input.composer.take_input()
            }
            _ => None,
        };
        match self.input.close_prompt() {
            Some(PromptPurpose::Message { session, name }) => {
                let Some(input) = words else { return };
                if let Some(newest) = self.input.composer.newest_input() {
                    self.output.effects.push(AppEffect::AddHistory(newest.to_owned()));
                }
                self.output.send_message(session, name, input);
            }
            Some(PromptPurpose::Rename { session }) if !text.is_empty() => {
                self.output
                    .ask_backend(BackendRequest::Rename { session, name: text }, PendingReply::ListChange);
            }
            Some(PromptPurpose::Rename { .. }) | None => {}
            Some(PromptPurpose::Note { session, ask, decision }) => {
                let note = Some(text).filter(|note| !note.is_empty());
                self.output.answer_elsewhere(session, ask, decision, note);
            }
        }
    }
}

impl UiOutput {
    pub(in crate::app) fn send_message(
        &mut self,
        session: SessionId,
        name: String,
        input: Vec<InputSegment>,
    ) {
        let pending = PendingReply::Message { session, name, input: input.clone() };
        self.ask_backend(BackendRequest::Message { session, input }, pending);
    }
}
