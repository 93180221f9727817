//! What is owed: jobs that only a host goes on with, named for whoever asks, and a mark on the disk by which any command
//! knows, without reading a log, that a host is needed.
//!
//! The keeper makes the mark while something is due or will be, and takes it away. Elsewhere: who is due (`known`), how a
//! host is started (`instance`).
//! Invariant: after a host was killed the next command that has to do with pods starts one
//! (`the_next_command_starts_a_host_for_what_is_owed`).

use std::fs;
use std::io;
use std::path::PathBuf;

use minke_client::Home;
use minke_record::{Millis, SessionId};
use minke_registry::Paths;
use minke_thread::Need;

use crate::fault::Fault;
use crate::instance::{running, start};
use crate::lists::from_index;
use crate::visits::now;

const MARK: &str = "jobs.owed";
/// The most jobs that are named.
const NAMED: usize = 1_000;

/// A job that could go on, and that nobody has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owed {
    pub session: SessionId,
    pub name: String,
    pub state: &'static str,
    /// Since when it could.
    pub since: Millis,
}

fn mark(paths: &Paths) -> PathBuf {
    paths.data.join(MARK)
}

/// Makes the mark, or takes it away.
pub(crate) fn set(paths: &Paths, owed: bool) -> io::Result<()> {
    if owed {
        return fs::write(mark(paths), b"");
    }
    match fs::remove_file(mark(paths)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Starts a host if something is owed and none runs; does not wait for it. Says whether it did.
pub fn wake(paths: &Paths) -> io::Result<bool> {
    if !mark(paths).exists() || running(paths).is_some() {
        return Ok(false);
    }
    // If another command is faster, this one finds the place taken and ends.
    start(paths).map(|_| true)
}

/// Jobs that are due and that nobody has.
pub fn owed(home: &Home) -> Result<Vec<Owed>, Fault> {
    let now = now();
    let mut owed = Vec::new();
    for summary in from_index(home, |index| index.jobs(true, NAMED))?.value {
        let Some(session) = summary.session else { continue };
        let held = home.store.holder(session)?.is_some();
        let Some(candidate) = summary.candidate(held, now) else { continue };
        let since = match candidate.need {
            Need::Begin | Need::Work | Need::End => candidate.since,
            Need::At(time) | Need::Fire(time) if time <= now => time,
            Need::At(_) | Need::Fire(_) | Need::Nothing => continue,
        };
        if !held {
            let name = summary.name.as_ref().map(ToString::to_string).unwrap_or_default();
            let state = summary.job_state(held).map_or("unknown", |state| state.name());
            owed.push(Owed { session, name, state, since });
        }
    }
    Ok(owed)
}
