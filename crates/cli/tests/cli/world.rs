//! A home, a working directory and the real binary. Nothing sleeps: what must be waited for is read from a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// One person's machine. Pods that still live at the end are killed.
pub(crate) struct World {
    dir: tempfile::TempDir,
    home: PathBuf,
    /// Beside what every command gets.
    env: Vec<(&'static str, String)>,
}

/// For tests whose commands must run on any machine and are about something else than the fence.
pub(crate) const UNFENCED: [&str; 3] = ["--unsandboxed", "--posture", "full"];

/// What a command gave.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A command that is still going on.
pub(crate) struct Going {
    pub(crate) child: Child,
    lines: BufReader<ChildStdout>,
    said: BufReader<ChildStderr>,
}

impl World {
    pub(crate) fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        World::with_home(dir, home)
    }

    /// One whose paths are as long on every machine, in the person's own directory: for pictures of screens.
    #[allow(dead_code, reason = "the stories of the store, which take this file by path, take no pictures")]
    pub(crate) fn pictured() -> World {
        let dir = tempfile::Builder::new().prefix("minke-").tempdir_in("/tmp").unwrap();
        let home = dir.path().join("home");
        let person = dir.path().display().to_string();
        World::with_home(dir, home).with("HOME", &person)
    }

    pub(crate) fn with_home(dir: tempfile::TempDir, home: PathBuf) -> World {
        let world = World { dir, home, env: Vec::new() };
        std::fs::create_dir(world.work()).unwrap();
        world
    }

    /// The same with a variable that every command gets.
    #[allow(dead_code, reason = "only the stories of the store, which take this file by path, need one")]
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> World {
        self.env.push((name, value.to_owned()));
        self
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The working directory; a pod's name comes from it.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.work().join(name)).unwrap_or_default()
    }

    /// The binary with this home, this directory and nothing else of the machine it runs on.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minke"));
        self.settle(&mut command);
        command
    }

    /// The same through a shell that sets something up first and then runs `"$@"`.
    pub(crate) fn through_shell(&self, script: &str, args: &[&str]) -> Done {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_minke")]).args(args);
        self.settle(&mut command);
        done(command.stdin(Stdio::null()).output().unwrap())
    }

    pub(crate) fn settle(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("MINKE_HOME", &self.home).current_dir(self.work());
        command.envs(self.env.iter().map(|(name, value)| (*name, value)));
    }

    pub(crate) fn run(&self, args: &[&str]) -> Done {
        done(self.command().args(args).stdin(Stdio::null()).output().unwrap())
    }

    /// The same for a command that was made here and changed since.
    pub(crate) fn done(&self, mut command: Command) -> Done {
        done(command.stdin(Stdio::null()).output().unwrap())
    }

    /// The same with something on stdin.
    pub(crate) fn pipe(&self, input: &str, args: &[&str]) -> Done {
        let mut command = self.command();
        let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        // A command that refuses before it reads closes its end, which is its right.
        match child.stdin.take().unwrap().write_all(input.as_bytes()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                panic!("{args:?} cannot be told anything: {e}")
            }
            _ => {}
        }
        done(child.wait_with_output().unwrap())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Going {
        let mut command = self.command();
        command.args(args);
        self.start_command(command)
    }

    /// The same for a command that was made here and changed since.
    pub(crate) fn start_command(&self, mut command: Command) -> Going {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let said = BufReader::new(child.stderr.take().unwrap());
        Going { child, lines, said }
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let done = self.run(args);
        serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{args:?} gave no JSON ({e}): {done:?}"))
    }

    /// The row of the one live pod.
    pub(crate) fn only_pod(&self) -> Value {
        let rows = self.json(&["ps", "--json"]);
        match rows.as_array().map(Vec::as_slice) {
            Some([one]) => one.clone(),
            other => panic!("one pod should live: {other:?}"),
        }
    }

    pub(crate) fn sessions(&self) -> usize {
        self.json(&["log", "verify", "--json"])["sessions"].as_array().unwrap().len()
    }

    /// Every session is sound, and replays.
    #[track_caller]
    pub(crate) fn verify(&self) {
        let done = self.run(&["log", "verify", "--json"]);
        let found: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!(found["ok"], true, "{found:#}");
        assert_eq!(done.code, Some(0));
        for session in found["sessions"].as_array().unwrap() {
            let again = self.run(&["replay", session["id"].as_str().unwrap()]);
            assert_eq!(again.code, Some(0), "{again:?}");
        }
    }
}

impl World {
    /// A host that was started on demand ends by itself, but not soon.
    fn end_host(&self) {
        let Ok(text) = std::fs::read_to_string(self.home.join("run/host.json")) else { return };
        let info: Value = serde_json::from_str(&text).unwrap_or_default();
        // A host that was killed leaves the file; its number may be somebody else's by now.
        let environment = std::fs::read(format!("/proc/{}/environ", info["pid"])).unwrap_or_default();
        let ours = self.home.as_os_str().as_encoded_bytes();
        if environment.windows(ours.len()).any(|part| part == ours) {
            kill(&info["pid"]);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A test that has failed may have left anything; a pod that cannot be stopped must not hide why.
        let Ok(listed) = self.command().args(["ps", "--json"]).output() else { return };
        let rows: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        for row in rows.as_array().into_iter().flatten() {
            let name = row["name"].as_str().unwrap_or_default();
            drop(self.command().args(["stop", name, "--kill"]).output());
        }
        self.end_host();
    }
}

impl Going {
    /// Reads stdout until a line holds this, and gives that line.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: &str) -> String {
        until(&mut self.lines, wanted)
    }

    /// The same of stderr.
    #[track_caller]
    pub(crate) fn until_said(&mut self, wanted: &str) -> String {
        until(&mut self.said, wanted)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn end(mut self) -> Done {
        let mut out = String::new();
        std::io::Read::read_to_string(&mut self.lines, &mut out).unwrap();
        let mut err = String::new();
        std::io::Read::read_to_string(&mut self.said, &mut err).unwrap();
        Done { code: self.child.wait().unwrap().code(), out, err }
    }
}

#[track_caller]
fn until(lines: &mut impl BufRead, wanted: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        // A message that is streaming in has no newline yet.
        let read = loop {
            let bytes = lines.fill_buf().unwrap();
            let taken = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
            line.push_str(std::str::from_utf8(&bytes[..taken]).unwrap());
            lines.consume(taken);
            if taken == 0 || line.ends_with('\n') || line.contains(wanted) {
                break taken;
            }
        };
        seen.push_str(&line);
        if line.contains(wanted) {
            return line;
        }
        assert!(read > 0, "it ended before `{wanted}`:\n{seen}");
    }
}

fn done(output: Output) -> Done {
    Done {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Ends a process that a lease named, as a power cut or the kernel would.
pub(crate) fn kill(pid: &Value) {
    let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

/// Whether commands run here without a question, because the kernel holds them. Where it does not the test is skipped,
/// visibly.
pub(crate) fn commands_are_held(test: &str) -> bool {
    let helper = minke_exec::fence::Helper::at(env!("CARGO_BIN_EXE_minke"));
    let held = minke_exec::probe::best_tier_with(&helper).holds();
    if !held {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs a fence of tier A");
        eprintln!("SKIPPED: {test}: no fence of tier A on this machine");
    }
    held
}
