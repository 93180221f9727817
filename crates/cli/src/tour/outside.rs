//! The first process of the tour: a directory of its own, the second process in it, and everything cleared away after.
//!
//! Invariant: whatever becomes of the second process, no pod and, without `--keep`, no file is left
//! (`a_tour_that_is_left_in_the_middle_leaves_nothing`).

use std::fs::{self, DirBuilder};
use std::io::{Read, Seek};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use minke_record::SessionId;
use minke_registry::{Paths, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Tour, kernel};
use crate::around::{Surroundings, ids};
use crate::failure::{Exit, Failure};
use crate::screen::Screen;

/// What the second process may know of the person's environment: where programs are, and how the screen is.
const PASSED: [&str; 4] = ["PATH", "TERM", "NO_COLOR", "TMPDIR"];
/// How long pods that were killed may take to be gone.
const GONE_WAIT: Duration = Duration::from_secs(10);
/// How often it is looked whether the second process has ended.
const END_RETRY: Duration = Duration::from_millis(2);
const GONE_RETRY: Duration = Duration::from_millis(5);

pub(super) async fn run(tour: &Tour, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let dir = make_dir()?;
    let ended = if tour.watch && !tour.step && crate::face::is_possible(around, screen) {
        look_on(tour, &dir, around, screen).await.and_then(|(exit, told)| {
            told.lines().try_for_each(|line| screen.line(line))?;
            exit
        })
    } else {
        take(tour, &dir, screen).await
    };
    let cleared = clear(&dir, around, tour.keep);
    let exit = ended?;
    cleared?;
    if tour.keep {
        screen.note(&format!(
            "everything is left in {}; MINKE_HOME={} minke ps --all",
            dir.display(),
            dir.join("home").display()
        ));
    }
    Ok(exit)
}

/// The tour in this terminal, from its beginning to its end; gives what it told.
pub(super) async fn shown(around: &Surroundings, screen: &Screen) -> Result<String, Failure> {
    let tour = Tour { watch: true, keep: false, step: false, inside: None };
    let dir = make_dir()?;
    let ended = Box::pin(look_on(&tour, &dir, around, screen)).await;
    let cleared = clear(&dir, around, false);
    // How it ended stands in what it told.
    let (_, told) = ended?;
    cleared?;
    Ok(told)
}

fn make_dir() -> Result<PathBuf, Failure> {
    let base = std::env::temp_dir();
    let dir = base.join(format!("minke-tour-{}", ids().next_uuid().simple()));
    let made = DirBuilder::new().mode(0o700).create(&dir).and_then(|()| dir.canonicalize());
    made.map_err(|e| {
        Failure::new(Exit::Storage, format!("cannot make {}", dir.display()))
            .why(e)
            .hint("TMPDIR names a directory for temporary files")
    })
}

/// The terminal UI on the first pod of the tour. Leaving it does not end the tour; gives how it ended, and what the second
/// process told.
async fn look_on(
    tour: &Tour,
    dir: &Path,
    around: &Surroundings,
    screen: &Screen,
) -> Result<(Result<Exit, Failure>, String), Failure> {
    let failed = |e: std::io::Error| Failure::new(Exit::Failed, "cannot start the tour").why(e);
    let mut signals = Signals::listen()?;
    // It is read through this, also if the second process has cleared its directory away.
    let path = dir.join("told");
    let mut file = fs::File::options().read(true).write(true).create_new(true).open(path).map_err(failed)?;
    let quiet = Tour { watch: false, keep: tour.keep, step: false, inside: None };
    let mut command = command(&quiet, dir, screen)?;
    command.stdout(file.try_clone().map_err(failed)?).stderr(file.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let mut inside = around.clone();
    inside.user.env.insert("MINKE_HOME".into(), dir.join("home").into());
    let watched = match first_pod(&inside, &mut child).await {
        Ok(Some(session)) => crate::face::watch(session, &inside, screen).await.map(|_| ()),
        Ok(None) => Ok(()),
        Err(failure) => Err(failure),
    };
    if let Err(failure) = watched {
        return Err(failure.why(stopped(child).sentence()));
    }
    let status = signals.until_end(child).await?;
    let mut told = String::new();
    file.rewind().and_then(|()| file.read_to_string(&mut told)).map_err(failed)?;
    Ok((ended_as(status), told))
}

/// The session of the pod that has all others below it, as soon as it lives; none if the tour ended before.
async fn first_pod(inside: &Surroundings, child: &mut Child) -> Result<Option<SessionId>, Failure> {
    let runtime = Runtime::new(&inside.paths()?);
    loop {
        // The second process makes the directories.
        let live = runtime.look().map(|look| look.live).unwrap_or_default();
        if let Some(first) = live.iter().find(|live| live.row.parent.is_none()) {
            return Ok(Some(first.row.session));
        }
        let ended = child.try_wait();
        if ended.map_err(|e| Failure::new(Exit::Failed, "cannot wait for the tour").why(e))?.is_some() {
            return Ok(None);
        }
        tokio::time::sleep(END_RETRY).await;
    }
}

/// Runs the second process to its end.
async fn take(tour: &Tour, dir: &Path, screen: &Screen) -> Result<Exit, Failure> {
    // They must be listened to before there is anything to clear away.
    let mut signals = Signals::listen()?;
    // Its stdin is a life line: the second process ends when it is cut, whatever has become of this one.
    let child = command(tour, dir, screen)?.spawn();
    let child = child.map_err(|e| Failure::new(Exit::Failed, "cannot start the tour").why(e))?;
    ended_as(signals.until_end(child).await?)
}

/// Signals of a person who does not want to see more.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> Result<Signals, Failure> {
        let hear =
            |kind| signal(kind).map_err(|e| Failure::new(Exit::Failed, "cannot listen for signals").why(e));
        Ok(Signals { interrupt: hear(SignalKind::interrupt())?, terminate: hear(SignalKind::terminate())? })
    }

    async fn until_end(&mut self, mut child: Child) -> Result<ExitStatus, Failure> {
        loop {
            let ended = child.try_wait();
            if let Some(status) =
                ended.map_err(|e| Failure::new(Exit::Failed, "cannot wait for the tour").why(e))?
            {
                return Ok(status);
            }
            tokio::select! {
                () = tokio::time::sleep(END_RETRY) => {}
                _ = self.interrupt.recv() => return Err(stopped(child)),
                _ = self.terminate.recv() => return Err(stopped(child)),
            }
        }
    }
}

fn ended_as(status: ExitStatus) -> Result<Exit, Failure> {
    match status.code() {
        Some(0) => Ok(Exit::Done),
        // It has said why.
        Some(code) if code == i32::from(Exit::Signal.code()) => Err(Failure::said(Exit::Signal)),
        Some(_) => Err(Failure::said(Exit::Failed)),
        None => Err(Failure::new(Exit::Failed, format!("the tour ended unexpectedly: {status}"))),
    }
}

fn stopped(mut child: Child) -> Failure {
    match child.kill().and_then(|()| child.wait()) {
        Ok(_) => Failure::new(Exit::Signal, "the tour was left"),
        Err(e) => Failure::new(Exit::Signal, "the tour was left, and its process cannot be ended").why(e),
    }
}

fn command(tour: &Tour, dir: &Path, screen: &Screen) -> Result<Command, Failure> {
    let binary = if cfg!(target_os = "linux") {
        PathBuf::from("/proc/self/exe")
    } else {
        std::env::current_exe()
            .map_err(|e| Failure::new(Exit::Failed, "cannot find this program's own file").why(e))?
    };
    let mut command = Command::new(binary);
    command.arg("tour").arg("--inside").arg(dir);
    let flags = [
        ("--watch", tour.watch),
        ("--step", tour.step),
        ("--keep", tour.keep),
        ("--json", screen.json),
        ("--quiet", screen.quiet),
    ];
    command.args(flags.iter().filter(|(_, on)| *on).map(|(flag, _)| flag));
    command.env_clear();
    for name in PASSED {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("MINKE_HOME", dir.join("home")).env("HOME", dir);
    command.stdin(if tour.step { Stdio::inherit() } else { Stdio::piped() });
    Ok(command)
}

/// Ends every pod of the tour that still lives, and removes the directory.
pub(super) fn clear(dir: &Path, around: &Surroundings, keep: bool) -> Result<(), Failure> {
    let mut user = around.user.clone();
    user.env.insert("MINKE_HOME".into(), dir.join("home").into());
    let paths = Paths::find(&user)?;
    if paths.runtime.is_dir() {
        end_pods(&paths)?;
    }
    if keep {
        return Ok(());
    }
    let removed = match fs::remove_dir_all(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    removed.map_err(|e| {
        Failure::new(Exit::Storage, format!("cannot remove {}", dir.display()))
            .why(e)
            .hint("remove it by hand")
    })
}

fn end_pods(paths: &Paths) -> Result<(), Failure> {
    let runtime = Runtime::new(paths);
    let until = Instant::now() + GONE_WAIT;
    loop {
        let look = runtime.look()?;
        if look.live.is_empty() {
            return Ok(());
        }
        for live in &look.live {
            // One that has just ended by itself is gone, too; the next look says so.
            drop(kernel::kill(live.row.pid));
        }
        if Instant::now() >= until {
            let names: Vec<String> = look.live.iter().map(|live| live.row.name.to_string()).collect();
            return Err(Failure::new(Exit::Failed, format!("pods do not end: {}", names.join(", "))));
        }
        std::thread::sleep(GONE_RETRY);
    }
}
