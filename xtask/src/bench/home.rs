//! A temporary home for the release binary: runs, sessions, pods, and the timing shim.
//!
//! Here: starting `minke` in it and reading the shim's output. Elsewhere: the measurements.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use xtask::tree;

use crate::process;
use crate::run::{cargo_command, run_command};

/// A pod that needs longer counts as failed.
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// The release binary and the timing shim, built once.
pub(crate) struct BenchBinaries {
    pub(crate) minke: PathBuf,
    pub(crate) shim: PathBuf,
    folder: TempDir,
}

impl BenchBinaries {
    pub(crate) fn new() -> Result<BenchBinaries, String> {
        let minke = match std::env::var_os("MINKE_BENCH_BINARY") {
            Some(path) => PathBuf::from(path),
            None => build_release()?,
        };
        let folder =
            TempDir::new().map_err(|why| format!("could not create a temporary directory: {why}"))?;
        let shim = folder.path().join("timings.so");
        let source = tree::workspace_root().join("crates/testkit/shim/timings.c");
        run_command(Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&shim).arg(source))?;
        Ok(BenchBinaries { minke, shim, folder })
    }

    /// Names the measured binary.
    pub(crate) fn describe_binary(&self) -> String {
        match std::env::var_os("MINKE_BENCH_BINARY") {
            Some(path) => {
                format!("binary {}, built before: not necessarily from this commit", path.display())
            }
            None => "binary built from this tree, profile release".into(),
        }
    }

    /// Writes a script for the model and returns its reference.
    pub(crate) fn write_script(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.folder.path().join(name);
        fs::write(&path, text)
            .map_err(|why| format!("could not write the script {}: {why}", path.display()))?;
        Ok(format!("scripted:{}", path.display()))
    }
}

/// Builds the release binary. `MINKE_BENCH_BINARY` names another one, to compare two builds.
fn build_release() -> Result<PathBuf, String> {
    run_command(&mut cargo_command(&["build", "-q", "--release", "-p", "minke-cli"]))?;
    let target =
        tree::cargo_metadata(&tree::workspace_root(), false)?["target_directory"].as_str().map(PathBuf::from);
    Ok(target.ok_or("`cargo metadata` names no target directory")?.join("release/minke"))
}

/// A directory for files that are deleted at logout; always in memory.
const MEMORY_DIR: &str = "/dev/shm";

/// A fresh home and working directory with the layout of a real user. On a real disk if the temporary
/// directory is, so that syncs have their real cost. The runtime directory is in memory, as after a login.
pub(crate) struct BenchHome<'a> {
    built: &'a BenchBinaries,
    folder: TempDir,
    runtime: TempDir,
}

impl<'a> BenchHome<'a> {
    pub(crate) fn new(built: &'a BenchBinaries) -> Result<BenchHome<'a>, String> {
        let folder =
            TempDir::new().map_err(|why| format!("could not create a temporary directory: {why}"))?;
        fs::create_dir(folder.path().join("work"))
            .map_err(|why| format!("could not create a working directory: {why}"))?;
        let runtime =
            if Path::new(MEMORY_DIR).is_dir() { TempDir::new_in(MEMORY_DIR) } else { TempDir::new() };
        let runtime = runtime.map_err(|why| format!("could not create a runtime directory: {why}"))?;
        Ok(BenchHome { built, folder, runtime })
    }

    pub(crate) fn minke_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.built.minke);
        command
            .args(args)
            .current_dir(self.folder.path().join("work"))
            .env_remove("MINKE_HOME")
            .env("XDG_CONFIG_HOME", self.folder.path().join("home/config"))
            .env("XDG_DATA_HOME", self.folder.path().join("home/data"))
            .env("XDG_STATE_HOME", self.folder.path().join("home/state"))
            .env("XDG_RUNTIME_DIR", self.runtime.path())
            .stdin(Stdio::null());
        command
    }

    /// Writes a file of the user's configuration.
    pub(crate) fn write_config(&self, name: &str, text: &str) -> Result<(), String> {
        let folder = self.folder.path().join("home/config/minke");
        fs::create_dir_all(&folder).map_err(|why| format!("could not create {}: {why}", folder.display()))?;
        fs::write(folder.join(name), text).map_err(|why| format!("could not write {name}: {why}"))
    }

    /// The working directory, or a subdirectory.
    pub(crate) fn work_dir(&self, below: &str) -> PathBuf {
        self.folder.path().join("work").join(below)
    }

    /// Runs `minke exec` once and returns the id of its session.
    pub(crate) fn run_exec(&self, model: &str) -> Result<String, String> {
        self.run_exec_with(&["exec", "--json", "--model", model, "Measure"], &self.work_dir(""))
    }

    /// Like `run_exec`, with a pod name.
    pub(crate) fn run_exec_named(&self, model: &str, name: &str) -> Result<String, String> {
        self.run_exec_with(
            &["exec", "--json", "--name", name, "--model", model, "Measure"],
            &self.work_dir(""),
        )
    }

    /// Like `run_exec`, in a separate directory: two running pods cannot both have write access to one.
    pub(crate) fn run_exec_in(&self, dir: &str, model: &str) -> Result<String, String> {
        let dir = self.work_dir(dir);
        fs::create_dir_all(&dir).map_err(|why| format!("could not create {}: {why}", dir.display()))?;
        self.run_exec_with(&["exec", "--json", "--model", model, "Measure"], &dir)
    }

    fn run_exec_with(&self, args: &[&str], dir: &Path) -> Result<String, String> {
        let output = self.minke_command(args).current_dir(dir).output();
        let output = output.map_err(|why| format!("could not run minke: {why}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`minke exec` ended with {}: {said}", output.status));
        }
        thread_id(&output.stdout).ok_or_else(|| "`minke exec --json` did not print `thread.started`".into())
    }

    /// One run under the timing shim: the time before its start, and the shim's timings.
    pub(crate) fn run_timed_exec(&self, model: &str) -> Result<(u64, ShimTimings), String> {
        let log = self.folder.path().join("timings");
        if log.exists() {
            fs::remove_file(&log).map_err(|why| format!("could not remove the old timings: {why}"))?;
        }
        let mut command = self.minke_command(&["exec", "--json", "--model", model, "Measure"]);
        command.env("LD_PRELOAD", &self.built.shim).env("MINKE_TIMINGS_LOG", &log);
        let start = monotonic_nanos();
        let output = command.output().map_err(|why| format!("could not run minke: {why}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`minke exec` under the timing shim ended with {}: {said}", output.status));
        }
        Ok((start, ShimTimings::from_file(&log)?))
    }

    /// The entries of a session's log.
    pub(crate) fn read_log(&self, session: &str) -> Result<Vec<serde_json::Value>, String> {
        let output = self.minke_command(&["log", "export", session]).output();
        let output = output.map_err(|why| format!("could not run minke: {why}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|why| format!("the log of {session}: {why}")))
            .collect()
    }

    /// Writes a file in the working directory.
    pub(crate) fn write_file(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.path().join("work").join(name);
        fs::write(path, text).map_err(|why| format!("could not write {name}: {why}"))
    }

    fn session_folder(&self, session: &str) -> PathBuf {
        let id = session.strip_prefix("s_").unwrap_or(session);
        self.folder.path().join("home/data/minke/sessions").join(id)
    }

    /// Starts `minke pod` for a session like a launcher, and waits for its `ready`.
    pub(crate) fn start_pod(&self, session: &str) -> Result<BenchPod, String> {
        self.spawn_pod(session, |_| {}).map(|(pod, _)| pod)
    }

    /// The same under the timing shim; also returns the times of start and `ready`, and the shim's timings.
    pub(crate) fn start_timed_pod(&self, session: &str) -> Result<(BenchPod, [u64; 2], ShimTimings), String> {
        let log = self.folder.path().join("timings");
        if log.exists() {
            fs::remove_file(&log).map_err(|why| format!("could not remove the old timings: {why}"))?;
        }
        let (pod, span) = self.spawn_pod(session, |command| {
            command.env("LD_PRELOAD", &self.built.shim).env("MINKE_TIMINGS_LOG", &log);
        })?;
        Ok((pod, span, ShimTimings::from_file(&log)?))
    }

    /// The same, with the timings to be read after the pod has worked.
    pub(crate) fn start_logged_pod(&self, session: &str) -> Result<(BenchPod, [u64; 2], ShimLog), String> {
        let (pod, span, _) = self.start_timed_pod(session)?;
        Ok((pod, span, ShimLog(self.folder.path().join("timings"))))
    }

    fn spawn_pod(&self, session: &str, arm: impl Fn(&mut Command)) -> Result<(BenchPod, [u64; 2]), String> {
        let lease = self.session_folder(session).join("lease");
        let lease = fs::File::options().read(true).write(true).open(&lease);
        let lease = lease.map_err(|why| format!("could not open the lease of {session}: {why}"))?;
        lease.try_lock().map_err(|why| format!("could not take the lease of {session}: {why}"))?;
        let (ours, theirs) =
            UnixStream::pair().map_err(|why| format!("could not create a socket pair: {why}"))?;
        let (lease, theirs) = (OwnedFd::from(lease), OwnedFd::from(theirs));
        // No other process is started while these two can be inherited.
        for fd in [&lease, &theirs] {
            fcntl_setfd(fd, FdFlags::empty())
                .map_err(|why| format!("could not pass on a descriptor: {why}"))?;
        }
        let id = session.strip_prefix("s_").unwrap_or(session);
        let (lease_fd, ready_fd) = (lease.as_raw_fd().to_string(), theirs.as_raw_fd().to_string());
        let mut command =
            self.minke_command(&["pod", "--session", id, "--lease-fd", &lease_fd, "--ready-fd", &ready_fd]);
        arm(&mut command);
        let start = monotonic_nanos();
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|why| format!("could not start a pod: {why}"))?;
        drop((lease, theirs));
        ours.set_read_timeout(Some(READY_TIMEOUT))
            .map_err(|why| format!("could not set a timeout: {why}"))?;
        let mut line = String::new();
        BufReader::new(ours.take(64 * 1024))
            .read_line(&mut line)
            .map_err(|why| format!("the pod did not become ready: {why}"))?;
        let ready = monotonic_nanos();
        let said: serde_json::Value = serde_json::from_str(&line)
            .map_err(|why| format!("the pod said `{line}` instead of ready: {why}"))?;
        let socket =
            said["ready"]["socket"].as_str().ok_or_else(|| format!("the pod is not ready: {line}"))?;
        Ok((BenchPod { child, socket: PathBuf::from(socket) }, [start, ready]))
    }
}

fn thread_id(stdout: &[u8]) -> Option<String> {
    String::from_utf8_lossy(stdout).lines().find_map(|line| {
        let said: serde_json::Value = serde_json::from_str(line).ok()?;
        (said["type"] == "thread.started").then(|| said["thread_id"].as_str().map(str::to_owned)).flatten()
    })
}

/// A running pod; killed when dropped.
pub(crate) struct BenchPod {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl BenchPod {
    /// Wraps another process to measure it in the same way.
    pub(crate) fn from_child(child: Child) -> BenchPod {
        BenchPod { child, socket: PathBuf::new() }
    }

    /// Waits until it has exited.
    pub(crate) fn wait_exit(&mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|why| format!("could not wait for a pod: {why}"))?;
        if status.success() { Ok(()) } else { Err(format!("the pod ended with {status}")) }
    }

    /// Proportional memory, in MiB.
    pub(crate) fn memory_mib(&self) -> Result<f64, String> {
        process::memory_mib(self.child.id())
    }

    /// CPU time of all its threads so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> Result<f64, String> {
        process::cpu_seconds(self.child.id())
    }
}

impl Drop for BenchPod {
    fn drop(&mut self) {
        // It may have exited already; other errors cannot be handled here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One line of the timing shim.
#[derive(Debug, Clone)]
pub(crate) struct ShimTiming {
    pub(crate) kind: TimingKind,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimingKind {
    ProcessStart,
    Write {
        asks: bool,
    },
    Sync,
    /// A process exited after `end` nanoseconds of CPU time.
    CpuUse,
}

/// The shim's timings of one run, in order.
pub(crate) struct ShimTimings(pub(crate) Vec<ShimTiming>);

/// The output file of the shim.
pub(crate) struct ShimLog(PathBuf);

impl ShimLog {
    pub(crate) fn read_timings(&self) -> Result<ShimTimings, String> {
        ShimTimings::from_file(&self.0)
    }
}

impl ShimTimings {
    fn from_file(path: &Path) -> Result<ShimTimings, String> {
        let text = fs::read_to_string(path).map_err(|why| format!("could not read the timings: {why}"))?;
        text.lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let [_, what, start, end, _, mark] = words[..] else {
                    return Err(format!("the timing shim wrote `{line}`"));
                };
                let number = |text: &str| text.parse::<u64>().map_err(|why| format!("`{line}`: {why}"));
                let kind = match what {
                    "start" => TimingKind::ProcessStart,
                    "write" => TimingKind::Write { asks: mark == "llm_call" },
                    "sync" => TimingKind::Sync,
                    "cpu" => TimingKind::CpuUse,
                    other => return Err(format!("unknown timing `{other}`")),
                };
                Ok(ShimTiming { kind, start: number(start)?, end: number(end)? })
            })
            .collect::<Result<_, _>>()
            .map(ShimTimings)
    }

    /// Nanoseconds of CPU time of all processes that exited normally.
    pub(crate) fn cpu_seconds(&self) -> u64 {
        self.0.iter().filter(|timing| timing.kind == TimingKind::CpuUse).map(|timing| timing.end).sum()
    }

    /// Nanoseconds spent in syncs between two times, and the number of syncs. Overlapping syncs count once.
    pub(crate) fn time_in_sync(&self, from: u64, to: u64) -> (u64, usize) {
        let mut spans: Vec<(u64, u64)> = self
            .0
            .iter()
            .filter(|timing| timing.kind == TimingKind::Sync)
            .map(|timing| (timing.start.max(from), timing.end.min(to)))
            .filter(|(start, end)| start < end)
            .collect();
        spans.sort_unstable();
        let (mut total, mut reached) = (0, from);
        for (start, end) in &spans {
            total += end.saturating_sub((*start).max(reached));
            reached = reached.max(*end);
        }
        (total, spans.len())
    }
}

/// The monotonic clock, in nanoseconds, as the shim reads it.
pub(crate) fn monotonic_nanos() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.expect("the clock runs forward") * 1_000_000_000 + rest.expect("nanoseconds are not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_syncs_count_once_and_only_inside_the_span() {
        let sync = |start, end| ShimTiming { kind: TimingKind::Sync, start, end };
        let timings = ShimTimings(vec![sync(0, 10), sync(5, 20), sync(30, 40), sync(90, 110)]);
        assert_eq!(timings.time_in_sync(0, 100), (40, 4));
        assert_eq!(timings.time_in_sync(8, 35), (17, 3));
        assert_eq!(timings.time_in_sync(41, 50), (0, 0));
    }
}
