//! What a person sets: chosen in the view of `/settings`, or said in words after it. Kept at once, whichever way.
//!
//! Elsewhere: the view's picture (`panes::Settings`), the file (`keep`).

use super::over::Over;
use super::{App, Do, theme_of};
use crate::event::Key;
use crate::keep::Settings;
use crate::paint::ThemeName;
use crate::panes::{self, Setting};

/// Something that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knob {
    Theme,
    Plain,
    Mouse,
    Vi,
}

/// What a knob with two places can be.
const SWITCH: [&str; 2] = ["off", "on"];

impl Knob {
    const ALL: [Knob; 4] = [Knob::Theme, Knob::Plain, Knob::Mouse, Knob::Vi];

    fn name(self) -> &'static str {
        match self {
            Knob::Theme => "theme",
            Knob::Plain => "plain",
            Knob::Mouse => "mouse",
            Knob::Vi => "vi",
        }
    }

    fn says(self) -> &'static str {
        match self {
            Knob::Theme => "colours",
            Knob::Plain => "labelled lines for a screen reader",
            Knob::Vi => "the composer's keys as in vi",
            Knob::Mouse => "the wheel scrolls; Shift selects text",
        }
    }

    /// What it can be, in order.
    fn choices(self) -> Vec<&'static str> {
        match self {
            Knob::Theme => ThemeName::ALL.map(ThemeName::as_str).to_vec(),
            Knob::Plain | Knob::Mouse | Knob::Vi => SWITCH.to_vec(),
        }
    }

    fn value(self, settings: &Settings) -> &str {
        let switch = |on: bool| if on { "on" } else { "off" };
        match self {
            Knob::Theme => settings.theme.as_deref().unwrap_or(ThemeName::default().as_str()),
            Knob::Plain => switch(settings.plain),
            Knob::Mouse => switch(settings.mouse),
            Knob::Vi => switch(settings.vi),
        }
    }

    fn turn(self, settings: &mut Settings, value: &str) {
        match self {
            Knob::Theme => settings.theme = Some(value.to_owned()),
            Knob::Plain => settings.plain = value == "on",
            Knob::Mouse => settings.mouse = value == "on",
            Knob::Vi => settings.vi = value == "on",
        }
    }
}

impl App {
    /// `/settings`: alone it is a view; with a name, and perhaps what it is to be, it is done at once.
    pub(super) fn settings_command(&mut self, words: &str) {
        let mut words = words.split_whitespace();
        let Some(name) = words.next() else { return self.open_settings() };
        let Some(knob) = Knob::ALL.into_iter().find(|knob| knob.name() == name) else {
            let names = Knob::ALL.map(Knob::name).join(", ");
            return self.say(format!("there is no setting `{name}`: {names}"));
        };
        let choices = knob.choices();
        let value = match words.next() {
            Some(value) => choices.iter().find(|choice| **choice == value),
            // Of two one means the other; of several nobody knows which.
            None if choices.len() == 2 => {
                let now = knob.value(&self.shown_settings()).to_owned();
                choices.iter().find(|choice| **choice != now)
            }
            None => None,
        };
        match value.filter(|_| words.next().is_none()) {
            Some(value) => self.set_knob(knob, value),
            None => self.say(format!("/settings {name}: {}", choices.join(", "))),
        }
    }

    pub(super) fn change_theme(&mut self, name: &str) {
        self.settings_command(&format!("theme {name}"));
    }

    fn open_settings(&mut self) {
        let settings = self.shown_settings();
        let row = |knob: Knob| Setting {
            name: knob.name().to_owned(),
            value: knob.value(&settings).to_owned(),
            choices: knob.choices().into_iter().map(str::to_owned).collect(),
            says: knob.says().to_owned(),
        };
        let rows = Knob::ALL.into_iter().map(row).collect();
        self.over = Some(Over::Settings(panes::Settings::new(rows)));
    }

    /// What counts now: plain lines may have been wished for this once.
    fn shown_settings(&self) -> Settings {
        let plain = self.setup.settings.plain || self.setup.plain;
        Settings { plain, ..self.setup.settings.clone() }
    }

    /// Turns the setting that is chosen in the view, which stays open.
    pub(super) fn turn_setting(&mut self, forward: bool) {
        let Some(Over::Settings(pane)) = &mut self.over else { return };
        let Some(turned) = pane.turn(forward).cloned() else { return };
        if let Some(knob) = Knob::ALL.into_iter().find(|knob| knob.name() == turned.name) {
            self.set_knob(knob, &turned.value);
        }
    }

    /// Keys that a list would search for: one changes what is chosen, and none closes the view by accident.
    pub(super) fn settings_key(&mut self, key: Key) {
        if key.typed() == Some(' ') {
            self.turn_setting(true);
        }
    }

    fn set_knob(&mut self, knob: Knob, value: &str) {
        knob.turn(&mut self.setup.settings, value);
        if knob == Knob::Plain {
            self.setup.plain = false;
        }
        self.theme = theme_of(&self.setup);
        self.composer.set_vi(self.setup.settings.vi);
        self.doing.push(Do::SaveSettings(self.setup.settings.clone()));
        self.say(match knob {
            Knob::Theme => format!("the theme is `{value}`"),
            Knob::Plain | Knob::Mouse | Knob::Vi => format!("{} is {value}: {}", knob.name(), knob.says()),
        });
    }
}
