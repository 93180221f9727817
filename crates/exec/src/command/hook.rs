//! Runs the command of a hook: writes its input, reads its two outputs separately, and limits both.
//!
//! Here: starting it in the pod's sandbox, its streams, and its end. Elsewhere: its input and the meaning of its output
//! (`hooks`), the commands of calls (`commands`). It has no entry in the command table, no events and no output file.
//! Invariant: no process of it remains after its result is returned or its future is dropped
//! (`nothing_of_a_hook_outlives_its_answer`).

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use minke_record::{Permission, ScopeRule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::commands::{Commands, CommandsConfig};
use super::stdio;
use super::supervise::{program_lookup, shell_path};
use super::types::{CommandError, check_shell_line};
use crate::sandbox::{CommandLimits, ProcessExit, Sandbox, SandboxChild, SandboxCommand};

/// The most bytes of one read.
const READ_BYTES: usize = 16 * 1024;
/// How long to wait for the end of its output after its process tree was killed.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long to wait for a killed process tree to exit; after that it counts as killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// The command of one hook.
#[derive(Debug, Clone)]
pub struct HookCommand {
    /// A shell line.
    pub command: String,
    pub cwd: PathBuf,
    /// The complete standard input.
    pub input: Vec<u8>,
    /// After this time, its process tree is killed.
    pub timeout: Duration,
    /// The size limit of each output. If it writes more, its process tree is killed.
    pub max_output_bytes: usize,
    /// Directories that it may read in addition to the pod's scope, such as the directory of its script.
    pub readable: Vec<PathBuf>,
}

/// The result of a hook's command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookOutcome {
    pub exit: HookExit,
    /// Redacted, and at most as long as the limit.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub elapsed: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookExit {
    Exited(ProcessExit),
    TimedOut,
    /// An output exceeded its limit.
    OutputLimit,
}

impl Commands {
    /// Runs a hook's command until it ends. Dropping the future kills its process tree.
    pub async fn run_hook(&self, order: HookCommand) -> Result<HookOutcome, CommandError> {
        let began = Instant::now();
        check_shell_line(&order.command)?;
        let (config, input) = (self.config().clone(), order.input.clone());
        let (timeout, most) = (order.timeout, order.max_output_bytes);
        // If the caller drops this future, the command is dropped, and so killed, as soon as it has started.
        let launched = tokio::task::spawn_blocking(move || launch_hook(&config, order))
            .await
            .unwrap_or_else(|e| Err(CommandError::Internal(e.to_string())))?;
        let left = timeout.saturating_sub(began.elapsed());
        let (exit, stdout, stderr) = supervise_hook(launched, &input, left, most).await?;
        let covered = |bytes: &[u8]| {
            let mut veil = (self.config().output_filter)();
            let mut shown = veil.filter_bytes(bytes);
            shown.extend(veil.finish());
            shown
        };
        Ok(HookOutcome { exit, stdout: covered(&stdout), stderr: covered(&stderr), elapsed: began.elapsed() })
    }
}

/// A running hook command, with our side of its streams.
struct LaunchedHook {
    child: SandboxChild,
    input: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

fn launch_hook(config: &CommandsConfig, order: HookCommand) -> Result<LaunchedHook, CommandError> {
    let io = |source| CommandError::Io { what: "create the streams of a hook", source };
    let mut spec = (config.spec)();
    spec.scope.allow.extend(order.readable.iter().filter(|dir| dir.is_dir()).map(|dir| ScopeRule {
        target: dir.to_string_lossy().into_owned(),
        permission: Permission::Read,
        recursive: true,
    }));
    // A hook controls the commands of the pod, so its `PATH` must not contain programs that those commands could write.
    let path = program_lookup(&spec).search_path().to_string_lossy().into_owned();
    spec.env.set.entry("PATH".to_owned()).or_insert(path);
    spec.findings.survey = Some(config.guard.survey_area(spec.survey_area()));
    let (stdin, input) = stdio::create_pipe().map_err(io)?;
    let (stdout, their_stdout) = stdio::create_pipe().map_err(io)?;
    let (stderr, their_stderr) = stdio::create_pipe().map_err(io)?;
    let sandbox = Sandbox::compile_spec(config.backend, &spec)?.with_helper(config.helper.clone());
    let child = sandbox.start_command(SandboxCommand {
        argv: vec![shell_path(&spec).into(), "-c".into(), "--".into(), OsString::from(&order.command)],
        cwd: order.cwd,
        stdin,
        stdout: their_stdout,
        stderr: their_stderr,
        tty: false,
        limits: CommandLimits::default(),
    })?;
    Ok(LaunchedHook { child, input, stdout, stderr })
}

/// Writes its input and reads its outputs until its shell exits, its timeout passes, or an output exceeds its limit.
/// Then kills its process tree.
async fn supervise_hook(
    launched: LaunchedHook,
    input: &[u8],
    timeout: Duration,
    most: usize,
) -> Result<(HookExit, Vec<u8>, Vec<u8>), CommandError> {
    let LaunchedHook { mut child, input: their_input, stdout, stderr } = launched;
    let io = |source| CommandError::Io { what: "register the streams of a hook", source };
    let lost = |source| CommandError::Io { what: "get the exit status of a hook", source };
    let sender = pipe::Sender::from_owned_fd(their_input).map_err(io)?;
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(io)?;
    let stderr = pipe::Receiver::from_owned_fd(stderr).map_err(io)?;
    let how = {
        let mut feeding = pin!(write_hook_input(sender, input));
        let mut hearing = pin!(read_hook_output(stdout, &mut said, most));
        let mut hearing_more = pin!(read_hook_output(stderr, &mut complained, most));
        let mut time = pin!(tokio::time::sleep(timeout));
        let (mut fed, mut heard, mut heard_more) = (false, false, false);
        let how = loop {
            tokio::select! {
                exit = child.wait_for_exit() => break HookExit::Exited(exit.map_err(lost)?),
                () = &mut time => break HookExit::TimedOut,
                () = &mut feeding, if !fed => fed = true,
                flooded = &mut hearing, if !heard => {
                    heard = true;
                    if flooded { break HookExit::OutputLimit }
                }
                flooded = &mut hearing_more, if !heard_more => {
                    heard_more = true;
                    if flooded { break HookExit::OutputLimit }
                }
            }
        };
        child.kill_tree();
        if !matches!(how, HookExit::Exited(_)) {
            // A process that takes longer to exit still counts as killed.
            let _ended = tokio::time::timeout(KILL_TIMEOUT, child.wait_for_exit()).await;
        }
        // Its pipes may still contain output that it wrote before it exited.
        let mut flooded = false;
        let rest = async {
            if !heard {
                flooded |= hearing.await;
            }
            if !heard_more {
                flooded |= hearing_more.await;
            }
        };
        let _in_time = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
        if flooded && matches!(how, HookExit::Exited(_)) { HookExit::OutputLimit } else { how }
    };
    Ok((how, said, complained))
}

/// Writes the input and closes it. The caller does not wait for a hook that does not read.
async fn write_hook_input(mut sender: pipe::Sender, input: &[u8]) {
    // A hook that has closed its input does not need the rest.
    let _closed = sender.write_all(input).await;
}

/// Reads one output to its end. Returns whether it exceeded its limit.
async fn read_hook_output(mut receiver: pipe::Receiver, into: &mut Vec<u8>, most: usize) -> bool {
    let mut piece = vec![0; READ_BYTES];
    loop {
        match receiver.read(&mut piece).await {
            Ok(0) | Err(_) => return false,
            Ok(count) => {
                let room = most.saturating_sub(into.len());
                into.extend_from_slice(piece.get(..count.min(room)).unwrap_or_default());
                if count > room {
                    return true;
                }
            }
        }
    }
}
