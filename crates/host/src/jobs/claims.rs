//! Claims: the jobs that this host may start when hosts on several machines share a store.
//!
//! Elsewhere: due jobs (`job_scheduler`), the storage of a claim (the store; with sessions in files there is one host,
//! which may start every job).

use std::collections::BTreeMap;

use minke_client::UserHome;
use minke_record::SessionId;
use minke_session::SessionAvailability;
use minke_thread::SessionSummary;

use crate::engine::run_blocking;
use crate::error::ApiError;

/// Returns, for each job of this host, whether its session is held. Omits jobs that another home holds, whose workspace
/// is on another machine, or that are gone.
pub(crate) fn held_claims(
    home: &UserHome,
    jobs: &[SessionSummary],
) -> Result<BTreeMap<SessionId, bool>, ApiError> {
    let sessions: Vec<SessionId> = jobs.iter().filter_map(|summary| summary.session).collect();
    let standing = home.store.availability(&sessions)?;
    let ours = sessions.into_iter().zip(standing).filter_map(|(session, standing)| match standing {
        SessionAvailability::Free => Some((session, false)),
        SessionAvailability::Held => Some((session, true)),
        SessionAvailability::Elsewhere | SessionAvailability::Gone => None,
    });
    Ok(ours.collect())
}

/// Claims the right to start a job's pod. `false`: another host has it and runs the job.
pub(crate) async fn claim_job(home: &UserHome, session: SessionId) -> Result<bool, ApiError> {
    let store = home.store.clone();
    run_blocking(move || Ok(store.claim_sessions(&[session])?.contains(&session))).await
}
