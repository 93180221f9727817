//! Visits of the command line: what is written to a session on which no pod lives.
//!
//! Elsewhere: the entries (`pod::visit`), the lease and the pod that is started with it (`client`).

use std::path::Path;

use minke_client::{Home, VisitStep, Visited};
use minke_pod::{Moment, State, Visit, Visitor};
use minke_protocol::Refusal;
use minke_record::{Actor, InputSegment, Kind, SessionId};

use crate::around::now;
use crate::failure::Failure;

/// A visit that leaves an input.
pub(crate) fn queue_step(
    segments: Vec<InputSegment>,
    op_id: Option<String>,
    by: Actor,
    seed: u64,
) -> Box<VisitStep<'static>> {
    step(Visit::Queue { segments, op_id }, by, seed)
}

/// A visit that changes one thing.
pub(crate) fn step(visit: Visit, by: Actor, seed: u64) -> Box<VisitStep<'static>> {
    Box::new(move |replay| {
        let state = State::replay(replay.iter().map(|sealed| &sealed.entry));
        let at = Moment { now: now(), seed };
        let written = minke_pod::visit(&state, at, visitor(by.clone()), visit.clone())
            .map_err(|refusal| Refusal { code: refusal.code, message: refusal.message })?;
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
