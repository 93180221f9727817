//! Claims: which jobs this host may start, where hosts on several machines share a store.
//!
//! Elsewhere: who is due (`keeper`), how a claim is kept (the store; where sessions are files there is one host, and every
//! job is its own).

use std::collections::BTreeMap;

use minke_client::Home;
use minke_record::SessionId;
use minke_session::Standing;
use minke_thread::Summary;

use crate::engine::off;
use crate::fault::Fault;

/// Of those that this host looks after, whether somebody holds them. Those that another home holds, whose workspace is on
/// another machine, or that are gone, are none of its business.
pub(crate) fn held(home: &Home, jobs: &[Summary]) -> Result<BTreeMap<SessionId, bool>, Fault> {
    let sessions: Vec<SessionId> = jobs.iter().filter_map(|summary| summary.session).collect();
    let standing = home.store.standing(&sessions)?;
    let ours = sessions.into_iter().zip(standing).filter_map(|(session, standing)| match standing {
        Standing::Free => Some((session, false)),
        Standing::Held => Some((session, true)),
        Standing::Elsewhere | Standing::Gone => None,
    });
    Ok(ours.collect())
}

/// Takes the right to start a job's pod. `false`: another host has it, and goes on with the job.
pub(crate) async fn claim(home: &Home, session: SessionId) -> Result<bool, Fault> {
    let store = home.store.clone();
    off(move || Ok(store.claim(&[session])?.contains(&session))).await
}
