//! The keeper: looks at all jobs again and again, and starts the pods of those that are due.
//!
//! It knows nothing that the logs do not say: killed at any time, the next one goes on. Elsewhere: what it knows between
//! two looks (`known`), who is due (`thread::plan`), what a pod does with its job (`pod`).
//! Invariant: a job whose pod cannot be started is tried again later and later, and never in the way of others
//! (`a_job_that_cannot_start_keeps_nobody_waiting`).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use minke_client::reach;
use minke_record::{Actor, Millis, SessionId};
use minke_thread::{Need, Plan, plan};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::fault::Fault;
use crate::known::Known;
use crate::stderr::report;
use crate::visits::now;

/// How often it looks whether there is anything new: one look at one directory.
const GLANCE: Duration = Duration::from_millis(250);
/// The same at those that are at work, while others wait for their places.
const GLANCE_CROWDED: Duration = Duration::from_millis(100);
/// Pods that are started at once.
const STARTS: usize = 4;
/// The wait after a start that failed, doubled up to the other.
const AGAIN_MS: u64 = 500;
const AGAIN_MOST_MS: u64 = 30_000;

/// What the keeper is told, and what it tells.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    nudge: Notify,
    /// Something is due, or will be, that only a host does.
    due: AtomicBool,
}

impl Engine {
    /// There may be something to do.
    pub(crate) fn nudge(&self) {
        self.keeper.nudge.notify_one();
    }

    /// Whether something is due that only a host does, so that it must not end: timers, queued jobs, unread asks.
    pub fn busy(&self) -> bool {
        self.keeper.due.load(Ordering::Relaxed)
    }
}

/// Looks after jobs until it is told to stop.
pub(crate) async fn keep(engine: Engine, mut stop: watch::Receiver<bool>) {
    let mut keeping = Keeping::default();
    let mut last = String::new();
    loop {
        engine.reap();
        let until = match keeping.known.look(&engine).await {
            Ok(()) => {
                last.clear();
                keeping.begin(&engine)
            }
            Err(fault) => {
                // Said once, not every second.
                if last != fault.message {
                    report!("jobs cannot be looked at: {}", fault.message);
                    last = fault.message;
                }
                keeping.known.next_look()
            }
        };
        if keeping.wait(&engine, &mut stop, until).await.is_break() {
            return;
        }
    }
}

#[derive(Default)]
struct Keeping {
    known: Known,
    /// What was last noted for others.
    marked: Option<bool>,
    tries: Tries,
    starting: JoinSet<(SessionId, Result<(), Fault>)>,
}

impl Keeping {
    /// Starts who is due, as far as there is room, and says when to look again.
    fn begin(&mut self, engine: &Engine) -> Instant {
        let now = now();
        let due = self.known.due();
        engine.keeper.due.store(due, Ordering::Relaxed);
        self.mark(engine, due);
        self.tries.0.retain(|session, tried| tried.begun || self.known.has(*session));
        let mut candidates = self.known.candidates();
        for one in &mut candidates {
            match self.tries.0.get(&one.session) {
                // It takes a place already.
                Some(tried) if tried.begun => (one.held, one.need) = (true, Need::Work),
                Some(tried) if tried.at > now && !one.held => one.need = Need::At(tried.at),
                _ => {}
            }
        }
        let Plan { start, next, crowded } = plan(&candidates, engine.room, now);
        let room = STARTS.saturating_sub(self.starting.len());
        let more = crowded || start.len() > room;
        for session in start.into_iter().take(room) {
            self.tries.0.entry(session).or_default().begun = true;
            let engine = engine.clone();
            self.starting.spawn(async move { (session, started(&engine, session).await) });
        }
        let usual = self.known.next_look();
        let usual = if more { usual.min(Instant::now() + GLANCE_CROWDED) } else { usual };
        let wait = |next: Millis| Instant::now() + Duration::from_millis(next.saturating_sub(now));
        next.map_or(usual, |next| usual.min(wait(next)))
    }

    /// So that any command knows that a host is needed, when this one is gone.
    fn mark(&mut self, engine: &Engine, due: bool) {
        if self.marked == Some(due) {
            return;
        }
        if let Err(e) = crate::owed::set(&engine.home.paths, due) {
            report!("cannot note that jobs are open: {e}");
        }
        self.marked = Some(due);
    }

    /// Until that time, or until something has happened.
    async fn wait(
        &mut self,
        engine: &Engine,
        stop: &mut watch::Receiver<bool>,
        until: Instant,
    ) -> ControlFlow<()> {
        loop {
            tokio::select! {
                _ = stop.changed() => return ControlFlow::Break(()),
                () = engine.keeper.nudge.notified() => {
                    self.known.all_is_old();
                    break;
                }
                Some(done) = self.starting.join_next(), if !self.starting.is_empty() => {
                    if let Ok((session, result)) = done {
                        if result.is_ok() {
                            self.known.started(session);
                        }
                        self.tries.tried(session, result, now());
                    }
                    break;
                }
                () = tokio::time::sleep_until(until) => break,
                () = tokio::time::sleep(GLANCE) => {
                    if self.known.is_old(engine) {
                        break;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }
}

async fn started(engine: &Engine, session: SessionId) -> Result<(), Fault> {
    if !crate::claims::claim(&engine.home, session).await? {
        return Ok(());
    }
    crate::room::make_way(&engine.home, session, &Actor::minke()).await?;
    let reached = reach(&engine.home, session).await?;
    engine.keep(reached.launched);
    Ok(())
}

/// How starting went, of each job that was tried and is not over.
#[derive(Debug, Default)]
struct Tries(BTreeMap<SessionId, Try>);

#[derive(Debug, Default)]
struct Try {
    /// It is being started now.
    begun: bool,
    /// Not before this time.
    at: Millis,
    /// The last wait; 0 before the first.
    wait: u64,
    /// Why it could not be started, as it was said: once, not every time.
    why: String,
}

impl Tries {
    fn tried(&mut self, session: SessionId, result: Result<(), Fault>, now: Millis) {
        let tried = self.0.entry(session).or_default();
        match result {
            Ok(()) => drop(self.0.remove(&session)),
            Err(fault) => {
                let wait = tried.wait.saturating_mul(2).clamp(AGAIN_MS, AGAIN_MOST_MS);
                if tried.why != fault.message {
                    report!("job s_{session} cannot be started yet: {}", fault.message);
                }
                let at = now.saturating_add(wait);
                *tried = Try { begun: false, at, wait, why: fault.message };
            }
        }
    }
}
