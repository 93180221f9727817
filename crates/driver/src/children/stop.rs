//! Stopping a child: a shutdown request, then SIGTERM, then SIGKILL; then waits until all of its processes
//! are gone.
//!
//! Elsewhere: detecting the exit and ending the loan (`watch`), which also happens if another process stopped
//! the child.
//! Invariant: StopPod answers only after process, sandboxes and loan are gone
//! (`a_parent_cannot_write_where_a_loan_is_out`).

use std::sync::Arc;
use std::time::Duration;

use minke_pod::CallEnd;
use minke_protocol::{Method, Nothing, Shutdown, ShutdownMode};
use minke_record::{CallId, SessionId};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::watch;
use tokio::time::timeout;

use super::child_log::ChildExit;
use super::messages::{self, DeliveryError, describe_spending};
use super::process::WatchedChild;
use super::{ChildContext, ChildRef};
use crate::event_loop::commit::error_chain;
use crate::stderr::report;

/// For the child's own orderly exit.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Between SIGTERM and SIGKILL.
const TERM_TIMEOUT: Duration = Duration::from_secs(2);
/// After SIGKILL: its sandboxes die with it.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn stop_child(
    context: Arc<ChildContext>,
    call_id: CallId,
    (child, name): ChildRef,
    after_run: bool,
) {
    let watched = context.watched_children().get(&child).cloned();
    let Some(kin) = watched else {
        let message = format!("`{name}` is not running; its loan has ended");
        return context.finish_call(call_id, CallEnd::done(message, None)).await;
    };
    let asked = request_shutdown(&context, child, after_run).await;
    if after_run {
        let ended = match asked {
            Ok(()) => CallEnd::done(format!("`{name}` stops after its run"), None),
            Err(DeliveryError::NotRunning) => CallEnd::done(format!("`{name}` is stopping already"), None),
            Err(DeliveryError::Refused(refusal)) => {
                CallEnd::Failed { message: format!("`{name}` refused to stop: {}", refusal.message) }
            }
            Err(DeliveryError::Failed(why)) => {
                CallEnd::Failed { message: format!("`{name}` did not answer: {why}") }
            }
        };
        return context.finish_call(call_id, ended).await;
    }
    let ended = match force_exit(&context, &kin).await {
        Some(exit) => CallEnd::done(
            format!(
                "`{name}` has ended ({}{}); {}; its loan has ended",
                exit.outcome,
                exit.exit_status.map(|code| format!(", exit {code}")).unwrap_or_default(),
                describe_spending(&exit.total_spent(), None)
            ),
            None,
        ),
        None => CallEnd::Failed {
            message: format!(
                "`{name}` or a process in its sandbox did not exit after SIGKILL; its loan remains"
            ),
        },
    };
    context.finish_call(call_id, ended).await;
}

async fn request_shutdown(
    hand: &Arc<ChildContext>,
    child: SessionId,
    after_run: bool,
) -> Result<(), DeliveryError> {
    let mode = if after_run { ShutdownMode::AfterRun } else { ShutdownMode::Now };
    let mut connection = messages::connect_child(hand, child).await?;
    messages::send_request::<Nothing>(&mut connection, Method::Shutdown(Shutdown { mode })).await.map(|_| ())
}

/// Waits for the exit, with increasing force.
async fn force_exit(context: &Arc<ChildContext>, watched: &Arc<WatchedChild>) -> Option<ChildExit> {
    let mut exit = watched.exit.subscribe();
    let steps =
        [(SHUTDOWN_TIMEOUT, Some(Signal::TERM)), (TERM_TIMEOUT, Some(Signal::KILL)), (KILL_TIMEOUT, None)];
    for (patience, then) in steps {
        if let Some(gone) = wait_exit(&mut exit, patience).await {
            return Some(gone);
        }
        if let Some(signal) = then
            && let Err(why) = signal_child(context, watched, signal).await
        {
            report!("warning: could not signal the pod `{}`: {why}", watched.name);
        }
    }
    None
}

async fn wait_exit(exit: &mut watch::Receiver<Option<ChildExit>>, patience: Duration) -> Option<ChildExit> {
    let found = timeout(patience, exit.wait_for(Option::is_some)).await.ok()?.ok()?;
    found.clone()
}

/// Signals the child's process group. The pid of a child that another process started comes from its table
/// row: while the row's lease is held, the pid belongs to the child.
async fn signal_child(
    context: &Arc<ChildContext>,
    watched: &Arc<WatchedChild>,
    signal: Signal,
) -> Result<(), String> {
    if let Some(process) = &watched.process {
        return process.send_signal(signal).map(|_| ()).map_err(|e| e.to_string());
    }
    let session = watched.session;
    context
        .run_blocking(move |hand| {
            let live = hand.runtime.live_pod_of_session(session).map_err(|e| error_chain(&e))?;
            let Some(live) = live else { return Ok(()) };
            let raw = i32::try_from(live.row.pid).map_err(|e| e.to_string())?;
            let Some(pid) =
                Pid::from_raw(raw).filter(|_| process_start_time(live.row.pid) == Some(live.row.start_time))
            else {
                return Err(format!("process {raw} is not the child"));
            };
            match kill_process_group(pid, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
                Err(e) => Err(e.to_string()),
            }
        })
        .await
}

/// The start time of a process in clock ticks since boot; 0 if the system does not provide it, as in a table
/// row.
fn process_start_time(pid: u32) -> Option<u64> {
    if !std::path::Path::new("/proc/self/stat").exists() {
        return Some(0);
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22, counted after the name in parentheses, which may contain spaces and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
