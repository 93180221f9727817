//! A panic while the terminal is held, for real: the program that panics is this test itself, once more, on a
//! pseudo-terminal.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[allow(dead_code, reason = "the stories of the binary need more of it")]
#[path = "../../cli/tests/cli/pty.rs"]
mod pty;

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;

use minke_protocol::ClientInfo;
use minke_record::{InputSegment, Millis, SessionId};
use minke_tui::{Asking, Outside, Question, Start};

/// Where the program that panics keeps its settings; who has it not is not that program.
const STATE: &str = "MINKE_TEST_PANICS_IN";

struct Falling;

impl Outside for Falling {
    fn ask(&self, _: Question) -> Asking<'_> {
        Box::pin(async { panic!("the sky fell on our heads") })
    }

    fn said(&self, _: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment> {
        input
    }

    fn now(&self) -> Millis {
        1_000
    }

    fn introduction(&self) -> ClientInfo {
        unreachable!("nobody is reached")
    }
}

/// What runs on the terminal; among the other tests it does nothing.
#[test]
fn program() {
    let Some(state) = std::env::var_os(STATE) else { return };
    let start = Start {
        cwd: PathBuf::from("/"),
        home: None,
        session: None,
        state: state.into(),
        keys: None,
        no_color: false,
        plain: false,
        seed: "t".to_owned(),
        editor: None,
        workspace: PathBuf::from("/nowhere"),
        looks_on: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    drop(runtime.block_on(minke_tui::run(start, &Falling)));
}

/// Where the terminal was entered, and how it was left.
fn run_in(state: &Path) -> (pty::Pty, vt100::Parser) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "program", "--nocapture"])
        .env(STATE, state)
        .env("TERM", "xterm-256color")
        .env("RUST_BACKTRACE", "0");
    let mut pty = pty::Pty::sized(command, 24, 80);
    assert!(!pty.end().success(), "it panics:\n{}", pty.text());
    let size = |number| NonZeroU16::new(number).unwrap();
    let mut parser = vt100::Parser::new(size(24), size(80), 0);
    parser.process(pty.bytes());
    (pty, parser)
}

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("settings.json"), r#"{ "mouse": true }"#).unwrap();
    let (pty, parser) = run_in(state.path());
    let text = pty.text();
    for taken in ["\x1b[?1049h", "\x1b[?2004h", "\x1b[?1000h", "\x1b[?25l"] {
        assert!(text.contains(taken), "it never had the terminal: {text:?}");
    }
    let screen = parser.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
    assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
    assert!(pty.is_cooked(), "keys are the shell's again");
    let shown = screen.contents();
    assert!(shown.contains("the sky fell on our heads"), "{shown}");
    // What comes after it does not overwrite it: leaving twice would put the cursor back.
    assert_eq!(text.matches("\x1b[?1049l").count(), 1, "{shown}");
    let line = |wanted: &str| shown.lines().position(|line| line.contains(wanted)).unwrap();
    assert!(line("the sky fell") < line("test result: FAILED"), "{shown}");
}
