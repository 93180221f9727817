//! The outer process of the tour: creates a directory, runs the inner process in it, and cleans up.
//!
//! Invariant: no pod and, without `--keep`, no file is left, even if the inner process fails
//! (`a_tour_that_is_left_in_the_middle_leaves_nothing`).

use std::fs::{self, DirBuilder};
use std::io::{Read, Seek};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use minke_record::SessionId;
use minke_registry::{RuntimeDir, UserPaths};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{TourArgs, kernel};
use crate::context::{CliContext, new_ids};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;

/// Environment variables for the inner process: locations of programs and terminal settings.
const PASSED_VARIABLES: [&str; 4] = ["PATH", "TERM", "NO_COLOR", "TMPDIR"];
/// Time limit for the end of killed pods.
const GONE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the inner process is polled.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(2);
const GONE_POLL_INTERVAL: Duration = Duration::from_millis(5);

pub(super) async fn run(
    tour: &TourArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let dir = create_dir()?;
    let ended = if tour.watch && !tour.step && crate::tui_backend::is_tui_possible(context, output) {
        watch_in_tui(tour, &dir, context, output).await.and_then(|(exit, output_text)| {
            output_text.lines().try_for_each(|line| output.print_line(line))?;
            exit
        })
    } else {
        run_inner(tour, &dir, output).await
    };
    let cleared = clean_up(&dir, context, tour.keep);
    let exit = ended?;
    cleared?;
    if tour.keep {
        output.print_note(&format!(
            "all files remain in {}; MINKE_HOME={} minke ps --all",
            dir.display(),
            dir.join("home").display()
        ));
    }
    Ok(exit)
}

/// Runs the tour in this terminal. Returns its output.
pub(super) async fn run_in_tui(context: &CliContext, output: &CliOutput) -> Result<String, CliError> {
    let tour = TourArgs { watch: true, keep: false, step: false, inside: None };
    let dir = create_dir()?;
    let ended = Box::pin(watch_in_tui(&tour, &dir, context, output)).await;
    let cleared = clean_up(&dir, context, false);
    // The output contains its result.
    let (_, output_text) = ended?;
    cleared?;
    Ok(output_text)
}

fn create_dir() -> Result<PathBuf, CliError> {
    let base = std::env::temp_dir();
    let dir = base.join(format!("minke-tour-{}", new_ids().next_uuid().simple()));
    let made = DirBuilder::new().mode(0o700).create(&dir).and_then(|()| dir.canonicalize());
    made.map_err(|e| {
        CliError::new(ExitKind::Storage, format!("could not create {}", dir.display()))
            .with_reason(e)
            .with_hint("set TMPDIR to a directory for temporary files")
    })
}

/// Shows the first pod of the tour in the terminal UI. Leaving it does not end the tour. Returns the result
/// and the output of the inner process.
async fn watch_in_tui(
    tour: &TourArgs,
    dir: &Path,
    context: &CliContext,
    output: &CliOutput,
) -> Result<(Result<ExitKind, CliError>, String), CliError> {
    let failed =
        |e: std::io::Error| CliError::new(ExitKind::Failed, "could not start the tour").with_reason(e);
    let mut signals = TourSignals::listen()?;
    // The open file stays readable after the inner process has removed its directory.
    let path = dir.join("told");
    let mut file = fs::File::options().read(true).write(true).create_new(true).open(path).map_err(failed)?;
    let quiet = TourArgs { watch: false, keep: tour.keep, step: false, inside: None };
    let mut command = inner_command(&quiet, dir, output)?;
    command.stdout(file.try_clone().map_err(failed)?).stderr(file.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let mut inside = context.clone();
    inside.env.user_env.env.insert("MINKE_HOME".into(), dir.join("home").into());
    let watched = match wait_for_first_pod(&inside, &mut child).await {
        Ok(Some(session)) => crate::tui_backend::watch_session(session, &inside, output).await.map(|_| ()),
        Ok(None) => Ok(()),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = watched {
        return Err(failure.with_reason(kill_inner(child).single_line()));
    }
    let status = signals.wait_for_exit(child).await?;
    let mut output_text = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut output_text)).map_err(failed)?;
    Ok((exit_from_status(status), output_text))
}

/// Waits for the root pod and returns its session; `None` if the tour ended before.
async fn wait_for_first_pod(inside: &CliContext, child: &mut Child) -> Result<Option<SessionId>, CliError> {
    let runtime = RuntimeDir::new(&inside.find_paths()?);
    loop {
        // The inner process creates the directories.
        let live = runtime.take_snapshot().map(|look| look.live).unwrap_or_default();
        if let Some(first) = live.iter().find(|live| live.row.parent.is_none()) {
            return Ok(Some(first.row.session));
        }
        let ended = child.try_wait();
        if ended
            .map_err(|e| CliError::new(ExitKind::Failed, "could not wait for the tour").with_reason(e))?
            .is_some()
        {
            return Ok(None);
        }
        tokio::time::sleep(EXIT_POLL_INTERVAL).await;
    }
}

/// Runs the inner process to its end.
async fn run_inner(tour: &TourArgs, dir: &Path, output: &CliOutput) -> Result<ExitKind, CliError> {
    // Installed before there is anything to clean up.
    let mut signals = TourSignals::listen()?;
    // The inner process ends when its stdin closes, so it cannot outlive this process.
    let child = inner_command(tour, dir, output)?.spawn();
    let child =
        child.map_err(|e| CliError::new(ExitKind::Failed, "could not start the tour").with_reason(e))?;
    exit_from_status(signals.wait_for_exit(child).await?)
}

/// Signals that end the tour.
struct TourSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl TourSignals {
    fn listen() -> Result<TourSignals, CliError> {
        let hear = |kind| {
            signal(kind)
                .map_err(|e| CliError::new(ExitKind::Failed, "could not listen for signals").with_reason(e))
        };
        Ok(TourSignals {
            interrupt: hear(SignalKind::interrupt())?,
            terminate: hear(SignalKind::terminate())?,
        })
    }

    async fn wait_for_exit(&mut self, mut child: Child) -> Result<ExitStatus, CliError> {
        loop {
            let ended = child.try_wait();
            if let Some(status) = ended
                .map_err(|e| CliError::new(ExitKind::Failed, "could not wait for the tour").with_reason(e))?
            {
                return Ok(status);
            }
            tokio::select! {
                () = tokio::time::sleep(EXIT_POLL_INTERVAL) => {}
                _ = self.interrupt.recv() => return Err(kill_inner(child)),
                _ = self.terminate.recv() => return Err(kill_inner(child)),
            }
        }
    }
}

fn exit_from_status(status: ExitStatus) -> Result<ExitKind, CliError> {
    match status.code() {
        Some(0) => Ok(ExitKind::Success),
        // It has printed the reason.
        Some(code) if code == i32::from(ExitKind::Signal.code()) => {
            Err(CliError::already_reported(ExitKind::Signal))
        }
        Some(_) => Err(CliError::already_reported(ExitKind::Failed)),
        None => Err(CliError::new(ExitKind::Failed, format!("the tour ended unexpectedly: {status}"))),
    }
}

fn kill_inner(mut child: Child) -> CliError {
    match child.kill().and_then(|()| child.wait()) {
        Ok(_) => CliError::new(ExitKind::Signal, "the tour was interrupted"),
        Err(e) => {
            CliError::new(ExitKind::Signal, "the tour was interrupted, but its process could not be killed")
                .with_reason(e)
        }
    }
}

fn inner_command(tour: &TourArgs, dir: &Path, output: &CliOutput) -> Result<Command, CliError> {
    let binary = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe().map_err(|e| {
            CliError::new(ExitKind::Failed, "could not find the path of this program").with_reason(e)
        })?
    };
    let mut command = Command::new(binary);
    command.arg("tour").arg("--inside").arg(dir);
    let flags = [
        ("--watch", tour.watch),
        ("--step", tour.step),
        ("--keep", tour.keep),
        ("--json", output.json),
        ("--quiet", output.quiet),
    ];
    command.args(flags.iter().filter(|(_, on)| *on).map(|(flag, _)| flag));
    command.env_clear();
    for name in PASSED_VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("MINKE_HOME", dir.join("home")).env("HOME", dir);
    command.stdin(if tour.step { Stdio::inherit() } else { Stdio::piped() });
    Ok(command)
}

/// Kills every live pod of the tour and removes the directory.
pub(super) fn clean_up(dir: &Path, context: &CliContext, keep: bool) -> Result<(), CliError> {
    let mut user = context.env.user_env.clone();
    user.env.insert("MINKE_HOME".into(), dir.join("home").into());
    let paths = UserPaths::from_env(&user)?;
    if paths.runtime.is_dir() {
        kill_pods(&paths)?;
    }
    if keep {
        return Ok(());
    }
    let removed = match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    removed.map_err(|e| {
        CliError::new(ExitKind::Storage, format!("could not remove {}", dir.display()))
            .with_reason(e)
            .with_hint("remove it by hand")
    })
}

fn kill_pods(paths: &UserPaths) -> Result<(), CliError> {
    let runtime = RuntimeDir::new(paths);
    let until = Instant::now() + GONE_TIMEOUT;
    loop {
        let look = runtime.take_snapshot()?;
        if look.live.is_empty() {
            return Ok(());
        }
        for live in &look.live {
            // A pod that has just exited is fine; the next pass sees it.
            drop(kernel::send_sigkill(live.row.pid));
        }
        if Instant::now() >= until {
            let names: Vec<String> = look.live.iter().map(|live| live.row.name.to_string()).collect();
            return Err(CliError::new(
                ExitKind::Failed,
                format!("these pods do not exit: {}", names.join(", ")),
            ));
        }
        std::thread::sleep(GONE_POLL_INTERVAL);
    }
}
