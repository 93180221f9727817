//! What the kernel says of a process: its memory, its time.

use std::fs;

/// Proportional memory, in MiB.
pub(crate) fn memory(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|why| format!("cannot read {path}: {why}"))?;
    let pss = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    pss.map(|kib| kib / 1024.0).ok_or_else(|| format!("{path} has no Pss line"))
}

/// CPU time of all its threads so far, in seconds.
pub(crate) fn cpu(pid: u32) -> Result<f64, String> {
    let tasks = format!("/proc/{pid}/task");
    let mut nanoseconds = 0.0;
    for task in fs::read_dir(&tasks).map_err(|why| format!("cannot list {tasks}: {why}"))? {
        let path = task.map_err(|why| format!("cannot list {tasks}: {why}"))?.path().join("schedstat");
        // A thread may end while we look; what it used is then in no file any more and too little to matter.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        nanoseconds += text.split(' ').next().and_then(|on_cpu| on_cpu.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(nanoseconds / 1e9)
}
