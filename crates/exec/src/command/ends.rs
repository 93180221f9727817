//! The ends of a command's streams: a pipe for both outputs, or a terminal for all three.

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

/// The size of a terminal whose window nobody sees.
const WINDOW: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
/// What the terminal of a command calls itself.
pub(super) const TERM: &str = "xterm-256color";

/// Both sides of a command's streams.
pub(super) struct Ends {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// Our side of its output; does not block.
    pub(super) output: OwnedFd,
    /// Our side of its input, if it has any; does not block.
    pub(super) input: Option<OwnedFd>,
    /// Keeps a terminal open while the command runs: one that nobody has open says that it has ended, although a
    /// program may open it again.
    pub(super) held: Option<OwnedFd>,
}

impl Ends {
    /// One pipe for both outputs, so that their order is kept; the input is a pipe of its own or empty.
    pub(super) fn pipes(with_input: bool) -> io::Result<Ends> {
        let (output, stdout) = pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let stderr = stdout.try_clone()?;
        let (stdin, input) = if with_input {
            let (stdin, input) = pipe()?;
            rustix::io::ioctl_fionbio(&input, true)?;
            (stdin, Some(input))
        } else {
            (OwnedFd::from(File::open("/dev/null")?), None)
        };
        Ok(Ends { stdin, stdout, stderr, output, input, held: None })
    }

    /// A new terminal.
    pub(super) fn terminal(with_input: bool) -> io::Result<Ends> {
        let master = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | CLOEXEC)?;
        rustix::io::fcntl_setfd(&master, rustix::io::FdFlags::CLOEXEC)?;
        rustix::pty::grantpt(&master)?;
        rustix::pty::unlockpt(&master)?;
        let name = rustix::pty::ptsname(&master, Vec::new())?;
        let slave = open_terminal(Path::new(OsStr::from_bytes(name.as_bytes())))?;
        rustix::termios::tcsetwinsize(master.as_fd(), WINDOW)?;
        rustix::io::ioctl_fionbio(&master, true)?;
        let input = if with_input { Some(master.try_clone()?) } else { None };
        let (stdout, stderr) = (slave.try_clone()?, slave.try_clone()?);
        let held = Some(slave.try_clone()?);
        Ok(Ends { stdin: slave, stdout, stderr, output: master, input, held })
    }
}

/// The ends to read from and to write to. Neither is inherited by accident.
pub(super) fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

#[cfg(target_os = "linux")]
const CLOEXEC: OpenptFlags = OpenptFlags::CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOEXEC: OpenptFlags = OpenptFlags::empty();

/// Opens the command's side without making it the terminal of this process.
fn open_terminal(path: &Path) -> io::Result<OwnedFd> {
    let flags = i32::try_from(OFlags::NOCTTY.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    Ok(file.into())
}
