//! Completions in the composer: files after `@`, knowledge after `#`, commands, workflows and skills after
//! `/`.

use minke_protocol::{Completion, CompletionKind, Completions, ListCompletions, Method};

use super::super::input::slash::Command;
use super::super::session::AttachedSession;
use super::super::views::list::matching_items;
use super::super::{App, AppFocus, PendingReply};
use crate::app::{InputState, ScreenStyle, SessionLink, UiOutput};
use crate::backend::BackendRequest;
use crate::composer::ReferenceToken;
use crate::event::KeyPress;
use crate::keys::{Action, KeyContext};

/// Limit for displayed items.
pub(in crate::app) const MAX_SHOWN: usize = 6;

#[derive(Debug, Clone, PartialEq)]
pub(in crate::app) struct CompletionPopup {
    token: ReferenceToken,
    /// Items from the pod; for `/` two requests are made.
    pod_items: Vec<CompletionItem>,
    pub(in crate::app) selected: usize,
    /// The user has closed the completions for this word.
    is_dismissed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app) struct CompletionItem {
    pub(in crate::app) value: String,
    pub(in crate::app) note: String,
    is_dir: bool,
}

impl CompletionPopup {
    /// Returns the first character of the word.
    pub(in crate::app) fn sigil(&self) -> char {
        self.token.sigil
    }

    /// Returns whether the pod knows an item with exactly this name.
    pub(in crate::app) fn has_exact_name(&self, word: &str) -> bool {
        self.pod_items.iter().any(|item| item.value == word)
    }

    /// Returns the matching items, the best first.
    pub(in crate::app) fn matching_items(&self) -> Vec<CompletionItem> {
        if self.is_dismissed {
            return Vec::new();
        }
        let mut all = self.pod_items.clone();
        if self.token.sigil == '/' && self.token.is_first_word {
            let commands = Command::ALL.iter().map(|command| CompletionItem {
                value: command.name().to_owned(),
                note: command.says().to_owned(),
                is_dir: false,
            });
            all.splice(0..0, commands);
        }
        if self.token.rest.is_empty() {
            return all;
        }
        // A fully typed directory is not a completion; its contents are being loaded.
        let typed = self.token.rest.strip_suffix('/');
        all.retain(|item| !item.is_dir || typed != Some(item.value.trim_end_matches('/')));
        matching_items(&self.token.rest, &all, |item| item.value.clone()).into_iter().cloned().collect()
    }
}

impl App {
    /// Opens or closes the completions for the word at the cursor.
    pub(in crate::app) fn update_popup(&mut self) {
        let typing = self.input.focus == AppFocus::Composer && self.input.composer.is_typing();
        let typing = typing
            && self.lists.overlay.is_none()
            && self.input.note_prompt.is_none()
            && self.input.text_prompt.is_none();
        let target = typing
            .then(|| self.input.composer.reference_at_cursor())
            .flatten()
            .filter(|token| token.sigil != '/' || token.is_first_word);
        let Some(token) = target else {
            self.input.popup = None;
            return;
        };
        if self.input.popup.as_ref().is_some_and(|popup| popup.token == token) {
            return;
        }
        let before = self.input.popup.take().filter(|popup| popup.token.sigil == token.sigil);
        let (pod_items, is_dismissed) =
            before.map(|popup| (popup.pod_items, popup.is_dismissed)).unwrap_or_default();
        self.input.popup =
            Some(CompletionPopup { token: token.clone(), pod_items, selected: 0, is_dismissed });
        self.link.request_completions(&mut self.output, &token);
    }
}

impl SessionLink {
    pub(in crate::app) fn request_completions(&mut self, output: &mut UiOutput, token: &ReferenceToken) {
        let joined = self.session.as_ref().map(AttachedSession::is_joined);
        // Do not ask a disconnected pod. Before a session exists, the backend completes.
        if joined == Some(false) {
            return;
        }
        let kinds: &[CompletionKind] = match token.sigil {
            '@' => &[CompletionKind::File],
            '#' => &[CompletionKind::Knowledge],
            _ => &[CompletionKind::Workflow, CompletionKind::Skill],
        };
        for kind in kinds {
            let pending = PendingReply::Completions { sigil: token.sigil, rest: token.rest.clone() };
            let list = ListCompletions { kind: *kind, prefix: token.rest.clone() };
            match joined {
                Some(_) => self.send_method(output, Method::ListCompletions(list), pending),
                None => output.ask_backend(BackendRequest::Complete(list), pending),
            }
        }
    }
}

impl InputState {
    pub(in crate::app) fn apply_completions(&mut self, sigil: char, rest: &str, found: Completions) {
        let Some(popup) = &mut self.popup else { return };
        // Ignore the response for an outdated word.
        if popup.token.sigil != sigil || popup.token.rest != rest {
            return;
        }
        let note = match found.kind {
            CompletionKind::Workflow => "workflow",
            CompletionKind::Skill => "skill",
            _ => "",
        };
        let item = |found: Completion| CompletionItem {
            value: found.value,
            note: note.to_owned(),
            is_dir: found.is_dir,
        };
        let new: Vec<CompletionItem> = found.entries.into_iter().map(item).collect();
        if sigil == '/' {
            popup.pod_items.retain(|had| had.note != note);
            popup.pod_items.extend(new);
        } else {
            popup.pod_items = new;
        }
    }

    /// Handles the keys that the completions take before the composer.
    pub(in crate::app) fn handle_popup_key(&mut self, style: &ScreenStyle, key: KeyPress) -> bool {
        let Some(popup) = &mut self.popup else { return false };
        let items = popup.matching_items();
        if items.is_empty() {
            return false;
        }
        match style.keys.action_for(KeyContext::Composer, key) {
            Some(Action::Older) => popup.selected = popup.selected.checked_sub(1).unwrap_or(items.len() - 1),
            Some(Action::Newer) => popup.selected = (popup.selected + 1) % items.len(),
            Some(Action::Pause) => popup.is_dismissed = true,
            Some(action @ (Action::Complete | Action::Send)) => {
                let Some(item) = items.get(popup.selected.min(items.len() - 1)).cloned() else {
                    return false;
                };
                let (sigil, exact) = (popup.token.sigil, popup.token.rest == item.value);
                // Enter on a fully typed item sends the input.
                if action == Action::Send && exact && !item.is_dir {
                    self.popup = None;
                    return false;
                }
                let end = if item.is_dir { "" } else { " " };
                let slash = if item.is_dir && !item.value.ends_with('/') { "/" } else { "" };
                self.composer.complete_word(&format!("{sigil}{}{slash}{end}", item.value));
            }
            _ => return false,
        }
        true
    }
}
