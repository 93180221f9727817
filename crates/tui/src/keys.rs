//! Keys: every action has a name, keys of its own, and a place where it counts. `keys.toml` gives it others.
//!
//! A mistake in that file is told and costs only itself. Elsewhere: what an action does (`app`).
//! Invariant: no two actions have one key in one place, whatever the file says
//! (`a_key_that_two_actions_want_stays_with_the_first`).

use std::collections::BTreeMap;

use crate::event::Key;

/// Where a key counts. What has no meaning there is looked up in `Anywhere`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Anywhere,
    /// Text is typed.
    Composer,
    /// A question has the focus.
    Question,
    /// A block of the conversation has it.
    Block,
    /// A list is open.
    List,
}

macro_rules! actions {
    ($($variant:ident = $name:literal, $place:ident, [$($key:literal),*], $says:literal;)+) => {
        /// Something that a person can do with a key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Action { $($variant),+ }

        impl Action {
            pub const ALL: &'static [Action] = &[$(Action::$variant),+];

            /// Its name in `keys.toml`.
            pub fn name(self) -> &'static str {
                match self { $(Action::$variant => $name),+ }
            }

            pub fn place(self) -> Place {
                match self { $(Action::$variant => Place::$place),+ }
            }

            /// What it does, in a word or two.
            pub fn says(self) -> &'static str {
                match self { $(Action::$variant => $says),+ }
            }

            fn default_keys(self) -> &'static [&'static str] {
                match self { $(Action::$variant => &[$($key),*]),+ }
            }
        }
    };
}

actions! {
    Leave = "leave", Anywhere, ["ctrl-c"], "leave (twice)";
    Suspend = "suspend", Anywhere, ["ctrl-z"], "suspend";
    Redraw = "redraw", Anywhere, ["ctrl-l"], "draw again";
    Help = "help", Anywhere, ["f1"], "help";
    Pods = "pods", Anywhere, ["ctrl-p"], "pods";
    Threads = "threads", Anywhere, ["ctrl-r"], "threads";
    Tasks = "tasks", Anywhere, ["ctrl-t"], "tasks";
    Asks = "asks", Anywhere, ["alt-a"], "who asks";
    PageUp = "page-up", Anywhere, ["pageup"], "scroll up";
    PageDown = "page-down", Anywhere, ["pagedown"], "scroll down";
    LineUp = "line-up", Anywhere, ["shift-up"], "a line up";
    LineDown = "line-down", Anywhere, ["shift-down"], "a line down";
    Top = "top", Anywhere, ["ctrl-home"], "the beginning";
    Follow = "follow", Anywhere, ["ctrl-end"], "the end";
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
    Once = "answer-once", Question, ["y"], "yes, once";
    Session = "answer-session", Question, ["a"], "for this session";
    Rule = "answer-rule", Question, ["r"], "always, as a rule";
    Deny = "answer-deny", Question, ["n"], "no, with a note";
    Abort = "answer-abort", Question, ["x"], "no, and stop";
    Words = "answer-words", Question, ["enter"], "answer in words";
    Previous = "previous", Block, ["up", "shift-tab"], "up";
    Next = "next", Block, ["down", "tab"], "down";
    Open = "open", Block, ["enter", "o"], "open or close";
    Copy = "copy", Block, ["y", "c"], "copy";
    Up = "list-up", List, ["up"], "up";
    Down = "list-down", List, ["down"], "down";
    Left = "list-left", List, ["left"], "change back";
    Right = "list-right", List, ["right", "tab"], "change";
    Choose = "choose", List, ["enter"], "choose";
    Close = "close", List, ["esc"], "close";
    ForkIt = "list-fork", List, ["ctrl-f"], "fork";
    StopIt = "list-stop", List, ["ctrl-x"], "stop";
    PauseIt = "list-pause", List, ["ctrl-o"], "pause, or go on";
    ArchiveIt = "list-archive", List, ["ctrl-a"], "archive, or put back";
    MessageIt = "list-message", List, ["ctrl-s"], "say something to it";
    RenameIt = "list-rename", List, ["ctrl-n"], "another name";
}

/// Which key does what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    bound: BTreeMap<(Place, Key), Action>,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys::read("").0
    }
}

impl Keys {
    /// Reads `keys.toml`: the name of an action, and its key or a list of keys; an empty list takes its keys away. What
    /// cannot be used is told, and leaves the action as it was.
    pub fn read(text: &str) -> (Keys, Vec<String>) {
        let mut problems = Vec::new();
        let table: toml::Table = toml::from_str(text).unwrap_or_else(|e| {
            problems.push(format!("keys.toml is not TOML: {}", e.message()));
            toml::Table::new()
        });
        for name in table.keys().filter(|name| !Action::ALL.iter().any(|action| action.name() == *name)) {
            problems.push(format!("keys.toml: there is no action `{name}`; F1 lists them"));
        }
        let wishes = Action::ALL.iter().map(|action| {
            let wished = table.get(action.name());
            let keys = match wished.map(|value| wished_keys(*action, value)) {
                Some(Ok(keys)) => keys,
                other => {
                    problems.extend(other.and_then(Result::err));
                    action.default_keys().iter().filter_map(|word| word.parse().ok()).collect()
                }
            };
            (*action, wished.is_some(), keys)
        });
        let mut wishes: Vec<(Action, bool, Vec<Key>)> = wishes.collect();
        // What the person says comes before what was there.
        wishes.sort_by_key(|(_, wished, _)| !wished);
        let mut keys = Keys { bound: BTreeMap::new() };
        for (action, wished, wanted) in wishes {
            for key in wanted {
                match keys.taken(action.place(), key) {
                    None => {
                        keys.bound.insert((action.place(), key), action);
                    }
                    // A default that gives way to a wish is what the wish is for.
                    Some(other) if wished => problems.push(format!(
                        "keys.toml: {key} is wanted by `{}` and by `{}`; it stays with the first",
                        other.name(),
                        action.name()
                    )),
                    Some(_) => {}
                }
            }
        }
        for action in Action::ALL {
            let meant = table.get(action.name()).is_some();
            if !meant && keys.key_of(*action).is_none() {
                problems.push(format!("keys.toml: `{}` has no key left", action.name()));
            }
        }
        (keys, problems)
    }

    /// Who has the key in that place already.
    fn taken(&self, place: Place, key: Key) -> Option<Action> {
        self.bound.get(&(place, key)).copied()
    }

    pub fn action(&self, place: Place, key: Key) -> Option<Action> {
        let here = self.bound.get(&(place, key));
        here.or_else(|| self.bound.get(&(Place::Anywhere, key))).copied()
    }

    /// The first key of an action, if it has one.
    pub fn key_of(&self, action: Action) -> Option<Key> {
        self.keys_of(action).into_iter().next()
    }

    /// All keys of an action, the one that is shown first.
    pub fn keys_of(&self, action: Action) -> Vec<Key> {
        let defaults: Vec<Key> = action.default_keys().iter().filter_map(|word| word.parse().ok()).collect();
        let rank = |key: &Key| defaults.iter().position(|default| default == key).unwrap_or(usize::MAX);
        let bound = self.bound.iter().filter(|(_, bound)| **bound == action);
        let mut keys: Vec<Key> = bound.map(|((_, key), _)| *key).collect();
        keys.sort_by_key(rank);
        keys
    }
}

fn wished_keys(action: Action, value: &toml::Value) -> Result<Vec<Key>, String> {
    let words: Vec<&str> = match value {
        toml::Value::String(word) => vec![word],
        toml::Value::Array(list) => list.iter().map(|word| word.as_str().unwrap_or_default()).collect(),
        _ => {
            let what = format!("keys.toml: `{}` is a key or a list of keys", action.name());
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
    use crate::event::Code;

    #[test]
    fn the_defaults_do_not_contradict_each_other() {
        let mut seen = BTreeMap::new();
        for action in Action::ALL {
            for word in action.default_keys() {
                let key: Key = word.parse().unwrap();
                assert_eq!(seen.insert((action.place(), key), action), None, "{word}");
            }
        }
        let (keys, problems) = Keys::read("");
        assert!(problems.is_empty());
        assert_eq!(keys.action(Place::Composer, Key::plain(Code::Enter)), Some(Action::Send));
        assert_eq!(keys.action(Place::Composer, Key::ctrl('p')), Some(Action::Pods), "it counts anywhere");
        assert_eq!(keys.action(Place::Composer, Key::char('y')), None, "letters are typed there");
        for action in Action::ALL {
            assert!(keys.key_of(*action).is_some(), "{}", action.name());
        }
    }

    #[test]
    fn a_file_gives_an_action_other_keys() {
        let (keys, problems) = Keys::read("pods = \"f2\"\nsteer = [\"ctrl-s\", \"f3\"]\nsuspend = []\n");
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(keys.action(Place::Composer, "f2".parse().unwrap()), Some(Action::Pods));
        assert_eq!(keys.action(Place::Composer, Key::ctrl('p')), None);
        assert_eq!(keys.action(Place::Composer, Key::ctrl('s')), Some(Action::Steer));
        assert_eq!(keys.key_of(Action::Suspend), None);
    }

    #[test]
    fn a_key_that_two_actions_want_stays_with_the_first() {
        let (keys, problems) =
            Keys::read("pods = \"f2\"\nthreads = \"f2\"\nhelp = 3\nfly = \"x\"\ntop = \"hm\"\n");
        assert_eq!(keys.action(Place::List, "f2".parse().unwrap()), Some(Action::Pods));
        assert_eq!(keys.action(Place::List, "f1".parse().unwrap()), Some(Action::Help), "it stays as it was");
        let told = problems.join("\n");
        for wanted in ["`pods` and by `threads`", "no action `fly`", "`help` is a key", "`hm` is not a key"] {
            assert!(told.contains(wanted), "{told}");
        }
        // A default gives way to a wish; who loses its last key by that is told.
        let (keys, problems) = Keys::read("pods = \"ctrl-r\"\n");
        assert_eq!(problems, ["keys.toml: `threads` has no key left"]);
        assert_eq!(keys.action(Place::List, Key::ctrl('r')), Some(Action::Pods));
        assert!(!Keys::read("pods = ").1.is_empty());
    }
}
