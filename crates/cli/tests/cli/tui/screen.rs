//! The terminal UI on a pseudo-terminal, read through a terminal parser: the visible screen, and keys for it.
//! There are no fixed sleeps: a test waits until the screen shows something.

use std::num::NonZeroU16;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::support::pty::PtyProcess;
use crate::support::world::CliWorld;

/// Time limit for output to appear.
pub(crate) const SCREEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Sizes of every snapshot: rows and columns.
pub(crate) const SCREEN_SIZES: [(u16, u16); 3] = [(24, 80), (40, 120), (12, 40)];

/// Start and end of a synchronized update.
const UPDATE_START: &[u8] = b"\x1b[?2026h";
const UPDATE_END: &[u8] = b"\x1b[?2026l";

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_U: &str = "\x15";
pub(crate) const ENTER: &str = "\r";
pub(crate) const ESC: &str = "\x1b";

/// Creates a session that has run the script.
pub(crate) fn world_with_finished_run(script: &str) -> CliWorld {
    let world = CliWorld::with_fixed_paths();
    world.write_file("s.toml", script);
    let done = world.run_minke(&["exec", "--name", "tale", "--model", "scripted:s.toml", "first"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world
}

/// Attaches to that session and waits for this text.
pub(crate) fn attach_tui(world: &CliWorld, size: (u16, u16), seen: &str) -> TuiTerminal {
    let mut tui = TuiTerminal::start_tui(world, &["attach", "tale"], size);
    tui.wait_for_text(seen);
    tui.wait_for_text("idle");
    tui
}

pub(crate) struct TuiTerminal {
    pub(crate) pty: PtyProcess,
    parser: vt100::Parser,
    parsed_bytes: usize,
    /// Whether numbers are compared.
    pub(crate) show_figures: bool,
}

impl TuiTerminal {
    pub(crate) fn start_tui(world: &CliWorld, args: &[&str], size: (u16, u16)) -> TuiTerminal {
        let mut command = world.minke_command();
        command.args(args).env("TERM", "xterm-256color");
        TuiTerminal::from_command(command, size)
    }

    /// Starts at the first size, with an additional variable.
    pub(crate) fn start_with_var(
        world: &CliWorld,
        args: &[&str],
        (name, value): (&str, &str),
    ) -> TuiTerminal {
        let mut command = world.minke_command();
        command.args(args).env("TERM", "xterm-256color").env(name, value);
        TuiTerminal::from_command(command, SCREEN_SIZES[0])
    }

    pub(crate) fn from_command(command: Command, (rows, columns): (u16, u16)) -> TuiTerminal {
        let size = |number| NonZeroU16::new(number).unwrap();
        let parser = vt100::Parser::new(size(rows), size(columns), 0);
        TuiTerminal {
            pty: PtyProcess::start_with_size(command, rows, columns),
            parser,
            parsed_bytes: 0,
            show_figures: true,
        }
    }

    /// Returns the lines on the screen.
    pub(crate) fn screen_text(&mut self) -> String {
        self.parse_output();
        self.parser.screen().contents()
    }

    pub(crate) fn screen_parser(&self) -> &vt100::Parser {
        &self.parser
    }

    /// Returns rows and columns.
    pub(crate) fn screen_size(&self) -> (u16, u16) {
        let (rows, columns) = self.parser.screen().size();
        (rows.get(), columns.get())
    }

    pub(crate) fn parse_output(&mut self) {
        let new = &self.pty.output_bytes()[self.parsed_bytes..];
        // Like a terminal with synchronized updates: half a frame is not shown.
        let last = |mark: &[u8]| new.windows(mark.len()).rposition(|some| some == mark);
        let whole = match (last(UPDATE_START), last(UPDATE_END)) {
            (Some(begins), ends) if ends.is_none_or(|ends| ends < begins) => begins,
            _ => new.len(),
        };
        self.parser.process(&new[..whole]);
        self.parsed_bytes += whole;
    }

    /// Waits until the screen matches.
    #[track_caller]
    pub(crate) fn wait_for_screen(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + SCREEN_TIMEOUT;
        loop {
            let screen = self.screen_text();
            if wanted(&screen) {
                return screen;
            }
            let going = self.pty.read_output();
            assert!(Instant::now() < until && going, "{what} was not shown:\n{}", self.screen_text());
        }
    }

    #[track_caller]
    pub(crate) fn wait_for_text(&mut self, wanted: &str) -> String {
        self.wait_for_screen(&format!("`{wanted}`"), |screen| screen.contains(wanted))
    }

    #[track_caller]
    pub(crate) fn wait_until_gone(&mut self, unwanted: &str) -> String {
        self.wait_for_screen(&format!("a screen without `{unwanted}`"), |screen| !screen.contains(unwanted))
    }

    pub(crate) fn send_keys(&mut self, keys: &str) {
        self.pty.send_keys(keys);
    }

    /// Types a text, and waits until it is visible.
    #[track_caller]
    pub(crate) fn type_text(&mut self, text: &str) {
        self.send_keys(text);
        self.wait_for_text(text);
    }

    pub(crate) fn resize_terminal(&mut self, rows: u16, columns: u16) {
        self.parse_output();
        let size = |number| NonZeroU16::new(number).unwrap();
        self.parser.set_size(size(rows), size(columns));
        self.pty.resize_window(rows, columns);
    }

    /// Leaves as a user does.
    #[track_caller]
    pub(crate) fn leave_tui(mut self) -> ExitStatus {
        self.send_keys(CTRL_C);
        self.wait_for_text("again to quit");
        self.send_keys(CTRL_C);
        let status = self.pty.wait_for_exit();
        self.check_restored();
        status
    }

    /// Checks that the terminal is restored.
    #[track_caller]
    pub(crate) fn check_restored(&mut self) {
        self.parse_output();
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        assert!(self.pty.is_line_mode());
    }
}
