//! Child processes: the pods that this pod watches, and the processes that it started.
//!
//! Here: waiting for a process without reaping its pid too early, and killing it with its process group.
//! Elsewhere: handling the exit (`watch`).
//! Invariant: a pid is only signalled before its process is reaped, so a signal never hits another process
//! (`a_process_that_is_gone_is_not_signalled`).

use std::io;
use std::process::Child;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use minke_record::{PodName, SessionId};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::watch;

use super::child_log::ChildExit;

/// A pod that is watched until it exits.
pub(crate) struct WatchedChild {
    pub(crate) session: SessionId,
    pub(crate) name: PodName,
    /// `None` if an earlier process or another pod started it.
    pub(crate) process: Option<ChildProcess>,
    /// Set after the exit, when all of its events have been sent.
    pub(crate) exit: watch::Sender<Option<ChildExit>>,
    /// Another pod watches it now; this pod ignores its exit.
    pub(crate) handed_back: AtomicBool,
}

impl WatchedChild {
    pub(crate) fn new(session: SessionId, name: PodName, process: Option<Child>) -> WatchedChild {
        WatchedChild {
            session,
            name,
            process: process.map(ChildProcess::new),
            exit: watch::Sender::new(None),
            handed_back: AtomicBool::new(false),
        }
    }
}

/// A process that this pod started and must reap.
pub(crate) struct ChildProcess {
    pid: Pid,
    child: Mutex<Option<Child>>,
}

impl ChildProcess {
    fn new(child: Child) -> ChildProcess {
        ChildProcess { pid: Pid::from_child(&child), child: Mutex::new(Some(child)) }
    }

    fn lock_child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the process exits and reaps it. Returns the exit status as in `child_end`: a signal
    /// counts as 128 plus its number.
    pub(crate) fn wait_exit(&self) -> io::Result<Option<i32>> {
        // Waits without reaping, so that the pid stays reserved until the lock below is held.
        loop {
            match waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let Some(mut child) = self.lock_child().take() else { return Ok(None) };
        let status = child.wait()?;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        Ok(status.code().or(signal.map(|signal| 128 + signal)))
    }

    /// Signals the process and its group if it is not reaped yet. Returns whether it was signalled.
    pub(crate) fn send_signal(&self, signal: Signal) -> io::Result<bool> {
        let child = self.lock_child();
        if child.is_none() {
            return Ok(false);
        }
        match kill_process_group(self.pid, signal) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::SRCH) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    fn spawn_sleeper() -> ChildProcess {
        let child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        ChildProcess::new(child)
    }

    #[test]
    fn a_process_that_is_gone_is_not_signalled() {
        let process = spawn_sleeper();
        assert!(process.send_signal(Signal::KILL).unwrap());
        assert_eq!(process.wait_exit().unwrap(), Some(128 + 9));
        // The pid may belong to another process by now.
        assert!(!process.send_signal(Signal::KILL).unwrap());
        assert_eq!(process.wait_exit().ok().flatten(), None);
    }
}
