//! Ending a whole tree of processes where there is no pid namespace to do it.
//!
//! Here: descendants found through `/proc` and killed until there are none. The caller is a subreaper: whoever leaves
//! its group or session, or loses its parent, is still its descendant (`tests/fence.rs`,
//! `daemons_and_stopped_processes_die_with_the_command`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process};

/// How long a tree is killed for. A process in the middle of a disk operation dies when that is over; one that never
/// comes back is left to the kernel, with its death sentence pending.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a tree whose members have all been killed and are not gone yet.
const PAUSE: Duration = Duration::from_millis(2);

/// Kills and reaps every descendant of this process.
pub(super) fn end_descendants() {
    let until = Instant::now() + PATIENCE;
    // Most commands leave nobody behind.
    if !reap() {
        return;
    }
    loop {
        // Stopped first: what is stopped starts nothing new while the rest is looked for.
        let mut known = Vec::new();
        loop {
            let found = descendants();
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
        if !reap() || Instant::now() > until {
            return;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Reaps every child that has ended; whether there are children left.
fn reap() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Living descendants of this process. Zombies are the business of their parents.
#[cfg(target_os = "linux")]
fn descendants() -> Vec<Pid> {
    let own = rustix::process::getpid().as_raw_pid();
    // Kernels without this file are searched as a whole, which takes longer.
    if !std::path::Path::new("/proc/thread-self/children").exists() {
        return below(&all_parents(), own);
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
    found.into_iter().skip(1).filter(|pid| is_living(*pid)).filter_map(Pid::from_raw).collect()
}

#[cfg(target_os = "linux")]
fn is_living(pid: i32) -> bool {
    state_and_parent(pid).is_some_and(|(is_living, _)| is_living)
}

/// Whether a process is more than a zombie, and its parent.
#[cfg(target_os = "linux")]
fn state_and_parent(pid: i32) -> Option<(bool, i32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of a program may hold anything, brackets too: what counts comes after the last one.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let (state, parent) = (fields.next()?, fields.next()?.parse().ok()?);
    Some((!matches!(state, "Z" | "X"), parent))
}

/// Living processes of the machine by their parents.
#[cfg(target_os = "linux")]
fn all_parents() -> HashMap<i32, Vec<i32>> {
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
fn descendants() -> Vec<Pid> {
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
    below(&children, rustix::process::getpid().as_raw_pid())
}

/// Everything below a process, nearest first.
fn below(children: &HashMap<i32, Vec<i32>>, root: i32) -> Vec<Pid> {
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
