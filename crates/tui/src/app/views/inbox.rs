//! The asks of all pods with the card and the answer of the selected one.
//!
//! Invariant: a key answers the ask that was selected when it was pressed, not one that has just taken its
//! place (`a_question_that_comes_into_the_place_of_another_is_not_answered_by_its_key`).

use minke_record::{AskId, AskKind, Decision, SessionId};
use minke_view::AskResponse;

use super::super::input::answer::offers_decision;
use super::super::input::text_prompt::PromptPurpose;
use super::super::views::overlay::Overlay;
use super::super::{App, PendingReply};
use crate::app::{AttachedSession, ListState, UiOutput};
use crate::backend::BackendRequest;
use crate::event::KeyPress;
use crate::keys::{Action, KeyContext};
use crate::panes::{AskRow, AsksPane};

impl App {
    pub(in crate::app) fn open_inbox(&mut self) {
        let mut pane = AsksPane::new(self.lists.asks.clone());
        // Select the ask that is focused in the conversation.
        if let Some(ask) =
            self.link.session.as_ref().and_then(super::super::session::AttachedSession::oldest_ask)
        {
            pane.select_ask(ask);
        }
        self.input.ask_shown_at = 0;
        self.lists.unreadable_logs.clear();
        self.lists.overlay = Some(Overlay::Asks(pane));
        self.output.request_asks(true);
    }

    /// Shows the open asks, oldest first.
    pub(in crate::app) fn show_asks(&mut self, mut rows: Vec<AskRow>) {
        rows.sort_by_key(|row| row.asked_at);
        self.lists.asks = rows;
        if let Some(Overlay::Asks(pane)) = &mut self.lists.overlay {
            let before = pane.selected_row().map(|row| row.card_lines.ask.id);
            pane.set_rows(self.lists.asks.clone());
            if pane.selected_row().map(|row| row.card_lines.ask.id) != before {
                self.input.ask_shown_at = self.output.now;
            }
        }
    }

    /// Returns whether the key was an answer.
    pub(in crate::app) fn handle_inbox_key(&mut self, key: KeyPress) -> bool {
        let Some(Overlay::Asks(pane)) = &self.lists.overlay else { return false };
        let Some(row) = pane.selected_row().cloned() else { return false };
        let (session, ask) = (row.session, row.card_lines.ask.id);
        let in_words = row.card_lines.ask.ask != AskKind::Approval;
        let number =
            key.typed_letter().and_then(|letter| letter.to_digit(10)).and_then(|n| usize::try_from(n).ok());
        let option = number.and_then(|n| n.checked_sub(1)).and_then(|at| row.card_lines.ask.options.get(at));
        if let Some(option) = option.filter(|_| in_words) {
            if !self.input.is_ask_too_new(&mut self.output) {
                self.output.answer_elsewhere(session, ask, Decision::Answered, Some(option.clone()));
            }
            return true;
        }
        let decision = match self.style.keys.action_for(KeyContext::Ask, key) {
            Some(Action::Once) => Decision::Approved,
            Some(Action::Session) => Decision::ApprovedForSession,
            Some(Action::Rule) => Decision::ApprovedRule,
            Some(Action::Deny) => Decision::Denied,
            Some(Action::Abort) => Decision::Abort,
            _ => return false,
        };
        if self.input.is_ask_too_new(&mut self.output) {
            return true;
        }
        let refuses = matches!(decision, Decision::Denied | Decision::Abort);
        if in_words && !refuses {
            let what = PromptPurpose::Note { session, ask, decision: Decision::Answered };
            self.input.open_prompt(what, "");
        } else if !in_words && !offers_decision(&row.card_lines, &decision) {
            self.output.show_note(format!("this question cannot be answered with `{}`", decision.as_str()));
        } else if decision == Decision::Denied && !in_words {
            self.input.open_prompt(PromptPurpose::Note { session, ask, decision }, "");
        } else {
            self.output.answer_elsewhere(session, ask, decision, None);
        }
        true
    }

    /// Removes an answered ask everywhere.
    pub(in crate::app) fn mark_answered(&mut self, ask: AskId, answer: AskResponse) {
        let left = self.lists.asks.iter().filter(|row| row.card_lines.ask.id != ask).cloned().collect();
        self.show_asks(left);
        // The log of the attached session does not contain answers to its children.
        let childs = |attached: &super::super::session::AttachedSession| {
            attached.ask_card(ask).is_some_and(|card| card.pod.is_some())
        };
        if let Some(talk) = self.link.session.as_mut().filter(|talk| childs(talk)) {
            talk.conversation.set_child_answer(ask, answer);
        }
    }
}

impl UiOutput {
    pub(in crate::app) fn request_asks(&mut self, everywhere: bool) {
        self.ask_backend(BackendRequest::Asks { everywhere }, PendingReply::Asks);
    }

    /// Answers through the backend, which knows the socket of the pod.
    pub(in crate::app) fn answer_elsewhere(
        &mut self,
        session: SessionId,
        ask: AskId,
        decision: Decision,
        note: Option<String>,
    ) {
        let answer =
            AskResponse { decision: decision.clone(), note: note.clone(), answered_by: "you".to_owned() };
        let question = BackendRequest::AnswerAsk { session, ask, decision, note };
        self.ask_backend(question, PendingReply::InboxAnswer { ask, answer });
    }
}

impl ListState {
    /// Warns once, while the list is open, about asks that may be missing.
    pub(in crate::app) fn warn_unreadable(&mut self, output: &mut UiOutput, unread: Vec<String>) {
        if !matches!(self.overlay, Some(Overlay::Asks(_))) || self.unreadable_logs == unread {
            return;
        }
        match unread.as_slice() {
            [] => return,
            [one] => output.show_error(one.clone()),
            [first, more @ ..] => output.show_error(format!("{first} (and {} more)", more.len())),
        }
        self.unreadable_logs = unread;
    }

    /// Returns the number of asks outside of the attached conversation.
    pub(in crate::app) fn other_ask_count(&self, session: Option<&AttachedSession>) -> usize {
        let here = |row: &&AskRow| {
            session.as_ref().is_some_and(|attached| {
                attached.session == row.session || attached.is_ask_open(row.card_lines.ask.id)
            })
        };
        self.asks.iter().filter(|row| !here(row)).count()
    }
}
