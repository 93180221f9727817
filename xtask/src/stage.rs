//! A stage: the program on a terminal of its own, keys for it, and what its screen shows.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use vt100::Parser;

use crate::process;

/// How long something may take to be shown.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);
/// So long nothing may have come before a screen is taken for finished.
const STILL: Duration = Duration::from_millis(400);

/// How a synchronized update ends.
const FRAME_END: &[u8] = b"\x1b[?2026l";

pub(crate) struct Stage {
    ours: File,
    child: Child,
    parser: Parser,
    /// Synchronized updates that have ended.
    frames: usize,
    /// What came last, in which an end may be cut in two.
    tail: Vec<u8>,
}

impl Stage {
    pub(crate) fn open(
        mut command: Command,
        (rows, columns): (NonZero<u16>, NonZero<u16>),
    ) -> io::Result<Stage> {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&ours)?;
        unlockpt(&ours)?;
        let name = ptsname(&ours, Vec::new())?;
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let theirs = File::from(rustix::fs::open(
            path,
            OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC,
            Mode::empty(),
        )?);
        let size = Winsize { ws_row: rows.get(), ws_col: columns.get(), ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&theirs, size)?;
        command.env("TERM", "xterm-256color").env("COLORTERM", "truecolor").env_remove("NO_COLOR");
        command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
        let child = command.spawn()?;
        Ok(Stage {
            ours: File::from(ours),
            child,
            parser: Parser::new(rows, columns, 0),
            frames: 0,
            tail: Vec::new(),
        })
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    pub(crate) fn press(&mut self, keys: &str) -> io::Result<()> {
        self.ours.write_all(keys.as_bytes())
    }

    /// Until this stands on the screen.
    pub(crate) fn shows(&mut self, wanted: &str) -> Result<(), String> {
        self.until_screen(&format!("`{wanted}`"), |screen| screen.contains(wanted))
    }

    /// Until the screen is as wanted.
    pub(crate) fn until_screen(&mut self, what: &str, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
        let patience = Instant::now() + SHOWN_WITHIN;
        while !wanted(&self.screen().contents()) {
            if Instant::now() > patience {
                return Err(format!("{what}: not shown:\n{}", self.screen().contents()));
            }
            self.hear(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// Takes what comes for so long.
    pub(crate) fn hear_for(&mut self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.hear(left)?;
        }
        Ok(())
    }

    /// Frames that were drawn so far.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    fn count(&mut self, come: &[u8]) {
        self.tail.extend_from_slice(come);
        self.frames += self.tail.windows(FRAME_END.len()).filter(|some| *some == FRAME_END).count();
        let kept = self.tail.len().saturating_sub(FRAME_END.len() - 1);
        self.tail.drain(..kept);
    }

    /// Proportional memory of the program, in MiB.
    pub(crate) fn memory(&self) -> Result<f64, String> {
        process::memory(self.child.id())
    }

    /// CPU time of the program so far, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64, String> {
        process::cpu(self.child.id())
    }

    /// Until this stands on the screen, and nothing has changed for a moment.
    pub(crate) fn until(&mut self, wanted: &str) -> Result<(), String> {
        self.shows(wanted)?;
        let patience = Instant::now() + SHOWN_WITHIN;
        while self.hear(STILL)? && Instant::now() < patience {}
        Ok(())
    }

    /// Takes what comes within that time; whether anything did.
    fn hear(&mut self, within: Duration) -> Result<bool, String> {
        let said = |e: io::Error| format!("the terminal cannot be read: {e}");
        let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
        let wait = Timespec::try_from(within).map_err(|_| "a wait is too long".to_owned())?;
        if poll(&mut ready, Some(&wait)).map_err(|e| said(e.into()))? == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 16 * 1024];
        let count = match self.ours.read(&mut bytes) {
            Ok(count) => count,
            // Nobody has the other end any more: the program is over, and its last screen stays.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => 0,
            Err(e) => return Err(said(e)),
        };
        let come = bytes.get(..count).unwrap_or_default();
        self.parser.process(come);
        self.count(come);
        Ok(count > 0)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // It is only a client: what it showed goes on, or was ended by whoever opened the stage.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
