//! `minke stop`: stops a pod's process. Its run is cancelled, its session remains.

use std::time::{Duration, Instant};

use clap::Args;
use minke_client::{Connection, ConnectionError, UserHome, find_session};
use minke_protocol::{Method, Nothing, Refusal, Shutdown, ShutdownMode, Subscribe};
use minke_record::{PodName, SessionId};
use minke_registry::{LivePod, RuntimeDir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::pod_tree::{PodTreeView, StateCache, TreeExtent};

/// How long a pod may take to stop: its own deadline plus a margin.
const STOP_TIMEOUT: Duration = Duration::from_secs(12);
/// How often the pod is polled while it stops.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Maximum number of passes over the tree.
const MAX_TREE_ROUNDS: usize = 8;

/// Stop the process of a pod; its session remains
#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// A live pod's name, or its session's id
    name: String,
    /// Stop after the current run has ended
    #[arg(long, conflicts_with = "kill")]
    after_run: bool,
    /// Also stop all descendants, leaves first
    #[arg(long, conflicts_with = "after_run")]
    tree: bool,
    /// Kill a pod that hangs; no written entry is lost
    #[arg(long)]
    kill: bool,
}

pub(crate) async fn run(
    stop: StopArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let found = find_session(&home, &stop.name)?;
    if stop.tree {
        return stop_tree(&home, found.session, stop.kill, output).await;
    }
    let Some(live) = found.live else {
        return print_result(output, &stop.name, "no live pod");
    };
    stop_pod(&home, &live, stop.after_run, stop.kill).await?;
    print_result(output, &stop.name, if stop.after_run { "stops after its run" } else { "stopped" })
}

/// Stops the pod of a session, if one is live.
pub(crate) async fn stop_session(home: &UserHome, session: SessionId) -> Result<(), CliError> {
    match RuntimeDir::new(&home.paths).live_pod_of_session(session)? {
        Some(live) => stop_pod(home, &live, false, false).await,
        None => Ok(()),
    }
}

/// Stops one pod and waits until its lease is released.
async fn stop_pod(home: &UserHome, live: &LivePod, after_run: bool, at_once: bool) -> Result<(), CliError> {
    if at_once {
        kill_pod(live)?;
    } else {
        let mode = if after_run { ShutdownMode::AfterRun } else { ShutdownMode::Now };
        match request_shutdown(live, mode).await {
            Ok(Ok(Nothing {})) => {}
            Ok(Err(refusal)) => return Err(refusal.into()),
            // The pod may exit before it receives or answers the request; the lease, below, decides.
            Err(e) if e.is_not_running() => {}
            Err(e) => return Err(e.into()),
        }
        if after_run {
            return Ok(());
        }
    }
    wait_until_gone(home, live.row.session, &live.row.name).await
}

/// Stops a pod and its descendants. A parent that sees its child end may start another one, so this repeats
/// until no pod is left.
async fn stop_tree(
    home: &UserHome,
    root: SessionId,
    at_once: bool,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let mut cache = StateCache::default();
    let mut stopped: Vec<String> = Vec::new();
    for _ in 0..MAX_TREE_ROUNDS {
        // Ended pods are included, because they may have live descendants.
        let tree = PodTreeView::load(home, TreeExtent::WithEndedPods, &mut cache)?;
        let look = RuntimeDir::new(&home.paths).take_snapshot()?;
        let below = tree.subtree(root);
        let living: Vec<&LivePod> =
            below.iter().rev().filter_map(|node| look.find_by_session(node.session)).collect();
        if living.is_empty() {
            return report_tree(output, &stopped);
        }
        for live in living {
            stop_pod(home, live, false, at_once).await?;
            stopped.push(live.row.name.to_string());
            if !output.json {
                output.print_note(&format!("{}: stopped", live.row.name));
            }
        }
    }
    Err(CliError::new(
        ExitKind::TryLater,
        format!("some descendants are still live after {MAX_TREE_ROUNDS} rounds"),
    )
    .with_hint("`minke ps --tree` lists them; `minke stop --tree --kill` stops them at once"))
}

fn report_tree(output: &CliOutput, stopped: &[String]) -> Result<ExitKind, CliError> {
    if output.json {
        output.print_json(&json!({ "stopped": stopped }))?;
    } else if stopped.is_empty() {
        output.print_note("no live pod");
    }
    Ok(ExitKind::Success)
}

async fn request_shutdown(
    live: &LivePod,
    mode: ShutdownMode,
) -> Result<Result<Nothing, Refusal>, ConnectionError> {
    let mut connection = Connection::open(&live.row.socket, Subscribe::None, None, client_info()).await?;
    connection.send_and_wait(Method::Shutdown(Shutdown { mode }), STOP_TIMEOUT).await
}

/// Kills the process with the lease. The pid cannot belong to another process, because the lease holder is
/// alive.
fn kill_pod(live: &LivePod) -> Result<(), CliError> {
    let failed = |why: String| {
        CliError::new(ExitKind::Failed, format!("could not kill process {}", live.row.pid)).with_reason(why)
    };
    let pid = i32::try_from(live.row.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| failed("it is not a pid".into()))?;
    match kill_process(pid, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(e) => Err(failed(e.to_string())),
    }
}

async fn wait_until_gone(home: &UserHome, session: SessionId, name: &PodName) -> Result<(), CliError> {
    let until = Instant::now() + STOP_TIMEOUT;
    // The session lease is released last.
    while RuntimeDir::new(&home.paths).is_live(name, session)? || home.store.lease_holder(session)?.is_some()
    {
        if Instant::now() >= until {
            return Err(CliError::new(
                ExitKind::TryLater,
                format!("`{name}` has not stopped after {} s", STOP_TIMEOUT.as_secs()),
            )
            .with_hint(format!("`minke stop {name} --kill` kills it; no written entry is lost")));
        }
        tokio::time::sleep(STOP_POLL_INTERVAL).await;
    }
    Ok(())
}

fn print_result(output: &CliOutput, pod: &str, word: &str) -> Result<ExitKind, CliError> {
    if output.json {
        output.print_json(&json!({ "pod": pod, "result": word }))?;
    } else {
        output.print_note(&format!("{pod}: {word}"));
    }
    Ok(ExitKind::Success)
}
