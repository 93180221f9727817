//! Key bindings: every action has a name, default keys and a context. `keys.toml` changes the keys.
//!
//! An error in that file is reported and only affects its action. Elsewhere: the effect of an action (`app`).
//! Invariant: no two actions have the same key in a context
//! (`a_key_that_two_actions_want_stays_with_the_first`).

use std::collections::BTreeMap;

use crate::event::KeyPress;

/// The context of a key. A key without an action in the current context is looked up in `Anywhere`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyContext {
    Anywhere,
    /// Text is typed.
    Composer,
    /// An ask has the focus.
    Ask,
    /// A block of the conversation has the focus.
    Block,
    /// A list is open.
    List,
}

macro_rules! actions {
    ($($variant:ident = $name:literal, $place:ident, [$($key:literal),*], $description:literal;)+) => {
        /// An action that a key can trigger.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action { $($variant),+ }

        impl Action {
            pub const ALL: &'static [Action] = &[$(Action::$variant),+];

            /// Returns the name in `keys.toml`.
            pub fn name(self) -> &'static str {
                match self { $(Action::$variant => $name),+ }
            }

            pub fn place(self) -> KeyContext {
                match self { $(Action::$variant => KeyContext::$place),+ }
            }

            /// Describes the action in a few words.
            pub fn description(self) -> &'static str {
                match self { $(Action::$variant => $description),+ }
            }

            fn default_keys(self) -> &'static [&'static str] {
                match self { $(Action::$variant => &[$($key),*]),+ }
            }
        }
    };
}

actions! {
    Leave = "leave", Anywhere, ["ctrl-c"], "quit (twice)";
    Suspend = "suspend", Anywhere, ["ctrl-z"], "suspend";
    Redraw = "redraw", Anywhere, ["ctrl-l"], "redraw";
    Help = "help", Anywhere, ["f1"], "help";
    Pods = "pods", Anywhere, ["ctrl-p"], "pods";
    Threads = "threads", Anywhere, ["ctrl-r"], "threads";
    Tasks = "tasks", Anywhere, ["ctrl-t"], "tasks";
    Asks = "asks", Anywhere, ["alt-a"], "questions";
    PageUp = "page-up", Anywhere, ["pageup"], "scroll up";
    PageDown = "page-down", Anywhere, ["pagedown"], "scroll down";
    LineUp = "line-up", Anywhere, ["shift-up"], "line up";
    LineDown = "line-down", Anywhere, ["shift-down"], "line down";
    Top = "top", Anywhere, ["ctrl-home"], "to the top";
    Follow = "follow", Anywhere, ["ctrl-end"], "to the end";
    Pause = "pause", Anywhere, ["esc"], "pause";
    Send = "send", Composer, ["enter"], "send";
    Newline = "newline", Composer, ["alt-enter", "shift-enter", "ctrl-j"], "new line";
    Steer = "steer", Composer, ["ctrl-enter", "alt-s"], "steer";
    Undo = "undo", Composer, ["ctrl-_", "ctrl-/"], "undo";
    Redo = "redo", Composer, ["alt-_", "alt-/"], "redo";
    Editor = "editor", Composer, ["ctrl-g"], "editor";
    Older = "older", Composer, ["up"], "earlier input";
    Newer = "newer", Composer, ["down"], "later input";
    Complete = "complete", Composer, ["tab"], "select";
    Back = "back", Composer, ["shift-tab"], "select upward";
    Once = "answer-once", Ask, ["y"], "yes, once";
    Session = "answer-session", Ask, ["a"], "for this session";
    Rule = "answer-rule", Ask, ["r"], "always, as a rule";
    Deny = "answer-deny", Ask, ["n"], "no, with a note";
    Abort = "answer-abort", Ask, ["x"], "no, and stop";
    Words = "answer-words", Ask, ["enter"], "answer in words";
    Previous = "previous", Block, ["up", "shift-tab"], "up";
    Next = "next", Block, ["down", "tab"], "down";
    Open = "open", Block, ["enter", "o"], "open or close";
    Copy = "copy", Block, ["y", "c"], "copy";
    Up = "list-up", List, ["up"], "up";
    Down = "list-down", List, ["down"], "down";
    Left = "list-left", List, ["left"], "previous value";
    Right = "list-right", List, ["right", "tab"], "change";
    Choose = "choose", List, ["enter"], "choose";
    Close = "close", List, ["esc"], "close";
    ForkIt = "list-fork", List, ["ctrl-f"], "fork";
    StopIt = "list-stop", List, ["ctrl-x"], "stop";
    PauseIt = "list-pause", List, ["ctrl-o"], "pause or resume";
    ArchiveIt = "list-archive", List, ["ctrl-a"], "archive or unarchive";
    MessageIt = "list-message", List, ["ctrl-s"], "send a message";
    RenameIt = "list-rename", List, ["ctrl-n"], "rename";
}

/// The actions of all keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyBindings {
    bindings: BTreeMap<(KeyContext, KeyPress), Action>,
}

impl Default for KeyBindings {
    fn default() -> KeyBindings {
        KeyBindings::parse_config("").0
    }
}

impl KeyBindings {
    /// Parses `keys.toml`: the name of an action with its key or a list of keys. An empty list removes all
    /// keys. Invalid entries are reported and leave the action unchanged.
    pub fn parse_config(text: &str) -> (KeyBindings, Vec<String>) {
        let mut problems = Vec::new();
        let table: toml::Table = toml::from_str(text).unwrap_or_else(|e| {
            problems.push(format!("keys.toml: invalid TOML: {}", e.message()));
            toml::Table::new()
        });
        for name in table.keys().filter(|name| !Action::ALL.iter().any(|action| action.name() == *name)) {
            problems.push(format!("keys.toml: unknown action `{name}`; F1 lists the actions"));
        }
        let wishes = Action::ALL.iter().map(|action| {
            let wished = table.get(action.name());
            let keys = match wished.map(|value| parse_key_list(*action, value)) {
                Some(Ok(keys)) => keys,
                other => {
                    problems.extend(other.and_then(Result::err));
                    action.default_keys().iter().filter_map(|word| word.parse().ok()).collect()
                }
            };
            (*action, wished.is_some(), keys)
        });
        let mut wishes: Vec<(Action, bool, Vec<KeyPress>)> = wishes.collect();
        // User settings take precedence over defaults.
        wishes.sort_by_key(|(_, wished, _)| !wished);
        let mut keys = KeyBindings { bindings: BTreeMap::new() };
        for (action, wished, target) in wishes {
            for key in target {
                match keys.bound_action(action.place(), key) {
                    None => {
                        keys.bindings.insert((action.place(), key), action);
                    }
                    // A default that yields to a user setting is intended.
                    Some(other) if wished => problems.push(format!(
                        "keys.toml: {key} is set for `{}` and for `{}`; the first is used",
                        other.name(),
                        action.name()
                    )),
                    Some(_) => {}
                }
            }
        }
        for action in Action::ALL {
            let meant = table.get(action.name()).is_some();
            if !meant && keys.first_key(*action).is_none() {
                problems.push(format!("keys.toml: `{}` has no key left", action.name()));
            }
        }
        (keys, problems)
    }

    /// Returns the action of a key in a context.
    fn bound_action(&self, place: KeyContext, key: KeyPress) -> Option<Action> {
        self.bindings.get(&(place, key)).copied()
    }

    pub fn action_for(&self, place: KeyContext, key: KeyPress) -> Option<Action> {
        let here = self.bindings.get(&(place, key));
        here.or_else(|| self.bindings.get(&(KeyContext::Anywhere, key))).copied()
    }

    /// Returns the first key of an action.
    pub fn first_key(&self, action: Action) -> Option<KeyPress> {
        self.keys_for(action).into_iter().next()
    }

    /// Returns all keys of an action, the displayed one first.
    pub fn keys_for(&self, action: Action) -> Vec<KeyPress> {
        let defaults: Vec<KeyPress> =
            action.default_keys().iter().filter_map(|word| word.parse().ok()).collect();
        let rank = |key: &KeyPress| defaults.iter().position(|default| default == key).unwrap_or(usize::MAX);
        let bound = self.bindings.iter().filter(|(_, bound)| **bound == action);
        let mut keys: Vec<KeyPress> = bound.map(|((_, key), _)| *key).collect();
        keys.sort_by_key(rank);
        keys
    }
}

fn parse_key_list(action: Action, value: &toml::Value) -> Result<Vec<KeyPress>, String> {
    let words: Vec<&str> = match value {
        toml::Value::String(word) => vec![word],
        toml::Value::Array(list) => list.iter().map(|word| word.as_str().unwrap_or_default()).collect(),
        _ => {
            let what = format!("keys.toml: `{}` must be a key or a list of keys", action.name());
            return Err(what);
        }
    };
    words
        .iter()
        .map(|word| word.parse().map_err(|e| format!("keys.toml: `{}`: {e}", action.name())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::KeySymbol;

    #[test]
    fn the_defaults_do_not_contradict_each_other() {
        let mut seen = BTreeMap::new();
        for action in Action::ALL {
            for word in action.default_keys() {
                let key: KeyPress = word.parse().unwrap();
                assert_eq!(seen.insert((action.place(), key), action), None, "{word}");
            }
        }
        let (keys, problems) = KeyBindings::parse_config("");
        assert!(problems.is_empty());
        assert_eq!(
            keys.action_for(KeyContext::Composer, KeyPress::from_symbol(KeySymbol::Enter)),
            Some(Action::Send)
        );
        assert_eq!(
            keys.action_for(KeyContext::Composer, KeyPress::with_ctrl('p')),
            Some(Action::Pods),
            "it counts anywhere"
        );
        assert_eq!(
            keys.action_for(KeyContext::Composer, KeyPress::from_letter('y')),
            None,
            "letters are typed there"
        );
        for action in Action::ALL {
            assert!(keys.first_key(*action).is_some(), "{}", action.name());
        }
    }

    #[test]
    fn a_file_gives_an_action_other_keys() {
        let (keys, problems) =
            KeyBindings::parse_config("pods = \"f2\"\nsteer = [\"ctrl-s\", \"f3\"]\nsuspend = []\n");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(keys.action_for(KeyContext::Composer, "f2".parse().unwrap()), Some(Action::Pods));
        assert_eq!(keys.action_for(KeyContext::Composer, KeyPress::with_ctrl('p')), None);
        assert_eq!(keys.action_for(KeyContext::Composer, KeyPress::with_ctrl('s')), Some(Action::Steer));
        assert_eq!(keys.first_key(Action::Suspend), None);
    }

    #[test]
    fn a_key_that_two_actions_want_stays_with_the_first() {
        let (keys, problems) = KeyBindings::parse_config(
            "pods = \"f2\"\nthreads = \"f2\"\nhelp = 3\nfly = \"x\"\ntop = \"hm\"\n",
        );
        assert_eq!(keys.action_for(KeyContext::List, "f2".parse().unwrap()), Some(Action::Pods));
        assert_eq!(
            keys.action_for(KeyContext::List, "f1".parse().unwrap()),
            Some(Action::Help),
            "it stays as it was"
        );
        let told = problems.join("\n");
        for target in
            ["`pods` and for `threads`", "unknown action `fly`", "`help` must be a key", "`hm` is not a key"]
        {
            assert!(told.contains(target), "{told}");
        }
        // A default yields to a user setting; an action that loses its last key is reported.
        let (keys, problems) = KeyBindings::parse_config("pods = \"ctrl-r\"\n");
        assert_eq!(problems, ["keys.toml: `threads` has no key left"]);
        assert_eq!(keys.action_for(KeyContext::List, KeyPress::with_ctrl('r')), Some(Action::Pods));
        assert!(!KeyBindings::parse_config("pods = ").1.is_empty());
    }
}
