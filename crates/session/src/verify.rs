//! Verify: everything that can be checked about a session without folding it.
//!
//! Here: numbers, chain, whole steps, epochs, times, blobs, lineage, caches. Elsewhere: the invariants about runs and
//! calls, which whoever folds the entries checks (`pod`), through the callback.
//! Promise: a flipped bit in any byte of a log is found (`every_flipped_bit_of_a_log_is_found`).

use std::collections::HashSet;
use std::ops::ControlFlow;

use minke_record::{Entry, Kind, Millis, Position, SessionId, hex};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::blobs::{self, Named};
use crate::error::{Damage, StoreError};
use crate::store::{Reader, ScanEnd, Sealed, Store};

/// A damaged session may have as many problems as entries; a person reads a few of them.
pub const PROBLEMS: usize = 1_000;
/// How much of a blob is read at once.
const CHUNK_BYTES: usize = 256 * 1024;
/// How many forks of forks are followed.
const GENERATIONS: usize = 1_000;

/// What was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    pub session: SessionId,
    pub entries: u64,
    pub bytes: u64,
    pub blobs: u64,
    pub head: Option<Position>,
    /// Anything here means that the session is not as it was written.
    pub problems: Vec<Problem>,
    /// How many more problems there are than are listed.
    pub left_out: u64,
    /// Worth knowing, and no damage.
    pub notes: Vec<String>,
}

impl Verification {
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, seq: Option<u64>, message: String) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(Problem { seq, damage: None, message });
        } else {
            self.left_out += 1;
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The entry, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The place, if reading ended there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
    pub message: String,
}

/// Reads a whole session and checks it. `each` gets every entry of its own good prefix, lists in their place.
pub fn verify(
    store: &dyn Store,
    id: SessionId,
    each: &mut dyn FnMut(&Entry),
) -> Result<Verification, StoreError> {
    let reader = store.reader(id)?;
    let live = store.holder(id)?.is_some();
    let mut found = Verification {
        session: id,
        entries: 0,
        bytes: 0,
        blobs: 0,
        head: None,
        problems: Vec::new(),
        left_out: 0,
        notes: Vec::new(),
    };
    let mut seen = HashSet::new();
    one_log(&*reader, live, &mut found, &mut seen, each)?;
    lineage(reader, &mut found, &mut seen)?;
    Ok(found)
}

fn one_log(
    reader: &dyn Reader,
    live: bool,
    found: &mut Verification,
    seen: &mut HashSet<String>,
    each: &mut dyn FnMut(&Entry),
) -> Result<(), StoreError> {
    let mut rules = Rules { session: reader.id(), epoch: 0, ts: 0 };
    let mut failed = None;
    let end = reader.scan(0, &mut |sealed| {
        found.entries += 1;
        found.bytes += sealed.line.len() as u64 + 1;
        found.head = Some(Position { seq: sealed.entry.seq, h: sealed.entry.h });
        rules.check(&sealed.entry, found);
        if let Err(error) = check_blobs(reader, &sealed, found, seen) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        each(&sealed.entry);
        ControlFlow::Continue(())
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    match end {
        ScanEnd::Damaged(damage) => {
            let problem =
                Problem { seq: Some(damage.seq), message: damage.to_string(), damage: Some(damage) };
            found.problems.push(problem);
        }
        ScanEnd::Clean { tail: 0 } | ScanEnd::Stopped => {}
        ScanEnd::Clean { tail } if live => {
            found.notes.push(format!("{tail} bytes of a step that is being written stand at the end"));
        }
        ScanEnd::Clean { tail } => {
            let message =
                format!("{tail} bytes at the end are not a whole step; opening the session moves them aside");
            found.problem(None, message);
        }
    }
    for message in reader.doubtful()? {
        found.problem(None, message);
    }
    if found.entries == 0 {
        found.problem(None, "the log has no whole step".to_owned());
    }
    Ok(())
}

/// What each entry must be, given those before.
struct Rules {
    session: SessionId,
    epoch: u64,
    ts: Millis,
}

impl Rules {
    fn check(&mut self, entry: &Entry, found: &mut Verification) {
        let seq = entry.seq;
        if entry.ts < self.ts {
            found.problem(Some(seq), format!("its time {} is before that of the entry before", entry.ts));
        }
        self.ts = self.ts.max(entry.ts);
        match &entry.kind {
            Kind::SessionStart(start) => {
                if seq != 0 {
                    found.problem(Some(seq), "a session starts a second time".to_owned());
                }
                if start.session != self.session {
                    found.problem(Some(seq), format!("it is the log of session {}", start.session));
                }
            }
            Kind::Opened(opened) => {
                if opened.epoch <= self.epoch {
                    let message = format!("epoch {} follows epoch {}", opened.epoch, self.epoch);
                    found.problem(Some(seq), message);
                }
                self.epoch = self.epoch.max(opened.epoch);
            }
            _ if seq == 0 => found.problem(Some(0), "the first entry is no `session_start`".to_owned()),
            _ => {}
        }
    }
}

/// Every blob that the entry names is there and is what its name says.
fn check_blobs(
    reader: &dyn Reader,
    sealed: &Sealed,
    found: &mut Verification,
    seen: &mut HashSet<String>,
) -> Result<(), StoreError> {
    let mut names = blobs::named_in(sealed.line.as_bytes());
    // What a spilled list names is named here too, once the list is in its place.
    if matches!(sealed.entry.kind, Kind::SegmentStart(_) | Kind::Carry(_) | Kind::Snapshot(_))
        && !names.is_empty()
    {
        let whole = serde_json::to_vec(&sealed.entry.kind).unwrap_or_default();
        names.extend(blobs::named_in(&whole));
    }
    for (name, named) in names {
        if !seen.insert(name.clone()) {
            continue;
        }
        found.blobs += 1;
        let seq = Some(sealed.entry.seq);
        match (hash_of(reader, &name)?, named) {
            (Some(hash), _) if hash == name => {}
            (Some(_), Named::Stream) => {
                found.notes.push(format!("the recorded stream {name} is not what its name says"));
            }
            (Some(_), Named::Content) => {
                found.problem(seq, format!("the content of blob {name} is not what its name says"))
            }
            (None, Named::Content) => found.problem(seq, format!("blob {name} is missing")),
            (None, Named::Stream) => found.notes.push(format!("the recorded stream {name} is missing")),
        }
    }
    Ok(())
}

fn hash_of(reader: &dyn Reader, name: &str) -> Result<Option<String>, StoreError> {
    let mut hash = Sha256::new();
    let mut offset = 0;
    loop {
        match reader.blob(name, offset, CHUNK_BYTES) {
            Ok(chunk) if chunk.is_empty() => return Ok(Some(hex(&hash.finalize()))),
            Ok(chunk) => {
                hash.update(&chunk);
                offset += chunk.len() as u64;
            }
            Err(StoreError::Blob { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// The entries that a fork shares with its parents are still those it knew.
fn lineage(
    mut reader: Box<dyn Reader>,
    found: &mut Verification,
    seen: &mut HashSet<String>,
) -> Result<(), StoreError> {
    for _ in 0..GENERATIONS {
        let Some(from) = reader.from()? else {
            return Ok(());
        };
        let parent = match reader.parent() {
            Ok(Some(parent)) => parent,
            Ok(None) | Err(StoreError::NotFound { .. }) => {
                found.problem(
                    None,
                    format!("session {}, which this one was forked from, is gone", from.session),
                );
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut shared =
            Verification { head: None, entries: 0, bytes: 0, blobs: 0, left_out: 0, ..found.clone() };
        shared.problems.clear();
        shared.notes.clear();
        one_log(&*parent, true, &mut shared, seen, &mut |_| {})?;
        for problem in shared.problems {
            let message =
                format!("in session {}, which this one was forked from: {}", from.session, problem.message);
            found.problem(problem.seq, message);
        }
        found.left_out += shared.left_out;
        if shared.head != Some(Position { seq: from.seq, h: from.h }) {
            let message =
                format!("entry {} of session {} is not the one that was forked", from.seq, from.session);
            found.problem(Some(0), message);
        }
        reader = parent;
    }
    Ok(())
}
