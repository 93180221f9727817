//! Processes in the kernel: lookup by pid and argument, and the signal of the tour.
//!
//! Elsewhere: choosing the process (the scope lease, `scenario`).

use std::fs;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::error::{CliError, ExitKind};

/// Returns true if the process runs; a zombie does not.
pub(super) fn is_running(pid: u32) -> bool {
    if !cfg!(target_os = "linux") {
        return pid_exists(pid);
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state follows the name, which may contain anything, parentheses too.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// Returns true if the pid exists, even as a zombie.
pub(super) fn pid_exists(pid: u32) -> bool {
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        None => false,
        Some(pid) => !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)),
    }
}

/// Sends signal 9 to one process.
pub(super) fn send_sigkill(pid: u32) -> Result<(), CliError> {
    let failed = |why: String| {
        CliError::new(ExitKind::Failed, format!("could not send signal 9 to process {pid}")).with_reason(why)
    };
    let whom =
        i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| failed("it is not a pid".into()))?;
    kill_process(whom, Signal::KILL).map_err(|e| failed(e.to_string()))
}

/// Returns the processes with this text in their arguments. Empty where the system does not expose them.
pub(super) fn pids_with_argument(wanted: &str) -> Vec<u32> {
    let Ok(list) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let runs_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(wanted) && is_running(*pid)
    };
    let mut found: Vec<u32> = pids.filter(runs_it).collect();
    found.sort_unstable();
    found
}
