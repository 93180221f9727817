//! Answers to the focused ask.

use std::path::PathBuf;

use minke_protocol::{Answer, Method};
use minke_record::{AskId, Decision};
use minke_view::{AskCard, AskResponse};

use super::super::input::pending::NotePrompt;
use super::super::session::AttachedSession;
use super::super::{ASK_GUARD_MS, App, AppEffect, AppFocus, PendingReply};
use crate::app::{InputState, UiOutput};
use crate::event::KeyPress;

impl App {
    /// Selects one of the offered answers by its number.
    pub(in crate::app) fn choose_option(&mut self, key: KeyPress) -> bool {
        let AppFocus::Ask(ask) = self.input.focus else { return false };
        let Some(attached) = self.link.session.as_ref().filter(|talk| talk.needs_text_answer(ask)) else {
            return false;
        };
        let number =
            key.typed_letter().and_then(|letter| letter.to_digit(10)).and_then(|n| usize::try_from(n).ok());
        let options = attached.ask_card(ask).map(|card| card.ask.options.clone()).unwrap_or_default();
        let Some(option) = number.and_then(|number| number.checked_sub(1)).and_then(|at| options.get(at))
        else {
            return false;
        };
        if !self.input.is_ask_too_new(&mut self.output) {
            self.send_answer(ask, Decision::Answered, Some(option.clone()));
        }
        true
    }

    pub(in crate::app) fn answer_ask(&mut self, decision: Decision) {
        let AppFocus::Ask(ask) = self.input.focus else { return };
        if self.input.is_ask_too_new(&mut self.output) {
            return;
        }
        let Some(attached) = &self.link.session else { return };
        if attached.needs_text_answer(ask) {
            match decision {
                Decision::Denied | Decision::Abort => self.send_answer(ask, decision, None),
                _ => self.input.open_note(ask, Decision::Answered),
            }
            return;
        }
        if !attached.ask_card(ask).is_some_and(|card| offers_decision(card, &decision)) {
            self.output.show_note(format!("this question cannot be answered with `{}`", decision.as_str()));
            return;
        }
        match decision {
            Decision::Denied => self.input.open_note(ask, decision),
            decision => self.send_answer(ask, decision, None),
        }
    }

    /// Opens the text field for an answer.
    pub(in crate::app) fn open_answer_note(&mut self) {
        let AppFocus::Ask(ask) = self.input.focus else { return };
        if self.link.session.as_ref().is_some_and(|attached| attached.needs_text_answer(ask))
            && !self.input.is_ask_too_new(&mut self.output)
        {
            self.input.open_note(ask, Decision::Answered);
        }
    }

    pub(in crate::app) fn send_answer(&mut self, ask: AskId, decision: Decision, note: Option<String>) {
        let Some(attached) = &self.link.session else { return };
        let socket = attached.ask_card(ask).and_then(|card| card.socket.as_ref()).map(PathBuf::from);
        let childs = attached.ask_card(ask).is_some_and(|card| card.pod.is_some());
        let answer =
            AskResponse { decision: decision.clone(), note: note.clone(), answered_by: "you".to_owned() };
        let pending = PendingReply::Answer { ask, answer, at_child: socket.is_some() };
        let method = Method::Answer(Answer { ask, decision, note });
        match socket {
            Some(socket) => {
                let token = self.output.new_token(pending);
                self.output.effects.push(AppEffect::SendTo { token, socket, method });
            }
            None if childs => {
                self.output.show_note("the socket of that pod is unknown: answer with `minke asks`")
            }
            None => self.link.send_method(&mut self.output, method, pending),
        }
        self.input.focus = AppFocus::Composer;
        if let Some(next) =
            self.link.session.as_ref().and_then(AttachedSession::oldest_ask).filter(|next| *next != ask)
        {
            self.input.focus = AppFocus::Ask(next);
        }
    }
}

impl InputState {
    /// Returns whether the ask appeared so recently that the key was meant for something else.
    pub(in crate::app) fn is_ask_too_new(&mut self, output: &mut UiOutput) -> bool {
        let startled = output.now < self.ask_shown_at + ASK_GUARD_MS;
        if startled {
            output.show_note("a new question appeared: press the key again to answer it");
        }
        startled
    }

    pub(in crate::app) fn open_note(&mut self, ask: AskId, decision: Decision) {
        let saved_draft = self.composer.to_draft();
        self.composer.clear_text();
        self.note_prompt = Some(NotePrompt { ask, decision, saved_draft });
        self.focus = AppFocus::Composer;
    }

    pub(in crate::app) fn close_note(&mut self) {
        if let Some(noting) = self.note_prompt.take() {
            self.composer.set_draft(noting.saved_draft);
            self.focus = AppFocus::Ask(noting.ask);
        }
    }
}

/// Returns whether the ask offers a decision.
pub(in crate::app) fn offers_decision(card: &AskCard, decision: &Decision) -> bool {
    let options = &card.ask.options;
    options.is_empty() || options.iter().any(|option| option == decision.as_str())
}
