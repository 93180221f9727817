//! `minke wait`: until pods have come to the end of what they do, or ask something.
//!
//! What has already happened counts, and a pod that lives no more does nothing. A question ends the wait whatever was
//! waited for: somebody has to answer it.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use minke_client::{Connection, ConnectionError, Home, find};
use minke_protocol::{Method, Status, StatusReply, Subscribe, Until, Wait as WaitFor, WaitReply};
use minke_record::SessionId;
use minke_registry::{Paths, Runtime};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::around::{Surroundings, introduction};
use crate::failure::{Exit, Failure};
use crate::family::{Folds, sleeping};
use crate::screen::Screen;

/// The longest wait, as long as a pod itself waits.
const MAX_SECONDS: u64 = 86_400;
/// How much longer a pod may take than it was told to wait.
const GRACE: Duration = Duration::from_secs(30);
/// How soon a pod that starts or stops is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Live pods' names, or ids of sessions
    #[arg(required = true)]
    names: Vec<String>,
    /// Until one of them has come to an end (default: all of them)
    #[arg(long, conflicts_with_all = ["all", "ask"])]
    any: bool,
    /// Until all of them have
    #[arg(long, conflicts_with = "ask")]
    all: bool,
    /// Until one of them asks something
    #[arg(long)]
    ask: bool,
    /// At most so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(0..=MAX_SECONDS))]
    timeout: u64,
}

/// What ended the wait for one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// No run is open and nothing waits to become one.
    Idle,
    /// A run is paused: it goes on when somebody says so.
    Paused,
    Asks,
    /// Nobody lives there any more.
    Gone,
    /// It still does what it did.
    Late,
}

/// A pod that is waited for.
#[derive(Debug, Clone)]
struct One {
    name: String,
    session: SessionId,
}

pub(crate) async fn run(wait: Wait, around: &Surroundings, screen: &Screen) -> Result<Exit, Failure> {
    let home = around.home()?;
    let patience = Duration::from_secs(wait.timeout);
    let mut waiting = JoinSet::new();
    let mut names = Vec::new();
    for name in &wait.names {
        let found = find(&home, name)?;
        let one = One { name: name.clone(), session: found.session };
        names.push(one.clone());
        waiting.spawn(watch(home.paths.clone(), one, wait.ask, patience));
    }
    let mut seen: Vec<(One, Seen)> = Vec::new();
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let joined = tokio::select! {
            joined = waiting.join_next() => joined,
            _ = &mut interrupted => return Err(Failure::said(Exit::Signal)),
        };
        let Some(joined) = joined else { break };
        let (one, what) = joined.map_err(|e| Failure::new(Exit::Failed, "a wait was given up").why(e))??;
        let enough = what == Seen::Asks || (wait.any && what != Seen::Late);
        seen.push((one, what));
        if enough {
            break;
        }
    }
    waiting.abort_all();
    tell(&home, screen, &names, &seen)?;
    ended(&wait, &seen)
}

/// What the whole wait has come to.
fn ended(wait: &Wait, seen: &[(One, Seen)]) -> Result<Exit, Failure> {
    if let Some((one, _)) = seen.iter().find(|(_, what)| *what == Seen::Asks) {
        if wait.ask {
            return Ok(Exit::Done);
        }
        return Err(Failure::new(Exit::Refused, format!("`{}` asks something", one.name))
            .code("ask")
            .hint("`minke asks` shows it, `minke answer` answers it"));
    }
    let late = seen.iter().find(|(_, what)| *what == Seen::Late);
    let met = if wait.any { seen.iter().any(|(_, what)| *what != Seen::Late) } else { late.is_none() };
    match late {
        _ if met && !wait.ask => Ok(Exit::Done),
        Some((one, _)) => Err(Failure::new(
            Exit::TryLater,
            format!("`{}` was waited for {} s in vain", one.name, wait.timeout),
        )
        .code("timeout")
        .hint(format!("`minke tail {}` shows what it does; --timeout waits longer", one.name))),
        None => Err(Failure::new(Exit::Failed, "nobody is left who could ask").code("not_running")),
    }
}

fn tell(home: &Home, screen: &Screen, names: &[One], seen: &[(One, Seen)]) -> Result<(), Failure> {
    let rows: Vec<Value> = names
        .iter()
        .map(|one| {
            let what = seen.iter().find(|(other, _)| other.session == one.session).map(|(_, what)| *what);
            let state = match what {
                Some(Seen::Idle) => "idle".to_owned(),
                Some(Seen::Paused) => "paused".to_owned(),
                Some(Seen::Asks) => "asks".to_owned(),
                Some(Seen::Gone) => sleeping(home, one.session, None, &mut Folds::default()).state,
                Some(Seen::Late) | None => "running".to_owned(),
            };
            json!({ "name": one.name, "session": format!("s_{}", one.session), "state": state })
        })
        .collect();
    if screen.json {
        return screen.object(&Value::from(rows));
    }
    for row in &rows {
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        screen.line(&format!("{}: {}", word("name"), word("state")))?;
    }
    Ok(())
}

/// Waits for one pod. A row may stand there before the socket listens, and a pod that sleeps may be woken meanwhile: as
/// long as somebody lives there it is asked again.
async fn watch(paths: Paths, one: One, ask_only: bool, patience: Duration) -> Result<(One, Seen), Failure> {
    let until = tokio::time::Instant::now() + patience;
    loop {
        let live = Runtime::new(&paths).live_on(one.session)?;
        let Some(live) = live else { return Ok((one, Seen::Gone)) };
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        match once(&live.row.socket, ask_only, left).await {
            Ok(seen) => return Ok((one, seen)),
            Err(e) if e.is_nobody() && left.is_zero() => return Ok((one, Seen::Late)),
            Err(e) if e.is_nobody() => tokio::time::sleep(ASK_AGAIN).await,
            Err(e) => return Err(e.into()),
        }
    }
}

async fn once(socket: &Path, ask_only: bool, patience: Duration) -> Result<Seen, ConnectionError> {
    let asks = hold(socket, Until::Ask, patience);
    if ask_only {
        return asks.await;
    }
    tokio::select! {
        // A run that waits for an answer is not at its end; both are asked, and the question counts first.
        biased;
        seen = asks_first(asks) => seen,
        seen = quiet(socket, patience) => seen,
    }
}

/// A question, if one comes; otherwise never ends, so that the other wait decides.
async fn asks_first(
    asks: impl Future<Output = Result<Seen, ConnectionError>>,
) -> Result<Seen, ConnectionError> {
    match asks.await {
        Ok(Seen::Asks) => Ok(Seen::Asks),
        Ok(_) => std::future::pending().await,
        Err(e) if e.is_nobody() => std::future::pending().await,
        Err(e) => Err(e),
    }
}

async fn hold(socket: &Path, until: Until, patience: Duration) -> Result<Seen, ConnectionError> {
    let mut connection = Connection::open(socket, Subscribe::None, None, introduction()).await?;
    let asks = until == Until::Ask;
    let timeout_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
    let wait = Method::Wait(WaitFor { until, timeout_ms });
    match connection.ask::<WaitReply>(wait, patience + GRACE).await? {
        Ok(WaitReply { holds: true, .. }) if asks => Ok(Seen::Asks),
        Ok(WaitReply { holds: true, status: Status::Paused, .. }) => Ok(Seen::Paused),
        Ok(WaitReply { holds: true, .. }) => Ok(Seen::Idle),
        Ok(WaitReply { holds: false, .. }) => Ok(Seen::Late),
        // It stops and takes nothing more: its end is what is waited for.
        Err(_) => Ok(Seen::Gone),
    }
}

/// A pod is idle for a moment between two runs, so it is asked whether something waits in its queue.
async fn quiet(socket: &Path, patience: Duration) -> Result<Seen, ConnectionError> {
    let until = tokio::time::Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(tokio::time::Instant::now());
        let seen = hold(socket, Until::Idle, left).await?;
        if seen != Seen::Idle {
            return Ok(seen);
        }
        let mut connection = Connection::open(socket, Subscribe::None, None, introduction()).await?;
        match connection.ask::<StatusReply>(Method::Status, GRACE).await? {
            Ok(status) if status.queue.length > 0 && !status.queue.held && !left.is_zero() => {
                tokio::task::yield_now().await;
            }
            _ => return Ok(Seen::Idle),
        }
    }
}
