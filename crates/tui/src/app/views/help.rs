//! The lines of the help view: actions with their current keys, commands, and vi keys in vi mode.

use super::super::input::slash::Command;
use super::super::views::overlay::Overlay;
use crate::app::{ListState, ScreenStyle};
use crate::keys::{Action, KeyContext};
use crate::panes::{HelpPane, HelpRow};

/// Short help for vi's normal mode.
const VI_KEYS: [(&str, &str); 9] = [
    ("esc", "normal mode; pause in normal mode"),
    ("i a I A o O", "insert: before, after, at line start or end, on a new line"),
    ("h j k l w b e 0 ^ $", "move: letters, lines, words, line start and end"),
    ("gg G { } f F t T ; ,", "move: text start and end, paragraphs, to a letter"),
    ("d c y", "delete, change, copy: with a motion, iw a\" i( and so on, or doubled"),
    ("x X D C Y s S r ~ J", "change letters and lines"),
    ("p P", "paste after, before"),
    ("u ctrl-r .", "undo, redo, repeat the last change"),
    ("v V", "select, then d c y"),
];

impl ListState {
    pub(in crate::app) fn open_help(&mut self, style: &ScreenStyle, has_vi: bool) {
        let keys = Action::ALL.iter().map(|action| {
            let keys: Vec<String> = style.keys.keys_for(*action).iter().map(ToString::to_string).collect();
            HelpRow {
                keys: keys.join(", "),
                description: action.description().to_owned(),
                context: context_label(action.place()).to_owned(),
                config_name: action.name().to_owned(),
            }
        });
        let row = |keys: String, says: &str, place: &str| HelpRow {
            keys,
            description: says.to_owned(),
            context: place.to_owned(),
            config_name: String::new(),
        };
        let commands = Command::ALL
            .iter()
            .map(|command| row(format!("/{}", command.name()), command.says(), "composer"));
        let vi = VI_KEYS.iter().filter(|_| has_vi).map(|(keys, says)| row((*keys).to_owned(), says, "vi"));
        self.overlay = Some(Overlay::Help(HelpPane::new(keys.chain(commands).chain(vi).collect())));
    }
}

fn context_label(place: KeyContext) -> &'static str {
    match place {
        KeyContext::Anywhere => "",
        KeyContext::Composer => "composer",
        KeyContext::Ask => "question",
        KeyContext::Block => "block",
        KeyContext::List => "list",
    }
}
