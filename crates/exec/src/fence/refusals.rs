//! Refusals: calls that would make a set-id file, as the kernel reports them to the process that watches a command.
//!
//! Here: hearing of such a call, answering it with EPERM, and counting it once. Elsewhere: which calls these are
//! (`seccomp`), who waits for them (`watch`). The kernel holds the calling process until the answer is there, and no answer
//! lets the call through: a watcher that is gone makes it fail too (`set_id_files_are_refused_and_reported`).

#![expect(unsafe_code, reason = "the kernel hands notifications out through ioctl requests alone")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`, whose sizes are those of the structures below.
const RECEIVE: u32 = 0xC050_2100;
const SEND: u32 = 0xC018_2101;

/// `struct seccomp_notif`: its number comes first; the rest (who calls, and with what) is not needed.
#[repr(C)]
struct Notification {
    id: u64,
    rest: [u64; 9],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct Answer {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// The kernel's end of a filter that reports calls.
pub(super) struct Refusals(OwnedFd);

impl Refusals {
    pub(super) fn of(listener: OwnedFd) -> Refusals {
        Refusals(listener)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Refuses one call that waits, after it has been told. An error means that none waits any more: its process was
    /// killed.
    pub(super) fn refuse_one(&self, tell: impl FnOnce()) -> io::Result<()> {
        // The kernel takes only a structure of zeros.
        let mut heard = Notification { id: 0, rest: [0; 9] };
        self.ask(RECEIVE, (&raw mut heard).cast())?;
        tell();
        let mut answer = Answer { id: heard.id, value: 0, error: -libc::EPERM, flags: 0 };
        self.ask(SEND, (&raw mut answer).cast())
    }

    fn ask(&self, request: u32, structure: *mut libc::c_void) -> io::Result<()> {
        // SAFETY: both structures are the kernel's, as large as their request says, and outlive the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, structure) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
