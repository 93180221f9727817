//! What is done with the pod or the thread that is chosen in a list, and with a directory that somebody else holds.

use minke_record::{InputSegment, SessionId};

use super::line::LineFor;
use super::list::{List, ListKind, Means, Row};
use super::over::Over;
use super::{App, Do, Pending};
use crate::composer::Draft;
use crate::outside::{Holder, Question, Where};

/// An input that found its directory held.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Waiting {
    input: Vec<InputSegment>,
    /// What was being typed when it came back.
    kept: Draft,
    /// It is to be in the composer of the session that is joined.
    joins: bool,
}

impl App {
    /// Something is done with the pod or thread that is chosen.
    pub(super) fn order(&mut self, with: impl FnOnce(SessionId) -> Question) {
        match self.over.as_ref().and_then(Over::session) {
            Some(_) if self.setup.looks_on => self.only_looks_on(),
            Some(session) => self.ask(with(session), Pending::Changed),
            None => self.say("that cannot be done here"),
        }
    }

    pub(super) fn pause_or_resume(&mut self) {
        let paused = match &self.over {
            Some(Over::Pods(pane)) => pane.chosen().is_some_and(|pod| pod.state == "paused"),
            Some(Over::Threads(pane)) => pane.chosen().is_some_and(|thread| thread.state == "paused"),
            _ => false,
        };
        self.order(if paused { Question::ResumePod } else { Question::PausePod });
    }

    pub(super) fn archive_or_put_back(&mut self) {
        let archived = match &self.over {
            Some(Over::Threads(pane)) => pane.chosen().is_some_and(|thread| thread.archived),
            _ => false,
        };
        self.order(if archived { Question::Unarchive } else { Question::Archive });
    }

    /// The session that is chosen, and what it is called.
    fn chosen_one(&self) -> Option<(SessionId, String)> {
        match self.over.as_ref()? {
            Over::Pods(pane) => pane.chosen().map(|pod| (pod.session, pod.name.clone())),
            Over::Threads(pane) => pane.chosen().map(|thread| (thread.session, thread.name.clone())),
            Over::Asks(pane) => pane.chosen().map(|row| (row.session, row.pod.clone())),
            _ => None,
        }
    }

    pub(super) fn message_it(&mut self) {
        match self.chosen_one() {
            Some(_) if self.setup.looks_on => self.only_looks_on(),
            Some((session, name)) => self.open_line(LineFor::Message { session, name }, ""),
            None => self.say("that cannot be done here"),
        }
    }

    pub(super) fn rename_it(&mut self) {
        match self.chosen_one() {
            Some(_) if self.setup.looks_on => self.only_looks_on(),
            Some((session, name)) => self.open_line(LineFor::Rename { session }, &name),
            None => self.say("that cannot be done here"),
        }
    }

    /// Somebody else writes where the input was to be done: what now? It is in the composer until that is decided.
    pub(super) fn held(&mut self, holder: Holder) {
        self.joining = None;
        let Some(input) = self.launching.take() else { return };
        let row =
            |text: String, aside: &str, means| Row { text, aside: aside.to_owned(), means, urgent: false };
        let rows = vec![
            row(
                format!("join {}", holder.name),
                "what you said is in the composer",
                Means::Holder(holder.session),
            ),
            row("look only".to_owned(), "a new session that cannot write", Means::Work(Where::ReadOnly)),
            row("work in a clone".to_owned(), "a new session beside it", Means::Work(Where::Clone)),
        ];
        self.over = Some(Over::List(List::new(ListKind::Held, rows)));
        self.say(holder.says);
        let kept = self.composer.draft();
        self.composer.put_back(input.clone());
        self.waiting = Some(Waiting { input, kept, joins: false });
    }

    /// The input that waits is taken out of the composer again.
    fn take_waiting(&mut self) -> Option<Vec<InputSegment>> {
        let waiting = self.waiting.take()?;
        self.composer.set(waiting.kept);
        Some(waiting.input)
    }

    pub(super) fn work_at(&mut self, place: Where) {
        let Some(input) = self.take_waiting() else { return };
        self.said = None;
        self.launch(input, place);
    }

    pub(super) fn join_holder(&mut self, session: SessionId) {
        let Some(input) = self.take_waiting() else { return };
        self.said = None;
        self.waiting = Some(Waiting { input, kept: Draft::default(), joins: true });
        self.join(session);
    }

    /// What was said before comes into the composer of the session that was joined for it, or back if it was not.
    pub(super) fn bring_along(&mut self) {
        if let Some(waiting) = self.waiting.take().filter(|waiting| waiting.joins) {
            self.composer.put_back(waiting.input);
        }
    }

    pub(super) fn launch(&mut self, input: Vec<InputSegment>, place: Where) {
        self.joining = Some("starting a pod".to_owned());
        self.launching = Some(input.clone());
        self.doing.push(Do::Launch { input, model: self.model.clone(), place });
    }

    pub(super) fn take_the_tour(&mut self) {
        let token = self.token(Pending::Shown);
        self.doing.push(Do::Tour { token });
    }
}
