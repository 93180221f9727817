//! One command from its start to its end: launched inside a fence, heard, and over when its shell is.
//!
//! The command is over when the shell exits; whatever it left behind is killed with the tree. Both halves can be given
//! up at any moment by dropping them: `Started` kills its tree then, and the `Ear` stops listening.

use std::ffi::OsString;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use minke_programs::Lookup;
use minke_record::Permission;
use minke_tool::CommandEnd;

use super::commands::CommandsConfig;
use super::ends::{Ends, TERM};
use super::listen::{Ear, Shared, lock};
use super::order::{CommandError, RunOrder};
use crate::fence::{Exit, Fence, FenceSpec, Limits, Spare, Start, Started};

/// How long the end of a killed command is waited for. The kernel may hold a process longer (in a device that does not
/// answer); then the command counts as killed, which it will be.
const KILL_WAIT: Duration = Duration::from_secs(2);
const SIGKILL: i32 = 9;

/// A command that has been started, with our side of its output.
pub(super) struct Launched {
    started: Started,
    output: OwnedFd,
    /// As in `Ends`.
    held: Option<OwnedFd>,
}

/// Makes the fence and starts the command in it; with it comes our side of its input, if it has one. Blocks for some
/// milliseconds.
pub(super) fn launch(
    config: &CommandsConfig,
    mut spec: FenceSpec,
    order: &RunOrder,
    with_input: bool,
    spare: Option<Spare>,
) -> Result<(Launched, Option<OwnedFd>), CommandError> {
    let ends = if order.tty { Ends::terminal(with_input) } else { Ends::pipes(with_input) };
    let ends =
        ends.map_err(|source| CommandError::Io { what: "make the ends of a command's streams", source })?;
    spec.env.set.extend(order.env.clone());
    if order.tty {
        spec.env.set.insert("TERM".to_owned(), TERM.to_owned());
    }
    let fence = Fence::compile(config.tier, &spec)?.with_helper(config.helper.clone());
    let start = Start {
        // `--`: a line that begins with `-` is a line and no option.
        argv: vec![shell(&spec).into(), "-c".into(), "--".into(), OsString::from(&order.command)],
        cwd: order.cwd.clone(),
        stdin: ends.stdin,
        stdout: ends.stdout,
        stderr: ends.stderr,
        tty: order.tty,
        limits: Limits::default(),
    };
    let started = fence.start_with(spare, start)?;
    Ok((Launched { started, output: ends.output, held: ends.held }, ends.input))
}

/// `bash`, outside what commands may write; else the `sh` that every machine has.
pub(super) fn shell(spec: &FenceSpec) -> PathBuf {
    let bash = lookup(spec).first_in(&["/bin", "/usr/bin"]).find("bash");
    bash.unwrap_or_else(|_| PathBuf::from("/bin/sh"))
}

/// Programs of this machine that no command of the pod could have written.
pub(super) fn lookup(spec: &FenceSpec) -> Lookup {
    let written = spec.scope.allow.iter().filter(|rule| rule.permission != Permission::Read);
    Lookup::new(written.map(|rule| PathBuf::from(&rule.target)))
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) exit: Exit,
    pub(super) timed_out: bool,
    pub(super) killed: bool,
}

impl End {
    /// The end of one that was killed, as far as we know.
    pub(super) const KILLED: End = End { exit: Exit::Signal(SIGKILL), timed_out: false, killed: true };

    /// As news say it.
    pub(super) fn told(&self) -> (CommandEnd, Option<i32>) {
        let code = match self.exit {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
        };
        let end = if self.timed_out {
            CommandEnd::TimedOut
        } else if self.killed {
            CommandEnd::Cancelled
        } else if self.exit == Exit::Code(0) {
            CommandEnd::Completed
        } else {
            CommandEnd::Failed
        };
        (end, code)
    }
}

/// Hears a command until its shell exits, its time is over, or `stop` comes; then nothing of it is left.
pub(super) async fn attend(
    launched: Launched,
    heard: &Shared,
    timeout: Option<Duration>,
    stop: impl Future<Output = ()>,
) -> Result<End, CommandError> {
    let Launched { mut started, output, held } = launched;
    lock(heard).learn_of_refusals(started.set_id_refused());
    let ear = Ear::open(output, heard)?;
    let mut end = End { killed: false, ..End::KILLED };
    let time = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let lost = |source| CommandError::Io { what: "learn how the command ended", source };
    tokio::select! {
        exit = started.wait() => end.exit = exit.map_err(lost)?,
        () = time => end.timed_out = true,
        () = stop => end.killed = true,
    }
    started.kill();
    drop(held);
    if (end.timed_out || end.killed)
        && let Ok(exit) = tokio::time::timeout(KILL_WAIT, started.wait()).await
    {
        end.exit = exit.map_err(lost)?;
    }
    ear.drain().await?;
    Ok(end)
}
