//! The help view's lines: every action with its keys as they are now, and every command.

use super::App;
use super::over::Over;
use super::slash::Command;
use crate::keys::{Action, Place};
use crate::panes::{Help, HelpRow};

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
        let commands = Command::ALL.iter().map(|command| HelpRow {
            keys: format!("/{}", command.name()),
            says: command.says().to_owned(),
            place: "composer".to_owned(),
            name: String::new(),
        });
        self.over = Some(Over::Help(Help::new(keys.chain(commands).collect())));
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
