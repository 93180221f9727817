//! Answers to the question that has the keys.

use std::path::PathBuf;

use minke_protocol::{Answer, Method};
use minke_record::{AskId, Decision};
use minke_view::{Answered, AskCard};

use super::pending::Noting;
use super::talk::Talk;
use super::{App, Do, Focus, Pending, STARTLED_MS};
use crate::event::Key;

impl App {
    /// A number chooses one of the answers that a question offers.
    pub(super) fn option_key(&mut self, key: Key) -> bool {
        let Focus::Question(ask) = self.focus else { return false };
        let Some(talk) = self.talk.as_ref().filter(|talk| talk.wants_text(ask)) else { return false };
        let number = key.typed().and_then(|letter| letter.to_digit(10)).and_then(|n| usize::try_from(n).ok());
        let options = talk.card(ask).map(|card| card.ask.options.clone()).unwrap_or_default();
        let Some(option) = number.and_then(|number| number.checked_sub(1)).and_then(|at| options.get(at))
        else {
            return false;
        };
        if !self.is_startled() {
            self.answer_with(ask, Decision::Answered, Some(option.clone()));
        }
        true
    }

    pub(super) fn answer(&mut self, decision: Decision) {
        let Focus::Question(ask) = self.focus else { return };
        if self.is_startled() {
            return;
        }
        let Some(talk) = &self.talk else { return };
        if talk.wants_text(ask) {
            match decision {
                Decision::Denied | Decision::Abort => self.answer_with(ask, decision, None),
                _ => self.note(ask, Decision::Answered),
            }
            return;
        }
        if !talk.card(ask).is_some_and(|card| offers(card, &decision)) {
            self.say(format!("this question cannot be answered with `{}`", decision.as_str()));
            return;
        }
        match decision {
            Decision::Denied => self.note(ask, decision),
            decision => self.answer_with(ask, decision, None),
        }
    }

    /// Opens the field for an answer in words.
    pub(super) fn answer_in_words(&mut self) {
        let Focus::Question(ask) = self.focus else { return };
        if self.talk.as_ref().is_some_and(|talk| talk.wants_text(ask)) && !self.is_startled() {
            self.note(ask, Decision::Answered);
        }
    }

    /// A question that has just come up was not what the key was meant for.
    pub(super) fn is_startled(&mut self) -> bool {
        let startled = self.now < self.asked_at + STARTLED_MS;
        if startled {
            self.say("a question has come up: press the key again to answer it");
        }
        startled
    }

    pub(super) fn note(&mut self, ask: AskId, decision: Decision) {
        let kept = self.composer.draft();
        self.composer.clear();
        self.noting = Some(Noting { ask, decision, kept });
        self.focus = Focus::Composer;
    }

    pub(super) fn stop_noting(&mut self) {
        if let Some(noting) = self.noting.take() {
            self.composer.set(noting.kept);
            self.focus = Focus::Question(noting.ask);
        }
    }

    pub(super) fn answer_with(&mut self, ask: AskId, decision: Decision, note: Option<String>) {
        let Some(talk) = &self.talk else { return };
        let socket = talk.card(ask).and_then(|card| card.socket.as_ref()).map(PathBuf::from);
        let childs = talk.card(ask).is_some_and(|card| card.pod.is_some());
        let answer = Answered { decision: decision.clone(), note: note.clone(), by: "you".to_owned() };
        let pending = Pending::Answer { ask, answer, there: socket.is_some() };
        let method = Method::Answer(Answer { ask, decision, note });
        match socket {
            Some(socket) => {
                let token = self.token(pending);
                self.doing.push(Do::SendTo { token, socket, method });
            }
            None if childs => {
                self.say("it is not known where that pod is to be answered: `minke asks` knows")
            }
            None => self.send(method, pending),
        }
        self.focus = Focus::Composer;
        if let Some(next) = self.talk.as_ref().and_then(Talk::oldest_ask).filter(|next| *next != ask) {
            self.focus = Focus::Question(next);
        }
    }
}

/// Whether a question can be answered so.
pub(super) fn offers(card: &AskCard, decision: &Decision) -> bool {
    let options = &card.ask.options;
    options.is_empty() || options.iter().any(|option| option == decision.as_str())
}
