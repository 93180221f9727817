//! Watching one command: hears the pod and the command's end, and sees to it that nothing outlives either.
//!
//! Here: the loop that runs in the init of a fence's pid namespace (A) and in the watcher process (B, C, off). Both
//! hold the shared lock on the pod's `fences` file as long as they live.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::control::{Asked, Said};

/// Waits until `command` has ended, which is said on the line, or the pod asks for it or is gone.
pub(super) fn watch(line: &UnixStream, command: Pid, ends: &OwnedFd) {
    let mut ended = reap(line, command);
    while !ended {
        let mut heard = [
            PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN),
        ];
        if rustix::event::poll(&mut heard, None).is_err() {
            continue;
        }
        let [from_pod, from_child] = heard.map(|fd| !fd.revents().is_empty());
        if from_pod {
            match Asked::read(line) {
                Some(Asked::Signal(signal)) => signal_group(command, signal),
                Some(Asked::Kill) | None => return,
            }
        }
        if from_child {
            drain(ends);
            ended = reap(line, command);
        }
    }
}

/// Empties what says that children have ended. Which ones is asked of the kernel: news of several may be one.
fn drain(ends: &OwnedFd) {
    let mut news = [0; 1024];
    while rustix::io::read(ends, &mut news).is_ok_and(|read| read > 0) {}
}

/// Reaps every child that has ended, orphans of the command too. Whether the command itself was among them.
fn reap(line: &UnixStream, command: Pid) -> bool {
    let mut ended = false;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == command {
            // A pod that is gone does not hear it, and need not.
            let _gone = ending(status).write(line);
            ended = true;
        }
    }
    ended
}

/// How a status ends a command.
fn ending(status: WaitStatus) -> Said {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Said::Exited(code),
        (None, Some(signal)) => Said::Killed(signal),
        (None, None) => Said::Killed(Signal::KILL.as_raw()),
    }
}

/// A signal to the group that the command leads. Numbers that are no signals are passed over.
fn signal_group(command: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _gone = rustix::process::kill_process_group(command, signal);
    }
}
