//! A real panic while the terminal is taken over: the test starts itself on a pseudo-terminal.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

#[allow(dead_code, reason = "the stories of the binary need more of it")]
#[path = "../../cli/tests/cli/support/pty.rs"]
mod pty;

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::Command;

use minke_protocol::ClientInfo;
use minke_record::{InputSegment, Millis, SessionId};
use minke_tui::{BackendFuture, BackendRequest, TuiBackend, TuiOptions};

/// State directory of the child process; unset in the test itself.
const STATE: &str = "MINKE_TEST_PANICS_IN";

struct PanickingBackend;

impl TuiBackend for PanickingBackend {
    fn send_request(&self, _: BackendRequest) -> BackendFuture<'_> {
        Box::pin(async { panic!("the sky fell on our heads") })
    }

    fn resolve_references(&self, _: SessionId, input: Vec<InputSegment>) -> Vec<InputSegment> {
        input
    }

    fn now_ms(&self) -> Millis {
        1_000
    }

    fn client_info(&self) -> ClientInfo {
        unreachable!("there is no pod")
    }
}

/// Runs on the pseudo-terminal; a no-op in a normal test run.
#[test]
fn program() {
    let Some(state) = std::env::var_os(STATE) else { return };
    let start = TuiOptions {
        cwd: PathBuf::from("/"),
        home: None,
        session: None,
        state_dir: state.into(),
        keys: None,
        no_color: false,
        plain: false,
        seed: "t".to_owned(),
        editor: None,
        workspace: PathBuf::from("/nowhere"),
        read_only: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    drop(runtime.block_on(minke_tui::run_tui(start, &PanickingBackend)));
}

/// Runs the program and returns the enter sequence and the final screen.
fn run_panicking(state: &Path) -> (pty::PtyProcess, vt100::Parser) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "program", "--nocapture"])
        .env(STATE, state)
        .env("TERM", "xterm-256color")
        .env("RUST_BACKTRACE", "0");
    let mut pty = pty::PtyProcess::start_with_size(command, 24, 80);
    assert!(!pty.wait_for_exit().success(), "it panics:\n{}", pty.output_text());
    let size = |number| NonZeroU16::new(number).unwrap();
    let mut parser = vt100::Parser::new(size(24), size(80), 0);
    parser.process(pty.output_bytes());
    (pty, parser)
}

#[test]
fn a_panic_gives_the_terminal_back_and_can_be_read() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("settings.json"), r#"{ "mouse": true }"#).unwrap();
    let (pty, parser) = run_panicking(state.path());
    let text = pty.output_text();
    for used in ["\x1b[?1049h", "\x1b[?2004h", "\x1b[?1000h", "\x1b[?25l"] {
        assert!(text.contains(used), "it never had the terminal: {text:?}");
    }
    let screen = parser.screen();
    assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
    assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
    assert!(pty.is_line_mode(), "keys are the shell's again");
    let visible = screen.contents();
    assert!(visible.contains("the sky fell on our heads"), "{visible}");
    // The panic message is not overwritten: leaving twice would move the cursor back.
    assert_eq!(text.matches("\x1b[?1049l").count(), 1, "{visible}");
    let line = |target: &str| visible.lines().position(|line| line.contains(target)).unwrap();
    assert!(line("the sky fell") < line("test result: FAILED"), "{visible}");
}
