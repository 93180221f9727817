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
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name of a program may hold anything, brackets too: what counts comes after the last one.
        let Some((_, fields)) = stat.rsplit_once(')') else { continue };
        let mut fields = fields.split_whitespace();
        let (state, parent) = (fields.next(), fields.next().and_then(|field| field.parse().ok()));
        if let (Some(state), Some(parent)) = (state, parent)
            && !matches!(state, "Z" | "X")
        {
            children.entry(parent).or_default().push(pid);
        } else if let Some(parent) = parent {
            // A zombie has no children any more, but its entry must not hide living siblings.
            children.entry(parent).or_default();
        }
    }
    below(&children, rustix::process::getpid().as_raw_pid())
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
