//! Changes of a session: sent to its pod if it is live, else written as an offline edit.
//!
//! Elsewhere: the entries (`pod::offline`), the lease and starting a pod with it (`client`).
//! Invariant: a change is made once, by the pod or by the offline edit, and starts no pod
//! (`a_change_of_a_sleeping_thread_wakes_nobody`).

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use minke_client::{
    DeliverError, Delivery, OfflineChange, OfflineStep, UserHome, deliver_method, write_offline_edit,
};
use minke_pod::{OfflineEdit, OfflineWriter, State, StepSeed};
use minke_protocol::{ClientInfo, Method, Refusal};
use minke_record::{Actor, IdGenerator, Kind, Millis, OpOutcome, SessionId};
use minke_registry::RuntimeDir;
use minke_session::StoreError;

use crate::error::ApiError;

/// The result of an input that was queued offline.
pub(crate) type InputReply = Arc<Mutex<Option<OpOutcome>>>;

/// Returns an offline edit that changes one setting.
pub fn edit_step(edit: OfflineEdit, by: Actor) -> Box<OfflineStep<'static>> {
    edit_step_with_reply(edit, by, InputReply::default())
}

/// The same; stores the result of an input in `gave`.
pub(crate) fn edit_step_with_reply(
    visit: OfflineEdit,
    by: Actor,
    reply: InputReply,
) -> Box<OfflineStep<'static>> {
    let seed = random_seed();
    Box::new(move |replay| {
        let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
        let at = StepSeed { now: now_millis(), seed };
        let written = minke_pod::apply_offline_edit(&state, at, offline_writer(by.clone()), visit.clone())
            .map_err(|refusal| Refusal { code: refusal.code, message: refusal.message })?;
        let queued = written.entries.iter().find_map(|draft| match &draft.kind {
            Kind::QueuedInput(input) => Some(OpOutcome::Queued(input.id)),
            _ => None,
        });
        let before = match &visit {
            OfflineEdit::Queue { op_id: Some(op_id), .. } => state.op_result(op_id).cloned(),
            _ => None,
        };
        *reply.lock().unwrap_or_else(PoisonError::into_inner) = queued.or(before);
        Ok(OfflineChange { entries: written.entries, blobs: written.blobs })
    })
}

fn offline_writer(by: Actor) -> OfflineWriter {
    OfflineWriter {
        pid: std::process::id(),
        // Informative only; empty if the system does not provide it.
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        by,
    }
}

/// Sends a change to a live pod, or writes it offline without starting one.
pub async fn change_session(
    home: &UserHome,
    session: SessionId,
    method: Method,
    edit: OfflineEdit,
    by: &Actor,
) -> Result<(), ApiError> {
    let living = RuntimeDir::new(&home.paths).live_pod_of_session(session)?.is_some();
    if !living {
        match write_offline_edit(home, session, &*edit_step(edit, by.clone())) {
            Ok(()) => return Ok(()),
            // A pod has started meanwhile: send the change to it.
            Err(DeliverError::Store(StoreError::Held { .. })) => {}
            Err(other) => return Err(other.into()),
        }
    }
    deliver_method(home, Delivery { session, method, client: client_info(by), offline_step: None }).await?;
    Ok(())
}

/// Returns the client info of an actor; the pod records it as the actor of its entries.
pub(crate) fn client_info(by: &Actor) -> ClientInfo {
    ClientInfo {
        name: by.surface.clone().unwrap_or_else(|| "host".to_owned()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        session: by.session,
    }
}

/// Returns the current time.
pub fn now_millis() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

/// Returns a new source of ids.
pub fn new_ids() -> IdGenerator {
    IdGenerator::new(now_millis(), random_seed())
}

/// Returns random bits: the keys of the standard library's hasher come from the operating system.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}
