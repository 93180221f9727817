//! The questions of all pods: who asks, the card of the one that is chosen, and its answer, wherever it was asked.
//!
//! Invariant: a key answers the question that was chosen when it was pressed, and not one that has just come into its
//! place (`a_question_that_comes_into_the_place_of_another_is_not_answered_by_its_key`).

use minke_record::{AskId, AskKind, Decision, SessionId};
use minke_view::Answered;

use super::answer::offers;
use super::line::LineFor;
use super::over::Over;
use super::{App, Pending};
use crate::event::Key;
use crate::keys::{Action, Place};
use crate::outside::Question;
use crate::panes::{AskRow, Asks};

impl App {
    pub(super) fn open_asks(&mut self) {
        let mut pane = Asks::new(self.asks.clone());
        // The one that is looked at is the one that is meant.
        if let Some(ask) = self.talk.as_ref().and_then(super::talk::Talk::oldest_ask) {
            pane.choose(ask);
        }
        self.asked_at = 0;
        self.unread.clear();
        self.over = Some(Over::Asks(pane));
        self.ask_asks(true);
    }

    pub(super) fn ask_asks(&mut self, everywhere: bool) {
        self.ask(Question::Asks { everywhere }, Pending::Asks);
    }

    /// News of who asks, oldest first.
    pub(super) fn show_asks(&mut self, mut rows: Vec<AskRow>) {
        rows.sort_by_key(|row| row.since);
        self.asks = rows;
        if let Some(Over::Asks(pane)) = &mut self.over {
            let before = pane.chosen().map(|row| row.card.ask.id);
            pane.set(self.asks.clone());
            if pane.chosen().map(|row| row.card.ask.id) != before {
                self.asked_at = self.now;
            }
        }
    }

    /// Whoever has the questions open is told once of those that may be missing.
    pub(super) fn show_unread(&mut self, unread: Vec<String>) {
        if !matches!(self.over, Some(Over::Asks(_))) || self.unread == unread {
            return;
        }
        match unread.as_slice() {
            [] => return,
            [one] => self.complain(one.clone()),
            [first, more @ ..] => self.complain(format!("{first} (and {} more)", more.len())),
        }
        self.unread = unread;
    }

    /// Questions that are not to be seen in the conversation that is attached.
    pub(super) fn asked_elsewhere(&self) -> usize {
        let here = |row: &&AskRow| {
            self.talk
                .as_ref()
                .is_some_and(|talk| talk.session == row.session || talk.is_open(row.card.ask.id))
        };
        self.asks.iter().filter(|row| !here(row)).count()
    }

    /// Says whether the key was an answer.
    pub(super) fn inbox_key(&mut self, key: Key) -> bool {
        let Some(Over::Asks(pane)) = &self.over else { return false };
        let Some(row) = pane.chosen().cloned() else { return false };
        let (session, ask) = (row.session, row.card.ask.id);
        let in_words = row.card.ask.ask != AskKind::Approval;
        let number = key.typed().and_then(|letter| letter.to_digit(10)).and_then(|n| usize::try_from(n).ok());
        let option = number.and_then(|n| n.checked_sub(1)).and_then(|at| row.card.ask.options.get(at));
        if let Some(option) = option.filter(|_| in_words) {
            if !self.is_startled() {
                self.answer_there(session, ask, Decision::Answered, Some(option.clone()));
            }
            return true;
        }
        let decision = match self.setup.keys.action(Place::Question, key) {
            Some(Action::Once) => Decision::Approved,
            Some(Action::Session) => Decision::ApprovedForSession,
            Some(Action::Rule) => Decision::ApprovedRule,
            Some(Action::Deny) => Decision::Denied,
            Some(Action::Abort) => Decision::Abort,
            _ => return false,
        };
        if self.is_startled() {
            return true;
        }
        let refuses = matches!(decision, Decision::Denied | Decision::Abort);
        if in_words && !refuses {
            let what = LineFor::Note { session, ask, decision: Decision::Answered };
            self.open_line(what, "");
        } else if !in_words && !offers(&row.card, &decision) {
            self.say(format!("this question cannot be answered with `{}`", decision.as_str()));
        } else if decision == Decision::Denied && !in_words {
            self.open_line(LineFor::Note { session, ask, decision }, "");
        } else {
            self.answer_there(session, ask, decision, None);
        }
        true
    }

    /// Through the program around, which knows where that pod is.
    pub(super) fn answer_there(
        &mut self,
        session: SessionId,
        ask: AskId,
        decision: Decision,
        note: Option<String>,
    ) {
        let answer = Answered { decision: decision.clone(), note: note.clone(), by: "you".to_owned() };
        let question = Question::Answer { session, ask, decision, note };
        self.ask(question, Pending::Answered { ask, answer });
    }

    /// It is answered: it is asked nowhere any more.
    pub(super) fn is_answered(&mut self, ask: AskId, answer: Answered) {
        let left = self.asks.iter().filter(|row| row.card.ask.id != ask).cloned().collect();
        self.show_asks(left);
        // The log of the attached session does not tell of answers to its children.
        let childs = |talk: &super::talk::Talk| talk.card(ask).is_some_and(|card| card.pod.is_some());
        if let Some(talk) = self.talk.as_mut().filter(|talk| childs(talk)) {
            talk.conversation.answered_there(ask, answer);
        }
    }
}
