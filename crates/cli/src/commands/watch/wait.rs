//! `minke wait`: waits until pods finish or need an answer.
//!
//! Events of the past count, and a pod that has exited is finished. An ask ends every wait, because it needs
//! an answer.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use minke_client::{Connection, ConnectionError, UserHome, find_session};
use minke_protocol::{Method, Status, StatusReply, Subscribe, Until, Wait as WaitFor, WaitReply};
use minke_record::SessionId;
use minke_registry::{RuntimeDir, UserPaths};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::context::{CliContext, client_info};
use crate::error::{CliError, ExitKind};
use crate::output::CliOutput;
use crate::render::pod_tree::{StateCache, sleeping_node};

/// Maximum wait, the same as in a pod.
const MAX_WAIT_SECONDS: u64 = 86_400;
/// Extra time for the reply of a pod after its own timeout.
const GRACE_PERIOD: Duration = Duration::from_secs(30);
/// Delay before the next request to a pod that starts or stops.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Wait until pods finish or need an answer
#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// Names of live pods, or ids of sessions
    #[arg(required = true)]
    names: Vec<String>,
    /// Wait until one of them has finished (default: all)
    #[arg(long, conflicts_with_all = ["all", "ask"])]
    any: bool,
    /// Wait until all of them have finished
    #[arg(long, conflicts_with = "ask")]
    all: bool,
    /// Wait until one of them needs an answer
    #[arg(long)]
    ask: bool,
    /// Wait at most N seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=MAX_WAIT_SECONDS))]
    timeout: u64,
}

/// Why the wait for one pod ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitOutcome {
    /// No run is active and none is queued.
    Idle,
    /// A run is paused until a client resumes it.
    Paused,
    Asking,
    /// No pod is live any more.
    Gone,
    /// The timeout expired.
    TimedOut,
}

/// A pod to wait for.
#[derive(Debug, Clone)]
struct WaitTarget {
    name: String,
    session: SessionId,
}

pub(crate) async fn run(
    wait: WaitArgs,
    context: &CliContext,
    output: &CliOutput,
) -> Result<ExitKind, CliError> {
    let home = context.open_home()?;
    let timeout = Duration::from_secs(wait.timeout);
    let mut waiting = JoinSet::new();
    let mut names = Vec::new();
    for name in &wait.names {
        let found = find_session(&home, name)?;
        let target = WaitTarget { name: name.clone(), session: found.session };
        names.push(target.clone());
        waiting.spawn(wait_for_pod(home.paths.clone(), target, wait.ask, timeout));
    }
    let mut seen: Vec<(WaitTarget, WaitOutcome)> = Vec::new();
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let joined = tokio::select! {
            joined = waiting.join_next() => joined,
            _ = &mut interrupted => return Err(CliError::already_reported(ExitKind::Signal)),
        };
        let Some(joined) = joined else { break };
        let (target, outcome) =
            joined.map_err(|e| CliError::new(ExitKind::Failed, "a wait was aborted").with_reason(e))??;
        let enough = outcome == WaitOutcome::Asking || (wait.any && outcome != WaitOutcome::TimedOut);
        seen.push((target, outcome));
        if enough {
            break;
        }
    }
    waiting.abort_all();
    print_states(&home, output, &names, &seen)?;
    exit_for(&wait, &seen)
}

/// Returns the exit code of the whole wait.
fn exit_for(wait: &WaitArgs, seen: &[(WaitTarget, WaitOutcome)]) -> Result<ExitKind, CliError> {
    if let Some((target, _)) = seen.iter().find(|(_, outcome)| *outcome == WaitOutcome::Asking) {
        if wait.ask {
            return Ok(ExitKind::Success);
        }
        return Err(CliError::new(ExitKind::Refused, format!("`{}` needs an answer", target.name))
            .with_code("ask")
            .with_hint("`minke asks` shows it, `minke answer` answers it"));
    }
    let late = seen.iter().find(|(_, outcome)| *outcome == WaitOutcome::TimedOut);
    let satisfied =
        if wait.any { seen.iter().any(|(_, what)| *what != WaitOutcome::TimedOut) } else { late.is_none() };
    match late {
        _ if satisfied && !wait.ask => Ok(ExitKind::Success),
        Some((target, _)) => Err(CliError::new(
            ExitKind::TryLater,
            format!("`{}` has not finished after {} s", target.name, wait.timeout),
        )
        .with_code("timeout")
        .with_hint(format!("`minke tail {}` shows its progress; --timeout sets a longer wait", target.name))),
        None => {
            Err(CliError::new(ExitKind::Failed, "no pod is left that could ask").with_code("not_running"))
        }
    }
}

fn print_states(
    home: &UserHome,
    output: &CliOutput,
    names: &[WaitTarget],
    seen: &[(WaitTarget, WaitOutcome)],
) -> Result<(), CliError> {
    let rows: Vec<Value> = names
        .iter()
        .map(|target| {
            let outcome =
                seen.iter().find(|(other, _)| other.session == target.session).map(|(_, what)| *what);
            let state = match outcome {
                Some(WaitOutcome::Idle) => "idle".to_owned(),
                Some(WaitOutcome::Paused) => "paused".to_owned(),
                Some(WaitOutcome::Asking) => "asks".to_owned(),
                Some(WaitOutcome::Gone) => {
                    sleeping_node(home, target.session, None, &mut StateCache::default()).state
                }
                Some(WaitOutcome::TimedOut) | None => "running".to_owned(),
            };
            json!({ "name": target.name, "session": format!("s_{}", target.session), "state": state })
        })
        .collect();
    if output.json {
        return output.print_json(&Value::from(rows));
    }
    for row in &rows {
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        output.print_line(&format!("{}: {}", word("name"), word("state")))?;
    }
    Ok(())
}

/// Waits for one pod. The table may list it before its socket accepts connections, and a sleeping pod may be
/// woken meanwhile, so this retries while a pod is live.
async fn wait_for_pod(
    paths: UserPaths,
    target: WaitTarget,
    ask_only: bool,
    timeout: Duration,
) -> Result<(WaitTarget, WaitOutcome), CliError> {
    let until = tokio::time::Instant::now() + timeout;
    loop {
        let live = RuntimeDir::new(&paths).live_pod_of_session(target.session)?;
        let Some(live) = live else { return Ok((target, WaitOutcome::Gone)) };
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        match wait_once(&live.row.socket, ask_only, left).await {
            Ok(seen) => return Ok((target, seen)),
            Err(e) if e.is_not_running() && left.is_zero() => return Ok((target, WaitOutcome::TimedOut)),
            Err(e) if e.is_not_running() => tokio::time::sleep(RETRY_DELAY).await,
            Err(e) => return Err(e.into()),
        }
    }
}

async fn wait_once(socket: &Path, ask_only: bool, timeout: Duration) -> Result<WaitOutcome, ConnectionError> {
    let asks = send_wait(socket, Until::Ask, timeout);
    if ask_only {
        return asks.await;
    }
    tokio::select! {
        // A run that waits for an answer is not finished. Both waits run, and the ask has priority.
        biased;
        seen = resolve_only_on_ask(asks) => seen,
        seen = wait_for_idle(socket, timeout) => seen,
    }
}

/// Resolves only for an ask, so that otherwise the other wait decides.
async fn resolve_only_on_ask(
    asks: impl Future<Output = Result<WaitOutcome, ConnectionError>>,
) -> Result<WaitOutcome, ConnectionError> {
    match asks.await {
        Ok(WaitOutcome::Asking) => Ok(WaitOutcome::Asking),
        Ok(_) => std::future::pending().await,
        Err(e) if e.is_not_running() => std::future::pending().await,
        Err(e) => Err(e),
    }
}

async fn send_wait(socket: &Path, until: Until, timeout: Duration) -> Result<WaitOutcome, ConnectionError> {
    let mut connection = Connection::open(socket, Subscribe::None, None, client_info()).await?;
    let asks = until == Until::Ask;
    let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
    let wait = Method::Wait(WaitFor { until, timeout_ms });
    match connection.send_and_wait::<WaitReply>(wait, timeout + GRACE_PERIOD).await? {
        Ok(WaitReply { holds: true, .. }) if asks => Ok(WaitOutcome::Asking),
        Ok(WaitReply { holds: true, status: Status::Paused, .. }) => Ok(WaitOutcome::Paused),
        Ok(WaitReply { holds: true, .. }) => Ok(WaitOutcome::Idle),
        Ok(WaitReply { holds: false, .. }) => Ok(WaitOutcome::TimedOut),
        // The pod stops and accepts no more requests.
        Err(_) => Ok(WaitOutcome::Gone),
    }
}

/// Waits for an idle pod. A pod is idle for a moment between two runs, so its queue is checked too.
async fn wait_for_idle(socket: &Path, timeout: Duration) -> Result<WaitOutcome, ConnectionError> {
    let until = tokio::time::Instant::now() + timeout;
    loop {
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        let seen = send_wait(socket, Until::Idle, left).await?;
        if seen != WaitOutcome::Idle {
            return Ok(seen);
        }
        let mut connection = Connection::open(socket, Subscribe::None, None, client_info()).await?;
        match connection.send_and_wait::<StatusReply>(Method::Status, GRACE_PERIOD).await? {
            Ok(status) if status.queue.length > 0 && !status.queue.held && !left.is_zero() => {
                tokio::task::yield_now().await;
            }
            _ => return Ok(WaitOutcome::Idle),
        }
    }
}
