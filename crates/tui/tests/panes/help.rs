//! The help pane with all actions, commands and vi keys.

use minke_tui::{App, AppMessage, AppSetup, KeyBindings, KeyPress, TerminalEvent, TuiSettings};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::support::{SIZES, buffer_text, compare_golden};

fn help_screen((width, height): (u16, u16), searched: &str) -> String {
    let (keys, problems) = KeyBindings::parse_config(
        "newline = [\"alt-enter\", \"shift-enter\", \"ctrl-j\", \"f12\"]\nanswer-once = \"j\"\n",
    );
    assert!(problems.is_empty(), "{problems:?}");
    let settings = TuiSettings { vi: true, ..TuiSettings::default() };
    let mut app = App::new(AppSetup { keys, settings, ..AppSetup::default() });
    let mut press =
        |key: KeyPress| drop(app.update(AppMessage::Terminal(TerminalEvent::KeyPress(key)), 1_000));
    press("f1".parse().expect("it is a key"));
    searched.chars().for_each(|letter| press(KeyPress::from_letter(letter)));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory takes it");
    terminal.draw(|frame| app.draw_app(frame)).expect("memory takes it");
    buffer_text(terminal.backend().buffer())
}

#[test]
fn every_action_and_every_command_is_in_the_help() {
    for size in SIZES {
        compare_golden(&format!("help-{}x{}", size.0, size.1), &help_screen(size, ""));
    }
    let all = help_screen((120, 90), "");
    for action in minke_tui::Action::ALL {
        assert!(all.contains(action.name()), "{} is not in\n{all}", action.name());
    }
    for target in ["/compact", "/settings", "delete, change, copy", "j  "] {
        assert!(all.contains(target), "`{target}` is not in\n{all}");
    }
    let searched = help_screen((80, 24), "doubled");
    assert!(searched.contains("d c y") && !searched.contains("compact"), "{searched}");
}
