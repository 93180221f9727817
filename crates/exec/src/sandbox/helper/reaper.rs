//! Supervises one command: reads requests of the pod, waits for the command's exit, and kills its descendants.
//!
//! Here: the loop that runs in the init of a sandbox with a pid namespace, and in the supervising process of the other
//! backends. Both hold the shared sandbox lock of the pod until they exit.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};

use super::super::control::{ControlReply, ControlRequest};
use super::super::helper::LaunchedProcess;
use super::super::refusals::RefusalListener;

/// Waits until the command exits, which it reports, or until the pod asks to kill it or has exited. Meanwhile it
/// refuses the calls that the kernel reports, and reports the first one to the pod.
pub(in crate::sandbox) fn watch_child(line: &UnixStream, launched: LaunchedProcess, ends: &OwnedFd) {
    let LaunchedProcess { command, mut refusals } = launched;
    let mut is_told = false;
    let mut ended = reap_until(line, command);
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
            match ControlRequest::read_from(line) {
                Some(ControlRequest::Signal(signal)) => signal_group(command, signal),
                Some(ControlRequest::Kill) | None => return,
            }
        }
        if from_kernel.contains(PollFlags::IN) {
            is_told |= refusals.as_ref().is_some_and(|kernel| refuse_call(kernel, line, is_told));
        } else if !from_kernel.is_empty() {
            // No process is left that could make such a call.
            refusals = None;
        }
        if !from_child.is_empty() {
            drain_exit_fd(ends);
            ended = reap_until(line, command);
        }
    }
}

/// Refuses one call. Before that, it reports the first call to the pod, so that the report precedes the command's own
/// output about it. Returns whether a call was refused.
fn refuse_call(kernel: &RefusalListener, line: &UnixStream, is_told: bool) -> bool {
    let tell = || {
        if !is_told {
            // If the pod has exited, the report has no reader.
            let _gone = ControlReply::SetIdRefused.write_to(line);
        }
    };
    // A caller that was killed in the meantime needs no reply.
    kernel.refuse_one(tell).is_ok()
}

/// Empties the descriptor of child exits. One notification may represent several, so this asks the kernel which ones
/// exited.
fn drain_exit_fd(ends: &OwnedFd) {
    let mut news = [0; 1024];
    while rustix::io::read(ends, &mut news).is_ok_and(|read| read > 0) {}
}

/// Reaps every child that has exited, including orphans of the command. Returns whether the command was among them.
fn reap_until(line: &UnixStream, command: Pid) -> bool {
    let mut ended = false;
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if pid == command {
            // If the pod has exited, the report has no reader.
            let _gone = exit_reply(status).write_to(line);
            ended = true;
        }
    }
    ended
}

/// Converts an exit status to a reply.
fn exit_reply(status: WaitStatus) -> ControlReply {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => ControlReply::Exited(code),
        (None, Some(signal)) => ControlReply::Killed(signal),
        (None, None) => ControlReply::Killed(Signal::KILL.as_raw()),
    }
}

/// Sends a signal to the process group of the command. Invalid signal numbers are ignored.
fn signal_group(command: Pid, signal: i32) {
    if let Some(signal) = Signal::from_named_raw(signal) {
        let _gone = rustix::process::kill_process_group(command, signal);
    }
}
