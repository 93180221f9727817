//! Supervises one command: starts it in a sandbox, collects its output, and ends it when its shell exits.
//!
//! The command has ended when its shell exits; processes that it left behind are killed. Dropping `SandboxChild` kills
//! its process tree, and dropping `ReaderThread` stops reading, so the caller can cancel at any time.

use std::ffi::OsString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use minke_programs::ProgramLookup;
use minke_record::Permission;
use minke_tool::CommandEnd;

use super::commands::CommandsConfig;
use super::reader::{ReaderThread, SharedOutput, lock_output};
use super::stdio::{StdioStreams, TERMINAL_TYPE};
use super::types::{CommandError, CommandSpec};
use crate::sandbox::{
    CommandLimits, ProcessExit, Sandbox, SandboxChild, SandboxCommand, SandboxSpec, SpareHelper,
};

/// How long to wait for a killed command to exit. The kernel may take longer, for example while a device does not
/// respond; the command then counts as killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);
const SIGKILL: i32 = 9;

/// A started command, with our side of its output.
pub(super) struct LaunchedCommand {
    child: SandboxChild,
    output: OwnedFd,
    /// See `StdioStreams`.
    terminal_guard: Option<OwnedFd>,
}

/// Compiles the sandbox and starts the command in it. Also returns our side of the command's input, if it has one.
/// Blocks for a few milliseconds.
pub(super) fn launch_command(
    config: &CommandsConfig,
    mut spec: SandboxSpec,
    order: &CommandSpec,
    with_input: bool,
    spare: Option<SpareHelper>,
) -> Result<(LaunchedCommand, Option<OwnedFd>), CommandError> {
    let ends = if order.tty {
        StdioStreams::open_terminal(with_input)
    } else {
        StdioStreams::open_pipes(with_input)
    };
    let ends = ends.map_err(|source| CommandError::Io { what: "create the streams of a command", source })?;
    spec.env.set.extend(order.env.clone());
    if order.tty {
        spec.env.set.insert("TERM".to_owned(), TERMINAL_TYPE.to_owned());
    }
    let sandbox = Sandbox::compile_spec(config.backend, &spec)?.with_helper(config.helper.clone());
    let start = SandboxCommand {
        // `--` keeps bash from reading a line that begins with `-` as an option.
        argv: vec![shell_path(&spec).into(), "-c".into(), "--".into(), OsString::from(&order.command)],
        cwd: order.cwd.clone(),
        stdin: ends.stdin,
        stdout: ends.stdout,
        stderr: ends.stderr,
        tty: order.tty,
        limits: CommandLimits::default(),
    };
    let child = sandbox.start_with_spare(spare, start)?;
    Ok((LaunchedCommand { child, output: ends.output, terminal_guard: ends.terminal_guard }, ends.input))
}

/// Returns a `bash` that commands cannot write, else `/bin/sh`.
pub(super) fn shell_path(spec: &SandboxSpec) -> PathBuf {
    let bash = program_lookup(spec).search_first(&["/bin", "/usr/bin"]).find_program("bash");
    bash.unwrap_or_else(|_| PathBuf::from("/bin/sh"))
}

/// Returns a lookup for programs that no command of the pod could have written.
pub(super) fn program_lookup(spec: &SandboxSpec) -> ProgramLookup {
    let written = spec.scope.allow.iter().filter(|rule| rule.permission != Permission::Read);
    ProgramLookup::new(written.map(|rule| PathBuf::from(&rule.target)))
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct CommandExit {
    pub(super) exit: ProcessExit,
    pub(super) timed_out: bool,
    pub(super) killed: bool,
}

impl CommandExit {
    /// Used when the exit status of a killed command is unknown.
    pub(super) const KILLED: CommandExit =
        CommandExit { exit: ProcessExit::Signal(SIGKILL), timed_out: false, killed: true };

    /// Returns the ending and exit code as events report them.
    pub(super) fn command_end(self) -> (CommandEnd, Option<i32>) {
        let code = match self.exit {
            ProcessExit::Code(code) => Some(code),
            ProcessExit::Signal(_) => None,
        };
        let end = if self.timed_out {
            CommandEnd::TimedOut
        } else if self.killed {
            CommandEnd::Cancelled
        } else if self.exit == ProcessExit::Code(0) {
            CommandEnd::Exited
        } else {
            CommandEnd::Failed
        };
        (end, code)
    }
}

/// Reads a command's output until its shell exits, its timeout passes, or `stop` completes. Then kills its process
/// tree.
pub(super) async fn supervise_command(
    launched: LaunchedCommand,
    heard: &SharedOutput,
    timeout: Option<Duration>,
    stop: impl Future<Output = ()>,
) -> Result<CommandExit, CommandError> {
    let LaunchedCommand { mut child, output, terminal_guard } = launched;
    lock_output(heard).set_refusal_flag(child.set_id_refused());
    let ear = ReaderThread::spawn_reader(output, heard)?;
    let mut end = CommandExit { killed: false, ..CommandExit::KILLED };
    let time = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let lost = |source| CommandError::Io { what: "get the exit status of the command", source };
    tokio::select! {
        exit = child.wait_for_exit() => end.exit = exit.map_err(lost)?,
        () = time => end.timed_out = true,
        () = stop => end.killed = true,
    }
    child.kill_tree();
    drop(terminal_guard);
    if (end.timed_out || end.killed)
        && let Ok(exit) = tokio::time::timeout(KILL_TIMEOUT, child.wait_for_exit()).await
    {
        end.exit = exit.map_err(lost)?;
    }
    ear.drain_output().await?;
    Ok(end)
}
