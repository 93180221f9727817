//! The composer's pop-up: files after `@`, knowledge after `#`, commands, workflows and skills after `/`.

use minke_protocol::{Completion, CompletionKind, Completions, ListCompletions, Method};

use super::list::fitting;
use super::slash::Command;
use super::talk::Talk;
use super::{App, Focus, Pending};
use crate::composer::Token;
use crate::event::Key;
use crate::keys::{Action, Place};
use crate::outside::Question;

/// What is shown at once.
pub(super) const SHOWN: usize = 6;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Popup {
    token: Token,
    /// What the pod knows of; for `/` it is asked twice.
    found: Vec<Item>,
    pub(super) at: usize,
    /// The person does not want it for this word.
    closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) value: String,
    pub(super) note: String,
    is_dir: bool,
}

impl Popup {
    /// What the word begins with.
    pub(super) fn sigil(&self) -> char {
        self.token.sigil
    }

    /// Whether the pod knows something of exactly this name.
    pub(super) fn names(&self, word: &str) -> bool {
        self.found.iter().any(|item| item.value == word)
    }

    /// What fits, the best first.
    pub(super) fn items(&self) -> Vec<Item> {
        if self.closed {
            return Vec::new();
        }
        let mut all = self.found.clone();
        if self.token.sigil == '/' && self.token.first {
            let commands = Command::ALL.iter().map(|command| Item {
                value: command.name().to_owned(),
                note: command.says().to_owned(),
                is_dir: false,
            });
            all.splice(0..0, commands);
        }
        if self.token.rest.is_empty() {
            return all;
        }
        // A directory that stands there in full is no completion: what is in it is on its way.
        let typed = self.token.rest.strip_suffix('/');
        all.retain(|item| !item.is_dir || typed != Some(item.value.trim_end_matches('/')));
        fitting(&self.token.rest, &all, |item| item.value.clone()).into_iter().cloned().collect()
    }
}

impl App {
    /// The word at the cursor decides whether there is a pop-up.
    pub(super) fn settle_popup(&mut self) {
        let typing = self.focus == Focus::Composer && self.composer.is_typing();
        let typing = typing && self.over.is_none() && self.noting.is_none() && self.line.is_none();
        let wanted =
            typing.then(|| self.composer.token()).flatten().filter(|token| token.sigil != '/' || token.first);
        let Some(token) = wanted else {
            self.popup = None;
            return;
        };
        if self.popup.as_ref().is_some_and(|popup| popup.token == token) {
            return;
        }
        let before = self.popup.take().filter(|popup| popup.token.sigil == token.sigil);
        let (found, closed) = before.map(|popup| (popup.found, popup.closed)).unwrap_or_default();
        self.popup = Some(Popup { token: token.clone(), found, at: 0, closed });
        self.ask_completions(&token);
    }

    fn ask_completions(&mut self, token: &Token) {
        let joined = self.talk.as_ref().map(Talk::is_joined);
        // One that does not listen at the moment is not asked; before there is one, somebody else knows.
        if joined == Some(false) {
            return;
        }
        let kinds: &[CompletionKind] = match token.sigil {
            '@' => &[CompletionKind::File],
            '#' => &[CompletionKind::Knowledge],
            _ => &[CompletionKind::Workflow, CompletionKind::Skill],
        };
        for kind in kinds {
            let pending = Pending::Completions { sigil: token.sigil, rest: token.rest.clone() };
            let list = ListCompletions { kind: *kind, prefix: token.rest.clone() };
            match joined {
                Some(_) => self.send(Method::ListCompletions(list), pending),
                None => self.ask(Question::Complete(list), pending),
            }
        }
    }

    pub(super) fn completions(&mut self, sigil: char, rest: &str, found: Completions) {
        let Some(popup) = &mut self.popup else { return };
        // What was asked for a word that has changed since is not what is wanted.
        if popup.token.sigil != sigil || popup.token.rest != rest {
            return;
        }
        let note = match found.kind {
            CompletionKind::Workflow => "workflow",
            CompletionKind::Skill => "skill",
            _ => "",
        };
        let item =
            |found: Completion| Item { value: found.value, note: note.to_owned(), is_dir: found.is_dir };
        let new: Vec<Item> = found.entries.into_iter().map(item).collect();
        if sigil == '/' {
            popup.found.retain(|had| had.note != note);
            popup.found.extend(new);
        } else {
            popup.found = new;
        }
    }

    /// Keys that the pop-up takes before the composer does.
    pub(super) fn popup_key(&mut self, key: Key) -> bool {
        let Some(popup) = &mut self.popup else { return false };
        let items = popup.items();
        if items.is_empty() {
            return false;
        }
        match self.setup.keys.action(Place::Composer, key) {
            Some(Action::Older) => popup.at = popup.at.checked_sub(1).unwrap_or(items.len() - 1),
            Some(Action::Newer) => popup.at = (popup.at + 1) % items.len(),
            Some(Action::Pause) => popup.closed = true,
            Some(action @ (Action::Complete | Action::Send)) => {
                let Some(item) = items.get(popup.at.min(items.len() - 1)).cloned() else { return false };
                let (sigil, exact) = (popup.token.sigil, popup.token.rest == item.value);
                // Enter on what is there in full sends it.
                if action == Action::Send && exact && !item.is_dir {
                    self.popup = None;
                    return false;
                }
                let end = if item.is_dir { "" } else { " " };
                let slash = if item.is_dir && !item.value.ends_with('/') { "/" } else { "" };
                self.composer.complete(&format!("{sigil}{}{slash}{end}", item.value));
            }
            _ => return false,
        }
        true
    }
}
