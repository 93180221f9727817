//! `minke stop`: ends a pod's process. The run ends as cancelled, the session stays.

use std::time::{Duration, Instant};

use clap::Args;
use minke_client::{Connection, ConnectionError, Home, find};
use minke_protocol::{Method, Nothing, Refusal, Shutdown, ShutdownMode, Subscribe};
use minke_record::{PodName, SessionId};
use minke_registry::{Live, Runtime};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::family::{Family, Folds, Reach};
use crate::screen::Screen;

/// How long a pod may take to stop: its own deadline, and a little.
const STOP_WAIT: Duration = Duration::from_secs(12);
/// How often it is looked at meanwhile.
const STOP_RETRY: Duration = Duration::from_millis(5);
/// How often everybody below a pod is looked for before giving up.
const TREE_ROUNDS: usize = 8;

#[derive(Debug, Args)]
pub(crate) struct Stop {
    /// A live pod's name, or its session's id
    name: String,
    /// When its run has ended
    #[arg(long, conflicts_with = "kill")]
    after_run: bool,
    /// Everybody below it too, leaves first
    #[arg(long, conflicts_with = "after_run")]
    tree: bool,
    /// At once, without asking the pod: for one that hangs. Nothing written is lost
    #[arg(long)]
    kill: bool,
}

pub(crate) async fn run(stop: Stop, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let found = find(&home, &stop.name)?;
    if stop.tree {
        return stop_tree(&home, found.session, stop.kill, screen).await;
    }
    let Some(live) = found.live else {
        return say(screen, &stop.name, "no pod lives there");
    };
    end(&home, &live, stop.after_run, stop.kill).await?;
    say(screen, &stop.name, if stop.after_run { "stops when its run has ended" } else { "stopped" })
}

/// Ends the pod of a session, if one lives there.
pub(crate) async fn stop(home: &Home, session: SessionId) -> Result<(), Failure> {
    match Runtime::new(&home.paths).live_on(session)? {
        Some(live) => end(home, &live, false, false).await,
        None => Ok(()),
    }
}

/// Ends one pod, and waits until it is gone.
async fn end(home: &Home, live: &Live, after_run: bool, at_once: bool) -> Result<(), Failure> {
    if at_once {
        kill(live)?;
    } else {
        let mode = if after_run { ShutdownMode::AfterRun } else { ShutdownMode::Now };
        match shut_down(live, mode).await {
            Ok(Ok(Nothing {})) => {}
            Ok(Err(refusal)) => return Err(refusal.into()),
            // It may be gone before it could be asked, or before its reply is: what counts is the lease, below.
            Err(e) if e.is_nobody() => {}
            Err(e) => return Err(e.into()),
        }
        if after_run {
            return Ok(());
        }
    }
    wait_gone(home, live.row.session, &live.row.name).await
}

/// Ends a pod and everybody below it. A parent that hears of a child's end may begin something new, so it is looked
/// again until nobody is left.
async fn stop_tree(home: &Home, root: SessionId, at_once: bool, screen: &Screen) -> Result<Exit, Failure> {
    let mut folds = Folds::default();
    let mut stopped: Vec<String> = Vec::new();
    for _ in 0..TREE_ROUNDS {
        // Through those that live no more, too: somebody may live below them.
        let family = Family::look(home, Reach::Remembered, &mut folds)?;
        let look = Runtime::new(&home.paths).look()?;
        let below = family.below(root);
        let living: Vec<&Live> =
            below.iter().rev().filter_map(|member| look.by_session(member.session)).collect();
        if living.is_empty() {
            return say_tree(screen, &stopped);
        }
        for live in living {
            end(home, live, false, at_once).await?;
            stopped.push(live.row.name.to_string());
            if !screen.json {
                screen.note(&format!("{}: stopped", live.row.name));
            }
        }
    }
    Err(Failure::new(Exit::TryLater, format!("after {TREE_ROUNDS} rounds somebody below still lives"))
        .hint("`minke ps --tree` shows who; `minke stop --tree --kill` gives them no time to start others"))
}

fn say_tree(screen: &Screen, stopped: &[String]) -> Result<Exit, Failure> {
    if screen.json {
        screen.object(&json!({ "stopped": stopped }))?;
    } else if stopped.is_empty() {
        screen.note("no pod lives there");
    }
    Ok(Exit::Done)
}

async fn shut_down(live: &Live, mode: ShutdownMode) -> Result<Result<Nothing, Refusal>, ConnectionError> {
    let mut connection = Connection::open(&live.row.socket, Subscribe::None, None, introduction()).await?;
    connection.ask(Method::Shutdown(Shutdown { mode }), STOP_WAIT).await
}

/// The process that holds the lease. A pid that was used again cannot be meant: whoever holds the lease lives.
fn kill(live: &Live) -> Result<(), Failure> {
    let failed =
        |why: String| Failure::new(Exit::Failed, format!("cannot kill process {}", live.row.pid)).why(why);
    let pid = i32::try_from(live.row.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| failed("it is no pid".into()))?;
    match kill_process(pid, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(failed(e.to_string())),
    }
}

async fn wait_gone(home: &Home, session: SessionId, name: &PodName) -> Result<(), Failure> {
    let until = Instant::now() + STOP_WAIT;
    // The session lease goes last.
    while Runtime::new(&home.paths).lives(name, session)? || home.store.holder(session)?.is_some() {
        if Instant::now() >= until {
            return Err(Failure::new(
                Exit::TryLater,
                format!("`{name}` has not stopped after {} s", STOP_WAIT.as_secs()),
            )
            .hint(format!("`minke stop {name} --kill` ends it at once; nothing written is lost")));
        }
        tokio::time::sleep(STOP_RETRY).await;
    }
    Ok(())
}

fn say(screen: &Screen, pod: &str, word: &str) -> Result<Exit, Failure> {
    if screen.json {
        screen.object(&json!({ "pod": pod, "result": word }))?;
    } else {
        screen.note(&format!("{pod}: {word}"));
    }
    Ok(Exit::Done)
}
