//! The footer: the latest message, or the most useful keys.

use minke_record::{AskId, AskKind, Decision};
use minke_view::AskCard;
use ratatui::text::{Line, Span};

use super::super::AppFocus;
use super::super::input::answer::offers_decision;
use super::super::views::list::ListKind;
use super::super::views::overlay::Overlay;
use super::super::views::status::{fit_words, sanitize_line};
use crate::app::{ScreenStyle, ScreenView};
use crate::keys::{Action, KeyContext};
use crate::paint::StyleRole;
use crate::panes::{PodsPane, ThreadsPane};

impl ScreenView<'_> {
    /// Returns the latest message or the current keys.
    pub(in crate::app) fn footer_line(&self, width: u16) -> Line<'static> {
        let key = self.style.theme.role_style(StyleRole::Key);
        let dim = self.style.theme.role_style(StyleRole::Dim);
        if self.is_quit_pending {
            let on = if self.link.session.is_some() { "; the pod keeps running" } else { "" };
            let text = format!("press {} again to quit{on}", self.style.key_label(Action::Leave));
            return Line::from(Span::styled(text, self.style.theme.role_style(StyleRole::Warn)));
        }
        let mut spans: Vec<Span<'static>> = self.vi_mode_span().into_iter().collect();
        let used: usize = spans.iter().map(Span::width).sum();
        if let Some(text) = self.message {
            let text = Span::styled(sanitize_line(text), self.style.theme.role_style(StyleRole::Warn));
            spans.extend(fit_words(vec![text], width.saturating_sub(u16::try_from(used).unwrap_or(0))).spans);
            return Line::from(spans);
        }
        for (bound, says) in self.visible_keys(usize::from(width).saturating_sub(used)) {
            spans.push(Span::styled(bound, key));
            spans.push(Span::styled(format!(" {says}  "), dim));
        }
        Line::from(spans)
    }

    /// Returns as many keys as fit. The key that closes an overlay is always included, after the answers to
    /// an ask.
    pub(in crate::app) fn visible_keys(&self, available: usize) -> Vec<(String, &'static str)> {
        let mut keys = self.style.with_bindings(&self.suggested_keys(available));
        let out = keys.pop_if(|_| {
            self.lists.overlay.as_ref().is_some_and(|overlay| !matches!(overlay, Overlay::Asks(_)))
        });
        // The last key needs no trailing space.
        let mut left = (available + 2).saturating_sub(out.as_ref().map_or(0, key_columns));
        let many = keys.iter().take_while(|key| {
            let fits = key_columns(key) <= left;
            left = left.saturating_sub(key_columns(key));
            fits
        });
        keys.truncate(many.count());
        keys.extend(out);
        keys
    }

    /// Returns the keys for the answers of an ask, with short labels if space is limited.
    pub(in crate::app) fn answer_keys(&self, ask: AskId, available: usize) -> Vec<(Action, &'static str)> {
        let Some(card) = self.link.session.as_ref().and_then(|attached| attached.ask_card(ask)) else {
            return Vec::new();
        };
        let short = card_answers(card);
        let long: Vec<_> = short.iter().map(|(action, _)| (*action, action.description())).collect();
        if self.style.with_bindings(&long).iter().map(key_columns).sum::<usize>() <= available + 2 {
            long
        } else {
            short
        }
    }

    /// Returns the vi mode and the pending keys of a command.
    pub(in crate::app) fn vi_mode_span(&self) -> Option<Span<'static>> {
        let (mode, typed) =
            self.input.composer.vi_state().filter(|_| self.key_context() == KeyContext::Composer)?;
        let typed = if typed.is_empty() { String::new() } else { format!(" {}", sanitize_line(typed)) };
        Some(Span::styled(
            format!("{}{typed}  ", mode.mode_label()),
            self.style.theme.role_style(StyleRole::Accent),
        ))
    }

    /// Returns the suggested keys, the most useful first.
    pub(in crate::app) fn suggested_keys(&self, available: usize) -> Vec<(Action, &'static str)> {
        if self.input.note_prompt.is_some() {
            return vec![(Action::Send, "answer"), (Action::Pause, "back to the question")];
        }
        if let Some(line) = &self.input.text_prompt {
            return vec![(Action::Send, line.enter_label()), (Action::Pause, "back")];
        }
        if let Some(overlay) = &self.lists.overlay {
            return overlay_keys(overlay, self.read_only);
        }
        if self.read_only {
            return vec![
                (Action::Complete, "next pod"),
                (Action::Pods, "pods"),
                (Action::PageUp, "scroll up"),
                (Action::Help, "help"),
                (Action::Leave, "leave"),
            ];
        }
        if self.input.popup.as_ref().is_some_and(|popup| !popup.matching_items().is_empty()) {
            return vec![(Action::Complete, "take"), (Action::Newer, "next"), (Action::Pause, "close")];
        }
        let mut keys = match (self.key_context(), self.input.focus) {
            (KeyContext::Ask, AppFocus::Ask(ask))
                if self.link.session.as_ref().is_some_and(|attached| attached.needs_text_answer(ask)) =>
            {
                vec![(Action::Once, "answer in words"), (Action::Deny, "no answer"), (Action::Abort, "stop")]
            }
            (KeyContext::Ask, AppFocus::Ask(ask)) => self.answer_keys(ask, available),
            (KeyContext::Block, _) => {
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
        if self.lists.other_ask_count(self.link.session.as_ref()) > 0 {
            keys.push((Action::Asks, "questions"));
        }
        keys.extend([(Action::Help, "help"), (Action::Pods, "pods"), (Action::Threads, "threads")]);
        keys.push((Action::Leave, "leave"));
        keys
    }

    pub(in crate::app) fn composer_keys(&self) -> Vec<(Action, &'static str)> {
        let Some(attached) = &self.link.session else {
            return match self.input.composer.is_empty() && self.lists.start_row_count(self.now) > 0 {
                true => vec![(Action::Send, "choose"), (Action::Newer, "next")],
                false => vec![(Action::Send, "start"), (Action::Newline, "new line")],
            };
        };
        let queued = !attached.session_status().queue.is_empty() && self.input.composer.is_empty();
        let mut keys = Vec::new();
        match (attached.is_running(), self.input.composer.is_empty()) {
            (true, true) => keys.push((Action::Pause, "pause")),
            (true, false) => {
                keys.extend([(Action::Send, "queue"), (Action::Steer, "steer"), (Action::Pause, "pause")]);
            }
            (false, true) if attached.is_paused() => keys.push((Action::Send, "resume")),
            (false, true) => {}
            (false, false) => keys.extend([(Action::Send, "send"), (Action::Newline, "new line")]),
        }
        if queued {
            keys.push((Action::Older, "edit the queue"));
        }
        if attached.open_ask_count() > 0 {
            keys.push((Action::Complete, "to the question"));
        } else if self.input.composer.is_empty() {
            keys.push((Action::Complete, "select"));
        }
        keys
    }
}

impl ScreenStyle {
    /// Returns the actions that have a key, with the key.
    pub(in crate::app) fn with_bindings(
        &self,
        keys: &[(Action, &'static str)],
    ) -> Vec<(String, &'static str)> {
        let bound = |(action, says): &(Action, &'static str)| {
            Some((self.keys.first_key(*action)?.to_string(), *says))
        };
        keys.iter().filter_map(bound).collect()
    }
}

/// Returns the columns of a key with its label and a trailing space.
fn key_columns((bound, says): &(String, &'static str)) -> usize {
    bound.chars().count() + says.chars().count() + 3
}

/// Returns the answers of an ask with the shortest labels.
fn card_answers(card: &AskCard) -> Vec<(Action, &'static str)> {
    let all = [
        (Action::Once, Decision::Approved, "once"),
        (Action::Session, Decision::ApprovedForSession, "session"),
        (Action::Rule, Decision::ApprovedRule, "rule"),
        (Action::Deny, Decision::Denied, "no"),
        (Action::Abort, Decision::Abort, "stop"),
    ];
    let offered = all.into_iter().filter(|(_, decision, _)| offers_decision(card, decision));
    offered.map(|(action, _, says)| (action, says)).collect()
}

fn overlay_keys(overlay: &Overlay, looks_on: bool) -> Vec<(Action, &'static str)> {
    let close = (Action::Close, "close");
    if looks_on && matches!(overlay, Overlay::Pods(_)) {
        return vec![(Action::Choose, "view"), close];
    }
    let orders = |keys: &[(Action, &'static str)]| [keys, &[close]].concat();
    match overlay {
        Overlay::Pods(pane) => orders(&[
            (Action::Choose, "attach"),
            (Action::MessageIt, "message"),
            (Action::PauseIt, if is_selection_paused(pane) { "resume" } else { "pause" }),
            (Action::StopIt, "stop"),
            (Action::ForkIt, "fork"),
        ]),
        Overlay::Threads(pane) => orders(&[
            (Action::Choose, "continue"),
            (Action::ForkIt, "fork"),
            (Action::RenameIt, "rename"),
            (Action::ArchiveIt, if is_selection_archived(pane) { "unarchive" } else { "archive" }),
        ]),
        Overlay::Asks(pane) => {
            let Some(row) = pane.selected_row() else { return orders(&[]) };
            let mut keys = match row.card_lines.ask.ask {
                AskKind::Approval => card_answers(&row.card_lines),
                _ => vec![(Action::Once, "answer"), (Action::Deny, "no answer"), (Action::Abort, "stop")],
            };
            keys.push((Action::Choose, "attach"));
            orders(&keys)
        }
        Overlay::Settings(_) => orders(&[(Action::Choose, "change"), (Action::Down, "next")]),
        Overlay::List(list) => match list.kind {
            ListKind::Models => orders(&[(Action::Choose, "use")]),
            ListKind::Skills => orders(&[(Action::Choose, "insert")]),
            ListKind::ScopeConflict => orders(&[(Action::Choose, "select"), (Action::Down, "down")]),
            ListKind::Rewind { .. } => orders(&[(Action::Choose, "rewind")]),
        },
        Overlay::Diff(_) => orders(&[(Action::Down, "scroll"), (Action::Right, "next file")]),
        Overlay::Help(_) | Overlay::Tasks(_) | Overlay::Context { .. } | Overlay::Text { .. } => {
            orders(&[(Action::Down, "scroll")])
        }
    }
}

fn is_selection_paused(pane: &PodsPane) -> bool {
    pane.selected_pod().is_some_and(|pod| pod.state == "paused")
}

fn is_selection_archived(pane: &ThreadsPane) -> bool {
    pane.selected_thread().is_some_and(|thread| thread.is_archived)
}
