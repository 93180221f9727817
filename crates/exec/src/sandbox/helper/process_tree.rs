//! Kills a process tree where there is no pid namespace.
//!
//! Here: finding descendants through `/proc` and killing them until none is left. The caller is a subreaper: a process
//! that leaves its group or session, or whose parent exits, is still a descendant (`tests/sandbox`,
//! `daemons_and_stopped_processes_die_with_the_command`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process};

/// How long to kill a tree. A process in a disk operation dies when the operation ends. One that never returns is left
/// to the kernel, with its signal pending.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between scans, when all members have been killed and some have not exited yet.
const SCAN_INTERVAL: Duration = Duration::from_millis(2);

/// Kills and reaps every descendant of this process.
pub(in crate::sandbox) fn kill_descendants() {
    let until = Instant::now() + KILL_TIMEOUT;
    // Most commands leave no process behind.
    if !reap_children() {
        return;
    }
    loop {
        // Stop them first: a stopped process cannot fork while the scan continues.
        let mut known = Vec::new();
        loop {
            let found = live_descendants();
            let fresh: Vec<Pid> = found.into_iter().filter(|pid| !known.contains(pid)).collect();
            if fresh.is_empty() {
                break;
            }
            for pid in fresh {
                let _gone = kill_process(pid, Signal::STOP);
                known.push(pid);
            }
            if Instant::now() > until {
                break;
            }
        }
        for pid in &known {
            let _gone = kill_process(*pid, Signal::KILL);
        }
        if !reap_children() || Instant::now() > until {
            return;
        }
        std::thread::sleep(SCAN_INTERVAL);
    }
}

/// Reaps every child that has exited. Returns whether children are left.
fn reap_children() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Returns the live descendants of this process. Their parents reap zombies.
#[cfg(target_os = "linux")]
fn live_descendants() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_pid();
    // On a kernel without this file, all processes are scanned, which takes longer.
    if !std::path::Path::new("/proc/thread-self/children").exists() {
        return descendants_of(&children_by_parent(), own);
    }
    let mut found = vec![own];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            let Ok(children) = std::fs::read_to_string(thread.path().join("children")) else { continue };
            found.extend(children.split_whitespace().filter_map(|child| child.parse::<i32>().ok()));
        }
    }
    found.into_iter().skip(1).filter(|pid| is_alive(*pid)).filter_map(Pid::from_raw).collect()
}

#[cfg(target_os = "linux")]
fn is_alive(pid: i32) -> bool {
    state_and_parent(pid).is_some_and(|(is_living, _)| is_living)
}

/// Returns whether a process is not a zombie, and its parent.
#[cfg(target_os = "linux")]
fn state_and_parent(pid: i32) -> Option<(bool, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name may contain anything, including brackets: parse after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
    Some((!matches!(state, "Z" | "X"), parent))
}

/// Returns the live processes of the machine by parent.
#[cfg(target_os = "linux")]
fn children_by_parent() -> HashMap<i32, Vec<i32>> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()) {
        if let Some((true, parent)) = state_and_parent(pid) {
            children.entry(parent).or_default().push(pid);
        }
    }
    children
}

#[cfg(not(target_os = "linux"))]
fn live_descendants() -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let Ok(listed) = std::process::Command::new("/bin/ps").args(["-axo", "pid=,ppid="]).output() else {
        return Vec::new();
    };
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let mut numbers = line.split_whitespace().map(str::parse::<i32>);
        if let (Some(Ok(pid)), Some(Ok(parent))) = (numbers.next(), numbers.next()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    descendants_of(&children, rustix::process::getpid().as_raw_pid())
}

/// Returns the descendants of a process, nearest first.
fn descendants_of(children: &HashMap<i32, Vec<i32>>, root: i32) -> Vec<Pid> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        for child in children.get(&parent).into_iter().flatten() {
            if !found.contains(child) {
                found.push(*child);
            }
        }
    }
    found.into_iter().skip(1).filter_map(Pid::from_raw).collect()
}
