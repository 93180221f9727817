//! File descriptors that a launched pod inherits: the only module of this crate with `unsafe`, and the only
//! way to pass one through `exec`.
//!
//! All descriptors are close-on-exec. The flag is cleared only in the child, between `fork` and `exec`, so
//! that no other process started at the same time inherits a lock
//! (`a_launched_pod_inherits_its_two_descriptors_and_nobody_else_does`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// Lets the process that `command` starts inherit `fds` under their current numbers. They must stay open
/// until the process has started, which the borrow of the caller's `OwnedFd`s around `spawn` ensures.
#[expect(unsafe_code, reason = "the flag of a single child can only be cleared between fork and exec")]
pub(crate) fn inherit_fds(command: &mut Command, fds: [&OwnedFd; 2]) {
    let numbers = fds.map(AsRawFd::as_raw_fd);
    // SAFETY: the closure runs in the forked child, where it makes two `fcntl` system calls on integers copied into
    // it and allocates nothing, so it is async-signal-safe. The numbers are open there: the child is a copy of this
    // process, whose owners outlive `spawn`.
    unsafe {
        command.pre_exec(move || {
            for number in numbers {
                let fd = BorrowedFd::borrow_raw(number);
                fcntl_setfd(fd, FdFlags::empty())?;
            }
            Ok(())
        });
    }
}

/// Takes a descriptor that the launcher passed under this number and makes it close-on-exec again. Call it
/// once for each number, at the start of the process, before any other descriptor is opened.
#[expect(unsafe_code, reason = "a number becomes an owned descriptor")]
pub fn take_inherited_fd(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "descriptors 0, 1 and 2 are never passed on",
        ));
    }
    // SAFETY: the call only queries the number; the kernel returns `EBADF` if it is not open, and then it is
    // not taken.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    fcntl_getfd(open)?;
    // SAFETY: it is open, and nothing else in this process owns it: the launcher passed it, and this is the
    // start.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The open descriptors of a process started with `command`.
    fn open_fds_in(command: &mut Command) -> Vec<RawFd> {
        let listed = command.output().expect("a shell is available").stdout;
        let text = String::from_utf8(listed).unwrap();
        text.split_whitespace().map(|number| number.parse().unwrap()).collect()
    }

    fn shell_command() -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "for fd in /dev/fd/*; do echo ${fd##*/}; done"]);
        command
    }

    #[test]
    fn a_launched_pod_inherits_its_two_descriptors_and_nobody_else_does() {
        // High numbers, which a shell does not use itself.
        let high = |fd: OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 100).unwrap();
        let lease = high(tempfile::tempfile().unwrap().into());
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (ours, theirs) = (high(ours.into()), high(theirs.into()));
        let mut pod = shell_command();
        inherit_fds(&mut pod, [&lease, &theirs]);
        let in_pod = open_fds_in(&mut pod);
        let elsewhere = open_fds_in(&mut shell_command());
        for handed_on in [lease.as_raw_fd(), theirs.as_raw_fd()] {
            assert!(in_pod.contains(&handed_on), "{handed_on} is missing in {in_pod:?}");
            assert!(!elsewhere.contains(&handed_on), "{handed_on} leaked into {elsewhere:?}");
        }
        assert!(!in_pod.contains(&ours.as_raw_fd()), "our own end leaked into {in_pod:?}");
    }

    #[test]
    fn a_number_that_is_not_open_is_not_taken() {
        let refused = take_inherited_fd(9_999).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        assert!(take_inherited_fd(1).is_err());
    }
}
