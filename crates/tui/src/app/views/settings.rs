//! The user's settings: changed in the `/settings` view or by its arguments, and saved at once.
//!
//! Elsewhere: drawing (`panes::SettingsPane`), the file (`storage`).

use super::super::views::overlay::Overlay;
use super::super::{App, AppEffect, setup_theme};
use crate::app::ListState;
use crate::paint::ThemeName;
use crate::panes::{self, SettingRow};
use crate::storage::TuiSettings;

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettingKey {
    Theme,
    Plain,
    Mouse,
    Vi,
}

/// The values of a switch.
const ON_OFF: [&str; 2] = ["off", "on"];

impl SettingKey {
    const ALL: [SettingKey; 4] = [SettingKey::Theme, SettingKey::Plain, SettingKey::Mouse, SettingKey::Vi];

    fn name(self) -> &'static str {
        match self {
            SettingKey::Theme => "theme",
            SettingKey::Plain => "plain",
            SettingKey::Mouse => "mouse",
            SettingKey::Vi => "vi",
        }
    }

    fn description(self) -> &'static str {
        match self {
            SettingKey::Theme => "colours",
            SettingKey::Plain => "labelled lines for a screen reader",
            SettingKey::Vi => "vi keys in the composer",
            SettingKey::Mouse => "the wheel scrolls; Shift selects text",
        }
    }

    /// Returns the allowed values in order.
    fn allowed_values(self) -> Vec<&'static str> {
        match self {
            SettingKey::Theme => ThemeName::ALL.map(ThemeName::as_str).to_vec(),
            SettingKey::Plain | SettingKey::Mouse | SettingKey::Vi => ON_OFF.to_vec(),
        }
    }

    fn value(self, settings: &TuiSettings) -> &str {
        let switch = |on: bool| if on { "on" } else { "off" };
        match self {
            SettingKey::Theme => settings.theme.as_deref().unwrap_or(ThemeName::default().as_str()),
            SettingKey::Plain => switch(settings.plain),
            SettingKey::Mouse => switch(settings.mouse),
            SettingKey::Vi => switch(settings.vi),
        }
    }

    fn set_value(self, settings: &mut TuiSettings, value: &str) {
        match self {
            SettingKey::Theme => settings.theme = Some(value.to_owned()),
            SettingKey::Plain => settings.plain = value == "on",
            SettingKey::Mouse => settings.mouse = value == "on",
            SettingKey::Vi => settings.vi = value == "on",
        }
    }
}

impl App {
    /// Runs `/settings`: without arguments it opens the view, with a name and an optional value it changes
    /// the setting.
    pub(in crate::app) fn run_settings_command(&mut self, words: &str) {
        let mut words = words.split_whitespace();
        let Some(name) = words.next() else {
            return self.lists.open_settings(&self.setup.effective_settings());
        };
        let Some(setting) = SettingKey::ALL.into_iter().find(|knob| knob.name() == name) else {
            let names = SettingKey::ALL.map(SettingKey::name).join(", ");
            return self.output.show_note(format!("unknown setting `{name}`; the settings are {names}"));
        };
        let choices = setting.allowed_values();
        let value = match words.next() {
            Some(value) => choices.iter().find(|choice| **choice == value),
            // Without a value, a switch toggles; for more than two values the intention is unclear.
            None if choices.len() == 2 => {
                let now = setting.value(&self.setup.effective_settings()).to_owned();
                choices.iter().find(|choice| **choice != now)
            }
            None => None,
        };
        match value.filter(|_| words.next().is_none()) {
            Some(value) => self.change_setting(setting, value),
            None => self.output.show_note(format!("/settings {name}: {}", choices.join(", "))),
        }
    }

    /// Changes the selected setting; the view stays open.
    pub(in crate::app) fn cycle_setting(&mut self, forward: bool) {
        let Some(Overlay::Settings(pane)) = &mut self.lists.overlay else { return };
        let Some(turned) = pane.cycle_value(forward).cloned() else { return };
        if let Some(setting) = SettingKey::ALL.into_iter().find(|knob| knob.name() == turned.name) {
            self.change_setting(setting, &turned.value);
        }
    }

    fn change_setting(&mut self, setting: SettingKey, value: &str) {
        setting.set_value(&mut self.setup.settings, value);
        if setting == SettingKey::Plain {
            self.setup.plain = false;
        }
        self.style.theme = setup_theme(&self.setup, &self.style.keys);
        self.input.composer.set_vi(self.setup.settings.vi);
        self.output.effects.push(AppEffect::SaveSettings(self.setup.settings.clone()));
        self.output.show_note(match setting {
            SettingKey::Theme => format!("theme: {value}"),
            SettingKey::Plain | SettingKey::Mouse | SettingKey::Vi => {
                format!("{} is {value}: {}", setting.name(), setting.description())
            }
        });
    }
}

impl ListState {
    pub(in crate::app) fn open_settings(&mut self, settings: &TuiSettings) {
        let row = |setting: SettingKey| SettingRow {
            name: setting.name().to_owned(),
            value: setting.value(settings).to_owned(),
            allowed_values: setting.allowed_values().into_iter().map(str::to_owned).collect(),
            description: setting.description().to_owned(),
        };
        let rows = SettingKey::ALL.into_iter().map(row).collect();
        self.overlay = Some(Overlay::Settings(panes::SettingsPane::new(rows)));
    }
}
