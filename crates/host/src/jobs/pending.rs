//! Pending jobs: lists the jobs that need a host, and keeps a mark on the disk by which any command knows, without
//! reading a log, that a host is needed.
//!
//! The scheduler writes the mark while there is or will be work, and removes it. Elsewhere: due jobs (`job_cache`),
//! starting a host (`instance`).
//! Invariant: after a host was killed, the next command that concerns pods starts one
//! (`the_next_command_starts_a_host_for_what_is_owed`).

use std::fs;
use std::io;
use std::path::PathBuf;

use minke_client::UserHome;
use minke_launch::now_millis;
use minke_record::{Millis, SessionId};
use minke_registry::UserPaths;
use minke_thread::JobNeed;

use crate::error::ApiError;
use crate::instance::{find_running, spawn_host};
use crate::threads::lists::query_index;

const MARK_FILE: &str = "jobs.owed";
/// The maximum number of listed jobs.
const MAX_NAMED_JOBS: usize = 1_000;

/// A job that is ready and that no pod works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingJob {
    pub session: SessionId,
    pub name: String,
    pub state: &'static str,
    /// Since when it has been ready.
    pub since: Millis,
}

fn mark_path(paths: &UserPaths) -> PathBuf {
    paths.data.join(MARK_FILE)
}

/// Writes or removes the mark.
pub(crate) fn write_mark(paths: &UserPaths, has_pending: bool) -> io::Result<()> {
    if has_pending {
        return fs::write(mark_path(paths), b"");
    }
    match fs::remove_file(mark_path(paths)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Starts a host if the mark exists and no host is running; does not wait for it. Returns whether it did.
pub fn wake_host(paths: &UserPaths) -> io::Result<bool> {
    if !mark_path(paths).exists() || find_running(paths).is_some() {
        return Ok(false);
    }
    // If another command is faster, this host finds the lock taken and exits.
    spawn_host(paths).map(|_| true)
}

/// Returns the due jobs that no pod works on.
pub fn pending_jobs(home: &UserHome) -> Result<Vec<PendingJob>, ApiError> {
    let now = now_millis();
    let mut has_pending = Vec::new();
    for summary in query_index(home, |index| index.list_jobs(true, MAX_NAMED_JOBS))?.value {
        let Some(session) = summary.session else { continue };
        let is_held = home.store.lease_holder(session)?.is_some();
        let Some(candidate) = summary.job_candidate(is_held, now) else { continue };
        let since = match candidate.need {
            JobNeed::Start | JobNeed::Resume | JobNeed::Finish => candidate.since,
            JobNeed::StartAt(time) | JobNeed::FireSchedule(time) if time <= now => time,
            JobNeed::StartAt(_) | JobNeed::FireSchedule(_) | JobNeed::Nothing => continue,
        };
        if !is_held {
            let name = summary.name.as_ref().map(ToString::to_string).unwrap_or_default();
            let state = summary.job_state(is_held).map_or("unknown", |state| state.state_name());
            has_pending.push(PendingJob { session, name, state, since });
        }
    }
    Ok(has_pending)
}
