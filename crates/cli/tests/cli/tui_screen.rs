//! The terminal UI on a pseudo-terminal, seen through a terminal's own parser: what a person would see, and keys for it.
//! Nothing sleeps: a test waits until the screen shows something.

use std::num::NonZeroU16;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::pty::Pty;
use crate::world::World;

/// How long something may take to be shown.
pub(crate) const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// The sizes that every picture is looked at in: rows and columns.
pub(crate) const SIZES: [(u16, u16); 3] = [(24, 80), (40, 120), (12, 40)];

/// The marks of a synchronized update.
const BEGINS: &[u8] = b"\x1b[?2026h";
const ENDS: &[u8] = b"\x1b[?2026l";

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_U: &str = "\x15";
pub(crate) const ENTER: &str = "\r";
pub(crate) const ESC: &str = "\x1b";

/// A session that has done what the script says.
pub(crate) fn told(script: &str) -> World {
    let world = World::pictured();
    world.write("s.toml", script);
    let done = world.run(&["exec", "--name", "tale", "--model", "scripted:s.toml", "first"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    world
}

/// Attached to that session, when this is seen of it.
pub(crate) fn attached(world: &World, size: (u16, u16), seen: &str) -> Tui {
    let mut tui = Tui::start(world, &["attach", "tale"], size);
    tui.until(seen);
    tui.until("idle");
    tui
}

pub(crate) struct Tui {
    pub(crate) pty: Pty,
    parser: vt100::Parser,
    fed: usize,
    /// Whether figures are looked at.
    pub(crate) figures: bool,
}

impl Tui {
    pub(crate) fn start(world: &World, args: &[&str], size: (u16, u16)) -> Tui {
        let mut command = world.command();
        command.args(args).env("TERM", "xterm-256color");
        Tui::with(command, size)
    }

    /// At the first size, with a variable that only this terminal has.
    pub(crate) fn start_with(world: &World, args: &[&str], (name, value): (&str, &str)) -> Tui {
        let mut command = world.command();
        command.args(args).env("TERM", "xterm-256color").env(name, value);
        Tui::with(command, SIZES[0])
    }

    pub(crate) fn with(command: Command, (rows, columns): (u16, u16)) -> Tui {
        let size = |number| NonZeroU16::new(number).unwrap();
        let parser = vt100::Parser::new(size(rows), size(columns), 0);
        Tui { pty: Pty::sized(command, rows, columns), parser, fed: 0, figures: true }
    }

    /// What is on the screen now, as lines.
    pub(crate) fn screen(&mut self) -> String {
        self.feed();
        self.parser.screen().contents()
    }

    pub(crate) fn parser(&self) -> &vt100::Parser {
        &self.parser
    }

    /// Rows and columns.
    pub(crate) fn size(&self) -> (u16, u16) {
        let (rows, columns) = self.parser.screen().size();
        (rows.get(), columns.get())
    }

    pub(crate) fn feed(&mut self) {
        let new = &self.pty.bytes()[self.fed..];
        // As a terminal that knows synchronized updates does: half a frame is not shown.
        let last = |mark: &[u8]| new.windows(mark.len()).rposition(|some| some == mark);
        let whole = match (last(BEGINS), last(ENDS)) {
            (Some(begins), ends) if ends.is_none_or(|ends| ends < begins) => begins,
            _ => new.len(),
        };
        self.parser.process(&new[..whole]);
        self.fed += whole;
    }

    /// Waits until the screen is as wanted.
    #[track_caller]
    pub(crate) fn until_screen(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + SHOWN_WITHIN;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            let going = self.pty.hear();
            assert!(Instant::now() < until && going, "{what} was not shown:\n{}", self.screen());
        }
    }

    #[track_caller]
    pub(crate) fn until(&mut self, wanted: &str) -> String {
        self.until_screen(&format!("`{wanted}`"), |screen| screen.contains(wanted))
    }

    #[track_caller]
    pub(crate) fn until_gone(&mut self, unwanted: &str) -> String {
        self.until_screen(&format!("a screen without `{unwanted}`"), |screen| !screen.contains(unwanted))
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.pty.press(keys);
    }

    /// Types, and waits until it can be read.
    #[track_caller]
    pub(crate) fn write(&mut self, text: &str) {
        self.press(text);
        self.until(text);
    }

    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        self.feed();
        let size = |number| NonZeroU16::new(number).unwrap();
        self.parser.set_size(size(rows), size(columns));
        self.pty.resize(rows, columns);
    }

    /// Leaves as a person does.
    #[track_caller]
    pub(crate) fn leave(mut self) -> ExitStatus {
        self.press(CTRL_C);
        self.until("again leaves");
        self.press(CTRL_C);
        let status = self.pty.end();
        self.check_restored();
        status
    }

    /// The terminal is as it was.
    #[track_caller]
    pub(crate) fn check_restored(&mut self) {
        self.feed();
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste());
        assert_eq!(screen.mouse_protocol_mode(), vt100::MouseProtocolMode::None);
        assert!(self.pty.is_cooked());
    }
}
