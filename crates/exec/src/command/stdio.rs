//! The standard streams of a command: one pipe for both outputs, or a terminal for all three.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

/// The window size of a terminal that is not displayed.
const WINDOW_SIZE: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
/// The value of `TERM` in a terminal.
pub(super) const TERMINAL_TYPE: &str = "xterm-256color";

/// Both sides of a command's streams.
pub(super) struct StdioStreams {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// Our side of the output; non-blocking.
    pub(super) output: OwnedFd,
    /// Our side of the input, if there is one; non-blocking.
    pub(super) input: Option<OwnedFd>,
    /// Keeps the terminal open while the command runs. A terminal that no process has open reports end of file, even if
    /// a program would open it again.
    pub(super) terminal_guard: Option<OwnedFd>,
}

impl StdioStreams {
    /// Uses one pipe for both outputs, which keeps their order. The input is a second pipe or empty.
    pub(super) fn open_pipes(with_input: bool) -> io::Result<StdioStreams> {
        let (output, stdout) = create_pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let stderr = stdout.try_clone()?;
        let (stdin, input) = if with_input {
            let (stdin, input) = create_pipe()?;
            rustix::io::ioctl_fionbio(&input, true)?;
            (stdin, Some(input))
        } else {
            (OwnedFd::from(File::open("/dev/null")?), None)
        };
        Ok(StdioStreams { stdin, stdout, stderr, output, input, terminal_guard: None })
    }

    /// Opens a new terminal.
    pub(super) fn open_terminal(with_input: bool) -> io::Result<StdioStreams> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | CLOEXEC)?;
        rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let slave = open_terminal_slave(Path::new(OsStr::from_bytes(name.as_bytes())))?;
        rustix::termios::tcsetwinsize(master.as_fd(), WINDOW_SIZE)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let input = if with_input { Some(master.try_clone()?) } else { None };
        let (stdout, stderr) = (slave.try_clone()?, slave.try_clone()?);
        let terminal_guard = Some(slave.try_clone()?);
        Ok(StdioStreams { stdin: slave, stdout, stderr, output: master, input, terminal_guard })
    }
}

/// Returns the read end and the write end. Neither is inherited.
pub(super) fn create_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

#[cfg(target_os = "linux")]
const CLOEXEC: OpenptFlags = OpenptFlags::CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOEXEC: OpenptFlags = OpenptFlags::empty();

/// Opens the slave side without making it the controlling terminal of this process.
fn open_terminal_slave(path: &Path) -> io::Result<OwnedFd> {
    let flags = i32::try_from(OFlags::NOCTTY.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    Ok(file.into())
}
