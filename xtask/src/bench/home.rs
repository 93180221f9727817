//! A temporary home with the release binary in it: runs, sessions, pods, and the timing shim.
//!
//! Here: starting `minke` in it and reading what the shim wrote down. Elsewhere: what is measured.

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
use crate::run::{cargo, must};

/// A pod that is not ready by then does not get ready.
const READY_WAIT: Duration = Duration::from_secs(10);

/// The release binary and the timing shim, built once.
pub(crate) struct Built {
    pub(crate) minke: PathBuf,
    pub(crate) shim: PathBuf,
    folder: TempDir,
}

impl Built {
    pub(crate) fn new() -> Result<Built, String> {
        let minke = match std::env::var_os("MINKE_BENCH_BINARY") {
            Some(path) => PathBuf::from(path),
            None => release()?,
        };
        let folder = TempDir::new().map_err(|why| format!("cannot make a temporary directory: {why}"))?;
        let shim = folder.path().join("timings.so");
        let source = tree::root().join("crates/testkit/shim/timings.c");
        must(Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&shim).arg(source))?;
        Ok(Built { minke, shim, folder })
    }

    /// Which binary is measured.
    pub(crate) fn told(&self) -> String {
        match std::env::var_os("MINKE_BENCH_BINARY") {
            Some(path) => {
                format!("binary {}, built before: not necessarily from this commit", path.display())
            }
            None => "binary built from this tree, profile release".into(),
        }
    }

    /// Writes a script for the model and gives its reference.
    pub(crate) fn script(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.folder.path().join(name);
        fs::write(&path, text).map_err(|why| format!("cannot write the script {}: {why}", path.display()))?;
        Ok(format!("scripted:{}", path.display()))
    }
}

/// Builds the release binary. `MINKE_BENCH_BINARY` names another one, to compare two builds.
fn release() -> Result<PathBuf, String> {
    must(&mut cargo(&["build", "-q", "--release", "-p", "minke-cli"]))?;
    let target = tree::metadata(&tree::root(), false)?["target_directory"].as_str().map(PathBuf::from);
    Ok(target.ok_or("`cargo metadata` names no target directory")?.join("release/minke"))
}

/// Where a system keeps what lives no longer than a login; always memory.
const MEMORY: &str = "/dev/shm";

/// A fresh home and working directory, laid out as a user has them. On a real disk if the temporary directory is: syncs
/// are to cost what they cost. The runtime directory is in memory, as it is after a login.
pub(crate) struct Home<'a> {
    built: &'a Built,
    folder: TempDir,
    runtime: TempDir,
}

impl<'a> Home<'a> {
    pub(crate) fn new(built: &'a Built) -> Result<Home<'a>, String> {
        let folder = TempDir::new().map_err(|why| format!("cannot make a temporary directory: {why}"))?;
        fs::create_dir(folder.path().join("work"))
            .map_err(|why| format!("cannot make a working directory: {why}"))?;
        let runtime = if Path::new(MEMORY).is_dir() { TempDir::new_in(MEMORY) } else { TempDir::new() };
        let runtime = runtime.map_err(|why| format!("cannot make a runtime directory: {why}"))?;
        Ok(Home { built, folder, runtime })
    }

    pub(crate) fn minke(&self, args: &[&str]) -> Command {
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
    pub(crate) fn configure(&self, name: &str, text: &str) -> Result<(), String> {
        let folder = self.folder.path().join("home/config/minke");
        fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        fs::write(folder.join(name), text).map_err(|why| format!("cannot write {name}: {why}"))
    }

    /// The working directory, or one below it.
    pub(crate) fn work(&self, below: &str) -> PathBuf {
        self.folder.path().join("work").join(below)
    }

    /// One run; gives the id of its session.
    pub(crate) fn exec(&self, model: &str) -> Result<String, String> {
        self.exec_with(&["exec", "--json", "--model", model, "Measure"], &self.work(""))
    }

    /// The same by a pod of this name.
    pub(crate) fn exec_named(&self, model: &str, name: &str) -> Result<String, String> {
        self.exec_with(&["exec", "--json", "--name", name, "--model", model, "Measure"], &self.work(""))
    }

    /// The same in a directory of its own: two pods that live cannot both write one.
    pub(crate) fn exec_in(&self, dir: &str, model: &str) -> Result<String, String> {
        let dir = self.work(dir);
        fs::create_dir_all(&dir).map_err(|why| format!("cannot make {}: {why}", dir.display()))?;
        self.exec_with(&["exec", "--json", "--model", model, "Measure"], &dir)
    }

    fn exec_with(&self, args: &[&str], dir: &Path) -> Result<String, String> {
        let output = self.minke(args).current_dir(dir).output();
        let output = output.map_err(|why| format!("cannot run minke: {why}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`minke exec` ended with {}: {said}", output.status));
        }
        thread_of(&output.stdout).ok_or_else(|| "`minke exec --json` did not say `thread.started`".into())
    }

    /// One run under the timing shim: the time before it began, and what the shim wrote down.
    pub(crate) fn timed_exec(&self, model: &str) -> Result<(u64, Timings), String> {
        let log = self.folder.path().join("timings");
        if log.exists() {
            fs::remove_file(&log).map_err(|why| format!("cannot remove the old timings: {why}"))?;
        }
        let mut command = self.minke(&["exec", "--json", "--model", model, "Measure"]);
        command.env("LD_PRELOAD", &self.built.shim).env("MINKE_TIMINGS_LOG", &log);
        let start = now();
        let output = command.output().map_err(|why| format!("cannot run minke: {why}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("`minke exec` under the timing shim ended with {}: {said}", output.status));
        }
        Ok((start, Timings::read(&log)?))
    }

    /// The entries of a session's log.
    pub(crate) fn log(&self, session: &str) -> Result<Vec<serde_json::Value>, String> {
        let output = self.minke(&["log", "export", session]).output();
        let output = output.map_err(|why| format!("cannot run minke: {why}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|why| format!("the log of {session}: {why}")))
            .collect()
    }

    /// A file in the working directory.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), String> {
        let path = self.folder.path().join("work").join(name);
        fs::write(path, text).map_err(|why| format!("cannot write {name}: {why}"))
    }

    fn session_folder(&self, session: &str) -> PathBuf {
        let id = session.strip_prefix("s_").unwrap_or(session);
        self.folder.path().join("home/data/minke/sessions").join(id)
    }

    /// Starts `minke pod` for a session as a launcher does, and waits for its `ready`.
    pub(crate) fn pod(&self, session: &str) -> Result<Pod, String> {
        self.start_pod(session, |_| {}).map(|(pod, _)| pod)
    }

    /// The same under the timing shim: also from when to when, and what the shim wrote down.
    pub(crate) fn timed_pod(&self, session: &str) -> Result<(Pod, [u64; 2], Timings), String> {
        let log = self.folder.path().join("timings");
        if log.exists() {
            fs::remove_file(&log).map_err(|why| format!("cannot remove the old timings: {why}"))?;
        }
        let (pod, span) = self.start_pod(session, |command| {
            command.env("LD_PRELOAD", &self.built.shim).env("MINKE_TIMINGS_LOG", &log);
        })?;
        Ok((pod, span, Timings::read(&log)?))
    }

    /// The same, with the timings to be read when the pod has worked.
    pub(crate) fn timed_pod_with_log(&self, session: &str) -> Result<(Pod, [u64; 2], TimingsLog), String> {
        let (pod, span, _) = self.timed_pod(session)?;
        Ok((pod, span, TimingsLog(self.folder.path().join("timings"))))
    }

    fn start_pod(&self, session: &str, arm: impl Fn(&mut Command)) -> Result<(Pod, [u64; 2]), String> {
        let lease = self.session_folder(session).join("lease");
        let lease = fs::File::options().read(true).write(true).open(&lease);
        let lease = lease.map_err(|why| format!("cannot open the lease of {session}: {why}"))?;
        lease.try_lock().map_err(|why| format!("cannot take the lease of {session}: {why}"))?;
        let (ours, theirs) = UnixStream::pair().map_err(|why| format!("cannot make a socket pair: {why}"))?;
        let (lease, theirs) = (OwnedFd::from(lease), OwnedFd::from(theirs));
        // Nothing else is started while these two can be inherited.
        for fd in [&lease, &theirs] {
            fcntl_setfd(fd, FdFlags::empty()).map_err(|why| format!("cannot pass on a descriptor: {why}"))?;
        }
        let id = session.strip_prefix("s_").unwrap_or(session);
        let (lease_fd, ready_fd) = (lease.as_raw_fd().to_string(), theirs.as_raw_fd().to_string());
        let mut command =
            self.minke(&["pod", "--session", id, "--lease-fd", &lease_fd, "--ready-fd", &ready_fd]);
        arm(&mut command);
        let start = now();
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.map_err(|why| format!("cannot start a pod: {why}"))?;
        drop((lease, theirs));
        ours.set_read_timeout(Some(READY_WAIT)).map_err(|why| format!("cannot set a timeout: {why}"))?;
        let mut line = String::new();
        BufReader::new(ours.take(64 * 1024))
            .read_line(&mut line)
            .map_err(|why| format!("the pod did not get ready: {why}"))?;
        let ready = now();
        let said: serde_json::Value = serde_json::from_str(&line)
            .map_err(|why| format!("the pod said `{line}` instead of ready: {why}"))?;
        let socket =
            said["ready"]["socket"].as_str().ok_or_else(|| format!("the pod is not ready: {line}"))?;
        Ok((Pod { child, socket: PathBuf::from(socket) }, [start, ready]))
    }
}

fn thread_of(stdout: &[u8]) -> Option<String> {
    String::from_utf8_lossy(stdout).lines().find_map(|line| {
        let said: serde_json::Value = serde_json::from_str(line).ok()?;
        (said["type"] == "thread.started").then(|| said["thread_id"].as_str().map(str::to_owned)).flatten()
    })
}

/// A live pod; killed when it is no longer needed.
pub(crate) struct Pod {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Pod {
    /// Any other process, to be looked at in the same way.
    pub(crate) fn of(child: Child) -> Pod {
        Pod { child, socket: PathBuf::new() }
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> Result<(), String> {
        let status = self.child.wait().map_err(|why| format!("cannot wait for a pod: {why}"))?;
        if status.success() { Ok(()) } else { Err(format!("the pod ended with {status}")) }
    }

    /// Proportional memory, in MiB.
    pub(crate) fn memory(&self) -> Result<f64, String> {
        process::memory(self.child.id())
    }

    /// CPU time of all its threads so far, in seconds.
    pub(crate) fn cpu(&self) -> Result<f64, String> {
        process::cpu(self.child.id())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        // Gone already is as good; nothing is left to do about any other failure here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One line of the timing shim.
#[derive(Debug, Clone)]
pub(crate) struct Timing {
    pub(crate) what: What,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Started,
    Wrote {
        asks: bool,
    },
    Synced,
    /// A process ended and had used `end` nanoseconds of CPU.
    Used,
}

/// What the shim wrote down about one run, in order.
pub(crate) struct Timings(pub(crate) Vec<Timing>);

/// Where the shim writes.
pub(crate) struct TimingsLog(PathBuf);

impl TimingsLog {
    pub(crate) fn read(&self) -> Result<Timings, String> {
        Timings::read(&self.0)
    }
}

impl Timings {
    fn read(path: &Path) -> Result<Timings, String> {
        let text = fs::read_to_string(path).map_err(|why| format!("the timing shim wrote nothing: {why}"))?;
        text.lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let [_, what, start, end, _, mark] = words[..] else {
                    return Err(format!("the timing shim wrote `{line}`"));
                };
                let number = |text: &str| text.parse::<u64>().map_err(|why| format!("`{line}`: {why}"));
                let what = match what {
                    "start" => What::Started,
                    "write" => What::Wrote { asks: mark == "llm_call" },
                    "sync" => What::Synced,
                    "cpu" => What::Used,
                    other => return Err(format!("the timing shim knows no `{other}`")),
                };
                Ok(Timing { what, start: number(start)?, end: number(end)? })
            })
            .collect::<Result<_, _>>()
            .map(Timings)
    }

    /// Nanoseconds of CPU of all processes that ended in an orderly way.
    pub(crate) fn cpu(&self) -> u64 {
        self.0.iter().filter(|timing| timing.what == What::Used).map(|timing| timing.end).sum()
    }

    /// Nanoseconds inside a sync between two moments, and how many there were. Syncs that overlap count once.
    pub(crate) fn synced(&self, from: u64, to: u64) -> (u64, usize) {
        let mut spans: Vec<(u64, u64)> = self
            .0
            .iter()
            .filter(|timing| timing.what == What::Synced)
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
pub(crate) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.expect("the clock runs forward") * 1_000_000_000 + rest.expect("nanoseconds are not negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_syncs_count_once_and_only_inside_the_span() {
        let sync = |start, end| Timing { what: What::Synced, start, end };
        let timings = Timings(vec![sync(0, 10), sync(5, 20), sync(30, 40), sync(90, 110)]);
        assert_eq!(timings.synced(0, 100), (40, 4));
        assert_eq!(timings.synced(8, 35), (17, 3));
        assert_eq!(timings.synced(41, 50), (0, 0));
    }
}
