//! A pseudo-terminal for the real binary: its output and key input.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// Time limit for output to appear.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(30);

/// A program on its own terminal.
pub(crate) struct PtyProcess {
    controller: File,
    device: File,
    child: Child,
    output: Vec<u8>,
    /// End of the output that was searched.
    searched_to: usize,
}

impl PtyProcess {
    pub(crate) fn start_process(command: Command) -> PtyProcess {
        PtyProcess::start_with_size(command, 24, 160)
    }

    pub(crate) fn start_with_size(mut command: Command, rows: u16, columns: u16) -> PtyProcess {
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
        let device = File::from(theirs);
        tcsetwinsize(&device, window_size(rows, columns)).unwrap();
        command.stdin(device.try_clone().unwrap());
        command.stdout(device.try_clone().unwrap());
        command.stderr(device.try_clone().unwrap());
        let child = command.spawn().unwrap();
        PtyProcess { controller: File::from(ours), device, child, output: Vec::new(), searched_to: 0 }
    }

    /// Waits for this output after the last match.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, wanted: &str) {
        let until = Instant::now() + OUTPUT_TIMEOUT;
        loop {
            let new = &self.output[self.searched_to..];
            if let Some(at) = new.windows(wanted.len()).position(|some| some == wanted.as_bytes()) {
                self.searched_to += at + wanted.len();
                return;
            }
            assert!(
                Instant::now() < until && self.read_output(),
                "`{wanted}` was not shown:\n{}",
                String::from_utf8_lossy(&self.output[self.searched_to..])
            );
        }
    }

    /// Resizes the terminal and signals the program, as a terminal does.
    pub(crate) fn resize_window(&self, rows: u16, columns: u16) {
        tcsetwinsize(&self.device, window_size(rows, columns)).unwrap();
        rustix::process::kill_process(self.process_id(), rustix::process::Signal::WINCH).unwrap();
    }

    /// Returns all output.
    pub(crate) fn output_bytes(&self) -> &[u8] {
        &self.output
    }

    pub(crate) fn send_keys(&mut self, keys: &str) {
        self.controller.write_all(keys.as_bytes()).unwrap();
    }

    /// Returns true if the terminal is in line mode with signals, as a shell expects.
    pub(crate) fn is_line_mode(&self) -> bool {
        let modes = tcgetattr(&self.device).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    pub(crate) fn process_id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits for the exit and reads output meanwhile.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let until = Instant::now() + OUTPUT_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while self.read_output() {}
                return status;
            }
            assert!(Instant::now() < until, "it does not exit:\n{}", self.output_text());
            self.read_output();
        }
    }

    pub(crate) fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Reads available output or waits briefly. Returns false when no more can arrive.
    pub(crate) fn read_output(&mut self) -> bool {
        let mut ready = [PollFd::new(&self.controller, PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        if poll(&mut ready, Some(&wait)).unwrap() == 0 {
            return self.child.try_wait().unwrap().is_none();
        }
        let mut bytes = [0; 4096];
        let count = self.controller.read(&mut bytes).unwrap_or(0);
        self.output.extend_from_slice(&bytes[..count]);
        count > 0
    }
}

fn window_size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Drop for PtyProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
