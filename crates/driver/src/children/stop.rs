//! Ending a child: asked, then told, then made to; and waited for until everything of it is gone.
//!
//! Elsewhere: noticing the end and giving the loan back (`watch`), which it does whoever ended the child.
//! Invariant: StopPod answers when process, fences and loan are gone, not before
//! (`a_parent_cannot_write_where_a_loan_is_out`).

use std::sync::Arc;
use std::time::Duration;

use minke_pod::CallEnd;
use minke_protocol::{Method, Nothing, Shutdown, ShutdownMode};
use minke_record::{CallId, SessionId};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::watch;
use tokio::time::timeout;

use super::kin::Kin;
use super::reading::Gone;
use super::talk::{self, Untold, spending};
use super::{Hand, Whom};
use crate::carrying::chain;
use crate::stderr::report;

/// For the child's own orderly end.
const ORDERLY_WAIT: Duration = Duration::from_secs(5);
/// Between TERM and KILL.
const TERM_WAIT: Duration = Duration::from_secs(2);
/// After KILL: its fences die with it.
const KILL_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn stop(hand: Arc<Hand>, call_id: CallId, (child, name): Whom, after_run: bool) {
    let kin = hand.kin().get(&child).cloned();
    let Some(kin) = kin else {
        let message = format!("`{name}` does not live: nothing was there to stop, and its loan is back");
        return hand.told(call_id, CallEnd::done(message, None)).await;
    };
    let asked = shut_down(&hand, child, after_run).await;
    if after_run {
        let ended = match asked {
            Ok(()) => CallEnd::done(format!("`{name}` stops after its run"), None),
            Err(Untold::Nobody) => CallEnd::done(format!("`{name}` is at its end already"), None),
            Err(Untold::Refused(refusal)) => {
                CallEnd::Failed { message: format!("`{name}` does not stop: {}", refusal.message) }
            }
            Err(Untold::Failed(why)) => {
                CallEnd::Failed { message: format!("`{name}` has not answered: {why}") }
            }
        };
        return hand.told(call_id, ended).await;
    }
    let ended = match make_end(&hand, &kin).await {
        Some(gone) => CallEnd::done(
            format!(
                "`{name}` has ended ({}{}); {}; its loan is back",
                gone.outcome,
                gone.exit.map(|code| format!(", exit {code}")).unwrap_or_default(),
                spending(&gone.spent(), None)
            ),
            None,
        ),
        None => CallEnd::Failed {
            message: format!(
                "`{name}` or something in its fence does not end, not even by KILL; its loan stays out"
            ),
        },
    };
    hand.told(call_id, ended).await;
}

async fn shut_down(hand: &Arc<Hand>, child: SessionId, after_run: bool) -> Result<(), Untold> {
    let mode = if after_run { ShutdownMode::AfterRun } else { ShutdownMode::Now };
    let mut connection = talk::connect(hand, child).await?;
    talk::ask::<Nothing>(&mut connection, Method::Shutdown(Shutdown { mode })).await.map(|_| ())
}

/// Waits for the end, each time less kindly.
async fn make_end(hand: &Arc<Hand>, kin: &Arc<Kin>) -> Option<Gone> {
    let mut gone = kin.gone.subscribe();
    let steps = [(ORDERLY_WAIT, Some(Signal::TERM)), (TERM_WAIT, Some(Signal::KILL)), (KILL_WAIT, None)];
    for (patience, then) in steps {
        if let Some(gone) = ended(&mut gone, patience).await {
            return Some(gone);
        }
        if let Some(signal) = then
            && let Err(why) = send_signal(hand, kin, signal).await
        {
            report!("warning: the pod `{}` could not be signalled: {why}", kin.name);
        }
    }
    None
}

async fn ended(gone: &mut watch::Receiver<Option<Gone>>, patience: Duration) -> Option<Gone> {
    let found = timeout(patience, gone.wait_for(Option::is_some)).await.ok()?.ok()?;
    found.clone()
}

/// Signals the child's process group. One that another life started is known by its row: as long as it holds its lease,
/// the process in it is that one.
async fn send_signal(hand: &Arc<Hand>, kin: &Arc<Kin>, signal: Signal) -> Result<(), String> {
    if let Some(process) = &kin.process {
        return process.signal(signal).map(|_| ()).map_err(|e| e.to_string());
    }
    let session = kin.session;
    hand.off_loop(move |hand| {
        let live = hand.runtime.live_on(session).map_err(|e| chain(&e))?;
        let Some(live) = live else { return Ok(()) };
        let raw = i32::try_from(live.row.pid).map_err(|e| e.to_string())?;
        let Some(pid) = Pid::from_raw(raw).filter(|_| began_at(live.row.pid) == Some(live.row.start_time))
        else {
            return Err(format!("process {raw} is not the one that was started"));
        };
        match kill_process_group(pid, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    })
    .await
}

/// When a process began, in clock ticks since boot; 0 where the system does not say, as in a row.
fn began_at(pid: u32) -> Option<u64> {
    if !std::path::Path::new("/proc/self/stat").exists() {
        return Some(0);
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22, counted after the name in parentheses, which may itself hold spaces and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}
