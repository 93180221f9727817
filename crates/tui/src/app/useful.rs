//! The last line: what was just said, or the keys that do something now, the most useful first.

use minke_record::{AskId, AskKind, Decision};
use minke_view::AskCard;
use ratatui::text::{Line, Span};

use super::answer::offers;
use super::list::ListKind;
use super::over::Over;
use super::status::{clean, fit};
use super::{App, Focus};
use crate::keys::{Action, Place};
use crate::paint::Role;
use crate::panes::{Pods, Threads};

impl App {
    /// What was just said, or the keys that do something here.
    pub(super) fn keys_line(&self, width: u16) -> Line<'static> {
        let key = self.theme.style(Role::Key);
        let dim = self.theme.style(Role::Dim);
        if self.is_leaving() {
            let on = if self.talk.is_some() { "; the pod goes on" } else { "" };
            let text = format!("{} again leaves{on}", self.spoken(Action::Leave));
            return Line::from(Span::styled(text, self.theme.style(Role::Warn)));
        }
        let mut spans: Vec<Span<'static>> = self.vi_mode().into_iter().collect();
        let used: usize = spans.iter().map(Span::width).sum();
        if let Some((text, _)) = &self.said {
            let text = Span::styled(clean(text), self.theme.style(Role::Warn));
            spans.extend(fit(vec![text], width.saturating_sub(u16::try_from(used).unwrap_or(0))).spans);
            return Line::from(spans);
        }
        for (bound, says) in self.fitting_keys(usize::from(width).saturating_sub(used)) {
            spans.push(Span::styled(bound, key));
            spans.push(Span::styled(format!(" {says}  "), dim));
        }
        Line::from(spans)
    }

    /// As many keys as there is room for. Out of what lies over the conversation there is always a way; only the answers
    /// to a question go before it.
    fn fitting_keys(&self, room: usize) -> Vec<(String, &'static str)> {
        let mut keys = self.bound(&self.useful(room));
        let out = keys.pop_if(|_| self.over.as_ref().is_some_and(|over| !matches!(over, Over::Asks(_))));
        // Behind the last one no space is needed.
        let mut left = (room + 2).saturating_sub(out.as_ref().map_or(0, wide));
        let many = keys.iter().take_while(|key| {
            let fits = wide(key) <= left;
            left = left.saturating_sub(wide(key));
            fits
        });
        keys.truncate(many.count());
        keys.extend(out);
        keys
    }

    /// The answers that a question offers, in few words where there is no room for more.
    fn answers(&self, ask: AskId, room: usize) -> Vec<(Action, &'static str)> {
        let Some(card) = self.talk.as_ref().and_then(|talk| talk.card(ask)) else { return Vec::new() };
        let short = answers(card);
        let long: Vec<_> = short.iter().map(|(action, _)| (*action, action.says())).collect();
        if self.bound(&long).iter().map(wide).sum::<usize>() <= room + 2 { long } else { short }
    }

    /// Those that have a key, with it.
    fn bound(&self, keys: &[(Action, &'static str)]) -> Vec<(String, &'static str)> {
        let bound = |(action, says): &(Action, &'static str)| {
            Some((self.setup.keys.key_of(*action)?.to_string(), *says))
        };
        keys.iter().filter_map(bound).collect()
    }

    /// Which mode it is, and what of a command was typed.
    fn vi_mode(&self) -> Option<Span<'static>> {
        let (mode, typed) = self.composer.vi().filter(|_| self.place() == Place::Composer)?;
        let typed = if typed.is_empty() { String::new() } else { format!(" {}", clean(typed)) };
        Some(Span::styled(format!("{}{typed}  ", mode.word()), self.theme.style(Role::Accent)))
    }

    /// The most useful first.
    fn useful(&self, room: usize) -> Vec<(Action, &'static str)> {
        if self.noting.is_some() {
            return vec![(Action::Send, "answer"), (Action::Pause, "back to the question")];
        }
        if let Some(line) = &self.line {
            return vec![(Action::Send, line.does()), (Action::Pause, "back")];
        }
        if let Some(over) = &self.over {
            return over_keys(over, self.setup.looks_on);
        }
        if self.setup.looks_on {
            return vec![
                (Action::Complete, "next pod"),
                (Action::Pods, "pods"),
                (Action::PageUp, "scroll up"),
                (Action::Help, "help"),
                (Action::Leave, "leave"),
            ];
        }
        if self.popup.as_ref().is_some_and(|popup| !popup.items().is_empty()) {
            return vec![(Action::Complete, "take"), (Action::Newer, "next"), (Action::Pause, "close")];
        }
        let mut keys = match (self.place(), self.focus) {
            (Place::Question, Focus::Question(ask))
                if self.talk.as_ref().is_some_and(|talk| talk.wants_text(ask)) =>
            {
                vec![(Action::Once, "answer in words"), (Action::Deny, "no answer"), (Action::Abort, "stop")]
            }
            (Place::Question, Focus::Question(ask)) => self.answers(ask, room),
            (Place::Block, _) => {
                vec![
                    (Action::Open, "open or close"),
                    (Action::Copy, "copy"),
                    (Action::Previous, "previous"),
                    (Action::Next, "next"),
                    (Action::Pause, "back"),
                ]
            }
            _ => self.composer_keys(),
        };
        if self.asked_elsewhere() > 0 {
            keys.push((Action::Asks, "who asks"));
        }
        keys.extend([(Action::Help, "help"), (Action::Pods, "pods"), (Action::Threads, "threads")]);
        keys.push((Action::Leave, "leave"));
        keys
    }

    fn composer_keys(&self) -> Vec<(Action, &'static str)> {
        let Some(talk) = &self.talk else {
            return match self.composer.is_empty() && self.opening_rows() > 0 {
                true => vec![(Action::Send, "choose"), (Action::Newer, "next")],
                false => vec![(Action::Send, "begin"), (Action::Newline, "new line")],
            };
        };
        let queued = !talk.standing().queue.is_empty() && self.composer.is_empty();
        let mut keys = Vec::new();
        match (talk.is_running(), self.composer.is_empty()) {
            (true, true) => keys.push((Action::Pause, "pause")),
            (true, false) => {
                keys.extend([(Action::Send, "queue"), (Action::Steer, "steer"), (Action::Pause, "pause")]);
            }
            (false, true) if talk.is_paused() => keys.push((Action::Send, "go on")),
            (false, true) => {}
            (false, false) => keys.extend([(Action::Send, "send"), (Action::Newline, "new line")]),
        }
        if queued {
            keys.push((Action::Older, "edit the queue"));
        }
        if talk.open_asks() > 0 {
            keys.push((Action::Complete, "to the question"));
        } else if self.composer.is_empty() {
            keys.push((Action::Complete, "select"));
        }
        keys
    }
}

/// The columns of a key and what it does, with the space behind them.
fn wide((bound, says): &(String, &'static str)) -> usize {
    bound.chars().count() + says.chars().count() + 3
}

/// The answers that a question offers, in the fewest words.
fn answers(card: &AskCard) -> Vec<(Action, &'static str)> {
    let all = [
        (Action::Once, Decision::Approved, "once"),
        (Action::Session, Decision::ApprovedForSession, "session"),
        (Action::Rule, Decision::ApprovedRule, "rule"),
        (Action::Deny, Decision::Denied, "no"),
        (Action::Abort, Decision::Abort, "stop"),
    ];
    let offered = all.into_iter().filter(|(_, decision, _)| offers(card, decision));
    offered.map(|(action, _, says)| (action, says)).collect()
}

fn over_keys(over: &Over, looks_on: bool) -> Vec<(Action, &'static str)> {
    let close = (Action::Close, "close");
    if looks_on && matches!(over, Over::Pods(_)) {
        return vec![(Action::Choose, "look at it"), close];
    }
    let orders = |keys: &[(Action, &'static str)]| [keys, &[close]].concat();
    match over {
        Over::Pods(pane) => orders(&[
            (Action::Choose, "attach"),
            (Action::MessageIt, "message"),
            (Action::PauseIt, if is_paused(pane) { "go on" } else { "pause" }),
            (Action::StopIt, "stop"),
            (Action::ForkIt, "fork"),
        ]),
        Over::Threads(pane) => orders(&[
            (Action::Choose, "go on"),
            (Action::ForkIt, "fork"),
            (Action::RenameIt, "rename"),
            (Action::ArchiveIt, if is_archived(pane) { "put back" } else { "archive" }),
        ]),
        Over::Asks(pane) => {
            let Some(row) = pane.chosen() else { return orders(&[]) };
            let mut keys = match row.card.ask.ask {
                AskKind::Approval => answers(&row.card),
                _ => vec![(Action::Once, "answer"), (Action::Deny, "no answer"), (Action::Abort, "stop")],
            };
            keys.push((Action::Choose, "attach"));
            orders(&keys)
        }
        Over::Settings(_) => orders(&[(Action::Choose, "change"), (Action::Down, "next")]),
        Over::List(list) => match list.kind {
            ListKind::Models => orders(&[(Action::Choose, "use")]),
            ListKind::Skills => orders(&[(Action::Choose, "into the composer")]),
            ListKind::Held => orders(&[(Action::Choose, "do it"), (Action::Down, "down")]),
            ListKind::Rewind { .. } => orders(&[(Action::Choose, "back to it")]),
        },
        Over::Diff(_) => orders(&[(Action::Down, "scroll"), (Action::Right, "next file")]),
        Over::Help(_) | Over::Tasks(_) | Over::Context { .. } | Over::Text { .. } => {
            orders(&[(Action::Down, "scroll")])
        }
    }
}

fn is_paused(pane: &Pods) -> bool {
    pane.chosen().is_some_and(|pod| pod.state == "paused")
}

fn is_archived(pane: &Threads) -> bool {
    pane.chosen().is_some_and(|thread| thread.archived)
}
