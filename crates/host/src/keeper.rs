//! The keeper: looks at all jobs again and again, and starts the pods of those that are due.
//!
//! It knows nothing that the logs do not say: killed at any time, the next one goes on. Elsewhere: who is due
//! (`thread::plan`), what a pod does with its job (`pod`).
//! Invariant: a job whose pod cannot be started is tried again later and later, and never in the way of others
//! (`a_job_that_cannot_start_keeps_nobody_waiting`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use minke_client::reach;
use minke_record::{Actor, Millis, SessionId};
use minke_thread::{Candidate, Need, Plan, Room, plan};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::engine::{Engine, off};
use crate::fault::Fault;
use crate::lists::from_index;
use crate::visits::now;

/// How often it looks whether there is anything new: one look at one directory.
const GLANCE: Duration = Duration::from_millis(250);
/// How often it reads what is new, while there are jobs that are not over …
const LOOK_OPEN: Duration = Duration::from_secs(1);
/// … and while there are none.
const LOOK_IDLE: Duration = Duration::from_secs(30);
/// Jobs that are looked at together.
const JOBS: usize = 20_000;
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
    let mut tries = Tries::default();
    let mut starting: JoinSet<(SessionId, Result<(), Fault>)> = JoinSet::new();
    let mut last = String::new();
    loop {
        engine.reap();
        let looked = look(&engine).await;
        let (again, seen) = match looked {
            Ok(looked) => {
                last.clear();
                let wait = begin(&engine, looked, &mut tries, &mut starting);
                (wait, changed(&engine))
            }
            Err(fault) => {
                // Said once, not every second.
                if last != fault.message {
                    eprintln!("jobs cannot be looked at: {}", fault.message);
                    last = fault.message;
                }
                (LOOK_OPEN, changed(&engine))
            }
        };
        let until = tokio::time::Instant::now() + again;
        loop {
            tokio::select! {
                _ = stop.changed() => return,
                () = engine.keeper.nudge.notified() => break,
                Some(done) = starting.join_next(), if !starting.is_empty() => {
                    if let Ok((session, result)) = done {
                        tries.tried(session, result, now());
                    }
                    break;
                }
                () = tokio::time::sleep_until(until) => break,
                () = tokio::time::sleep(GLANCE) => {
                    if changed(&engine) != seen {
                        break;
                    }
                }
            }
        }
    }
}

/// When a session was last made or removed.
fn changed(engine: &Engine) -> Option<SystemTime> {
    std::fs::metadata(engine.home.paths.sessions()).and_then(|found| found.modified()).ok()
}

struct Looked {
    candidates: Vec<Candidate>,
    asks: bool,
    now: Millis,
}

/// What the logs say of all jobs that are not over.
async fn look(engine: &Engine) -> Result<Looked, Fault> {
    let home = engine.home.clone();
    off(move || {
        let found = from_index(&home, |index| index.jobs(true, JOBS))?;
        let now = now();
        let mut looked = Looked { candidates: Vec::new(), asks: false, now };
        for summary in &found.value {
            let Some(session) = summary.session else { continue };
            let held = match home.store.holder(session) {
                Ok(holder) => holder.is_some(),
                // Deleted since, or it cannot be read: nobody starts it.
                Err(_) => continue,
            };
            looked.asks |= summary.open_asks() > 0;
            looked.candidates.extend(summary.candidate(held, now));
        }
        Ok(looked)
    })
    .await
}

/// Starts who is due, as far as there is room, and says when to look again.
fn begin(
    engine: &Engine,
    looked: Looked,
    tries: &mut Tries,
    starting: &mut JoinSet<(SessionId, Result<(), Fault>)>,
) -> Duration {
    let Looked { mut candidates, asks, now } = looked;
    let due = |one: &Candidate| one.need != Need::Nothing;
    engine.keeper.due.store(asks || candidates.iter().any(due), Ordering::Relaxed);
    let open = !candidates.is_empty();
    tries.only(&candidates);
    for one in &mut candidates {
        match tries.0.get(&one.session) {
            // It takes a place already.
            Some(tried) if tried.begun => (one.held, one.need) = (true, Need::Work),
            Some(tried) if tried.at > now && !one.held => one.need = Need::At(tried.at),
            _ => {}
        }
    }
    let Plan { start, next, crowded } = plan(&candidates, Room::default(), now);
    let mut more = crowded;
    for session in start {
        if starting.len() >= STARTS {
            more = true;
            break;
        }
        tries.0.entry(session).or_default().begun = true;
        let engine = engine.clone();
        starting.spawn(async move { (session, started(&engine, session).await) });
    }
    let usual = if open { LOOK_OPEN } else { LOOK_IDLE };
    let usual = if more { LOOK_OPEN.min(usual) } else { usual };
    next.map_or(usual, |next| usual.min(Duration::from_millis(next.saturating_sub(now))))
}

async fn started(engine: &Engine, session: SessionId) -> Result<(), Fault> {
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
    /// Forgets those that are over.
    fn only(&mut self, candidates: &[Candidate]) {
        let open: BTreeSet<SessionId> = candidates.iter().map(|one| one.session).collect();
        self.0.retain(|session, tried| tried.begun || open.contains(session));
    }

    fn tried(&mut self, session: SessionId, result: Result<(), Fault>, now: Millis) {
        let tried = self.0.entry(session).or_default();
        match result {
            Ok(()) => drop(self.0.remove(&session)),
            Err(fault) => {
                let wait = tried.wait.saturating_mul(2).clamp(AGAIN_MS, AGAIN_MOST_MS);
                if tried.why != fault.message {
                    eprintln!("job s_{session} cannot be started yet: {}", fault.message);
                }
                let at = now.saturating_add(wait);
                *tried = Try { begun: false, at, wait, why: fault.message };
            }
        }
    }
}
