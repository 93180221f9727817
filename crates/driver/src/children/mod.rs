//! Children: all communication with other pods.
//!
//! Here: dispatch of child commands, and the shared context. Elsewhere: the commands (`pod::children`),
//! spawning (`spawn`, its clone in `clone`), waiting for the exit (`watch`, `process`), messages (`messages`,
//! `stop`), the log of a child (`child_log`), reports to the parent (`reports`), this pod's own scope
//! (`scope`); the scope table (`registry`), starting a process (`launch`).

mod child_log;
mod clone;
mod messages;
mod process;
mod profile;
mod reports;
mod scope;
mod spawn;
mod stop;
mod watch;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_client::UserHome;
use minke_exec::command::Commands;
use minke_files::ScopedFiles;
use minke_pod::{CallEnd, ChildCommand, ChildEvent, State, StepSeed};
use minke_protocol::ClientInfo;
use minke_record::{CallId, ErrorCode, OpenChild, PodName, Report, SessionId};
use minke_registry::{PodLimits, RegistryError, RuntimeDir};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::event_loop::event::LoopEvent;
pub(crate) use child_log::collect_spending;
use process::WatchedChild;
pub(crate) use scope::LiveScope;
pub(crate) use watch::granted_budget;

/// The configuration of the child manager.
pub(crate) struct ChildrenConfig {
    pub(crate) home: UserHome,
    pub(crate) session: SessionId,
    pub(crate) runtime: RuntimeDir,
    pub(crate) files: Arc<ScopedFiles>,
    pub(crate) commands: Option<Arc<Commands>>,
    /// Disables all writes, regardless of the scope.
    pub(crate) read_only: bool,
    pub(crate) limits: PodLimits,
    pub(crate) events: mpsc::Sender<LoopEvent>,
}

/// The context shared by all tasks of the child manager.
struct ChildContext {
    home: UserHome,
    session: SessionId,
    runtime: RuntimeDir,
    commands: Option<Arc<Commands>>,
    limits: PodLimits,
    scope: LiveScope,
    /// Watched pods by session.
    watched: Mutex<HashMap<SessionId, Arc<WatchedChild>>>,
    /// Held while the write scope is released or acquired again.
    scope_lock: tokio::sync::Mutex<()>,
    events: mpsc::Sender<LoopEvent>,
}

impl ChildContext {
    /// Sends the result of an order. The receiver is dropped only when the process ends.
    async fn send_tree_event(&self, events: ChildEvent) {
        drop(self.events.send(LoopEvent::ChildEvent(Box::new(events))).await);
    }

    async fn finish_call(&self, call_id: CallId, result: CallEnd) {
        self.send_tree_event(ChildEvent::CallFinished { call_id, ended: result }).await;
    }

    fn watched_children(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<WatchedChild>>> {
        // Rows are inserted and removed as a whole, so a poisoned lock is consistent.
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How this pod identifies itself to other pods.
    fn client_info(&self) -> ClientInfo {
        ClientInfo {
            name: "pod".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session: Some(self.session),
        }
    }

    /// Runs blocking work off the event loop.
    async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&ChildContext) -> T + Send + 'static,
    ) -> T {
        let context = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&context)).await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// The socket of a session's pod, if it is running.
    async fn find_socket(self: &Arc<Self>, session: SessionId) -> Result<Option<PathBuf>, RegistryError> {
        self.run_blocking(move |context| {
            let table = context.runtime.read_table()?;
            let row = table.find_row(session).filter(|row| row.ticket_hash.is_none());
            Ok(row.map(|row| row.socket.clone()))
        })
        .await
    }
}

pub(crate) struct ChildManager {
    context: Arc<ChildContext>,
    tasks: JoinSet<()>,
    /// The report being sent.
    report_task: Option<AbortHandle>,
}

impl ChildManager {
    pub(crate) fn new(config: ChildrenConfig) -> ChildManager {
        let ChildrenConfig { home, session, runtime, files, commands, read_only, limits, events } = config;
        let scope = LiveScope::new(session, runtime.clone(), files, read_only);
        let watched = Mutex::default();
        let scope_lock = tokio::sync::Mutex::default();
        let context = Arc::new(ChildContext {
            home,
            session,
            runtime,
            commands,
            limits,
            scope,
            watched,
            scope_lock,
            events,
        });
        ChildManager { context, tasks: JoinSet::new(), report_task: None }
    }

    /// Executes an order. Its results come back as events.
    pub(crate) fn execute_order(&mut self, order: ChildCommand, state: &State, at: StepSeed) {
        while self.tasks.try_join_next().is_some() {}
        let context = Arc::clone(&self.context);
        match order {
            ChildCommand::Spawn(spawning) => {
                // Immediately: processes that this pod starts from now on must not be able to write there.
                let promised = context.scope.promise_loan(spawning.session, &spawning.name, &spawning.scope);
                self.tasks.spawn(spawn::spawn_child(context, spawning, promised, at));
            }
            ChildCommand::Restore {
                child,
                name,
                scope,
                budget,
                descendants: watched,
                message,
                call_id: _,
            } => {
                let promised = context.scope.promise_loan(child, &name, &scope);
                let reason = spawn::WakeReason { budget, descendants: *watched, send: message };
                let restoring = spawn::ChildRestore { child, name, scope, reason };
                self.tasks.spawn(spawn::restore_child(context, restoring, promised, at));
            }
            ChildCommand::Watch { child, name } => {
                let known_children = state.facts.children.iter().find(|known| known.session == child);
                let ready = known_children.is_some_and(|known| known.ready);
                self.tasks.spawn(watch::check_child(context, child, name, ready));
            }
            ChildCommand::Send { call_id, child, name, message } => {
                self.tasks.spawn(messages::send_input(context, call_id, (child, name), message));
            }
            ChildCommand::Read { call_id, child, name, since, max_bytes, detail } => {
                let wanted = messages::OutputQuery { since, max_bytes, detail };
                self.tasks.spawn(messages::read_child(context, call_id, (child, name), wanted));
            }
            ChildCommand::Stop { call_id, child, name, after_run } => {
                self.tasks.spawn(stop::stop_child(context, call_id, (child, name), after_run));
            }
            ChildCommand::List { call_id, children, tree } => {
                self.tasks.spawn(messages::list_children(context, call_id, children, tree));
            }
            ChildCommand::Answer { call_id, child, name, ask, decision } => {
                self.tasks.spawn(messages::answer_ask(context, call_id, (child, name), ask, decision));
            }
            ChildCommand::ReadReports { child, since } => {
                self.tasks.spawn(reports::read_reports(context, child, since));
            }
            ChildCommand::ReadSpending { child } => {
                self.tasks.spawn(reports::report_spending(context, child));
            }
            ChildCommand::Report { seq, to, event } => {
                // Only one is in flight: a new order means that the previous report is settled.
                if let Some(before) = self.report_task.take() {
                    before.abort();
                }
                let report = Report { seq, to, event };
                self.report_task = Some(self.tasks.spawn(reports::send_report(context, report)));
            }
            ChildCommand::ReleaseScope => self.set_scope_yield(true),
            ChildCommand::AcquireScope => self.set_scope_yield(false),
        }
    }

    /// Releases this pod's write scope or acquires it again. Runs off the event loop, because other pods may
    /// hold the table lock.
    fn set_scope_yield(&mut self, give: bool) {
        let context = Arc::clone(&self.context);
        self.tasks.spawn(async move {
            // In the order of the requests: the runtime starts tasks in order, and the lock is fair.
            let _turn = context.scope_lock.lock().await;
            let changed = context.run_blocking(move |hand| -> Result<(), String> {
                let (runtime, session) = (&hand.runtime, hand.session);
                let done = if give { runtime.give_scope(session) } else { runtime.take_scope(session) };
                done.map_err(|e| e.to_string())?;
                hand.scope.refresh_scope(None).map(|_| ())
            });
            let problem = changed.await.err();
            // If the change failed, the scope is unchanged.
            let released = give == problem.is_none();
            context.send_tree_event(ChildEvent::Scope { released, problem }).await;
        });
    }

    /// Checks once for children in the scope table that this pod does not know, and for their grants.
    pub(crate) fn adopt_unlisted(&mut self, known_children: &[OpenChild]) {
        known_children
            .iter()
            .filter_map(|child| child.clone.as_ref())
            .for_each(|clone| self.context.scope.add_clone(clone));
        let known: Vec<SessionId> =
            known_children.iter().filter(|child| child.ended.is_none()).map(|child| child.session).collect();
        self.tasks.spawn(watch::adopt_unknown(Arc::clone(&self.context), known));
    }
}

/// Maps an error of the scope table to the error code of a reply.
fn error_code(error: &RegistryError) -> ErrorCode {
    match error {
        RegistryError::DuplicateName { .. }
        | RegistryError::NoFreeName { .. }
        | RegistryError::SessionHeld { .. }
        | RegistryError::WriteConflict { .. }
        | RegistryError::StillHeld { .. }
        | RegistryError::NeedsTicket { .. }
        | RegistryError::CannotYield { .. } => ErrorCode::Conflict,
        RegistryError::NotWithin { .. }
        | RegistryError::BadTarget { .. }
        | RegistryError::BadTicket { .. } => ErrorCode::InvalidRequest,
        RegistryError::TooDeep { .. } | RegistryError::TooMany { .. } => ErrorCode::TooMany,
        RegistryError::UnknownPod { .. } => ErrorCode::NotFound,
        RegistryError::TableDamaged { .. }
        | RegistryError::LockBusy { .. }
        | RegistryError::LeaseLost { .. }
        | RegistryError::Io { .. } => ErrorCode::Internal,
    }
}

/// The target pod of an order.
type ChildRef = (SessionId, PodName);
