//! One point: a run that meets one fault, and everything that must hold afterwards.
//!
//! Here: a fresh home, the faulted run, the checks, the next run. Elsewhere: which points (`main.rs`), comparing what
//! was sent with what is kept (`witness`).

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tempfile::TempDir;

use crate::shim::{Kind, Shim};
use crate::witness::{self, Lines};

/// A run or a command that takes longer than this hangs.
const PATIENCE_SECONDS: &str = "60";
/// How long a pod may take to be gone after its `exec` has ended: its own deadline for stopping and a little.
const POD_ENDS_SECONDS: i64 = 15;
/// What `timeout` says when it had to kill.
const TIMED_OUT: i32 = 137;

/// Which operation goes wrong, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) kind: Kind,
    pub(crate) n: u64,
}

/// What a point came to.
pub(crate) struct Outcome {
    /// Whether the fault happened, or the run ended before.
    pub(crate) fired: bool,
    pub(crate) problems: Vec<String>,
}

/// What all points share.
pub(crate) struct Bench<'a> {
    shim: &'a Shim,
    script: PathBuf,
    _folder: TempDir,
}

impl<'a> Bench<'a> {
    pub(crate) fn new(shim: &'a Shim, rounds: usize) -> Bench<'a> {
        let folder = TempDir::new().expect("a temporary directory can be made");
        let script = folder.path().join("script.toml");
        std::fs::write(&script, script_of(rounds)).expect("the script can be written");
        Bench { shim, script, _folder: folder }
    }

    pub(crate) fn try_point(&self, point: Point) -> Outcome {
        let place = Place::new();
        let output = self.faulted(&place, point);
        let mut problems = Vec::new();
        let pods_left = place.settle(point.kind.kills());
        if pods_left > 0 {
            problems.push(format!("{pods_left} pods were left behind"));
        }
        problems.extend(complaints(&output, point.kind));
        let seen = witness::seen(&place.desk);
        let fired = Shim::fired(&place.desk);
        if !fired {
            problems.extend(place.unseen(&seen));
        }
        problems.extend(self.look(&place, &seen, When::AfterTheFault(point.kind)));
        problems.extend(self.go_on(&place));
        problems.extend(self.look(&place, &seen, When::AfterTheNextRun));
        if !problems.is_empty() {
            problems.insert(0, place.story(&output, point.n));
        }
        Outcome { fired, problems }
    }

    /// `minke exec` with one fault in it or in its pod.
    fn faulted(&self, place: &Place, point: Point) -> Output {
        let mut command = place.minke(&["exec", "--json", "--unsandboxed", "--model"]);
        command.arg(self.model()).arg("Take notes");
        self.shim.arm(&mut command, (point.kind.name(), point.n), [&place.root, &place.desk]);
        command.output().expect("minke can be run")
    }

    fn model(&self) -> String {
        format!("scripted:{}", self.script.display())
    }

    /// The session opens and verifies, nothing that was sent is lost, nothing was done twice.
    fn look(&self, place: &Place, seen: &Lines, when: When) -> Vec<String> {
        let mut problems = Vec::new();
        let verified = place.minke(&["log", "verify", "--all", "--json"]).output().expect("minke can be run");
        let said: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap_or_default();
        if !(said["ok"] == true && verified.status.success() || when.is_only_torn(&said)) {
            problems.push(format!("`log verify` is not content: {}", shown(&verified)));
        }
        let mut dispatched = 0;
        let mut done = 0;
        let mut all = Lines::new();
        for session in place.sessions() {
            let lines = witness::logged(&session);
            let (began, ended) = witness::calls(&lines, "Write");
            dispatched += began;
            done += ended;
            all.extend(lines);
        }
        problems.extend(witness::losses(seen, &all));
        let notes = place.notes();
        if notes > dispatched {
            problems.push(format!("{notes} notes were written by {dispatched} dispatched calls"));
        }
        if notes < done {
            problems.push(format!("{done} calls are logged as done and {notes} notes are there"));
        }
        problems.into_iter().map(|problem| format!("{when:?}: {problem}")).collect()
    }

    /// The next run works: in the same session if there is one, else in a new one.
    fn go_on(&self, place: &Place) -> Vec<String> {
        let mut command = place.minke(&["exec", "--json"]);
        let session = place.sessions().into_iter().find(|session| !witness::logged(session).is_empty());
        match session.as_deref().and_then(Path::file_name) {
            Some(name) => command.arg("--resume").arg(name),
            None => command.args(["--unsandboxed", "--model"]).arg(self.model()),
        };
        let output = command.arg("Go on").output().expect("minke can be run");
        let mut problems = Vec::new();
        if !output.status.success() {
            problems.push(format!("the next run did not work: {}", shown(&output)));
        }
        if !String::from_utf8_lossy(&output.stdout).contains("run.completed") {
            problems.push(format!("the next run did not complete: {}", shown(&output)));
        }
        problems
    }
}

/// When the checks are made.
#[derive(Debug, Clone, Copy)]
enum When {
    AfterTheFault(Kind),
    AfterTheNextRun,
}

impl When {
    /// Half a step at the end is what a torn write leaves. `log verify` names it, because a flipped bit in the last
    /// line looks the same; it never happened, and the next opening moves it aside.
    fn is_only_torn(self, said: &serde_json::Value) -> bool {
        let problems: Vec<&str> = said["sessions"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(|session| session["problems"].as_array().into_iter().flatten())
            .filter_map(serde_json::Value::as_str)
            .collect();
        let tail = |problem: &&str| problem.contains("bytes at the end are not a whole step");
        matches!(self, When::AfterTheFault(Kind::Torn)) && problems.len() == 1 && problems.iter().all(tail)
    }
}

/// A model that takes a note and says something, again and again, and starts over when it has no more to say.
fn script_of(rounds: usize) -> String {
    let mut script = String::from("loop = true\n");
    for round in 0..rounds {
        script.push_str(&format!(
            "\n[[turn]]\ntext = \"Round {round}.\"\n[[turn.call]]\ntool = \"Write\"\nargs = {{ file_path = \"note-{round}.md\", content = \"round {round}\" }}\n"
        ));
    }
    script.push_str("\n[[turn]]\ntext = \"All is noted.\"\n");
    // The next run is a short one: that it works is asked, not how long it can go on.
    script.push_str("\n[[turn]]\nwhen = \"Go on\"\ntext = \"Gone on.\"\n");
    script
}

/// The way a faulted program may end: by the signal it was sent, or by itself and in good order.
fn complaints(output: &Output, kind: Kind) -> Vec<String> {
    let mut problems = Vec::new();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    if stderr.contains("panicked") || code == 101 {
        problems.push("it panicked".to_owned());
    }
    if code == TIMED_OUT && !kind.kills() {
        problems.push("it hung".to_owned());
    }
    if kind == Kind::Eintr && code != 0 {
        problems.push(format!("an interrupted call is no reason to fail, and it ended with {code}"));
    }
    if code != 0 && code != TIMED_OUT && !stderr.contains("{\"error\":") {
        problems.push(format!("it ended with {code} and did not say why"));
    }
    problems
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    format!("{}\n      out: {}\n      err: {}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A fresh home and working directory (the root), and a desk for the shim beside them.
struct Place {
    root: PathBuf,
    desk: PathBuf,
    _folder: TempDir,
}

impl Place {
    fn new() -> Place {
        // In memory where that is to be had: a kill leaves what the kernel holds, so nothing is learned from a disk.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let folder = folder.expect("a temporary directory can be made");
        let (root, desk) = (folder.path().join("root"), folder.path().join("desk"));
        for made in [root.join("home"), root.join("work"), desk.clone()] {
            std::fs::create_dir_all(made).expect("a folder can be made in a fresh one");
        }
        Place { root, desk, _folder: folder }
    }

    fn minke(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["-s", "KILL", PATIENCE_SECONDS, env!("CARGO_BIN_EXE_minke")])
            .args(args)
            .current_dir(self.root.join("work"))
            .env_remove("XDG_RUNTIME_DIR")
            .env("MINKE_HOME", self.root.join("home"))
            .stdin(Stdio::null());
        command
    }

    /// Every session directory, oldest first.
    fn sessions(&self) -> Vec<PathBuf> {
        let Ok(listed) = std::fs::read_dir(self.root.join("home/data/sessions")) else { return Vec::new() };
        // A directory with another name is one that is being made, or was when its maker died.
        let whole =
            |path: &PathBuf| path.file_name().is_some_and(|name| !name.to_string_lossy().starts_with('.'));
        let mut found: Vec<PathBuf> =
            listed.map(|entry| entry.expect("it can be listed").path()).filter(whole).collect();
        found.sort();
        found
    }

    /// Without a fault a client is sent every entry from the start of the segment on, or else the sweep compares nothing.
    fn unseen(&self, seen: &Lines) -> Vec<String> {
        let kept: Lines = self.sessions().iter().flat_map(|session| witness::logged(session)).collect();
        let begins = |line: &&String| line.contains(r#""kind":"segment_start""#);
        let unseen = kept
            .values()
            .skip_while(|line| !begins(line))
            .filter(|line| !seen.values().any(|sent| sent == *line));
        let told: Vec<String> = unseen.map(|line| format!("no client was sent {line}")).collect();
        if seen.is_empty() { vec!["no client was sent anything".into()] } else { told }
    }

    fn notes(&self) -> usize {
        let is_note = |name: &str| name.starts_with("note-") && name.ends_with(".md");
        let listed = std::fs::read_dir(self.root.join("work")).into_iter().flatten().flatten();
        listed.filter(|item| item.file_name().to_str().is_some_and(is_note)).count()
    }

    /// Waits until every process of the run is gone. If the launcher may have been killed, its pod has nobody to stop
    /// it and is killed too, which is one more kill to survive. Gives how many had to be killed and should not have.
    fn settle(&self, kill: bool) -> usize {
        let log = std::fs::read_to_string(self.desk.join("log")).unwrap_or_default();
        let mark = format!("MINKE_FAULT_STATE={}", self.desk.join("state").display());
        let mut left = 0;
        for pid in
            log.lines().filter_map(|line| line.strip_prefix("start ")?.parse().ok()).filter_map(Pid::from_raw)
        {
            // The descriptor first, so that what is then looked at and signalled is the same process.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            if !self.started(pid, &mark) {
                continue;
            }
            if !kill && ended(process.as_fd()) {
                continue;
            }
            left += usize::from(!kill);
            // It may end by itself in this moment, which is as good.
            if pidfd_send_signal(process.as_fd(), Signal::KILL).is_ok() {
                assert!(ended(process.as_fd()), "a process outlived signal 9");
            }
        }
        left
    }

    /// Whether a process is one of this run, and not another that has got its number since. Our processes show their
    /// variables to root only; then the session on a pod's command line says whose it is.
    fn started(&self, pid: Pid, mark: &str) -> bool {
        let words = |file: &str| std::fs::read(format!("/proc/{}/{file}", pid.as_raw_nonzero()));
        let among = |words: &[u8], wanted: &[u8]| words.split(|byte| *byte == 0).any(|word| word == wanted);
        match words("environ") {
            Ok(environment) => among(&environment, mark.as_bytes()),
            Err(_) => words("cmdline").is_ok_and(|line| {
                let sessions = self.sessions();
                let ids = sessions.iter().filter_map(|session| session.file_name()?.to_str());
                ids.into_iter().any(|id| among(&line, id.as_bytes()))
            }),
        }
    }

    /// What happened, for whoever has to find out why.
    fn story(&self, output: &Output, n: u64) -> String {
        let log = std::fs::read_to_string(self.desk.join("log")).unwrap_or_default();
        let operation = log.lines().find(|line| line.starts_with(&format!("{n} "))).unwrap_or("no operation");
        format!("at `{operation}`: {}", shown(output))
    }
}

/// Waits for a process to end, up to the deadline.
fn ended(process: impl AsFd) -> bool {
    let mut fds = [PollFd::new(&process, PollFlags::IN)];
    let deadline = Timespec { tv_sec: POD_ENDS_SECONDS, tv_nsec: 0 };
    poll(&mut fds, Some(&deadline)).is_ok_and(|ready| ready > 0)
}
