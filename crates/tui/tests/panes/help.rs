//! The help view as the terminal fills it: all actions with their keys, all commands, vi.

use minke_tui::{App, Key, Keys, Msg, Settings, Setup, TermEvent};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::support::{SIZES, compare, seen};

fn help((width, height): (u16, u16), searched: &str) -> String {
    let (keys, problems) =
        Keys::read("newline = [\"alt-enter\", \"shift-enter\", \"ctrl-j\", \"f12\"]\nanswer-once = \"j\"\n");
    assert!(problems.is_empty(), "{problems:?}");
    let settings = Settings { vi: true, ..Settings::default() };
    let mut app = App::new(Setup { keys, settings, ..Setup::default() });
    let mut press = |key: Key| drop(app.update(Msg::Term(TermEvent::Key(key)), 1_000));
    press("f1".parse().expect("it is a key"));
    searched.chars().for_each(|letter| press(Key::char(letter)));
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory takes it");
    terminal.draw(|frame| app.draw(frame)).expect("memory takes it");
    seen(terminal.backend().buffer())
}

#[test]
fn every_action_and_every_command_is_in_the_help() {
    for size in SIZES {
        compare(&format!("help-{}x{}", size.0, size.1), &help(size, ""));
    }
    let all = help((120, 90), "");
    for action in minke_tui::Action::ALL {
        assert!(all.contains(action.name()), "{} is not in\n{all}", action.name());
    }
    for wanted in ["/compact", "/settings", "delete, change, copy", "j  "] {
        assert!(all.contains(wanted), "`{wanted}` is not in\n{all}");
    }
    let searched = help((80, 24), "doubled");
    assert!(searched.contains("d c y") && !searched.contains("compact"), "{searched}");
}
