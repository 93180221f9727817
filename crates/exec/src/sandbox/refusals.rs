//! Listens for calls that would create a set-ID file, as the kernel reports them to the supervising process.
//!
//! Here: receiving a notification and answering it with EPERM. Elsewhere: which calls are reported (`seccomp`), the
//! loop that waits for them (`reaper`). The kernel suspends the caller until the reply. No reply lets the call through;
//! without a supervisor it fails as well (`set_id_files_are_refused_and_reported`).

#![expect(unsafe_code, reason = "notifications are available through ioctl only")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`, which encode the sizes of the structures below.
const NOTIFY_RECEIVE: u32 = 0xC050_2100;
const NOTIFY_SEND: u32 = 0xC018_2101;

/// `struct seccomp_notif`: its id comes first; the rest is not used.
#[repr(C)]
struct SeccompNotification {
    id: u64,
    rest: [u64; 9],
}

/// `struct seccomp_notif_resp`.
#[repr(C)]
struct SeccompResponse {
    id: u64,
    value: i64,
    error: i32,
    flags: u32,
}

/// The listener of a seccomp filter.
pub(super) struct RefusalListener(OwnedFd);

impl RefusalListener {
    pub(super) fn from_listener(listener: OwnedFd) -> RefusalListener {
        RefusalListener(listener)
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Refuses one waiting call, after calling `tell`. An error means that no call waits any more: its process was
    /// killed.
    pub(super) fn refuse_one(&self, tell: impl FnOnce()) -> io::Result<()> {
        // The kernel accepts only a zeroed structure.
        let mut heard = SeccompNotification { id: 0, rest: [0; 9] };
        self.issue_ioctl(NOTIFY_RECEIVE, (&raw mut heard).cast())?;
        tell();
        let mut answer = SeccompResponse { id: heard.id, value: 0, error: -libc::EPERM, flags: 0 };
        self.issue_ioctl(NOTIFY_SEND, (&raw mut answer).cast())
    }

    fn issue_ioctl(&self, request: u32, structure: *mut libc::c_void) -> io::Result<()> {
        // SAFETY: both structures are the kernel's, as large as their request says, and outlive the call.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), request as _, structure) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
