//! Making a child, and starting one again: a saga with an undo for each step.
//!
//! Narrowing of this pod, loan, session, process, `ready`; what was done is undone in reverse order if the last one does
//! not come. Elsewhere: the entries before and after (`pod::children`), the table (`registry`), what happens when this
//! process dies in the middle (`watch::look` of the next life).
//! Invariant: afterwards there is a working child, or no loan, process or name of it
//! (`a_child_that_cannot_start_leaves_nothing`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use minke_client::{Bond, Launch, LaunchError, Launched, above};
use minke_pod::{
    KinKnown, Moment, NewSession, Sending, Spawning, State, TreeNews, Visit, Visitor, new_session,
};
use minke_record::{Actor, Budget, CloneOf, ErrorCode, InputSegment, Permission, PodName, Scope, SessionId};
use minke_registry::{Lend, RegistryError, Row, Ticket, grant};
use minke_session::StoreError;

use super::kin::Kin;
use super::watch::{self, begin};
use super::{Hand, clone, code, profile};
use crate::carrying::chain;

/// From its start until `ready`.
const READY_WAIT: Duration = Duration::from_secs(10);
/// A ticket outlives the process that it was drawn for by this.
const TICKET_WAIT: Duration = Duration::from_secs(15);
/// What is shown of a failed child's stderr.
const STDERR_BYTES: usize = 4 * 1024;
/// How many running commands a refusal names.
const COMMANDS_NAMED: usize = 4;
/// How much of a command it shows.
const COMMAND_CHARS: usize = 80;

/// Why there is no child.
pub(super) struct Failure {
    code: ErrorCode,
    message: String,
}

impl Failure {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }
}

impl From<RegistryError> for Failure {
    fn from(error: RegistryError) -> Failure {
        Failure::new(code(&error), chain(&error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        let code = match error {
            StoreError::Held { .. }
            | StoreError::HeldElsewhere { .. }
            | StoreError::WorkspaceElsewhere { .. }
            | StoreError::Exists { .. } => ErrorCode::Conflict,
            StoreError::NotFound { .. } => ErrorCode::NotFound,
            _ => ErrorCode::StorageFailed,
        };
        Failure::new(code, format!("{}; {}", chain(&error), error.hint()))
    }
}

impl From<LaunchError> for Failure {
    fn from(error: LaunchError) -> Failure {
        let code = match &error {
            LaunchError::Failed { why, .. } => why.code.clone(),
            LaunchError::Registry(error) => code(error),
            LaunchError::Io { .. } | LaunchError::Died { .. } | LaunchError::Silent { .. } => {
                ErrorCode::Internal
            }
        };
        let said = last_bytes(&error.said().join("\n"), STDERR_BYTES);
        let mut message = chain(&error);
        if !said.is_empty() {
            message.push_str("; it said last:\n");
            message.push_str(&said);
        }
        Failure { code, message }
    }
}

/// The end of a text, in whole characters.
fn last_bytes(text: &str, most: usize) -> String {
    let mut bytes = 0;
    let kept: Vec<char> = text
        .chars()
        .rev()
        .take_while(|c| {
            bytes += c.len_utf8();
            bytes <= most
        })
        .collect();
    kept.into_iter().rev().collect()
}

/// What a child gets, and under which name.
struct Loan {
    child: SessionId,
    name: PodName,
    scope: Scope,
    /// What is not this pod's to give: the child's clone.
    apart: Scope,
    /// Who was above it when it was spawned, if it is woken.
    line: Vec<SessionId>,
}

/// Makes a child.
pub(super) async fn spawn(
    hand: Arc<Hand>,
    spawning: Box<Spawning>,
    promised: Result<(), String>,
    at: Moment,
) {
    let child = spawning.session;
    let made = match promised {
        Ok(()) => make(&hand, *spawning, at).await,
        Err(why) => Err(Failure::new(ErrorCode::Internal, format!("this pod cannot be narrowed: {why}"))),
    };
    match made {
        Ok((launched, clone)) => settle(&hand, child, launched, clone, None).await,
        Err(failure) => give_up(&hand, child, failure).await,
    }
}

async fn make(
    hand: &Arc<Hand>,
    mut spawning: Spawning,
    at: Moment,
) -> Result<(Launched, Option<CloneOf>), Failure> {
    if spawning.profile.is_some() {
        spawning = hand.off_loop(move |hand| profile::declared(&hand.home.paths, spawning)).await?;
    }
    let (child, name) = (spawning.session, spawning.name.clone());
    no_commands(hand, &spawning.scope)?;
    let mut new = spawning.new_session(env!("CARGO_PKG_VERSION"));
    let mut clone = None;
    if spawning.clone {
        let (workspace, into) = (new.workspace.clone(), clone::place(&hand.home.paths, child));
        let of = name.clone();
        let writable = new.scope.clone();
        let made = hand.off_loop(move |_| clone::make(&workspace, &into, &of, child, &writable)).await;
        let made = made.map_err(|why| Failure::new(ErrorCode::Conflict, why))?;
        new.cwd.clone_from(&made.of.path);
        new.scope.allow.extend(made.apart.allow.iter().cloned());
        hand.scope.may_read(&made.of);
        clone = Some(made);
    }
    let apart = clone.as_ref().map(|made| made.apart.clone()).unwrap_or_default();
    let made = match lend(hand, Loan { child, name, scope: spawning.scope, apart, line: Vec::new() }).await {
        Ok(ticket) => start_new(hand, new, ticket, at).await,
        Err(failure) => Err(failure),
    };
    match (made, clone) {
        (Ok(launched), clone) => Ok((launched, clone.map(|made| made.of))),
        (Err(failure), None) => Err(failure),
        (Err(mut failure), Some(_)) => {
            let into = clone::place(&hand.home.paths, child);
            if let Err(why) = hand.off_loop(move |_| clone::remove(&into, child)).await {
                failure.message.push_str(&format!("; and its clone could not be removed: {why}"));
            }
            Err(failure)
        }
    }
}

async fn start_new(
    hand: &Arc<Hand>,
    new: NewSession,
    ticket: Ticket,
    at: Moment,
) -> Result<Launched, Failure> {
    let child = new.session;
    let lease = hand
        .off_loop(move |hand| -> Result<OwnedFd, Failure> {
            let written = new_session(at, new);
            let writer = hand.home.store.create(child, written.entries, written.blobs)?;
            writer.into_lease().map_err(|e| unhanded(&e))
        })
        .await?;
    launch(hand, child, lease, ticket).await
}

fn unhanded(error: &io::Error) -> Failure {
    Failure::new(ErrorCode::Internal, format!("the child's session lease cannot be handed on: {error}"))
}

async fn launch(
    hand: &Hand,
    session: SessionId,
    lease: OwnedFd,
    ticket: Ticket,
) -> Result<Launched, Failure> {
    let launch = Launch {
        paths: &hand.home.paths,
        session,
        lease,
        ticket: Some(ticket),
        bond: Bond::Free,
        patience: READY_WAIT,
    };
    Ok(launch.start().await?)
}

/// A loan is refused while own commands run whose fence lets them write there: it stays as it was when they began.
fn no_commands(hand: &Hand, scope: &Scope) -> Result<(), Failure> {
    let lends = scope.allow.iter().any(|rule| rule.permission == Permission::Write);
    let Some(commands) = hand.commands.as_ref().filter(|_| lends) else { return Ok(()) };
    // This pod has been narrowed before: whoever is not in the table yet gets no fence that could write there.
    let mut running = commands.running();
    running.retain(|row| row.could_write(scope));
    if running.is_empty() {
        return Ok(());
    }
    let mut named: Vec<String> = running
        .iter()
        .take(COMMANDS_NAMED)
        .map(|row| format!("{} (`{}`)", row.id, shortened(&row.command)))
        .collect();
    if running.len() > COMMANDS_NAMED {
        named.push(format!("{} more", running.len() - COMMANDS_NAMED));
    }
    let message = format!(
        "this pod's own commands still run and could write there: {}; wait for them or stop them, then spawn again",
        named.join(", ")
    );
    Err(Failure::new(ErrorCode::Conflict, message))
}

fn shortened(command: &str) -> String {
    let line = command.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(COMMAND_CHARS).collect();
    if short.len() < command.len() {
        short.push('…');
    }
    short
}

/// The loan and the narrowing of this pod, one change of the table; from here on the narrowing is the table's.
async fn lend(hand: &Arc<Hand>, loan: Loan) -> Result<Ticket, Failure> {
    hand.off_loop(move |hand| {
        let Loan { child, name, scope, apart, line } = loan;
        // What is not there is an error and never put right; that it stays what it is, is the table's to see to.
        for rule in &scope.allow {
            grant::resolve(&rule.target)?;
        }
        let lend = Lend {
            lender: hand.session,
            session: child,
            name,
            scope,
            apart,
            limits: hand.limits,
            line,
            patience: TICKET_WAIT,
        };
        let ticket = hand.runtime.lend(&lend)?;
        hand.scope.refresh(Some(child)).map_err(|why| Failure::new(ErrorCode::Internal, why))?;
        Ok(ticket)
    })
    .await
}

/// A child lives: it is watched from here on.
async fn settle(
    hand: &Arc<Hand>,
    child: SessionId,
    launched: Launched,
    clone: Option<CloneOf>,
    sent: Option<String>,
) {
    let socket = launched.ready.socket.to_string_lossy().into_owned();
    let name = launched.ready.name.clone();
    // Before it is watched: nobody hears of its end before its beginning.
    hand.tell(TreeNews::Spawned { child, socket, clone, sent }).await;
    begin(hand, Kin::new(child, name, Some(launched.into_child())));
}

/// Undoes the loan and the narrowing. The process is gone, or never was; its session stays, without a pod.
async fn give_up(hand: &Arc<Hand>, child: SessionId, failure: Failure) {
    let Failure { code, mut message } = failure;
    if let Err(why) = watch::withdraw(hand, child).await {
        message.push_str("; and the loan could not be taken back yet: ");
        message.push_str(&why);
    }
    hand.tell(TreeNews::NotSpawned { child, code, message }).await;
}

/// A child that has lived before and is to live again.
pub(super) struct Restoring {
    pub(super) child: SessionId,
    pub(super) name: PodName,
    pub(super) scope: Scope,
    pub(super) reason: Reason,
}

/// What a child that is started again finds in its log.
pub(super) struct Reason {
    pub(super) budget: Option<Budget>,
    pub(super) kin: KinKnown,
    pub(super) send: Option<Sending>,
}

/// Starts a child again: its recorded scope is lent anew, what it is to do is written as a visit, then it is started.
pub(super) async fn restore(hand: Arc<Hand>, restoring: Restoring, promised: Result<(), String>, at: Moment) {
    let child = restoring.child;
    let sent = restoring.reason.send.as_ref().map(|_| "started".to_owned());
    let made = match promised {
        Ok(()) => wake(&hand, restoring, at).await,
        Err(why) => Err(Failure::new(ErrorCode::Internal, format!("this pod cannot be narrowed: {why}"))),
    };
    match made {
        Ok(launched) => {
            settle(&hand, child, launched, None, sent).await;
            watch::hand_back(&hand, child).await;
        }
        Err(failure) => give_up(&hand, child, failure).await,
    }
}

async fn wake(hand: &Arc<Hand>, restoring: Restoring, at: Moment) -> Result<Launched, Failure> {
    no_commands(hand, &restoring.scope)?;
    let Restoring { child, name, scope, reason } = restoring;
    let (apart, line) = {
        let lent = scope.clone();
        hand.off_loop(move |hand| {
            let store = hand.home.store.as_ref();
            Ok::<_, StoreError>((clone::apart(store, child, &lent)?, above(store, child)?))
        })
        .await?
    };
    let ticket = lend(hand, Loan { child, name, scope, apart, line }).await?;
    let lease = hand.off_loop(move |hand| visit(hand, child, reason, at)).await?;
    launch(hand, child, lease, ticket).await
}

/// Writes what a child is started for, and keeps the lease for its pod.
fn visit(hand: &Hand, child: SessionId, reason: Reason, at: Moment) -> Result<OwnedFd, Failure> {
    let mut open = hand.home.store.open(child)?;
    if let Some(damage) = open.damaged {
        return Err(StoreError::Damaged { id: child, damage }.into());
    }
    let Reason { budget, kin, send } = reason;
    let mut changes = Vec::new();
    if kin != KinKnown::default() {
        changes.push(Visit::Kin(kin));
    }
    if let Some(budget) = budget {
        let value = serde_json::to_value(budget).expect("a budget is plain data");
        changes.push(Visit::Config { key: "budget".to_owned(), value });
    }
    if let Some(Sending { message, op_id, .. }) = send {
        let segments = vec![InputSegment::Text { content: message.into() }];
        changes.push(Visit::Queue { segments, op_id: Some(op_id) });
    }
    let mut state = State::replay(open.replay.iter().map(|sealed| &sealed.entry));
    let mut wrote = false;
    for (change, seed) in changes.into_iter().zip(at.seed..) {
        let at = Moment { now: at.now, seed };
        let written = minke_pod::visit(&state, at, visitor(hand), change)
            .map_err(|refusal| Failure::new(refusal.code, refusal.message))?;
        if written.entries.is_empty() {
            continue;
        }
        let unwritten = |why: String| Failure::new(ErrorCode::StorageFailed, why);
        let sealed = open
            .writer
            .append(written.entries, written.blobs)
            .map_err(|e| unwritten(format!("{}; {}", chain(&e), e.hint())))?;
        sealed.iter().for_each(|sealed| state.apply(&sealed.entry));
        wrote = true;
    }
    if wrote {
        let synced = open.writer.syncer().sync();
        synced.map_err(|e| Failure::new(ErrorCode::StorageFailed, format!("{e}; {}", e.hint())))?;
    }
    open.writer.into_lease().map_err(|e| unhanded(&e))
}

fn visitor(hand: &Hand) -> Visitor {
    // Process and boot as a row has them; they are for people.
    let here = Row::here(PodName::from_any("visitor"), hand.session, None);
    Visitor {
        pid: here.pid,
        boot_id: here.boot_id,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        by: Actor::pod(hand.session),
    }
}
