//! A home, a working directory and the real binary. There are no fixed sleeps: output is read from a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

/// A user's machine. Kills pods that are still live at the end.
pub(crate) struct CliWorld {
    dir: tempfile::TempDir,
    home: PathBuf,
    /// Variables in addition to the default ones.
    env: Vec<(&'static str, String)>,
}

/// Options for tests that do not need a sandbox and must run on any machine.
pub(crate) const UNSANDBOXED: [&str; 3] = ["--unsandboxed", "--posture", "full"];

/// Result of a command.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A running command.
pub(crate) struct RunningMinke {
    pub(crate) child: Child,
    stdout_lines: BufReader<ChildStdout>,
    stderr_lines: BufReader<ChildStderr>,
}

impl CliWorld {
    pub(crate) fn new() -> CliWorld {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        CliWorld::with_home(dir, home)
    }

    /// Creates a world whose paths have the same length on every machine, for snapshots of screens.
    #[allow(dead_code, reason = "the stories of the store, which take this file by path, take no pictures")]
    pub(crate) fn with_fixed_paths() -> CliWorld {
        let dir = tempfile::Builder::new().prefix("minke-").tempdir_in("/tmp").unwrap();
        let home = dir.path().join("home");
        let person = dir.path().display().to_string();
        CliWorld::with_home(dir, home).with_env("HOME", &person)
    }

    pub(crate) fn with_home(dir: tempfile::TempDir, home: PathBuf) -> CliWorld {
        let world = CliWorld { dir, home, env: Vec::new() };
        std::fs::create_dir(world.work_dir()).unwrap();
        world
    }

    /// Adds a variable to every command.
    #[allow(dead_code, reason = "only the stories of the store, which take this file by path, need one")]
    pub(crate) fn with_env(mut self, name: &'static str, value: &str) -> CliWorld {
        self.env.push((name, value.to_owned()));
        self
    }

    pub(crate) fn home_dir(&self) -> &Path {
        &self.home
    }

    /// Returns the working directory; the name of a pod comes from it.
    pub(crate) fn work_dir(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub(crate) fn write_file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.work_dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read_file(&self, name: &str) -> String {
        std::fs::read_to_string(self.work_dir().join(name)).unwrap_or_default()
    }

    /// Returns the binary with this home and directory and a clean environment.
    pub(crate) fn minke_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_minke"));
        self.set_environment(&mut command);
        command
    }

    /// Runs a command through a shell script, which ends with `"$@"`.
    pub(crate) fn run_through_shell(&self, script: &str, args: &[&str]) -> CommandResult {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_minke")]).args(args);
        self.set_environment(&mut command);
        command_result(command.stdin(Stdio::null()).output().unwrap())
    }

    pub(crate) fn set_environment(&self, command: &mut Command) {
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env_clear().env("PATH", path).env("MINKE_HOME", &self.home).current_dir(self.work_dir());
        command.envs(self.env.iter().map(|(name, value)| (*name, value)));
    }

    pub(crate) fn run_minke(&self, args: &[&str]) -> CommandResult {
        command_result(self.minke_command().args(args).stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a command that a test has built and changed.
    pub(crate) fn run_command(&self, mut command: Command) -> CommandResult {
        command_result(command.stdin(Stdio::null()).output().unwrap())
    }

    /// Runs a command with input on stdin.
    pub(crate) fn run_with_stdin(&self, input: &str, args: &[&str]) -> CommandResult {
        let mut command = self.minke_command();
        let child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = child.spawn().unwrap();
        // A command that refuses its arguments may close stdin without reading it.
        match child.stdin.take().unwrap().write_all(input.as_bytes()) {
            Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                panic!("could not write to stdin of {args:?}: {e}")
            }
            _ => {}
        }
        command_result(child.wait_with_output().unwrap())
    }

    pub(crate) fn start_minke(&self, args: &[&str]) -> RunningMinke {
        let mut command = self.minke_command();
        command.args(args);
        self.start_command(command)
    }

    /// Starts a command that a test has built and changed.
    pub(crate) fn start_command(&self, mut command: Command) -> RunningMinke {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout_lines = BufReader::new(child.stdout.take().unwrap());
        let stderr_lines = BufReader::new(child.stderr.take().unwrap());
        RunningMinke { child, stdout_lines, stderr_lines }
    }

    pub(crate) fn run_json(&self, args: &[&str]) -> Value {
        let done = self.run_minke(args);
        serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{args:?} printed no JSON ({e}): {done:?}"))
    }

    /// Returns the row of the only live pod.
    pub(crate) fn only_live_pod(&self) -> Value {
        let rows = self.run_json(&["ps", "--json"]);
        match rows.as_array().map(Vec::as_slice) {
            Some([one]) => one.clone(),
            other => panic!("expected one live pod: {other:?}"),
        }
    }

    pub(crate) fn session_count(&self) -> usize {
        self.run_json(&["log", "verify", "--json"])["sessions"].as_array().unwrap().len()
    }

    /// Checks that every session is valid and replays.
    #[track_caller]
    pub(crate) fn verify_logs(&self) {
        let done = self.run_minke(&["log", "verify", "--json"]);
        let found: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!(found["ok"], true, "{found:#}");
        assert_eq!(done.code, Some(0));
        for session in found["sessions"].as_array().unwrap() {
            let again = self.run_minke(&["replay", session["id"].as_str().unwrap()]);
            assert_eq!(again.code, Some(0), "{again:?}");
        }
    }
}

impl CliWorld {
    /// Stops a host that was started on demand; on its own it would exit much later.
    fn stop_host(&self) {
        let Ok(text) = std::fs::read_to_string(self.home.join("run/host.json")) else { return };
        let info: Value = serde_json::from_str(&text).unwrap_or_default();
        // A killed host leaves the file; its pid may belong to another process now.
        let environment = std::fs::read(format!("/proc/{}/environ", info["pid"])).unwrap_or_default();
        let ours = self.home.as_os_str().as_encoded_bytes();
        if environment.windows(ours.len()).any(|part| part == ours) {
            kill_by_pid(&info["pid"]);
        }
    }
}

impl Drop for CliWorld {
    fn drop(&mut self) {
        // After a failed test, errors of the cleanup must not hide the cause.
        let Ok(listed) = self.minke_command().args(["ps", "--json"]).output() else { return };
        let rows: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        for row in rows.as_array().into_iter().flatten() {
            let name = row["name"].as_str().unwrap_or_default();
            drop(self.minke_command().args(["stop", name, "--kill"]).output());
        }
        self.stop_host();
    }
}

impl RunningMinke {
    /// Reads stdout up to a line that contains this text, and returns the line.
    #[track_caller]
    pub(crate) fn wait_for_stdout(&mut self, wanted: &str) -> String {
        read_until(&mut self.stdout_lines, wanted)
    }

    /// The same for stderr.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&mut self, wanted: &str) -> String {
        read_until(&mut self.stderr_lines, wanted)
    }

    pub(crate) fn send_signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait_for_exit(mut self) -> CommandResult {
        let mut out = String::new();
        std::io::Read::read_to_string(&mut self.stdout_lines, &mut out).unwrap();
        let mut err = String::new();
        std::io::Read::read_to_string(&mut self.stderr_lines, &mut err).unwrap();
        CommandResult { code: self.child.wait().unwrap().code(), out, err }
    }
}

#[track_caller]
fn read_until(lines: &mut impl BufRead, wanted: &str) -> String {
    let mut seen = String::new();
    loop {
        let mut line = String::new();
        // A message that is streaming has no newline yet.
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

fn command_result(output: Output) -> CommandResult {
    CommandResult {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Kills a process that a lease named.
pub(crate) fn kill_by_pid(pid: &Value) {
    let pid = i32::try_from(pid.as_i64().unwrap()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
}

/// Returns true if commands run here without an ask, because the kernel confines them. Otherwise the test is
/// skipped with a message.
pub(crate) fn can_sandbox_commands(test: &str) -> bool {
    let helper = minke_exec::sandbox::HelperBinary::from_path(env!("CARGO_BIN_EXE_minke"));
    let held = minke_exec::probe::best_backend_with(&helper).enforces_scope();
    if !held {
        assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "{test} needs the sandbox backend `namespaces`");
        eprintln!("SKIPPED: {test}: no sandbox backend `namespaces` on this machine");
    }
    held
}
