//! The first process of the tour: a directory of its own, the second process in it, and everything cleared away after.
//!
//! Invariant: whatever becomes of the second process, no pod and, without `--keep`, no file is left
//! (`a_tour_that_is_left_in_the_middle_leaves_nothing`).

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use minke_registry::{Paths, Runtime};
use tokio::signal::unix::{SignalKind, signal};

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
    let ended = take(tour, &dir, screen).await;
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

/// Runs the second process to its end.
async fn take(tour: &Tour, dir: &Path, screen: &Screen) -> Result<Exit, Failure> {
    let failed = |what: &'static str| move |e: std::io::Error| Failure::new(Exit::Failed, what).why(e);
    // It must be listened to before there is anything to clear away.
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed("cannot listen for signals"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(failed("cannot listen for signals"))?;
    // Its stdin is a life line: the second process ends when it is cut, whatever has become of this one.
    let mut child = command(tour, dir, screen)?.spawn().map_err(failed("cannot start the tour"))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed("cannot wait for the tour"))? {
            break status;
        }
        tokio::select! {
            () = tokio::time::sleep(END_RETRY) => {}
            _ = interrupt.recv() => return Err(stopped(child)),
            _ = terminate.recv() => return Err(stopped(child)),
        }
    };
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
