//! Visits of the command line: what is written to a session on which no pod lives.
//!
//! Elsewhere: the entries (`pod::visit`), who visits (`host::step`), the lease and the pod that is started with it (`client`).

use std::path::Path;

use minke_client::{Home, VisitStep};
use minke_pod::Visit;
use minke_record::{Actor, InputSegment, Kind, SessionId};

use crate::failure::Failure;

/// A visit that leaves an input.
pub(crate) fn queue_step(
    segments: Vec<InputSegment>,
    op_id: Option<String>,
    by: Actor,
) -> Box<VisitStep<'static>> {
    minke_host::step(Visit::Queue { segments, op_id }, by)
}

/// The newest session that was begun in a directory.
pub(crate) fn newest(home: &Home, cwd: &Path) -> Result<SessionId, Failure> {
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    for id in home.store.list()?.into_iter().rev() {
        // One session that cannot be read must not hide the others; `log verify --all` speaks of it.
        let Ok(page) = home.store.reader(id).and_then(|reader| reader.page(0, 1, usize::MAX)) else {
            continue;
        };
        let start = page.entries.first().map(|sealed| &sealed.entry.kind);
        if let Some(Kind::SessionStart(start)) = start
            && Path::new(&start.cwd) == cwd
        {
            return Ok(id);
        }
    }
    Err(Failure::usage(format!("no session was begun in {}", cwd.display()))
        .code("not_found")
        .hint("`minke exec \"…\"` begins one; `minke ps --all` lists those of other directories"))
}
