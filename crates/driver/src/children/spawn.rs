//! Spawning and restarting children: a saga with an undo for each step.
//!
//! The steps are: narrow this pod's scope, lend, create the session, start the process, wait for `ready`. If
//! a step fails, the earlier ones are undone in reverse order. Elsewhere: the entries before and after
//! (`pod::children`), the table (`registry`), recovery if this process dies in between (`watch::check_child`
//! of the next process).
//! Invariant: afterwards the child works, or it has no loan, process or name
//! (`a_child_that_cannot_start_leaves_nothing`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use minke_client::find_ancestors;
use minke_launch::{
    DeliverError, LaunchError, LaunchedPod, OfflineStep, PodLaunch, PodLifetime, edit_step_at,
    offline_writer, write_edits,
};
use minke_pod::{
    ChildEvent, DescendantState, NewSession, OfflineEdit, OutgoingMessage, SpawnRequest, StepSeed,
    new_session,
};
use minke_record::{
    Actor, Budget, CloneOrigin, ErrorCode, InputSegment, Permission, PodName, Scope, SessionId,
};
use minke_registry::{LoanRequest, RegistryError, ScopeTicket, grant};
use minke_session::StoreError;

use super::process::WatchedChild;
use super::watch::{self, start_watching};
use super::{ChildContext, clone, error_code, profile};
use crate::event_loop::commit::error_chain;

/// The time from the start of the process until `ready`.
const READY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a ticket outlives the process that requested it.
const TICKET_LIFETIME: Duration = Duration::from_secs(15);
/// The shown part of a failed child's stderr.
const MAX_STDERR_BYTES: usize = 4 * 1024;
/// A refusal names at most this many running commands.
const MAX_NAMED_COMMANDS: usize = 4;
/// The shown part of each command.
const MAX_COMMAND_CHARS: usize = 80;

/// The reason why a child could not be spawned.
pub(super) struct ChildSpawnError {
    code: ErrorCode,
    message: String,
}

impl ChildSpawnError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> ChildSpawnError {
        ChildSpawnError { code, message: message.into() }
    }
}

impl From<RegistryError> for ChildSpawnError {
    fn from(error: RegistryError) -> ChildSpawnError {
        ChildSpawnError::new(error_code(&error), error_chain(&error))
    }
}

impl From<StoreError> for ChildSpawnError {
    fn from(error: StoreError) -> ChildSpawnError {
        let code = match error {
            StoreError::Held { .. }
            | StoreError::HeldByOtherHome { .. }
            | StoreError::WorkspaceOnOtherHost { .. }
            | StoreError::Exists { .. } => ErrorCode::Conflict,
            StoreError::NotFound { .. } => ErrorCode::NotFound,
            _ => ErrorCode::StorageFailed,
        };
        ChildSpawnError::new(code, format!("{}; {}", error_chain(&error), error.hint()))
    }
}

impl From<DeliverError> for ChildSpawnError {
    fn from(error: DeliverError) -> ChildSpawnError {
        let hint = match error {
            DeliverError::Refused { refusal, .. } => {
                return ChildSpawnError::new(refusal.code, refusal.message);
            }
            DeliverError::Store(error) => return error.into(),
            DeliverError::Registry(error) => return error.into(),
            DeliverError::Launch(error) => return error.into(),
            DeliverError::Damaged { session, damage } => {
                return StoreError::Damaged { id: session, damage }.into();
            }
            DeliverError::Lease { source, .. } => return lease_error(&source),
            DeliverError::Append { ref source, .. } => source.hint(),
            DeliverError::Sync { ref source, .. } => source.hint(),
            DeliverError::Stopping { .. } | DeliverError::Connection(_) => {
                return ChildSpawnError::new(ErrorCode::Internal, error_chain(&error));
            }
        };
        ChildSpawnError::new(ErrorCode::StorageFailed, format!("{}; {hint}", error_chain(&error)))
    }
}

impl From<LaunchError> for ChildSpawnError {
    fn from(error: LaunchError) -> ChildSpawnError {
        let code = match &error {
            LaunchError::Failed { why, .. } => why.code.clone(),
            LaunchError::Registry(error) => error_code(error),
            LaunchError::Io { .. } | LaunchError::Exited { .. } | LaunchError::NotReady { .. } => {
                ErrorCode::Internal
            }
        };
        let output = text_tail(&error.stderr_lines().join("\n"), MAX_STDERR_BYTES);
        let mut message = error_chain(&error);
        if !output.is_empty() {
            message.push_str("; last lines of its stderr:\n");
            message.push_str(&output);
        }
        ChildSpawnError { code, message }
    }
}

/// The end of a text, cut between characters.
fn text_tail(text: &str, max_bytes: usize) -> String {
    let mut bytes = 0;
    let kept: Vec<char> = text
        .chars()
        .rev()
        .take_while(|c| {
            bytes += c.len_utf8();
            bytes <= max_bytes
        })
        .collect();
    kept.into_iter().rev().collect()
}

/// The scope and name that a child gets.
struct ChildLoan {
    child: SessionId,
    name: PodName,
    scope: Scope,
    /// Scope that this pod does not own: the child's clone.
    own_scope: Scope,
    /// For a woken child: its ancestors when it was spawned.
    ancestors: Vec<SessionId>,
}

/// Spawns a child.
pub(super) async fn spawn_child(
    context: Arc<ChildContext>,
    spawning: Box<SpawnRequest>,
    promise: Result<(), String>,
    at: StepSeed,
) {
    let child = spawning.session;
    let made = match promise {
        Ok(()) => create_child(&context, *spawning, at).await,
        Err(why) => Err(ChildSpawnError::new(
            ErrorCode::Internal,
            format!("could not narrow this pod's scope: {why}"),
        )),
    };
    match made {
        Ok((launched, clone)) => register_child(&context, child, launched, clone, None).await,
        Err(spawn_error) => abort_spawn(&context, child, spawn_error).await,
    }
}

async fn create_child(
    hand: &Arc<ChildContext>,
    mut spawning: SpawnRequest,
    at: StepSeed,
) -> Result<(LaunchedPod, Option<CloneOrigin>), ChildSpawnError> {
    if spawning.profile.is_some() {
        spawning =
            hand.run_blocking(move |context| profile::apply_profile(&context.home.paths, spawning)).await?;
    }
    let (child, name) = (spawning.session, spawning.name.clone());
    refuse_if_commands_run(hand, &spawning.scope)?;
    let mut new = spawning.new_child_session(env!("CARGO_PKG_VERSION"));
    let mut clone = None;
    if spawning.clone {
        let (workspace, into) = (new.workspace.clone(), clone::clone_dir(&hand.home.paths, child));
        let of = name.clone();
        let writable = new.scope.clone();
        let made =
            hand.run_blocking(move |_| clone::create_clone(&workspace, &into, &of, child, &writable)).await;
        let made = made.map_err(|why| ChildSpawnError::new(ErrorCode::Conflict, why))?;
        new.cwd.clone_from(&made.origin.path);
        new.scope.allow.extend(made.own_scope.allow.iter().cloned());
        hand.scope.add_clone(&made.origin);
        clone = Some(made);
    }
    let own_scope = clone.as_ref().map(|made| made.own_scope.clone()).unwrap_or_default();
    let made = match lend_scope(
        hand,
        ChildLoan { child, name, scope: spawning.scope, own_scope, ancestors: Vec::new() },
    )
    .await
    {
        Ok(ticket) => start_session(hand, new, ticket, at).await,
        Err(spawn_error) => Err(spawn_error),
    };
    match (made, clone) {
        (Ok(launched), clone) => Ok((launched, clone.map(|made| made.origin))),
        (Err(failure), None) => Err(failure),
        (Err(mut failure), Some(_)) => {
            let into = clone::clone_dir(&hand.home.paths, child);
            if let Err(why) = hand.run_blocking(move |_| clone::remove_clone(&into, child)).await {
                failure.message.push_str(&format!("; could not remove its clone: {why}"));
            }
            Err(failure)
        }
    }
}

async fn start_session(
    context: &Arc<ChildContext>,
    new: NewSession,
    ticket: ScopeTicket,
    at: StepSeed,
) -> Result<LaunchedPod, ChildSpawnError> {
    let child = new.session;
    let lease = context
        .run_blocking(move |hand| -> Result<OwnedFd, ChildSpawnError> {
            let written = new_session(at, new);
            let writer = hand.home.store.create(child, written.entries, written.blobs)?;
            writer.into_lease().map_err(|e| lease_error(&e))
        })
        .await?;
    launch_child(context, child, lease, ticket).await
}

fn lease_error(error: &io::Error) -> ChildSpawnError {
    ChildSpawnError::new(ErrorCode::Internal, format!("could not pass on the child's session lease: {error}"))
}

async fn launch_child(
    context: &ChildContext,
    session: SessionId,
    lease: OwnedFd,
    ticket: ScopeTicket,
) -> Result<LaunchedPod, ChildSpawnError> {
    let launch = PodLaunch {
        paths: &context.home.paths,
        session,
        lease,
        ticket: Some(ticket),
        lifetime: PodLifetime::Detached,
        timeout: READY_TIMEOUT,
    };
    Ok(launch.start_pod().await?)
}

/// Refuses a loan while own commands run whose sandbox can write there: a running sandbox cannot be narrowed.
fn refuse_if_commands_run(context: &ChildContext, scope: &Scope) -> Result<(), ChildSpawnError> {
    let lends = scope.allow.iter().any(|rule| rule.permission == Permission::Write);
    let Some(commands) = context.commands.as_ref().filter(|_| lends) else { return Ok(()) };
    // This pod's scope is narrowed already, so new sandboxes cannot write there.
    let mut running = commands.running_commands();
    running.retain(|row| row.could_write_in(scope));
    if running.is_empty() {
        return Ok(());
    }
    let mut named: Vec<String> = running
        .iter()
        .take(MAX_NAMED_COMMANDS)
        .map(|row| {
            format!("{} (`{}`)", row.id, minke_text::shorten_first_line(&row.command, MAX_COMMAND_CHARS))
        })
        .collect();
    if running.len() > MAX_NAMED_COMMANDS {
        named.push(format!("{} more", running.len() - MAX_NAMED_COMMANDS));
    }
    let message = format!(
        "commands of this pod are running that can write there: {}; wait for them or stop them, then spawn again",
        named.join(", ")
    );
    Err(ChildSpawnError::new(ErrorCode::Conflict, message))
}

/// Lends `scope` to the child and removes it from this pod in one table update.
async fn lend_scope(context: &Arc<ChildContext>, loan: ChildLoan) -> Result<ScopeTicket, ChildSpawnError> {
    context
        .run_blocking(move |hand| {
            let ChildLoan { child, name, scope, own_scope, ancestors } = loan;
            // A missing path is refused here; the table rejects later changes of the path.
            for rule in &scope.allow {
                grant::open_target(&rule.target)?;
            }
            let lend = LoanRequest {
                lender: hand.session,
                session: child,
                name,
                scope,
                extra_scope: own_scope,
                limits: hand.limits,
                ancestors,
                ticket_timeout: TICKET_LIFETIME,
            };
            let ticket = hand.runtime.lend_scope(&lend)?;
            hand.scope
                .refresh_scope(Some(child))
                .map_err(|why| ChildSpawnError::new(ErrorCode::Internal, why))?;
            Ok(ticket)
        })
        .await
}

/// Registers a running child; it is watched from here on.
async fn register_child(
    context: &Arc<ChildContext>,
    child: SessionId,
    launched: LaunchedPod,
    clone: Option<CloneOrigin>,
    delivery: Option<String>,
) {
    let socket = launched.ready.socket.to_string_lossy().into_owned();
    let name = launched.ready.name.clone();
    // Before it is watched, so that its start is reported before its exit.
    context.send_tree_event(ChildEvent::Spawned { child, socket, clone, delivery }).await;
    start_watching(context, WatchedChild::new(child, name, Some(launched.into_child())));
}

/// Ends the loan and widens this pod's scope again. The process has exited or never started; its session
/// remains without a pod.
async fn abort_spawn(hand: &Arc<ChildContext>, child: SessionId, spawn_error: ChildSpawnError) {
    let ChildSpawnError { code, mut message } = spawn_error;
    if let Err(why) = watch::withdraw_loan(hand, child).await {
        message.push_str("; could not end its loan yet: ");
        message.push_str(&why);
    }
    hand.send_tree_event(ChildEvent::SpawnFailed { child, code, message }).await;
}

/// A request to start a stopped child again.
pub(super) struct ChildRestore {
    pub(super) child: SessionId,
    pub(super) name: PodName,
    pub(super) scope: Scope,
    pub(super) reason: WakeReason,
}

/// The input that a restarted child finds in its log.
pub(super) struct WakeReason {
    pub(super) budget: Option<Budget>,
    pub(super) descendants: DescendantState,
    pub(super) send: Option<OutgoingMessage>,
}

/// Starts a child again: lends its recorded scope, writes its input as an offline edit, and starts the
/// process.
pub(super) async fn restore_child(
    context: Arc<ChildContext>,
    child_restore: ChildRestore,
    promise: Result<(), String>,
    at: StepSeed,
) {
    let child = child_restore.child;
    let sent = child_restore.reason.send.as_ref().map(|_| "started".to_owned());
    let made = match promise {
        Ok(()) => wake_child(&context, child_restore, at).await,
        Err(why) => Err(ChildSpawnError::new(
            ErrorCode::Internal,
            format!("could not narrow this pod's scope: {why}"),
        )),
    };
    match made {
        Ok(launched) => {
            register_child(&context, child, launched, None, sent).await;
            watch::hand_back_children(&context, child).await;
        }
        Err(spawn_error) => abort_spawn(&context, child, spawn_error).await,
    }
}

async fn wake_child(
    hand: &Arc<ChildContext>,
    child_restore: ChildRestore,
    at: StepSeed,
) -> Result<LaunchedPod, ChildSpawnError> {
    refuse_if_commands_run(hand, &child_restore.scope)?;
    let ChildRestore { child, name, scope, reason } = child_restore;
    let (own_scope, ancestors) = {
        let lent = scope.clone();
        hand.run_blocking(move |context| {
            let store = context.home.store.as_ref();
            Ok::<_, StoreError>((clone::separate_scope(store, child, &lent)?, find_ancestors(store, child)?))
        })
        .await?
    };
    let ticket = lend_scope(hand, ChildLoan { child, name, scope, own_scope, ancestors }).await?;
    let lease = hand.run_blocking(move |context| write_wake_edits(context, child, reason, at)).await?;
    launch_child(hand, child, lease, ticket).await
}

/// Writes the child's input and keeps the session lease for the new pod.
fn write_wake_edits(
    context: &ChildContext,
    child: SessionId,
    reason: WakeReason,
    at: StepSeed,
) -> Result<OwnedFd, ChildSpawnError> {
    let WakeReason { budget, descendants, send } = reason;
    let mut changes = Vec::new();
    if descendants != DescendantState::default() {
        changes.push(OfflineEdit::Descendants(descendants));
    }
    if let Some(budget) = budget {
        let value = serde_json::to_value(budget).expect("a budget is plain data");
        changes.push(OfflineEdit::Config { key: "budget".to_owned(), value });
    }
    if let Some(OutgoingMessage { message, op_id, .. }) = send {
        let segments = vec![InputSegment::Text { content: message.into() }];
        changes.push(OfflineEdit::Queue { segments, op_id: Some(op_id) });
    }
    let writer = offline_writer(Actor::from_pod(context.session));
    let steps = changes
        .into_iter()
        .zip(at.seed..)
        .map(|(change, seed)| edit_step_at(change, writer.clone(), StepSeed { now: at.now, seed }));
    let steps: Vec<Box<OfflineStep<'_>>> = steps.collect();
    Ok(write_edits(&context.home, child, &steps)?)
}
