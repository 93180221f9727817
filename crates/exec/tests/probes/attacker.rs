//! The attacker: a process inside the sandbox that tries the probes one by one, each in its own child process.
//!
//! Here: its knowledge of the environment (`AttackContext`), running and reporting a try. Elsewhere: the attacks
//! (`attacks`), the environment (`probe_world`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{WaitOptions, WaitStatus};

use crate::attacks;
use crate::probe::{ProbeOutcome, SandboxProbe};
use crate::sys::sys;

/// The timeout of a try in seconds; the slowest takes a quarter of a second.
const TRY_SECONDS: u32 = 6;
/// The most characters of a reason, so that it fits a pipe without a reader.
const REASON_CHARS: usize = 160;
/// Present in every file, variable and memory that must not be read.
pub(crate) const CANARY: &str = "minke-canary-3c1d9b";

/// The attacker's knowledge: paths, process ids, ports and descriptors. Restrictions must hold without relying on
/// secrecy.
pub(crate) struct AttackContext {
    pub(crate) base: PathBuf,
    facts: BTreeMap<String, String>,
    probe: &'static str,
}

impl AttackContext {
    /// Parses the arguments: the base directory, then `name=value`.
    fn from_args(args: &[String]) -> AttackContext {
        let facts = args.iter().skip(1).filter_map(|fact| fact.split_once('='));
        let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        AttackContext { base: PathBuf::from(&args[0]), facts, probe: "" }
    }

    /// Returns the name of the current probe.
    pub(crate) fn probe_name(&self) -> &'static str {
        self.probe
    }

    /// Returns a path in this probe's own directory outside the sandbox, where changes are visible from outside.
    pub(crate) fn path_outside(&self, name: &str) -> PathBuf {
        self.base.join("outside").join(self.probe).join(name)
    }

    /// Returns a path in the write grant.
    pub(crate) fn path_in_work(&self, name: &str) -> PathBuf {
        self.base.join("work").join(name)
    }

    /// Returns a path in the write grant that only this probe uses.
    pub(crate) fn own_path(&self, name: &str) -> PathBuf {
        self.path_in_work(&format!("{}-{name}", self.probe))
    }

    pub(crate) fn path_to(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    pub(crate) fn fact_text(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    pub(crate) fn fact_number(&self, name: &str) -> i64 {
        self.fact_text(name).parse().unwrap_or(-1)
    }
}

/// Reads a file that contains the canary.
pub(crate) fn read_secret(path: impl AsRef<Path>) -> ProbeOutcome {
    outcome_of_read(fs::read(path))
}

/// Searches a directory for a name.
pub(crate) fn lists_name(dir: impl AsRef<Path>, name: &str) -> ProbeOutcome {
    let found =
        fs::read_dir(dir).map(|mut entries| entries.any(|entry| entry.is_ok_and(|e| e.file_name() == name)));
    match found {
        Ok(true) => ProbeOutcome::Succeeded("names".to_owned()),
        Ok(false) => ProbeOutcome::Stopped("other names".to_owned()),
        Err(error) => ProbeOutcome::Stopped(crate::sys::error_name(&error)),
    }
}

/// Returns whether the bytes contain the canary.
pub(crate) fn outcome_of_read(bytes: io::Result<Vec<u8>>) -> ProbeOutcome {
    match bytes {
        Ok(bytes) if contains_canary(&bytes) => ProbeOutcome::Succeeded(CANARY.to_owned()),
        Ok(bytes) => ProbeOutcome::Stopped(format!("{} other bytes", bytes.len())),
        Err(error) => ProbeOutcome::Stopped(crate::sys::error_name(&error)),
    }
}

pub(crate) fn contains_canary(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

/// `inside STAGE|PROBE BASE FACT…`: runs the probes of a stage, or a single one, and prints a line for each.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let Some((what, rest)) = args.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return ExitCode::from(2);
    };
    let mut context = AttackContext::from_args(rest);
    // The parent of this process: the sandbox's init, or its supervisor.
    let starter = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    context.facts.insert("starter".to_owned(), starter.to_string());
    let chosen = attacks::all_probes().into_iter().filter(|probe| match what.strip_prefix("alone:") {
        Some(name) => probe.name == name,
        None => !probe.runs_alone && probe.stage.as_str() == what,
    });
    for probe in chosen {
        context.probe = probe.name;
        let seen = run_probe(&context, &probe);
        let why: String = seen
            .reason_text()
            .chars()
            .take(REASON_CHARS)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        let line = format!("{}\t{}\t{why}\n", probe.name, seen.outcome_word());
        if io::stdout().write_all(line.as_bytes()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs a probe in a child process, so that a signal or a lost descriptor is reported and affects no other probe.
fn run_probe(context: &AttackContext, probe: &SandboxProbe) -> ProbeOutcome {
    let (mut reader, writer) = match io::pipe() {
        Ok(ends) => ends,
        Err(error) => return ProbeOutcome::Unclear(format!("pipe: {error}")),
    };
    // SAFETY: this process has one thread, so the child may continue normally.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(reader);
        run_in_child(context, probe, writer);
    }
    drop(writer);
    if child < 0 {
        return ProbeOutcome::Unclear(format!("fork: {}", io::Error::last_os_error()));
    }
    let status = loop {
        match rustix::process::waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return ProbeOutcome::Unclear(format!("waitpid: {error}")),
        }
    };
    read_outcome(&mut reader, status)
}

/// Returns the child's report or, without one, how it died.
fn read_outcome(reader: &mut io::PipeReader, status: WaitStatus) -> ProbeOutcome {
    // A daemon of the child may keep the other end open, so only available data is read.
    let _ = rustix::io::ioctl_fionbio(reader.as_fd(), true);
    let mut buffer = [0; 1024];
    let count = reader.read(&mut buffer).unwrap_or(0);
    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
    if let Some(seen) = text.split_once('\t').and_then(|(word, why)| ProbeOutcome::parse_outcome(word, why)) {
        return seen;
    }
    match status.terminating_signal() {
        Some(libc::SIGALRM) => ProbeOutcome::Unclear(format!("still trying after {TRY_SECONDS} s")),
        Some(libc::SIGSYS) => ProbeOutcome::Stopped("killed by SIGSYS".to_owned()),
        Some(libc::SIGXFSZ) => ProbeOutcome::Stopped("killed by SIGXFSZ".to_owned()),
        Some(signal) => ProbeOutcome::Unclear(format!("killed by signal {signal}")),
        None => ProbeOutcome::Unclear(format!("said nothing, code {:?}", status.exit_status())),
    }
}

fn run_in_child(context: &AttackContext, probe: &SandboxProbe, mut writer: io::PipeWriter) -> ! {
    // SAFETY: sets a timer of this process; no memory is involved.
    unsafe { libc::alarm(TRY_SECONDS) };
    let seen = panic::catch_unwind(|| (probe.run)(context))
        .unwrap_or_else(|_| ProbeOutcome::Unclear("the probe panicked".to_owned()));
    let why: String = seen.reason_text().chars().take(REASON_CHARS).collect();
    let _ = writer.write_all(format!("{}\t{why}", seen.outcome_word()).as_bytes());
    exit_now()
}

/// Exits this process without flushing the parent's buffers again.
pub(crate) fn exit_now() -> ! {
    // SAFETY: ends the process; no code runs after it.
    unsafe { libc::_exit(0) }
}

/// Forks; `None` in the child. For attacks that need a second process.
pub(crate) fn fork_process() -> io::Result<Option<i32>> {
    // SAFETY: a try has one thread (or the attack has ended the others), so the child may continue like its parent.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        child if child > 0 => Ok(Some(child)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for one child and returns its exit code, if it had one.
pub(crate) fn wait_for_child(child: i32) -> Option<i32> {
    let pid = rustix::process::Pid::from_raw(child);
    let status = rustix::process::waitpid(pid, WaitOptions::empty()).ok().flatten()?.1;
    status.exit_status()
}

/// Opens a directory, for attacks that start at a descriptor.
pub(crate) fn open_dir(path: impl AsRef<Path>) -> io::Result<std::os::fd::OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_CLOEXEC;
    sys!(SYS_openat, libc::AT_FDCWD, crate::sys::to_c_string(path), flags).map(crate::sys::own_descriptor)
}

/// Opens a name relative to a descriptor and reads it.
pub(crate) fn read_at(dir: &impl AsFd, name: &str) -> ProbeOutcome {
    let opened = sys!(SYS_openat, dir.as_fd().as_raw_fd(), crate::sys::to_c_string(name), libc::O_RDONLY);
    outcome_of_read(opened.and_then(|fd| {
        let mut bytes = Vec::new();
        fs::File::from(crate::sys::own_descriptor(fd)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }))
}
