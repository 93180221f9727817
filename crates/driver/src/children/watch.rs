//! Watches each child until it has exited, its loan has ended, and its outcome is known.
//!
//! One thread for each child blocks in the kernel: on its process if this pod started it, then on a lock of
//! its scope lease and its sandboxes. There is no polling. Elsewhere: the process (`process`), its log
//! (`child_log`).
//! Invariant: a loan has ended only when the child's process and its sandboxes are gone
//! (`a_killed_childs_loan_is_back_and_it_is_told_once`).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use minke_pod::{ChildEvent, State};
use minke_record::{Budget, ChildOutcome, ErrorCode, OpenChild, PodName, PodSpend, SessionId};
use minke_registry::{ScopeRow, ScopeTable};

use super::ChildContext;
use super::child_log::{self, ChildExit};
use super::process::WatchedChild;
use crate::event_loop::commit::error_chain;
use crate::event_loop::event::LoopEvent;

/// How long to wait for a child of an earlier process that is starting or stopping.
const TRANSITION_TIMEOUT: Duration = Duration::from_secs(20);
/// The polling interval meanwhile.
const TRANSITION_POLL: Duration = Duration::from_millis(50);
/// The delay after a failed read of the runtime directory.
const ERROR_BACKOFF: Duration = Duration::from_secs(5);

/// Starts watching a running child.
pub(super) fn start_watching(context: &Arc<ChildContext>, watched: WatchedChild) {
    let kin = Arc::new(watched);
    let session = kin.session;
    context.watched_children().insert(session, Arc::clone(&kin));
    let watching = Arc::clone(context);
    let began = std::thread::Builder::new()
        .name(format!("watch {}", kin.name))
        .spawn(move || watch_child(&watching, &kin));
    if let Err(e) = began {
        let message = format!("could not watch a child, so its exit will not be reported: {e}");
        // The loop has just issued this order, so its queue is not full for long; only an alert can be lost.
        drop(context.events.try_send(LoopEvent::DiskAlert(message)));
    }
}

/// The thread of one child.
fn watch_child(hand: &Arc<ChildContext>, watched: &WatchedChild) {
    let exit_status = watched.process.as_ref().and_then(|process| process.wait_exit().ok().flatten());
    let mut reported = false;
    while let Err(why) = wait_for_lease(hand, watched) {
        if !std::mem::replace(&mut reported, true) {
            let message = format!("could not check whether the child `{}` has exited: {why}", watched.name);
            drop(hand.events.blocking_send(LoopEvent::DiskAlert(message)));
        }
        std::thread::sleep(ERROR_BACKOFF);
    }
    if watched.handed_back.load(Ordering::Acquire) {
        return;
    }
    let exited_child =
        match child_log::read_exit(hand.home.store.as_ref(), watched.session, exit_status) {
            Ok(gone) => gone,
            Err(e) => {
                drop(hand.events.blocking_send(LoopEvent::DiskAlert(format!(
                    "could not read the spending of a child: {e}"
                ))));
                ChildExit { outcome: ChildOutcome::Crashed, exit_status, spending: Vec::new() }
            }
        };
    // First the children that it leaves: their loans were part of its own.
    match hand.scope.refresh_scope(None) {
        Ok(table) => {
            // Pods that this pod is starting itself are watched when they are ready.
            let adopted = |row: &ScopeRow| row.lender != Some(hand.session);
            for row in inherited_children(hand, &table, watched.session).into_iter().filter(adopted) {
                adopt_grandchild(hand, &row);
            }
        }
        Err(why) => {
            let message = format!("could not end the loan of a child yet: {why}");
            drop(hand.events.blocking_send(LoopEvent::DiskAlert(message)));
        }
    }
    hand.watched_children().remove(&watched.session);
    let ChildExit { outcome, exit_status, spending } = exited_child.clone();
    let ended = ChildEvent::Ended { child: watched.session, outcome, exit: exit_status, paid: spending };
    drop(hand.events.blocking_send(LoopEvent::ChildEvent(Box::new(ended))));
    watched.exit.send_replace(Some(exited_child));
}

/// Waits until the child's lease is free and its sandboxes are gone. Blocks in the kernel on the lease lock,
/// which it releases immediately; the remaining wait is short.
fn wait_for_lease(context: &ChildContext, watched: &WatchedChild) -> Result<(), String> {
    let table = context.runtime.read_table().map_err(|e| error_chain(&e))?;
    if table.find_row(watched.session).is_some_and(|row| row.name == watched.name) {
        match File::open(context.runtime.pod_dir(&watched.name).join("lease")) {
            Ok(lease) => lease.lock_shared().map_err(|e| e.to_string())?,
            // It exited between the two checks.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    context
        .runtime
        .watch_pod(&watched.name, watched.session)
        .wait_until_gone(None)
        .map(|_| ())
        .map_err(|e| error_chain(&e))
}

/// Pods that the table assigns to this pod and that are not watched yet. A row with an open ticket is being
/// started by this pod.
fn inherited_children(context: &ChildContext, table: &ScopeTable, exited_child: SessionId) -> Vec<ScopeRow> {
    let watched = context.watched_children();
    let own = |row: &&ScopeRow| row.parent == Some(context.session) && row.ticket_hash.is_none();
    let new = |row: &&ScopeRow| row.session != exited_child && !watched.contains_key(&row.session);
    table.pods.iter().filter(own).filter(new).cloned().collect()
}

/// Adopts a grandchild: reports and watches it. Blocks.
fn adopt_grandchild(context: &Arc<ChildContext>, row: &ScopeRow) {
    let (child, name) = (row.session, row.name.clone());
    let event = match load_child(context, row) {
        Ok((known, paid)) => {
            LoopEvent::ChildEvent(Box::new(ChildEvent::Adopted { known: Box::new(known), paid }))
        }
        Err(why) => LoopEvent::DiskAlert(format!(
            "the pod `{name}` is now a child of this pod, but its log is incomplete: {why}"
        )),
    };
    drop(context.events.blocking_send(event));
    start_watching(context, WatchedChild::new(child, name, None));
}

/// Loads a pod of the table for adoption: its data from its log and its parent's log, and the spending of it
/// and its descendants.
fn load_child(context: &ChildContext, row: &ScopeRow) -> Result<(OpenChild, Vec<PodSpend>), String> {
    let store = context.home.store.as_ref();
    let of = child_log::load_state(store, row.session).map_err(|e| error_chain(&e))?;
    let about = of.facts.about.as_ref().ok_or("it has no session_start")?;
    let parent = about.parent.as_ref().ok_or("it has no parent")?;
    let spawner = child_log::load_state(store, parent.session).ok();
    let clone = spawner
        .and_then(|spawner| spawner.facts.children.into_iter().find(|known| known.session == row.session))
        .and_then(|known| known.clone);
    let line: Vec<SessionId> =
        row.ancestors.iter().copied().take_while(|above| *above != context.session).collect();
    let known = OpenChild {
        budget: granted_budget(&of),
        adopted_from: line.first().copied(),
        line,
        clone,
        ..OpenChild::new(row.session, row.name.clone(), parent.call_id.clone(), row.scope.clone())
    };
    let paid = child_log::collect_spending(store, row.session).map_err(|e| error_chain(&e))?;
    Ok((known, paid))
}

/// The part of a pod's budget that its parent divides.
pub(crate) fn granted_budget(state: &State) -> Option<Budget> {
    let all = state.granted_budget();
    let divided = Budget { usd: all.usd, tokens: all.tokens, ..Budget::default() };
    Some(divided).filter(|divided| !divided.is_empty())
}

/// Handles the return of a child that had children: the table has assigned them to it again, so this pod
/// drops them.
pub(super) async fn hand_back_children(context: &Arc<ChildContext>, child: SessionId) {
    let back = context
        .run_blocking(move |hand| {
            let table = hand.runtime.read_table().map_err(|e| error_chain(&e))?;
            let watched = hand.watched_children();
            let passed = |kin: &&Arc<WatchedChild>| {
                table.find_row(kin.session).is_some_and(|row| row.parent == Some(child))
            };
            Ok::<Vec<Arc<WatchedChild>>, String>(watched.values().filter(passed).cloned().collect())
        })
        .await;
    match back {
        Ok(back) => {
            for kin in back {
                kin.handed_back.store(true, Ordering::Release);
                context.watched_children().remove(&kin.session);
                finish_hand_back(context, kin.session).await;
            }
        }
        Err(why) => drop(
            context.events.send(LoopEvent::DiskAlert(format!("could not read the scope table: {why}"))).await,
        ),
    }
}

async fn finish_hand_back(hand: &ChildContext, child: SessionId) {
    let outcome = ChildOutcome::Returned;
    hand.send_tree_event(ChildEvent::Ended { child, outcome, exit: None, paid: Vec::new() }).await;
}

/// After boot: adopts children in the table that this pod's log does not know.
pub(super) async fn adopt_unknown(context: Arc<ChildContext>, known: Vec<SessionId>) {
    let taking = Arc::clone(&context);
    let presence = context
        .run_blocking(move |hand| {
            let table = hand.scope.refresh_scope(None)?;
            for row in inherited_children(hand, &table, hand.session) {
                if !known.contains(&row.session) {
                    adopt_grandchild(&taking, &row);
                }
            }
            Ok::<(), String>(())
        })
        .await;
    if let Err(why) = presence {
        drop(
            context.events.send(LoopEvent::DiskAlert(format!("could not read the scope table: {why}"))).await,
        );
    }
}

/// The state of a child that an earlier process started or was about to start.
enum ChildPresence {
    Running(Box<ScopeRow>),
    /// It is running, and the table assigns it to another pod.
    OwnedByOther,
    /// It has run since the log recorded its start, and has exited.
    Exited,
    /// It never started.
    NeverStarted,
}

/// Checks a child of an earlier process: how far it came, and when it exits.
pub(super) async fn check_child(context: Arc<ChildContext>, child: SessionId, name: PodName, ready: bool) {
    let until = Instant::now() + TRANSITION_TIMEOUT;
    let presence = loop {
        match context.run_blocking(move |hand| find_child(hand, child, ready)).await {
            Ok(Some(found)) => break found,
            Ok(None) if Instant::now() < until => tokio::time::sleep(TRANSITION_POLL).await,
            // Its ticket has expired, so it did not start.
            Ok(None) => break ChildPresence::NeverStarted,
            Err(why) => {
                drop(
                    context
                        .events
                        .send(LoopEvent::DiskAlert(format!("could not check the child `{name}`: {why}")))
                        .await,
                );
                tokio::time::sleep(ERROR_BACKOFF).await;
            }
        }
    };
    match presence {
        ChildPresence::Running(row) => {
            let socket = row.socket.to_string_lossy().into_owned();
            context.send_tree_event(ChildEvent::Spawned { child, socket, clone: None, delivery: None }).await;
            start_watching(&context, WatchedChild::new(child, row.name, None));
        }
        ChildPresence::OwnedByOther => finish_hand_back(&context, child).await,
        // Its thread finds the lease free, waits for its sandboxes, and reports its exit.
        ChildPresence::Exited => start_watching(&context, WatchedChild::new(child, name, None)),
        ChildPresence::NeverStarted => {
            let mut message = "this pod exited before the child had started".to_owned();
            if let Err(why) = withdraw_loan(&context, child).await {
                message.push_str(&format!("; could not end its loan yet: {why}"));
            }
            context
                .send_tree_event(ChildEvent::SpawnFailed { child, code: ErrorCode::Internal, message })
                .await;
        }
    }
}

/// Returns `None` while the child is starting or stopping.
fn find_child(hand: &ChildContext, child: SessionId, ready: bool) -> Result<Option<ChildPresence>, String> {
    if let Some(live) = hand.runtime.live_pod_of_session(child).map_err(|e| error_chain(&e))? {
        if live.row.parent.is_some_and(|parent| parent != hand.session) {
            return Ok(Some(ChildPresence::OwnedByOther));
        }
        let begun = live.row.ticket_hash.is_none() && live.status.is_some();
        return Ok(begun.then(|| ChildPresence::Running(Box::new(live.row))));
    }
    let table = hand.runtime.read_table().map_err(|e| error_chain(&e))?;
    // The ticket may still be used while the session lease is held: the process that requested the ticket
    // keeps the lease until it passes it to the child.
    let waited_for = |row: &ScopeRow| row.ticket_hash.is_some() && row.parent == Some(hand.session);
    if table.find_row(child).is_some_and(|row| !waited_for(row)) {
        return Ok(None);
    }
    let store = hand.home.store.as_ref();
    match store.lease_holder(child) {
        Ok(None) | Err(minke_session::StoreError::NotFound { .. }) => {}
        Ok(Some(_)) => return Ok(None),
        Err(e) => return Err(error_chain(&e)),
    }
    if ready {
        return Ok(Some(ChildPresence::Exited));
    }
    // Checks whether it ever ran, not when: clocks can jump, and earlier spending is known by then.
    let lived = child_log::last_opened_at(store, child).map_err(|e| error_chain(&e))?.is_some();
    Ok(Some(if lived { ChildPresence::Exited } else { ChildPresence::NeverStarted }))
}

/// Ends a loan whose borrower does not exist, and widens this pod's scope again.
pub(super) async fn withdraw_loan(context: &Arc<ChildContext>, child: SessionId) -> Result<(), String> {
    context
        .run_blocking(move |hand| {
            hand.runtime.withdraw_loan(child).map_err(|e| error_chain(&e))?;
            hand.scope.refresh_scope(Some(child)).map(|_| ())
        })
        .await
}
