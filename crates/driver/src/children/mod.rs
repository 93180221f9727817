//! Children: the hand that reaches other pods.
//!
//! Here: which order goes where, and what they all work with. Elsewhere: what is wanted of them (`pod::tree`), making one
//! (`spawn`, its clone in `clone`), waiting for its end (`watch`, `kin`), talking to one (`talk`, `stop`), reading its log (`reading`), reports
//! upward (`reports`), this pod's own scope meanwhile (`scope`); who holds which scope (`registry`), starting a process
//! (`client`).

mod clone;
mod kin;
mod profile;
mod reading;
mod reports;
mod scope;
mod spawn;
mod stop;
mod talk;
mod watch;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use minke_client::Home;
use minke_exec::command::Commands;
use minke_files::Files;
use minke_pod::{CallEnd, Moment, State, TreeNews, TreeOrder};
use minke_protocol::ClientInfo;
use minke_record::{CallId, ErrorCode, OpenChild, PodName, Report, SessionId};
use minke_registry::{RegistryError, Runtime, TableLimits};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::mail::Mail;
use kin::Kin;
pub(crate) use reading::account;
pub(crate) use scope::LiveScope;
pub(crate) use watch::granted;

/// What is known when the hand is made.
pub(crate) struct Reach {
    pub(crate) home: Home,
    pub(crate) session: SessionId,
    pub(crate) runtime: Runtime,
    pub(crate) files: Arc<Files>,
    pub(crate) commands: Option<Arc<Commands>>,
    /// Nothing is written, whatever the scope says.
    pub(crate) read_only: bool,
    pub(crate) limits: TableLimits,
    pub(crate) mail: mpsc::Sender<Mail>,
}

/// What every task of the hand works with.
struct Hand {
    home: Home,
    session: SessionId,
    runtime: Runtime,
    commands: Option<Arc<Commands>>,
    limits: TableLimits,
    scope: LiveScope,
    /// Those that are watched.
    kin: Mutex<HashMap<SessionId, Arc<Kin>>>,
    /// Held while the write scope is given up or taken back.
    yielding: tokio::sync::Mutex<()>,
    mail: mpsc::Sender<Mail>,
}

impl Hand {
    /// Something has come of an order. The loop is gone only when the process ends.
    async fn tell(&self, news: TreeNews) {
        drop(self.mail.send(Mail::Tree(Box::new(news))).await);
    }

    async fn told(&self, call_id: CallId, ended: CallEnd) {
        self.tell(TreeNews::Told { call_id, ended }).await;
    }

    fn kin(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Kin>>> {
        // Rows are put in and taken out whole.
        self.kin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How this pod introduces itself to others.
    fn introduction(&self) -> ClientInfo {
        ClientInfo {
            name: "pod".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            session: Some(self.session),
        }
    }

    /// Does something that reads or writes files, off the loop.
    async fn off_loop<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Hand) -> T + Send + 'static,
    ) -> T {
        let hand = Arc::clone(self);
        match tokio::task::spawn_blocking(move || work(&hand)).await {
            Ok(done) => done,
            Err(failed) => match failed.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going down, and this task with it.
                Err(_) => std::future::pending().await,
            },
        }
    }

    /// The socket of a session's pod, if one lives.
    async fn socket(self: &Arc<Self>, session: SessionId) -> Result<Option<PathBuf>, RegistryError> {
        self.off_loop(move |hand| {
            let table = hand.runtime.table()?;
            let row = table.row(session).filter(|row| row.ticket_hash.is_none());
            Ok(row.map(|row| row.socket.clone()))
        })
        .await
    }
}

pub(crate) struct Children {
    hand: Arc<Hand>,
    tasks: JoinSet<()>,
    /// The report that is on its way.
    report: Option<AbortHandle>,
}

impl Children {
    pub(crate) fn new(reach: Reach) -> Children {
        let Reach { home, session, runtime, files, commands, read_only, limits, mail } = reach;
        let scope = LiveScope::new(session, runtime.clone(), files, read_only);
        let kin = Mutex::default();
        let yielding = tokio::sync::Mutex::default();
        let hand = Arc::new(Hand { home, session, runtime, commands, limits, scope, kin, yielding, mail });
        Children { hand, tasks: JoinSet::new(), report: None }
    }

    /// Carries an order out. What comes of it comes back by mail.
    pub(crate) fn order(&mut self, order: TreeOrder, state: &State, at: Moment) {
        while self.tasks.try_join_next().is_some() {}
        let hand = Arc::clone(&self.hand);
        match order {
            TreeOrder::Spawn(spawning) => {
                // At once: what this pod starts from here on must not be able to write there.
                let promised = hand.scope.promise(spawning.session, &spawning.name, &spawning.scope);
                self.tasks.spawn(spawn::spawn(hand, spawning, promised, at));
            }
            TreeOrder::Restore { child, name, scope, budget, kin, send, call_id: _ } => {
                let promised = hand.scope.promise(child, &name, &scope);
                let reason = spawn::Reason { budget, kin: *kin, send };
                let restoring = spawn::Restoring { child, name, scope, reason };
                self.tasks.spawn(spawn::restore(hand, restoring, promised, at));
            }
            TreeOrder::Watch { child, name } => {
                let known = state.facts.children.iter().find(|known| known.session == child);
                let ready = known.is_some_and(|known| known.ready);
                self.tasks.spawn(watch::look(hand, child, name, ready));
            }
            TreeOrder::Send { call_id, child, name, send } => {
                self.tasks.spawn(talk::send(hand, call_id, (child, name), send));
            }
            TreeOrder::Read { call_id, child, name, since, max_bytes, detail } => {
                let wanted = talk::Wanted { since, max_bytes, detail };
                self.tasks.spawn(talk::read(hand, call_id, (child, name), wanted));
            }
            TreeOrder::Stop { call_id, child, name, after_run } => {
                self.tasks.spawn(stop::stop(hand, call_id, (child, name), after_run));
            }
            TreeOrder::List { call_id, children, tree } => {
                self.tasks.spawn(talk::list(hand, call_id, children, tree));
            }
            TreeOrder::Answer { call_id, child, name, ask, decision } => {
                self.tasks.spawn(talk::answer(hand, call_id, (child, name), ask, decision));
            }
            TreeOrder::ReadReports { child, since } => {
                self.tasks.spawn(reports::read(hand, child, since));
            }
            TreeOrder::ReadSpending { child } => {
                self.tasks.spawn(reports::spending(hand, child));
            }
            TreeOrder::Report { seq, to, event } => {
                // One is in flight: an order for another means that the one before is settled.
                if let Some(before) = self.report.take() {
                    before.abort();
                }
                let report = Report { seq, to, event };
                self.report = Some(self.tasks.spawn(reports::send(hand, report)));
            }
            TreeOrder::GiveScope => self.give_or_take(true),
            TreeOrder::TakeScope => self.give_or_take(false),
        }
    }

    /// Gives up this pod's write scope, or takes it back. Off the loop: the table's lock may be held by others.
    fn give_or_take(&mut self, give: bool) {
        let hand = Arc::clone(&self.hand);
        self.tasks.spawn(async move {
            // One after the other, as they were ordered: tasks of this runtime begin in their order, and the lock is fair.
            let _turn = hand.yielding.lock().await;
            let changed = hand.off_loop(move |hand| -> Result<(), String> {
                let (runtime, session) = (&hand.runtime, hand.session);
                let done = if give { runtime.give_scope(session) } else { runtime.take_scope(session) };
                done.map_err(|e| e.to_string())?;
                hand.scope.refresh(None).map(|_| ())
            });
            let problem = changed.await.err();
            // What could not be changed is as it was.
            let given = give == problem.is_none();
            hand.tell(TreeNews::Scope { given, problem }).await;
        });
    }

    /// Looks once at whom the table gives to this pod beside those that it knows of, and at what they have.
    pub(crate) fn look_around(&mut self, known: &[OpenChild]) {
        known
            .iter()
            .filter_map(|child| child.clone.as_ref())
            .for_each(|clone| self.hand.scope.may_read(clone));
        let known: Vec<SessionId> =
            known.iter().filter(|child| child.ended.is_none()).map(|child| child.session).collect();
        self.tasks.spawn(watch::adopt_unknown(Arc::clone(&self.hand), known));
    }
}

/// What a refusal of the table is to whoever asked.
fn code(error: &RegistryError) -> ErrorCode {
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

/// A pod that an order is about.
type Whom = (SessionId, PodName);
