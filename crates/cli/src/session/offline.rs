//! Offline edits of the command line: steps written to a session without a live pod.
//!
//! Elsewhere: the entries (`pod::offline`), the author (`host::step`), the lease and the start of the pod
//! (`client`).

use std::path::Path;

use minke_client::{OfflineStep, UserHome};
use minke_pod::OfflineEdit;
use minke_record::{Actor, InputSegment, Kind, SessionId};

use crate::error::CliError;

/// Returns an offline edit that queues an input.
pub(crate) fn queue_step(
    segments: Vec<InputSegment>,
    op_id: Option<String>,
    by: Actor,
) -> Box<OfflineStep<'static>> {
    minke_host::edit_step(OfflineEdit::Queue { segments, op_id }, by)
}

/// Returns the newest session of a directory.
pub(crate) fn newest_session(home: &UserHome, cwd: &Path) -> Result<SessionId, CliError> {
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    for id in home.store.list_sessions()?.into_iter().rev() {
        // An unreadable session must not hide the others; `log verify --all` reports it.
        let Ok(page) = home.store.open_reader(id).and_then(|reader| reader.read_page(0, 1, usize::MAX))
        else {
            continue;
        };
        let start = page.entries.first().map(|sealed| &sealed.entry.kind);
        if let Some(Kind::SessionStart(start)) = start
            && Path::new(&start.cwd) == cwd
        {
            return Ok(id);
        }
    }
    Err(CliError::usage(format!("no session was started in {}", cwd.display()))
        .with_code("not_found")
        .with_hint("`minke exec \"…\"` starts one; `minke ps --all` lists those of other directories"))
}
