//! The machine and the commit of a figure.
//!
//! Here: collecting them. Elsewhere: printing them (`mod.rs`).

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use xtask::tree;

pub(crate) struct MachineInfo {
    pub(crate) commit: String,
    pub(crate) is_modified: bool,
    pub(crate) cpus: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    /// The load average of the last minute before the measurement: other programs make figures worse.
    pub(crate) load: String,
}

impl MachineInfo {
    pub(crate) fn inspect() -> Result<MachineInfo, String> {
        let git = |args: &[&str]| {
            command_output(Command::new("git").current_dir(tree::workspace_root()).args(args))
        };
        Ok(MachineInfo {
            commit: git(&["rev-parse", "--short=12", "HEAD"])?,
            is_modified: !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty(),
            cpus: std::thread::available_parallelism()
                .map_err(|why| format!("could not count the CPUs: {why}"))?
                .get(),
            cpu: cpu_name(),
            kernel: command_output(Command::new("uname").args(["-srm"]))?,
            load: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next().map(str::to_owned))
                .unwrap_or_else(|| "unknown".into()),
        })
    }

    pub(crate) fn describe_machine(&self) -> String {
        let changed = if self.is_modified { " with uncommitted changes" } else { "" };
        format!(
            "commit {}{changed}; {} × {}; {}; load {}",
            self.commit, self.cpus, self.cpu, self.kernel, self.load
        )
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({
            "commit": self.commit, "changed": self.is_modified, "cpus": self.cpus, "cpu": self.cpu,
            "kernel": self.kernel, "load": self.load,
        })
    }
}

fn command_output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|why| format!("could not run {command:?}: {why}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn cpu_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned()))
        .unwrap_or_else(|| "a CPU without a name".into())
}
