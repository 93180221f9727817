//! Watching one command: hears the pod and the command's end, and sees to it that nothing outlives either.
//!
//! Here: the loop that runs in the init of a fence's pid namespace (A) and in the watcher process (B, C, off). Both
//! hold the shared lock on the pod's `fences` file as long as they live.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::control::{Asked, Said};
use super::helper::Launched;
use super::refusals::Refusals;

/// Waits until the command has ended, which is said on the line, or the pod asks for it or is gone. Meanwhile it refuses
/// the calls that the kernel reports, and tells the pod of the first one.
pub(super) fn watch(line: &UnixStream, launched: Launched, ends: &OwnedFd) {
    let Launched { command, mut refusals } = launched;
    let mut is_told = false;
    let mut ended = reap(line, command);
    while !ended {
        let mut heard = vec![
            PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN),
        ];
        heard.extend(refusals.iter().map(|kernel| PollFd::from_borrowed_fd(kernel.as_fd(), PollFlags::IN)));
        if rustix::event::poll(&mut heard, None).is_err() {
            continue;
        }
        let news = |place: usize| heard.get(place).map_or(PollFlags::empty(), PollFd::revents);
        let (from_pod, from_child, from_kernel) = (news(0), news(1), news(2));
        if !from_pod.is_empty() {
            match Asked::read(line) {
                Some(Asked::Signal(signal)) => signal_group(command, signal),
                Some(Asked::Kill) | None => return,
            }
        }
        if from_kernel.contains(PollFlags::IN) {
            is_told |= refusals.as_ref().is_some_and(|kernel| refuse(kernel, line, is_told));
        } else if !from_kernel.is_empty() {
            // No process is left that could make such a call.
            refusals = None;
        }
        if !from_child.is_empty() {
            drain(ends);
            ended = reap(line, command);
        }
    }
}

/// Refuses one call, and tells the pod first if it does not know yet: what the command then says comes after that. Whether
/// one was refused.
fn refuse(kernel: &Refusals, line: &UnixStream, is_told: bool) -> bool {
    let tell = || {
        if !is_told {
            // A pod that is gone does not hear it, and need not.
            let _gone = Said::SetIdRefused.write(line);
        }
    };
    // A caller that was killed meanwhile needs no answer.
    kernel.refuse_one(tell).is_ok()
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
