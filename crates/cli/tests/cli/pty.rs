//! A terminal for the real binary: a pseudo-terminal, what was shown on it, and keys for it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// How long something may take to be shown.
const SHOWN_WITHIN: Duration = Duration::from_secs(30);

/// A program on a terminal of its own.
pub(crate) struct Pty {
    ours: File,
    theirs: File,
    child: Child,
    shown: Vec<u8>,
    /// What was looked for is behind this.
    seen: usize,
}

impl Pty {
    pub(crate) fn start(command: Command) -> Pty {
        Pty::sized(command, 24, 160)
    }

    pub(crate) fn sized(mut command: Command, rows: u16, columns: u16) -> Pty {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let theirs: OwnedFd = rustix::fs::open(
            path,
            rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .unwrap();
        let theirs = File::from(theirs);
        tcsetwinsize(&theirs, size(rows, columns)).unwrap();
        command.stdin(theirs.try_clone().unwrap());
        command.stdout(theirs.try_clone().unwrap());
        command.stderr(theirs.try_clone().unwrap());
        let child = command.spawn().unwrap();
        Pty { ours: File::from(ours), theirs, child, shown: Vec::new(), seen: 0 }
    }

    /// Waits until this is shown, after what was waited for before.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: &str) {
        let until = Instant::now() + SHOWN_WITHIN;
        loop {
            let new = &self.shown[self.seen..];
            if let Some(at) = new.windows(wanted.len()).position(|some| some == wanted.as_bytes()) {
                self.seen += at + wanted.len();
                return;
            }
            assert!(
                Instant::now() < until && self.hear(),
                "`{wanted}` was not shown:\n{}",
                String::from_utf8_lossy(&self.shown[self.seen..])
            );
        }
    }

    /// Gives the terminal another size, and tells the program so, as a terminal does.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.theirs, size(rows, columns)).unwrap();
        rustix::process::kill_process(self.pid(), rustix::process::Signal::WINCH).unwrap();
    }

    /// Everything that was shown.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.shown
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether lines are edited and signals made of keys, as a shell wants it.
    pub(crate) fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.theirs).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for the end, reading what is shown meanwhile.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + SHOWN_WITHIN;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while self.hear() {}
                return status;
            }
            assert!(Instant::now() < until, "it does not end:\n{}", self.text());
            self.hear();
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown).into_owned()
    }

    /// Reads what is there, or waits a little for it; says whether anything could come.
    pub(crate) fn hear(&mut self) -> bool {
        let mut ready = [PollFd::new(&self.ours, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if poll(&mut ready, Some(&wait)).unwrap() == 0 {
            return self.child.try_wait().unwrap().is_none();
        }
        let mut bytes = [0; 4096];
        let count = self.ours.read(&mut bytes).unwrap_or(0);
        self.shown.extend_from_slice(&bytes[..count]);
        count > 0
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Drop for Pty {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
