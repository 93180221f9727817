//! The machine and the commit that a figure belongs to.
//!
//! Here: looking them up. Elsewhere: printing them (`mod.rs`).

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use xtask::tree;

pub(crate) struct Machine {
    pub(crate) commit: String,
    pub(crate) changed: bool,
    pub(crate) cpus: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    /// The load of the last minute before measuring: others on the machine make figures worse.
    pub(crate) load: String,
}

impl Machine {
    pub(crate) fn look() -> Result<Machine, String> {
        let git = |args: &[&str]| said(Command::new("git").current_dir(tree::root()).args(args));
        Ok(Machine {
            commit: git(&["rev-parse", "--short=12", "HEAD"])?,
            changed: !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty(),
            cpus: std::thread::available_parallelism()
                .map_err(|why| format!("cannot count the CPUs: {why}"))?
                .get(),
            cpu: cpu_name(),
            kernel: said(Command::new("uname").args(["-srm"]))?,
            load: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next().map(str::to_owned))
                .unwrap_or_else(|| "unknown".into()),
        })
    }

    pub(crate) fn told(&self) -> String {
        let changed = if self.changed { " with uncommitted changes" } else { "" };
        format!(
            "commit {}{changed}; {} × {}; {}; load {}",
            self.commit, self.cpus, self.cpu, self.kernel, self.load
        )
    }

    pub(crate) fn kept(&self) -> Value {
        json!({
            "commit": self.commit, "changed": self.changed, "cpus": self.cpus, "cpu": self.cpu,
            "kernel": self.kernel, "load": self.load,
        })
    }
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|why| format!("cannot run {command:?}: {why}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned()))
        .unwrap_or_else(|| "a CPU without a name".into())
}
