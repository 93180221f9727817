//! Processes, as the kernel shows them: who is there, who runs a script, and the one signal of the tour.
//!
//! Elsewhere: which process is meant (the scope lease, `guide`).

use std::fs;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::failure::{Exit, Failure};

/// Whether the kernel knows a process that still runs; one that only waits to be reaped does not.
pub(super) fn runs(pid: u32) -> bool {
    if !cfg!(target_os = "linux") {
        return exists(pid);
    }
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state stands after the name, which may hold anything, parentheses too.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// Whether the kernel still has anything of this number, a process that waits to be reaped included.
pub(super) fn exists(pid: u32) -> bool {
    match i32::try_from(pid).ok().and_then(Pid::from_raw) {
        None => false,
        Some(pid) => !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH)),
    }
}

/// Signal 9, to one process.
pub(super) fn kill(pid: u32) -> Result<(), Failure> {
    let failed =
        |why: String| Failure::new(Exit::Failed, format!("cannot send signal 9 to process {pid}")).why(why);
    let whom =
        i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| failed("it is no pid".into()))?;
    kill_process(whom, Signal::KILL).map_err(|e| failed(e.to_string()))
}

/// The processes that have this in their arguments. Empty where the system does not show them.
pub(super) fn with_argument(wanted: &str) -> Vec<u32> {
    let Ok(list) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = list.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let runs_it = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(wanted) && runs(*pid)
    };
    let mut found: Vec<u32> = pids.filter(runs_it).collect();
    found.sort_unstable();
    found
}
