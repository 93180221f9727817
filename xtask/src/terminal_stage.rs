//! A stage: runs a program on a terminal of its own, sends keys, and reads its screen.

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

/// The timeout for an expected text.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(30);
/// A screen without output for this long is finished.
const QUIET_TIME: Duration = Duration::from_millis(400);

/// The end of a synchronized update.
const FRAME_END: &[u8] = b"\x1b[?2026l";

/// Rows and columns of a terminal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TerminalSize {
    pub(crate) rows: NonZero<u16>,
    pub(crate) columns: NonZero<u16>,
}

pub(crate) struct TerminalStage {
    ours: File,
    child: Child,
    parser: Parser,
    /// The number of finished synchronized updates.
    frames: usize,
    /// The last bytes of the output, which may contain a partial end sequence.
    tail: Vec<u8>,
}

impl TerminalStage {
    pub(crate) fn open_terminal(mut command: Command, size: TerminalSize) -> io::Result<TerminalStage> {
        let TerminalSize { rows, columns } = size;
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
        Ok(TerminalStage {
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

    pub(crate) fn press_keys(&mut self, keys: &str) -> io::Result<()> {
        self.ours.write_all(keys.as_bytes())
    }

    /// Waits until this text is on the screen.
    pub(crate) fn wait_for_text(&mut self, wanted: &str) -> Result<(), String> {
        self.wait_for_screen(&format!("`{wanted}`"), |screen| screen.contains(wanted))
    }

    /// Waits until the screen satisfies a condition.
    pub(crate) fn wait_for_screen(
        &mut self,
        what: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        let patience = Instant::now() + SCREEN_TIMEOUT;
        while !wanted(&self.screen().contents()) {
            if Instant::now() > patience {
                return Err(format!("{what}: not shown:\n{}", self.screen().contents()));
            }
            self.read_output(Duration::from_millis(50))?;
        }
        Ok(())
    }

    /// Reads output for this long.
    pub(crate) fn read_for(&mut self, time: Duration) -> Result<(), String> {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            self.read_output(left)?;
        }
        Ok(())
    }

    /// The number of frames drawn so far.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    fn count_frames(&mut self, come: &[u8]) {
        self.tail.extend_from_slice(come);
        self.frames += self.tail.windows(FRAME_END.len()).filter(|some| *some == FRAME_END).count();
        let kept = self.tail.len().saturating_sub(FRAME_END.len() - 1);
        self.tail.drain(..kept);
    }

    /// Proportional memory of the program, in MiB.
    pub(crate) fn memory_mib(&self) -> Result<f64, String> {
        process::memory_mib(self.child.id())
    }

    /// CPU time of the program so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, String> {
        process::cpu_seconds(self.child.id())
    }

    /// Waits until this text is on the screen and the output has paused.
    pub(crate) fn wait_for_still_text(&mut self, wanted: &str) -> Result<(), String> {
        self.wait_for_text(wanted)?;
        let patience = Instant::now() + SCREEN_TIMEOUT;
        while self.read_output(QUIET_TIME)? && Instant::now() < patience {}
        Ok(())
    }

    /// Reads output until the timeout; returns whether there was any.
    fn read_output(&mut self, within: Duration) -> Result<bool, String> {
        let said = |e: io::Error| format!("could not read the terminal: {e}");
        let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
        let wait = Timespec::try_from(within).map_err(|_| "a wait is too long".to_owned())?;
        if poll(&mut ready, Some(&wait)).map_err(|e| said(e.into()))? == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 16 * 1024];
        let count = match self.ours.read(&mut bytes) {
            Ok(count) => count,
            // The other end is closed: the program has exited, and its last screen remains.
            Err(e) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => 0,
            Err(e) => return Err(said(e)),
        };
        let come = bytes.get(..count).unwrap_or_default();
        self.parser.process(come);
        self.count_frames(come);
        Ok(count > 0)
    }
}

impl Drop for TerminalStage {
    fn drop(&mut self) {
        // The program is only a client: the code that created the stage stops its pod.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
