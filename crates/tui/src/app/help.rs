//! The help view's lines: every action with its keys as they are now, every command, and vi's keys if they are wanted.

use super::App;
use super::over::Over;
use super::slash::Command;
use crate::keys::{Action, Place};
use crate::panes::{Help, HelpRow};

/// The composer's keys in vi's normal mode, in short.
const VI: [(&str, &str); 9] = [
    ("esc", "normal mode; in it: pause"),
    ("i a I A o O", "insert: here, behind, at the ends of the line, on a new one"),
    ("h j k l w b e 0 ^ $", "go: letters, lines, words, ends of the line"),
    ("gg G { } f F t T ; ,", "go: ends of the text, paragraphs, to a letter"),
    ("d c y", "delete, change, copy: with a motion, iw a\" i( and so on, or doubled"),
    ("x X D C Y s S r ~ J", "change letters and lines"),
    ("p P", "put behind, before"),
    ("u ctrl-r .", "undo, redo, the last change again"),
    ("v V", "select, then d c y"),
];

impl App {
    pub(super) fn open_help(&mut self) {
        let keys = Action::ALL.iter().map(|action| {
            let keys: Vec<String> =
                self.setup.keys.keys_of(*action).iter().map(ToString::to_string).collect();
            HelpRow {
                keys: keys.join(", "),
                says: action.says().to_owned(),
                place: place(action.place()).to_owned(),
                name: action.name().to_owned(),
            }
        });
        let row = |keys: String, says: &str, place: &str| HelpRow {
            keys,
            says: says.to_owned(),
            place: place.to_owned(),
            name: String::new(),
        };
        let commands = Command::ALL
            .iter()
            .map(|command| row(format!("/{}", command.name()), command.says(), "composer"));
        let vi = VI
            .iter()
            .filter(|_| self.setup.settings.vi)
            .map(|(keys, says)| row((*keys).to_owned(), says, "vi"));
        self.over = Some(Over::Help(Help::new(keys.chain(commands).chain(vi).collect())));
    }
}

fn place(place: Place) -> &'static str {
    match place {
        Place::Anywhere => "",
        Place::Composer => "composer",
        Place::Question => "question",
        Place::Block => "block",
        Place::List => "list",
    }
}
