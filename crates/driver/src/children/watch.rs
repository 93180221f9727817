//! Watching: from the moment a child lives until it is gone, its loan is back, and this pod knows how it ended.
//!
//! One thread for each child, which waits in the kernel: for its process if this one started it, then for a lock on its
//! scope lease and its fences. Nothing is polled. Elsewhere: the process (`kin`), what its log says (`reading`).
//! Invariant: a loan counts as back only when the child's process and its fences are gone
//! (`a_killed_childs_loan_is_back_and_it_is_told_once`).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use minke_pod::{State, TreeNews};
use minke_record::{Budget, ChildOutcome, ErrorCode, OpenChild, Paid, PodName, SessionId};
use minke_registry::{Row, Table};

use super::Hand;
use super::kin::Kin;
use super::reading::{self, Gone};
use crate::carrying::chain;
use crate::mail::Mail;

/// How long a child of an earlier life that is starting or stopping is waited for.
const HALFWAY_WAIT: Duration = Duration::from_secs(20);
/// How often it is looked at meanwhile.
const HALFWAY_RETRY: Duration = Duration::from_millis(50);
/// How long a thread rests after the runtime directory could not be read.
const BROKEN_REST: Duration = Duration::from_secs(5);

/// Watches a child that lives.
pub(super) fn begin(hand: &Arc<Hand>, kin: Kin) {
    let kin = Arc::new(kin);
    let session = kin.session;
    hand.kin().insert(session, Arc::clone(&kin));
    let watching = Arc::clone(hand);
    let began = std::thread::Builder::new()
        .name(format!("watch {}", kin.name))
        .spawn(move || attend(&watching, &kin));
    if let Err(e) = began {
        let message = format!("a child cannot be watched, so nobody tells when it ends: {e}");
        // The mailbox of a loop that has just ordered this is not full for long; what is lost is only a word.
        drop(hand.mail.try_send(Mail::Alert(message)));
    }
}

/// The thread of one child.
fn attend(hand: &Arc<Hand>, kin: &Kin) {
    let exit = kin.process.as_ref().and_then(|process| process.wait().ok().flatten());
    let mut told = false;
    while let Err(why) = wait_for_lease(hand, kin) {
        if !std::mem::replace(&mut told, true) {
            let message = format!("whether the child `{}` has ended cannot be seen: {why}", kin.name);
            drop(hand.mail.blocking_send(Mail::Alert(message)));
        }
        std::thread::sleep(BROKEN_REST);
    }
    if kin.handed_back.load(Ordering::Acquire) {
        return;
    }
    let gone = match reading::how_it_ended(hand.home.store.as_ref(), kin.session, exit) {
        Ok(gone) => gone,
        Err(e) => {
            drop(hand.mail.blocking_send(Mail::Alert(format!("what a child spent cannot be read: {e}"))));
            Gone { outcome: ChildOutcome::Crashed, exit, paid: Vec::new() }
        }
    };
    // First those that it left behind: their loans were part of its own.
    match hand.scope.refresh(None) {
        Ok(table) => {
            // Those that this pod is starting itself are watched as soon as they live.
            let adopted = |row: &Row| row.lender != Some(hand.session);
            for row in new_children(hand, &table, kin.session).into_iter().filter(adopted) {
                take_on(hand, &row);
            }
        }
        Err(why) => {
            let message = format!("what a child has given back cannot be written yet: {why}");
            drop(hand.mail.blocking_send(Mail::Alert(message)));
        }
    }
    hand.kin().remove(&kin.session);
    let Gone { outcome, exit, paid } = gone.clone();
    let ended = TreeNews::Ended { child: kin.session, outcome, exit, paid };
    drop(hand.mail.blocking_send(Mail::Tree(Box::new(ended))));
    kin.gone.send_replace(Some(gone));
}

/// Waits until nobody holds the child's lease and its fences are gone. The lease is waited for in the kernel, by a lock
/// that is let go as soon as it is got; what is left then is short.
fn wait_for_lease(hand: &Hand, kin: &Kin) -> Result<(), String> {
    let table = hand.runtime.table().map_err(|e| chain(&e))?;
    if table.row(kin.session).is_some_and(|row| row.name == kin.name) {
        match File::open(hand.runtime.pod_dir(&kin.name).join("lease")) {
            Ok(lease) => lease.lock_shared().map_err(|e| e.to_string())?,
            // It went between the two looks.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e.to_string()),
        }
    }
    hand.runtime.watch(&kin.name, kin.session).wait(None).map(|_| ()).map_err(|e| chain(&e))
}

/// Those that the table gives to this pod and that nobody watches yet. One whose ticket is still out is being started.
fn new_children(hand: &Hand, table: &Table, gone: SessionId) -> Vec<Row> {
    let kin = hand.kin();
    let own = |row: &&Row| row.parent == Some(hand.session) && row.ticket_hash.is_none();
    let new = |row: &&Row| row.session != gone && !kin.contains_key(&row.session);
    table.pods.iter().filter(own).filter(new).cloned().collect()
}

/// A grandchild is this pod's own now: it is told of, and watched. Blocks.
fn take_on(hand: &Arc<Hand>, row: &Row) {
    let (child, name) = (row.session, row.name.clone());
    let letter = match known(hand, row) {
        Ok((known, paid)) => Mail::Tree(Box::new(TreeNews::Adopted { known: Box::new(known), paid })),
        Err(why) => Mail::Alert(format!(
            "the pod `{name}` is this one's child now, but its log says too little: {why}"
        )),
    };
    drop(hand.mail.blocking_send(letter));
    begin(hand, Kin::new(child, name, None));
}

/// A pod of the table as this one knows it from now on: what the logs of it and of whoever spawned it say, and what it
/// and everybody below it has spent.
fn known(hand: &Hand, row: &Row) -> Result<(OpenChild, Vec<Paid>), String> {
    let store = hand.home.store.as_ref();
    let of = reading::state(store, row.session).map_err(|e| chain(&e))?;
    let about = of.facts.about.as_ref().ok_or("it has no session_start")?;
    let parent = about.parent.as_ref().ok_or("it was spawned by nobody")?;
    let spawner = reading::state(store, parent.session).ok();
    let clone = spawner
        .and_then(|spawner| spawner.facts.children.into_iter().find(|known| known.session == row.session))
        .and_then(|known| known.clone);
    let line: Vec<SessionId> =
        row.ancestors.iter().copied().take_while(|above| *above != hand.session).collect();
    let known = OpenChild {
        budget: granted(&of),
        adopted_from: line.first().copied(),
        line,
        clone,
        ..OpenChild::new(row.session, row.name.clone(), parent.call_id.clone(), row.scope.clone())
    };
    let paid = reading::account(store, row.session).map_err(|e| chain(&e))?;
    Ok((known, paid))
}

/// The part of a pod's budget that its parent divides.
pub(crate) fn granted(state: &State) -> Option<Budget> {
    let all = state.granted();
    let divided = Budget { usd: all.usd, tokens: all.tokens, ..Budget::default() };
    Some(divided).filter(|divided| !divided.is_empty())
}

/// A child is back that had children of its own: the table has given them back to it, and this pod has them no more.
pub(super) async fn hand_back(hand: &Arc<Hand>, child: SessionId) {
    let back = hand
        .off_loop(move |hand| {
            let table = hand.runtime.table().map_err(|e| chain(&e))?;
            let kin = hand.kin();
            let passed =
                |kin: &&Arc<Kin>| table.row(kin.session).is_some_and(|row| row.parent == Some(child));
            Ok::<Vec<Arc<Kin>>, String>(kin.values().filter(passed).cloned().collect())
        })
        .await;
    match back {
        Ok(back) => {
            for kin in back {
                kin.handed_back.store(true, Ordering::Release);
                hand.kin().remove(&kin.session);
                handed_back(hand, kin.session).await;
            }
        }
        Err(why) => drop(hand.mail.send(Mail::Alert(format!("the scope table cannot be read: {why}"))).await),
    }
}

async fn handed_back(hand: &Hand, child: SessionId) {
    let outcome = ChildOutcome::Returned;
    hand.tell(TreeNews::Ended { child, outcome, exit: None, paid: Vec::new() }).await;
}

/// After a boot: whom the table gives to this pod and its log does not know.
pub(super) async fn adopt_unknown(hand: Arc<Hand>, known: Vec<SessionId>) {
    let taking = Arc::clone(&hand);
    let found = hand
        .off_loop(move |hand| {
            let table = hand.scope.refresh(None)?;
            for row in new_children(hand, &table, hand.session) {
                if !known.contains(&row.session) {
                    take_on(&taking, &row);
                }
            }
            Ok::<(), String>(())
        })
        .await;
    if let Err(why) = found {
        drop(hand.mail.send(Mail::Alert(format!("the scope table cannot be read: {why}"))).await);
    }
}

/// What was found of a child that an earlier life had started, or was about to.
enum Found {
    Lives(Box<Row>),
    /// It lives, and the table says that it is another's.
    Anothers,
    /// It has lived since this pod noted that it begins, and lives no more.
    Over,
    /// It never began.
    Nothing,
}

/// A child of an earlier life: how far it came, and when it ends.
pub(super) async fn look(hand: Arc<Hand>, child: SessionId, name: PodName, ready: bool) {
    let until = Instant::now() + HALFWAY_WAIT;
    let found = loop {
        match hand.off_loop(move |hand| find(hand, child, ready)).await {
            Ok(Some(found)) => break found,
            Ok(None) if Instant::now() < until => tokio::time::sleep(HALFWAY_RETRY).await,
            // Its ticket has run out by now: it did not begin.
            Ok(None) => break Found::Nothing,
            Err(why) => {
                drop(hand.mail.send(Mail::Alert(format!("the child `{name}` cannot be seen: {why}"))).await);
                tokio::time::sleep(BROKEN_REST).await;
            }
        }
    };
    match found {
        Found::Lives(row) => {
            let socket = row.socket.to_string_lossy().into_owned();
            hand.tell(TreeNews::Spawned { child, socket, clone: None, sent: None }).await;
            begin(&hand, Kin::new(child, row.name, None));
        }
        Found::Anothers => handed_back(&hand, child).await,
        // Its thread finds the lease free at once, waits for its fences, and tells how it ended.
        Found::Over => begin(&hand, Kin::new(child, name, None)),
        Found::Nothing => {
            let mut message = "this pod ended before the child had begun".to_owned();
            if let Err(why) = withdraw(&hand, child).await {
                message.push_str(&format!("; its loan could not be taken back yet: {why}"));
            }
            hand.tell(TreeNews::NotSpawned { child, code: ErrorCode::Internal, message }).await;
        }
    }
}

/// `None`: it is starting or stopping at this moment.
fn find(hand: &Hand, child: SessionId, ready: bool) -> Result<Option<Found>, String> {
    if let Some(live) = hand.runtime.live_on(child).map_err(|e| chain(&e))? {
        if live.row.parent.is_some_and(|parent| parent != hand.session) {
            return Ok(Some(Found::Anothers));
        }
        let begun = live.row.ticket_hash.is_none() && live.status.is_some();
        return Ok(begun.then(|| Found::Lives(Box::new(live.row))));
    }
    let table = hand.runtime.table().map_err(|e| chain(&e))?;
    // A ticket is waited for as long as somebody may come with it. Whoever may has the session's lease, which the life that
    // drew the ticket kept until it was handed on.
    let waited_for = |row: &Row| row.ticket_hash.is_some() && row.parent == Some(hand.session);
    if table.row(child).is_some_and(|row| !waited_for(row)) {
        return Ok(None);
    }
    let store = hand.home.store.as_ref();
    match store.holder(child) {
        Ok(None) | Err(minke_session::StoreError::NotFound { .. }) => {}
        Ok(Some(_)) => return Ok(None),
        Err(e) => return Err(chain(&e)),
    }
    if ready {
        return Ok(Some(Found::Over));
    }
    // Whether it ever lived, not when: clocks jump, and what it spent in an earlier life is known by then.
    let lived = reading::last_opened(store, child).map_err(|e| chain(&e))?.is_some();
    Ok(Some(if lived { Found::Over } else { Found::Nothing }))
}

/// Takes a loan back whose borrower is not there, and widens this pod again.
pub(super) async fn withdraw(hand: &Arc<Hand>, child: SessionId) -> Result<(), String> {
    hand.off_loop(move |hand| {
        hand.runtime.withdraw(child).map_err(|e| chain(&e))?;
        hand.scope.refresh(Some(child)).map(|_| ())
    })
    .await
}
