//! What is written to a session on which no pod lives, or told to the pod if one does.
//!
//! Elsewhere: the entries (`pod::visit`), the lease and the pod that is started with it (`client`).
//! Invariant: a change is made once, by the pod or by the visit, and wakes nobody
//! (`a_change_of_a_sleeping_thread_wakes_nobody`).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use minke_client::{DeliverError, Delivery, Home, VisitStep, Visited, deliver, visit};
use minke_pod::{Moment, State, Visit, Visitor};
use minke_protocol::{ClientInfo, Method, Refusal};
use minke_record::{Actor, Ids, Kind, Millis, OpGave, SessionId};
use minke_registry::Runtime;
use minke_session::StoreError;

use crate::fault::Fault;

/// What came of an input that was left.
pub(crate) type Gave = Arc<Mutex<Option<OpGave>>>;

/// A visit that changes one thing.
pub fn step(visit: Visit, by: Actor) -> Box<VisitStep<'static>> {
    step_telling(visit, by, Gave::default())
}

/// The same; `gave` is told what became of an input.
pub(crate) fn step_telling(visit: Visit, by: Actor, gave: Gave) -> Box<VisitStep<'static>> {
    let seed = seed();
    Box::new(move |replay| {
        let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
        let at = Moment { now: now(), seed };
        let written = minke_pod::visit(&state, at, visitor(by.clone()), visit.clone())
            .map_err(|refusal| Refusal { code: refusal.code, message: refusal.message })?;
        let queued = written.entries.iter().find_map(|draft| match &draft.kind {
            Kind::QueuedInput(input) => Some(OpGave::Queued(input.id)),
            _ => None,
        });
        let before = match &visit {
            Visit::Queue { op_id: Some(op_id), .. } => state.op(op_id).cloned(),
            _ => None,
        };
        *gave.lock().unwrap_or_else(PoisonError::into_inner) = queued.or(before);
        Ok(Visited { entries: written.entries, blobs: written.blobs })
    })
}

fn visitor(by: Actor) -> Visitor {
    Visitor {
        pid: std::process::id(),
        // Where the system does not say, it stays empty: it is for people.
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        by,
    }
}

/// Tells a live pod, or writes it where nobody lives, waking nobody.
pub async fn change(
    home: &Home,
    session: SessionId,
    (method, left): (Method, Visit),
    by: &Actor,
) -> Result<(), Fault> {
    let living = Runtime::new(&home.paths).live_on(session)?.is_some();
    if !living {
        match visit(home, session, &*step(left, by.clone())) {
            Ok(()) => return Ok(()),
            // A pod has come to life meanwhile: it is told.
            Err(DeliverError::Store(StoreError::Held { .. })) => {}
            Err(other) => return Err(other.into()),
        }
    }
    deliver(home, Delivery { session, method, client: introduction(by), visit: None }).await?;
    Ok(())
}

/// How whoever asks introduces itself to a pod, which notes it as the actor.
pub(crate) fn introduction(by: &Actor) -> ClientInfo {
    ClientInfo {
        name: by.surface.clone().unwrap_or_else(|| "host".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        session: by.session,
    }
}

/// What time it is.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// A fresh source of ids.
pub fn ids() -> Ids {
    Ids::new(now(), seed())
}

/// The keys of the standard library's hasher come from the operating system's randomness.
pub fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
