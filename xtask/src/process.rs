//! Memory and CPU time of a process, from the kernel.

use std::fs;

/// Proportional memory, in MiB.
pub(crate) fn memory_mib(pid: u32) -> Result<f64, String> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).map_err(|why| format!("could not read {path}: {why}"))?;
    let pss = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    pss.map(|kib| kib / 1024.0).ok_or_else(|| format!("{path} has no Pss line"))
}

/// CPU time of all its threads so far, in seconds.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    let tasks = format!("/proc/{pid}/task");
    let mut nanoseconds = 0.0;
    for task in fs::read_dir(&tasks).map_err(|why| format!("could not list {tasks}: {why}"))? {
        let path = task.map_err(|why| format!("could not list {tasks}: {why}"))?.path().join("schedstat");
        // A thread may exit meanwhile; its CPU time is then missing and too small to matter.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        nanoseconds += text.split(' ').next().and_then(|on_cpu| on_cpu.parse::<f64>().ok()).unwrap_or(0.0);
    }
    Ok(nanoseconds / 1e9)
}
