//! Looking: who lives and who asks, what was said last in a thread, and what there is for somebody who is new. Also
//! somebody who only looks on at what others do.

use minke_view::PodRow;

use super::over::Over;
use super::{App, Msg, Pending};
use crate::event::Key;
use crate::keys::{Action, Place};
use crate::outside::{Answer, FirstRun, Look, Question};

impl App {
    /// Asks who asks, and who lives where that is shown. Nothing is drawn for it unless it has changed.
    pub(super) fn look_around(&mut self) {
        if !self.awaits(|pending| matches!(pending, Pending::Asks)) {
            let everywhere = !std::mem::replace(&mut self.looked, true);
            self.ask_asks(everywhere);
        }
        let shown = self.talk.is_none() || self.setup.looks_on || matches!(self.over, Some(Over::Pods(_)));
        if shown && !self.awaits(|pending| matches!(pending, Pending::Pods)) {
            self.ask(Question::Pods, Pending::Pods);
        }
    }

    /// As they are shown.
    pub(super) fn homely_pods(&self, mut pods: Vec<PodRow>) -> Vec<PodRow> {
        pods.iter_mut().for_each(|pod| pod.scope = self.homely(&pod.scope));
        pods
    }

    fn awaits(&self, what: impl Fn(&Pending) -> bool) -> bool {
        self.pending.values().any(what)
    }

    /// What is known already needs no picture.
    pub(super) fn is_no_news(&mut self, msg: &Msg) -> bool {
        let Msg::Told { token, result } = msg else { return false };
        let same = match &**result {
            Ok(Answer::Asks { rows, unread }) => *rows == self.asks && unread.is_empty(),
            Ok(Answer::Pods(pods)) => self.homely_pods(pods.clone()) == self.pods,
            _ => false,
        };
        if same {
            self.pending.remove(token);
        }
        same
    }

    /// The end of the thread that is chosen is looked at, one after the other.
    pub(super) fn settle_look(&mut self) {
        let Some(Over::Threads(pane)) = &self.over else { return };
        let Some(session) = pane.unseen() else { return };
        if !self.awaits(|pending| matches!(pending, Pending::Look(_))) {
            self.ask(Question::Look(session), Pending::Look(session));
        }
    }

    pub(super) fn show_look(&mut self, look: Look) {
        if let Some(Over::Threads(pane)) = &mut self.over {
            pane.look_at(look);
        }
    }

    /// Somebody who has no model yet may have a server.
    pub(super) fn found_first(&mut self, found: FirstRun) {
        let new = found.model.is_none();
        self.first_run = Some(found);
        if new {
            self.ask(Question::Local, Pending::Local);
        }
    }

    /// Takes the keys that would say or order something, of somebody who only looks on.
    pub(super) fn looking_on(&mut self, place: Place, key: Key) -> bool {
        match self.setup.keys.action(place, key) {
            Some(
                Action::Leave
                | Action::Suspend
                | Action::Redraw
                | Action::Help
                | Action::Pods
                | Action::Tasks
                | Action::PageUp
                | Action::PageDown
                | Action::LineUp
                | Action::LineDown
                | Action::Top
                | Action::Follow,
            ) => return false,
            Some(Action::Complete) => self.next_pod(true),
            Some(Action::Back) => self.next_pod(false),
            _ => self.only_looks_on(),
        }
        true
    }

    pub(super) fn only_looks_on(&mut self) {
        self.say("here one only looks on");
    }

    /// To the pod that comes after the one that is looked at, of those that live.
    fn next_pod(&mut self, forward: bool) {
        let here = self.talk.as_ref().map(|talk| talk.session);
        let tree = minke_view::Tree::new(self.pods.clone());
        let mut living: Vec<_> =
            tree.rows().iter().filter(|row| row.pod.live || Some(row.pod.session) == here).collect();
        if !forward {
            living.reverse();
        }
        let at = living.iter().position(|row| Some(row.pod.session) == here);
        let next = living.iter().cycle().skip(at.map_or(0, |at| at + 1)).take(living.len());
        match next.map(|row| row.pod.session).find(|session| Some(*session) != here) {
            Some(session) => self.join(session),
            None => {
                self.say("no other pod lives at the moment");
                self.ask(Question::Pods, Pending::Pods);
            }
        }
    }
}
