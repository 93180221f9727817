//! One point: a run with one fault, and the checks afterwards.
//!
//! Here: a fresh home, the faulted run, the checks, the next run. Elsewhere: selecting the points
//! (`main.rs`), comparing sent and stored entries (`witness`).

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::shim::{FaultKind, FaultShim};
use crate::witness::{self, NumberedLines};

/// Time limit of a run or command.
const RUN_TIMEOUT_SECONDS: &str = "60";
/// How long a pod may live after its `exec` has ended: its own deadline for stopping plus a margin.
const POD_EXIT_SECONDS: i64 = 15;
/// Exit code of `timeout` after a kill.
const TIMEOUT_EXIT_CODE: i32 = 137;

/// The operation that fails, and the kind of failure.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultPoint {
    pub(crate) kind: FaultKind,
    pub(crate) n: u64,
}

/// Result of a point.
pub(crate) struct PointOutcome {
    /// Whether the fault happened before the run ended.
    pub(crate) fired: bool,
    pub(crate) problems: Vec<String>,
}

/// Shared by all points.
pub(crate) struct FaultBench<'a> {
    shim: &'a FaultShim,
    script: PathBuf,
    _folder: TempDir,
}

impl<'a> FaultBench<'a> {
    pub(crate) fn new(shim: &'a FaultShim, rounds: usize) -> FaultBench<'a> {
        let folder = TempDir::new().expect("a temporary directory can be created");
        let script = folder.path().join("script.toml");
        std::fs::write(&script, script_with_rounds(rounds)).expect("the script can be written");
        FaultBench { shim, script, _folder: folder }
    }

    pub(crate) fn try_point(&self, point: FaultPoint) -> PointOutcome {
        let place = FaultPlace::new();
        let output = self.run_with_fault(&place, point);
        let mut problems = Vec::new();
        let pods_left = place.settle_processes(point.kind.is_killing());
        if pods_left > 0 {
            problems.push(format!("{pods_left} pods were left behind"));
        }
        problems.extend(check_exit(&output, point.kind));
        let seen = witness::sent_entries(&place.shim_dir);
        let fired = FaultShim::has_fired(&place.shim_dir);
        if !fired {
            problems.extend(place.unseen_entries(&seen));
        }
        problems.extend(self.check_session(&place, &seen, CheckTime::AfterFault(point.kind)));
        problems.extend(self.check_next_run(&place));
        problems.extend(self.check_session(&place, &seen, CheckTime::AfterNextRun));
        if !problems.is_empty() {
            problems.insert(0, place.failure_report(&output, point.n));
        }
        PointOutcome { fired, problems }
    }

    /// Runs `minke exec` with one fault in it or in its pod.
    fn run_with_fault(&self, place: &FaultPlace, point: FaultPoint) -> Output {
        let mut command = place.minke_command(&["exec", "--json", "--unsandboxed", "--model"]);
        command.arg(self.scripted_model()).arg("Take notes");
        self.shim.arm_command(
            &mut command,
            (point.kind.kind_name(), point.n),
            [&place.root, &place.shim_dir],
        );
        command.output().expect("minke can be run")
    }

    fn scripted_model(&self) -> String {
        format!("scripted:{}", self.script.display())
    }

    /// Checks that the session opens and verifies, no sent entry is lost, and no call ran twice.
    fn check_session(&self, place: &FaultPlace, seen: &NumberedLines, when: CheckTime) -> Vec<String> {
        let mut problems = Vec::new();
        let verified =
            place.minke_command(&["log", "verify", "--all", "--json"]).output().expect("minke can be run");
        let said: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap_or_default();
        if !(said["ok"] == true && verified.status.success() || when.is_torn_step(&said)) {
            problems.push(format!("`log verify` is not content: {}", output_text(&verified)));
        }
        let mut dispatched = 0;
        let mut done = 0;
        let mut all = NumberedLines::new();
        for session in place.session_dirs() {
            let lines = witness::logged_entries(&session);
            let (began, ended) = witness::count_calls(&lines, "Write");
            dispatched += began;
            done += ended;
            all.extend(lines);
        }
        problems.extend(witness::lost_entries(seen, &all));
        let notes = place.note_count();
        if notes > dispatched {
            problems.push(format!("{notes} notes were written by {dispatched} dispatched calls"));
        }
        if notes < done {
            problems.push(format!("{done} calls are logged as done and {notes} notes are there"));
        }
        problems.into_iter().map(|problem| format!("{when:?}: {problem}")).collect()
    }

    /// Checks that the next run works: in the same session if there is one, else in a new one.
    fn check_next_run(&self, place: &FaultPlace) -> Vec<String> {
        let mut command = place.minke_command(&["exec", "--json"]);
        let session =
            place.session_dirs().into_iter().find(|session| !witness::logged_entries(session).is_empty());
        match session.as_deref().and_then(Path::file_name) {
            Some(name) => command.arg("--resume").arg(name),
            None => command.args(["--unsandboxed", "--model"]).arg(self.scripted_model()),
        };
        let output = command.arg("Continue").output().expect("minke can be run");
        let mut problems = Vec::new();
        if !output.status.success() {
            problems.push(format!("the next run did not work: {}", output_text(&output)));
        }
        if !String::from_utf8_lossy(&output.stdout).contains("run.completed") {
            problems.push(format!("the next run did not complete: {}", output_text(&output)));
        }
        problems
    }
}

/// When the checks run.
#[derive(Debug, Clone, Copy)]
enum CheckTime {
    AfterFault(FaultKind),
    AfterNextRun,
}

impl CheckTime {
    /// Returns true for half a step at the end, which a torn write leaves. `log verify` reports it, because a
    /// flipped bit in the last line looks the same; the next open moves it aside.
    fn is_torn_step(self, said: &serde_json::Value) -> bool {
        let problems: Vec<&str> = said["sessions"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|session| session["problems"].as_array().into_iter().flatten())
            .filter_map(serde_json::Value::as_str)
            .collect();
        let tail = |problem: &&str| problem.contains("bytes at the end are not a whole step");
        matches!(self, CheckTime::AfterFault(FaultKind::Torn))
            && problems.len() == 1
            && problems.iter().all(tail)
    }
}

/// Returns a model that takes notes and replies repeatedly, and restarts after its last turn.
fn script_with_rounds(rounds: usize) -> String {
    let mut script = String::from("loop = true\n");
    for round in 0..rounds {
        script.push_str(&format!(
            "\n[[turn]]\ntext = \"Round {round}.\"\n[[turn.call]]\ntool = \"Write\"\nargs = {{ file_path = \"note-{round}.md\", content = \"round {round}\" }}\n"
        ));
    }
    script.push_str("\n[[turn]]\ntext = \"All is noted.\"\n");
    // The next run is short, because only its success matters.
    script.push_str("\n[[turn]]\nwhen = \"Continue\"\ntext = \"Continued.\"\n");
    script
}

/// Checks the exit of a faulted program: by the sent signal, or normally.
fn check_exit(output: &Output, kind: FaultKind) -> Vec<String> {
    let mut problems = Vec::new();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    if stderr.contains("panicked") || code == 101 {
        problems.push("it panicked".to_owned());
    }
    if code == TIMEOUT_EXIT_CODE && !kind.is_killing() {
        problems.push("it hung".to_owned());
    }
    if kind == FaultKind::Eintr && code != 0 {
        problems.push(format!("an interrupted call is no reason to fail, and it ended with {code}"));
    }
    if code != 0 && code != TIMEOUT_EXIT_CODE && !stderr.contains("{\"error\":") {
        problems.push(format!("it ended with {code} and did not say why"));
    }
    problems
}

fn output_text(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    format!("{}\n      out: {}\n      err: {}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A fresh home and working directory (the root), and a directory for the shim next to them.
struct FaultPlace {
    root: PathBuf,
    shim_dir: PathBuf,
    _folder: TempDir,
}

impl FaultPlace {
    fn new() -> FaultPlace {
        // In memory if possible: a kill keeps the data in the kernel, so a disk would test nothing more.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let folder = folder.expect("a temporary directory can be created");
        let (root, shim_dir) = (folder.path().join("root"), folder.path().join("desk"));
        for made in [root.join("home"), root.join("work"), shim_dir.clone()] {
            std::fs::create_dir_all(made).expect("a subdirectory can be created");
        }
        FaultPlace { root, shim_dir, _folder: folder }
    }

    fn minke_command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", RUN_TIMEOUT_SECONDS, env!("CARGO_BIN_EXE_minke")])
            .args(args)
            .current_dir(self.root.join("work"))
            .env_remove("XDG_RUNTIME_DIR")
            .env("MINKE_HOME", self.root.join("home"))
            .stdin(Stdio::null());
        command
    }

    /// Returns every session directory, oldest first.
    fn session_dirs(&self) -> Vec<PathBuf> {
        let Ok(listed) = std::fs::read_dir(self.root.join("home/data/sessions")) else { return Vec::new() };
        // A directory with another name belongs to an unfinished creation.
        let whole =
            |path: &PathBuf| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
        let mut found: Vec<PathBuf> =
            listed.map(|entry| entry.expect("it can be listed").path()).filter(whole).collect();
        found.sort();
        found
    }

    /// Without a fault a client must receive every entry from the start of the segment, so that the sweep
    /// compares something.
    fn unseen_entries(&self, seen: &NumberedLines) -> Vec<String> {
        let kept: NumberedLines =
            self.session_dirs().iter().flat_map(|session| witness::logged_entries(session)).collect();
        let begins = |line: &&String| line.contains(r#""kind":"segment_start""#);
        let unseen = kept
            .values()
            .skip_while(|line| !begins(line))
            .filter(|line| !seen.values().any(|sent| sent == *line));
        let told: Vec<String> = unseen.map(|line| format!("no client was sent {line}")).collect();
        if seen.is_empty() { vec!["no client was sent anything".into()] } else { told }
    }

    fn note_count(&self) -> usize {
        let is_note = |name: &str| name.starts_with("note-") && name.ends_with(".md");
        let listed = std::fs::read_dir(self.root.join("work")).into_iter().flatten().flatten();
        listed.filter(|item| item.file_name().to_str().is_some_and(is_note)).count()
    }

    /// Waits until every process of the run is gone. If the launcher may have been killed, its pod has no
    /// process to stop it and is killed too, which is one more kill to survive. Returns the number of
    /// unexpected survivors.
    fn settle_processes(&self, kill: bool) -> usize {
        let log = std::fs::read_to_string(self.shim_dir.join("log")).unwrap_or_default();
        let mark = format!("MINKE_FAULT_STATE={}", self.shim_dir.join("state").display());
        let mut left = 0;
        for pid in
            log.lines().filter_map(|line| line.strip_prefix("start ")?.parse().ok()).filter_map(Pid::from_raw)
        {
            // Open the descriptor first, so that the checked and the signalled process are the same.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if !self.is_started_by(pid, &mark) {
                continue;
            }
            if !kill && wait_for_exit(process.as_fd()) {
                continue;
            }
            left += usize::from(!kill);
            // It may exit in this moment.
            if pidfd_send_signal(process.as_fd(), Signal::KILL).is_ok() {
                assert!(wait_for_exit(process.as_fd()), "a process outlived signal 9");
            }
        }
        left
    }

    /// Returns true if a process belongs to this run and did not reuse the pid. Only root can read the
    /// environment of Minke processes; other users check the session on a pod's command line.
    fn is_started_by(&self, pid: Pid, mark: &str) -> bool {
        let words = |file: &str| std::fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero()));
        let among = |words: &[u8], wanted: &[u8]| words.split(|byte| *byte == 0).any(|word| word == wanted);
        match words("environ") {
            Ok(environment) => among(&environment, mark.as_bytes()),
            Err(_) => words("cmdline").is_ok_and(|line| {
                let sessions = self.session_dirs();
                let ids = sessions.iter().filter_map(|session| session.file_name()?.to_str());
                ids.into_iter().any(|id| among(&line, id.as_bytes()))
            }),
        }
    }

    /// Returns details of a failure.
    fn failure_report(&self, output: &Output, n: u64) -> String {
        let log = std::fs::read_to_string(self.shim_dir.join("log")).unwrap_or_default();
        let operation = log.lines().find(|line| line.starts_with(&format!("{n} "))).unwrap_or("no operation");
        format!("at `{operation}`: {}", output_text(output))
    }
}

/// Waits for a process to end, up to the deadline.
fn wait_for_exit(process: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let deadline = Timespec { tv_sec: POD_EXIT_SECONDS, tv_nsec: 0 };
    poll(&mut fds, Some(&deadline)).is_ok_and(|ready| ready > 0)
}
