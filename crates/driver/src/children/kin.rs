//! Kin: pods that this one watches, and the processes of those that it started itself.
//!
//! Here: waiting for a process without losing its number, and ending it with its group. Elsewhere: what its end means
//! (`watch`).
//! Invariant: a number is only signalled while the process that had it is not yet reaped, so that nobody else's process
//! is ever hit (`a_process_that_is_gone_is_not_signalled`).

use std::io;
use std::process::Child;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use minke_record::{PodName, SessionId};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::watch;

use super::reading::Gone;

/// A pod that is watched until it ends.
pub(crate) struct Kin {
    pub(crate) session: SessionId,
    pub(crate) name: PodName,
    /// Absent for one that an earlier life started, or another pod.
    pub(crate) process: Option<Process>,
    /// Set when it has ended and everything has been told.
    pub(crate) gone: watch::Sender<Option<Gone>>,
    /// Another pod watches it now: its end is none of this one's business any more.
    pub(crate) handed_back: AtomicBool,
}

impl Kin {
    pub(crate) fn new(session: SessionId, name: PodName, process: Option<Child>) -> Kin {
        Kin {
            session,
            name,
            process: process.map(Process::new),
            gone: watch::Sender::new(None),
            handed_back: AtomicBool::new(false),
        }
    }
}

/// A process that this one has started and must reap.
pub(crate) struct Process {
    pid: Pid,
    child: Mutex<Option<Child>>,
}

impl Process {
    fn new(child: Child) -> Process {
        Process { pid: Pid::from_child(&child), child: Mutex::new(Some(child)) }
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Blocks until the process has ended, and reaps it. The exit status as `child_end` has it: a signal counts as 128
    /// and its number.
    pub(crate) fn wait(&self) -> io::Result<Option<i32>> {
        // Waited for without reaping, so that the number stays its own until the lock below is held.
        loop {
            match waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        let Some(mut child) = self.child().take() else { return Ok(None) };
        let status = child.wait()?;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        Ok(status.code().or(signal.map(|signal| 128 + signal)))
    }

    /// Signals the process and its group, if it has not been reaped. Gives whether there was anybody.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let child = self.child();
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

    fn sleeper() -> Process {
        let child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        Process::new(child)
    }

    #[test]
    fn a_process_that_is_gone_is_not_signalled() {
        let process = sleeper();
        assert!(process.signal(Signal::KILL).unwrap());
        assert_eq!(process.wait().unwrap(), Some(128 + 9));
        // Its number may be anybody's by now.
        assert!(!process.signal(Signal::KILL).unwrap());
        assert_eq!(process.wait().ok().flatten(), None);
    }
}
