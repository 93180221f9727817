//! The attacker's side: a process inside the fence that tries one probe after the other, each in a child of its own.
//!
//! Here: what it knows of its surroundings (`Ground`) and how a try is run and told. Elsewhere: the attacks (`attacks`),
//! building those surroundings (`world`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::panic;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{WaitOptions, WaitStatus};

use crate::attacks;
use crate::probe::{Probe, Seen};
use crate::sys::sys;

/// Seconds after which a try is given up; the slowest takes a quarter of one.
const TRY_SECONDS: u32 = 6;
/// What is kept of a try's own words; a pipe takes as much without a reader.
const WHY_CHARS: usize = 160;
/// Stands in every file, variable and memory that must not be read.
pub(crate) const CANARY: &str = "minke-canary-3c1d9b";

/// What an attacker knows: everything. Paths, pids, ports and descriptors are told, so that a wall has to hold and not
/// ignorance.
pub(crate) struct Ground {
    pub(crate) base: PathBuf,
    facts: BTreeMap<String, String>,
    probe: &'static str,
}

impl Ground {
    /// From the arguments: the base directory, then `name=value`.
    fn from_args(args: &[String]) -> Ground {
        let facts = args.iter().skip(1).filter_map(|fact| fact.split_once('='));
        let facts = facts.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ground { base: PathBuf::from(&args[0]), facts, probe: "" }
    }

    /// The name of the probe that is tried.
    pub(crate) fn name(&self) -> &'static str {
        self.probe
    }

    /// In the directory outside that is this probe's own, so that what happened to it can be seen from there.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.base.join("outside").join(self.probe).join(name)
    }

    /// In the write grant.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.base.join("work").join(name)
    }

    /// In the write grant, a fresh name of this probe's own.
    pub(crate) fn own(&self, name: &str) -> PathBuf {
        self.work(&format!("{}-{name}", self.probe))
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.base.join(path)
    }

    pub(crate) fn fact(&self, name: &str) -> &str {
        self.facts.get(name).map_or("", String::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> i64 {
        self.fact(name).parse().unwrap_or(-1)
    }
}

/// Reads a file that holds the canary.
pub(crate) fn read(path: impl AsRef<Path>) -> Seen {
    seen_in(fs::read(path))
}

/// Looks for a name in a directory.
pub(crate) fn lists(dir: impl AsRef<Path>, name: &str) -> Seen {
    let found =
        fs::read_dir(dir).map(|mut entries| entries.any(|entry| entry.is_ok_and(|e| e.file_name() == name)));
    match found {
        Ok(true) => Seen::Done("names".to_owned()),
        Ok(false) => Seen::Held("other names".to_owned()),
        Err(error) => Seen::Held(crate::sys::short(&error)),
    }
}

/// Whether what was read is what must not be.
pub(crate) fn seen_in(bytes: io::Result<Vec<u8>>) -> Seen {
    match bytes {
        Ok(bytes) if holds(&bytes) => Seen::Done(CANARY.to_owned()),
        Ok(bytes) => Seen::Held(format!("{} other bytes", bytes.len())),
        Err(error) => Seen::Held(crate::sys::short(&error)),
    }
}

pub(crate) fn holds(bytes: &[u8]) -> bool {
    bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

/// `inside STAGE|PROBE BASE FACT…`: runs the probes of a stage, or one alone, and writes a line for each.
pub(crate) fn main(args: &[String]) -> ExitCode {
    let Some((what, rest)) = args.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return ExitCode::from(2);
    };
    let mut ground = Ground::from_args(rest);
    // Whoever started this process: the fence's init, or its watcher.
    let starter = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    ground.facts.insert("starter".to_owned(), starter.to_string());
    let chosen = attacks::all().into_iter().filter(|probe| match what.strip_prefix("alone:") {
        Some(name) => probe.name == name,
        None => !probe.alone && probe.stage.as_str() == what,
    });
    for probe in chosen {
        ground.probe = probe.name;
        let seen = one(&ground, &probe);
        let why: String =
            seen.why().chars().take(WHY_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
        let line = format!("{}\t{}\t{why}\n", probe.name, seen.word());
        if io::stdout().write_all(line.as_bytes()).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// One try in a child, so that whatever it does to itself (a signal, a lost descriptor) is told and harms no other.
fn one(ground: &Ground, probe: &Probe) -> Seen {
    let (mut reader, writer) = match io::pipe() {
        Ok(ends) => ends,
        Err(error) => return Seen::Unclear(format!("pipe: {error}")),
    };
    // SAFETY: this process has one thread, so the child may go on as if nothing had happened.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(reader);
        in_child(ground, probe, writer);
    }
    drop(writer);
    if child < 0 {
        return Seen::Unclear(format!("fork: {}", io::Error::last_os_error()));
    }
    let status = loop {
        match rustix::process::waitpid(rustix::process::Pid::from_raw(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => break status,
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Seen::Unclear(format!("waitpid: {error}")),
        }
    };
    told(&mut reader, status)
}

/// What the child said; if it could not, how it died.
fn told(reader: &mut io::PipeReader, status: WaitStatus) -> Seen {
    // A daemon of the child may hold the other end: only what is there already is read.
    let _ = rustix::io::ioctl_fionbio(reader.as_fd(), true);
    let mut buffer = [0; 1024];
    let count = reader.read(&mut buffer).unwrap_or(0);
    let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
    if let Some(seen) = text.split_once('\t').and_then(|(word, why)| Seen::parse(word, why)) {
        return seen;
    }
    match status.terminating_signal() {
        Some(libc::SIGALRM) => Seen::Unclear(format!("still trying after {TRY_SECONDS} s")),
        Some(libc::SIGSYS) => Seen::Held("killed by SIGSYS".to_owned()),
        Some(libc::SIGXFSZ) => Seen::Held("killed by SIGXFSZ".to_owned()),
        Some(signal) => Seen::Unclear(format!("killed by signal {signal}")),
        None => Seen::Unclear(format!("said nothing, code {:?}", status.exit_status())),
    }
}

fn in_child(ground: &Ground, probe: &Probe, mut writer: io::PipeWriter) -> ! {
    // SAFETY: sets a timer of this process; no memory is involved.
    unsafe { libc::alarm(TRY_SECONDS) };
    let seen = panic::catch_unwind(|| (probe.run)(ground))
        .unwrap_or_else(|_| Seen::Unclear("the probe panicked".to_owned()));
    let why: String = seen.why().chars().take(WHY_CHARS).collect();
    let _ = writer.write_all(format!("{}\t{why}", seen.word()).as_bytes());
    leave()
}

/// Ends this process at once, without the parent's buffers being written twice.
pub(crate) fn leave() -> ! {
    // SAFETY: ends the process; nothing is run after it.
    unsafe { libc::_exit(0) }
}

/// Forks; `None` in the child. Attacks that need company use it.
pub(crate) fn fork() -> io::Result<Option<i32>> {
    // SAFETY: a try has one thread (or the attack has ended the others), so the child may go on like its parent.
    match unsafe { libc::fork() } {
        0 => Ok(None),
        child if child > 0 => Ok(Some(child)),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for one child and says its exit code, if it had one.
pub(crate) fn wait(child: i32) -> Option<i32> {
    let pid = rustix::process::Pid::from_raw(child);
    let status = rustix::process::waitpid(pid, WaitOptions::empty()).ok().flatten()?.1;
    status.exit_status()
}

/// A directory's descriptor, for attacks that begin at one.
pub(crate) fn open_dir(path: impl AsRef<Path>) -> io::Result<std::os::fd::OwnedFd> {
    let flags = libc::O_DIRECTORY | libc::O_RDONLY | libc::O_CLOEXEC;
    sys!(SYS_openat, libc::AT_FDCWD, crate::sys::c(path), flags).map(crate::sys::own)
}

/// Opens a name below a descriptor and reads it.
pub(crate) fn read_at(dir: &impl AsFd, name: &str) -> Seen {
    let opened = sys!(SYS_openat, dir.as_fd().as_raw_fd(), crate::sys::c(name), libc::O_RDONLY);
    seen_in(opened.and_then(|fd| {
        let mut bytes = Vec::new();
        fs::File::from(crate::sys::own(fd)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }))
}
