//! A hook's command: it is given a text to read, its two outputs are kept apart, and both are bounded.
//!
//! Here: starting it behind the pod's fence, feeding and hearing it, ending it. Elsewhere: what it is told and what its
//! words mean (`hooks`), the commands of calls (`commands`). It has no row in the table, no news and no file: nobody but
//! the pod sees it.
//! Invariant: nothing of it is left when its answer is there or its future is dropped, whatever it does
//! (`nothing_of_a_hook_outlives_its_answer`).

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use minke_record::{Permission, ScopeRule};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;

use super::attend::{lookup, shell};
use super::commands::{Commands, CommandsConfig};
use super::ends;
use super::order::{CommandError, check_line};
use crate::fence::{Exit, Fence, Limits, Start, Started};

/// How much is read at once.
const READ_BYTES: usize = 16 * 1024;
/// How long the end of its output is waited for after its tree is dead.
const DRAIN: Duration = Duration::from_millis(500);
/// How long the end of a killed tree is waited for; then it counts as killed, which it will be.
const KILL_WAIT: Duration = Duration::from_secs(2);

/// One command of a hook.
#[derive(Debug, Clone)]
pub struct HookOrder {
    /// A shell line.
    pub command: String,
    pub cwd: PathBuf,
    /// All that it can read; then its input ends.
    pub input: Vec<u8>,
    /// After this time its tree is killed.
    pub timeout: Duration,
    /// So many bytes of each output are kept; one more and its tree is killed.
    pub output_most: usize,
    /// Directories that it may read beside the pod's scope: where its script lies.
    pub readable: Vec<PathBuf>,
}

/// What a hook's command came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookEnd {
    pub how: HookExit,
    /// Covered, and not more than was ordered.
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookExit {
    Exited(Exit),
    TimedOut,
    /// It said more than it may.
    Flooded,
}

impl Commands {
    /// Runs a hook's command to its end. Dropping the future kills its whole tree.
    pub async fn hook(&self, order: HookOrder) -> Result<HookEnd, CommandError> {
        let began = Instant::now();
        check_line(&order.command)?;
        let (config, input) = (self.config().clone(), order.input.clone());
        let (timeout, most) = (order.timeout, order.output_most);
        // Given up meanwhile, the command is dropped as soon as it is there, which kills it.
        let launched = tokio::task::spawn_blocking(move || launch(&config, order))
            .await
            .unwrap_or_else(|e| Err(CommandError::Defect(e.to_string())))?;
        let left = timeout.saturating_sub(began.elapsed());
        let (how, stdout, stderr) = attend(launched, &input, left, most).await?;
        let covered = |bytes: &[u8]| {
            let mut veil = (self.config().cover)();
            let mut shown = veil.take(bytes);
            shown.extend(veil.end());
            shown
        };
        Ok(HookEnd { how, stdout: covered(&stdout), stderr: covered(&stderr), took: began.elapsed() })
    }
}

/// A hook's command that runs, with our side of its streams.
struct Launched {
    started: Started,
    input: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
}

fn launch(config: &CommandsConfig, order: HookOrder) -> Result<Launched, CommandError> {
    let io = |source| CommandError::Io { what: "make the ends of a hook's streams", source };
    let mut spec = (config.spec)();
    spec.scope.allow.extend(order.readable.iter().filter(|dir| dir.is_dir()).map(|dir| ScopeRule {
        target: dir.to_string_lossy().into_owned(),
        permission: Permission::Read,
        recursive: true,
    }));
    // A hook steers what commands may do, so no program that a command wrote may take the place of one it names.
    let path = lookup(&spec).path().to_string_lossy().into_owned();
    spec.env.set.entry("PATH".to_owned()).or_insert(path);
    spec.findings.survey = Some(config.guard.survey(spec.area()));
    let (stdin, input) = ends::pipe().map_err(io)?;
    let (stdout, their_stdout) = ends::pipe().map_err(io)?;
    let (stderr, their_stderr) = ends::pipe().map_err(io)?;
    let fence = Fence::compile(config.tier, &spec)?.with_helper(config.helper.clone());
    let started = fence.start(Start {
        argv: vec![shell(&spec).into(), "-c".into(), "--".into(), OsString::from(&order.command)],
        cwd: order.cwd,
        stdin,
        stdout: their_stdout,
        stderr: their_stderr,
        tty: false,
        limits: Limits::default(),
    })?;
    Ok(Launched { started, input, stdout, stderr })
}

/// Feeds and hears it until its shell exits, its time is over or it says too much; then nothing of it is left.
async fn attend(
    launched: Launched,
    input: &[u8],
    timeout: Duration,
    most: usize,
) -> Result<(HookExit, Vec<u8>, Vec<u8>), CommandError> {
    let Launched { mut started, input: their_input, stdout, stderr } = launched;
    let io = |source| CommandError::Io { what: "watch the streams of a hook", source };
    let lost = |source| CommandError::Io { what: "learn how a hook ended", source };
    let sender = pipe::Sender::from_owned_fd(their_input).map_err(io)?;
    let (mut said, mut complained) = (Vec::new(), Vec::new());
    let stdout = pipe::Receiver::from_owned_fd(stdout).map_err(io)?;
    let stderr = pipe::Receiver::from_owned_fd(stderr).map_err(io)?;
    let how = {
        let mut feeding = pin!(feed(sender, input));
        let mut hearing = pin!(hear(stdout, &mut said, most));
        let mut hearing_more = pin!(hear(stderr, &mut complained, most));
        let mut time = pin!(tokio::time::sleep(timeout));
        let (mut fed, mut heard, mut heard_more) = (false, false, false);
        let how = loop {
            tokio::select! {
                exit = started.wait() => break HookExit::Exited(exit.map_err(lost)?),
                () = &mut time => break HookExit::TimedOut,
                () = &mut feeding, if !fed => fed = true,
                flooded = &mut hearing, if !heard => {
                    heard = true;
                    if flooded { break HookExit::Flooded }
                }
                flooded = &mut hearing_more, if !heard_more => {
                    heard_more = true;
                    if flooded { break HookExit::Flooded }
                }
            }
        };
        started.kill();
        if !matches!(how, HookExit::Exited(_)) {
            // One that the kernel holds longer is killed all the same.
            let _ended = tokio::time::timeout(KILL_WAIT, started.wait()).await;
        }
        // What it said before its end may still lie in its pipes.
        let mut flooded = false;
        let rest = async {
            if !heard {
                flooded |= hearing.await;
            }
            if !heard_more {
                flooded |= hearing_more.await;
            }
        };
        let _in_time = tokio::time::timeout(DRAIN, rest).await;
        if flooded && matches!(how, HookExit::Exited(_)) { HookExit::Flooded } else { how }
    };
    Ok((how, said, complained))
}

/// Gives it its input, then the end of it. One that does not read is not waited for by anybody.
async fn feed(mut sender: pipe::Sender, input: &[u8]) {
    // One that has closed its input wanted no more.
    let _closed = sender.write_all(input).await;
}

/// Hears one output to its end; whether it said more than it may.
async fn hear(mut receiver: pipe::Receiver, into: &mut Vec<u8>, most: usize) -> bool {
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
