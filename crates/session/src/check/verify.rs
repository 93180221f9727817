//! Verify: checks a session as far as possible without folding it.
//!
//! Here: numbers, chain, whole steps, epochs, times, blobs, lineage, caches. Elsewhere: the invariants about runs and
//! calls, which the caller checks (`pod`) through the callback.
//! Guarantee: a flipped bit in any byte of a log is detected (`every_flipped_bit_of_a_log_is_found`).

use std::collections::HashSet;
use std::ops::ControlFlow;

use minke_record::{Entry, Kind, Millis, Position, SessionId, to_hex};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::error::{LogDamage, StoreError};
use crate::files::blobs::{self, BlobRole};
use crate::store::{Reader, ScanEnd, SealedEntry, SessionStore};

/// The maximum number of listed problems. A damaged session may have as many as it has entries.
pub const MAX_PROBLEMS: usize = 1_000;
/// The size of one read of a blob.
const CHUNK_BYTES: usize = 256 * 1024;
/// The maximum depth of nested forks.
const MAX_GENERATIONS: usize = 1_000;

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    pub session: SessionId,
    pub entries: u64,
    pub bytes: u64,
    pub blobs: u64,
    pub head: Option<Position>,
    /// Differences from the session as it was written.
    pub problems: Vec<LogProblem>,
    /// The number of problems that are not listed.
    pub left_out: u64,
    /// Observations that are not damage.
    pub notes: Vec<String>,
}

impl Verification {
    pub fn is_intact(&self) -> bool {
        self.problems.is_empty()
    }

    fn add_problem(&mut self, seq: Option<u64>, message: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(LogProblem { seq, damage: None, message });
        } else {
            self.left_out += 1;
        }
    }
}

/// One defect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogProblem {
    /// The entry, if the problem concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The position, if reading ended there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<LogDamage>,
    pub message: String,
}

/// Reads and checks a whole session. Passes every entry of its own good prefix to `each`, with lists restored.
pub fn verify_session(
    store: &dyn SessionStore,
    id: SessionId,
    on_entry: &mut dyn FnMut(&Entry),
) -> Result<Verification, StoreError> {
    let reader = store.open_reader(id)?;
    let live = store.lease_holder(id)?.is_some();
    let mut report = Verification {
        session: id,
        entries: 0,
        bytes: 0,
        blobs: 0,
        head: None,
        problems: Vec::new(),
        left_out: 0,
        notes: Vec::new(),
    };
    let mut checked_blobs = HashSet::new();
    verify_log(&*reader, live, &mut report, &mut checked_blobs, on_entry)?;
    verify_lineage(reader, &mut report, &mut checked_blobs)?;
    Ok(report)
}

fn verify_log(
    reader: &dyn Reader,
    live: bool,
    found: &mut Verification,
    seen: &mut HashSet<String>,
    each: &mut dyn FnMut(&Entry),
) -> Result<(), StoreError> {
    let mut rules = EntryRules { session: reader.session_id(), epoch: 0, ts: 0 };
    let mut failed = None;
    let end = reader.scan_entries(0, &mut |sealed| {
        found.entries += 1;
        found.bytes += sealed.line.len() as u64 + 1;
        found.head = Some(Position { seq: sealed.entry.seq, h: sealed.entry.h });
        rules.check_entry(&sealed.entry, found);
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
                LogProblem { seq: Some(damage.seq), message: damage.to_string(), damage: Some(damage) };
            found.problems.push(problem);
        }
        ScanEnd::Clean { tail: 0 } | ScanEnd::Stopped => {}
        ScanEnd::Clean { tail } if live => {
            found.notes.push(format!("the log ends with {tail} bytes of a step that is being written"));
        }
        ScanEnd::Clean { tail } => {
            let message =
                format!("{tail} bytes at the end are not a whole step; opening the session moves them aside");
            found.add_problem(None, message);
        }
    }
    for message in reader.store_problems()? {
        found.add_problem(None, message);
    }
    if found.entries == 0 {
        found.add_problem(None, "the log has no whole step".to_owned());
    }
    Ok(())
}

/// The expected properties of the next entry.
struct EntryRules {
    session: SessionId,
    epoch: u64,
    ts: Millis,
}

impl EntryRules {
    fn check_entry(&mut self, entry: &Entry, report: &mut Verification) {
        let seq = entry.seq;
        if entry.ts < self.ts {
            report.add_problem(
                Some(seq),
                format!("its time {} is before the time of the previous entry", entry.ts),
            );
        }
        self.ts = self.ts.max(entry.ts);
        match &entry.kind {
            Kind::SessionStart(start) => {
                if seq != 0 {
                    report.add_problem(Some(seq), "a second `session_start`".to_owned());
                }
                if start.session != self.session {
                    report.add_problem(Some(seq), format!("it is the log of session {}", start.session));
                }
            }
            Kind::Opened(opened) => {
                if opened.epoch <= self.epoch {
                    let message = format!("epoch {} follows epoch {}", opened.epoch, self.epoch);
                    report.add_problem(Some(seq), message);
                }
                self.epoch = self.epoch.max(opened.epoch);
            }
            _ if seq == 0 => {
                report.add_problem(Some(0), "the first entry is not a `session_start`".to_owned())
            }
            _ => {}
        }
    }
}

/// Checks that every blob of the entry exists and matches its name.
fn check_blobs(
    reader: &dyn Reader,
    sealed: &SealedEntry,
    report: &mut Verification,
    checked_blobs: &mut HashSet<String>,
) -> Result<(), StoreError> {
    let mut names = blobs::blob_names_in_line(sealed.line.as_bytes());
    // The restored lists of this entry name blobs too.
    if matches!(sealed.entry.kind, Kind::SegmentStart(_) | Kind::Carry(_) | Kind::Snapshot(_))
        && !names.is_empty()
    {
        let whole = serde_json::to_vec(&sealed.entry.kind).unwrap_or_default();
        names.extend(blobs::blob_names_in_line(&whole));
    }
    for (name, named) in names {
        if !checked_blobs.insert(name.clone()) {
            continue;
        }
        report.blobs += 1;
        let seq = Some(sealed.entry.seq);
        match (hash_blob(reader, &name)?, named) {
            (Some(hash), _) if hash == name => {}
            (Some(_), BlobRole::Recording) => {
                report.notes.push(format!("the recorded stream {name} does not match its name"));
            }
            (Some(_), BlobRole::Content) => {
                report.add_problem(seq, format!("the content of blob {name} does not match its name"))
            }
            (None, BlobRole::Content) => report.add_problem(seq, format!("blob {name} is missing")),
            (None, BlobRole::Recording) => {
                report.notes.push(format!("the recorded stream {name} is missing"))
            }
        }
    }
    Ok(())
}

fn hash_blob(reader: &dyn Reader, name: &str) -> Result<Option<String>, StoreError> {
    let mut hash = Sha256::new();
    let mut offset = 0;
    loop {
        match reader.read_blob(name, offset, CHUNK_BYTES) {
            Ok(chunk) if chunk.is_empty() => return Ok(Some(to_hex(&hash.finalize()))),
            Ok(chunk) => {
                hash.update(&chunk);
                offset += chunk.len() as u64;
            }
            Err(StoreError::Blob { .. }) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

/// Checks that the entries that a fork shares with its parents are unchanged.
fn verify_lineage(
    mut reader: Box<dyn Reader>,
    report: &mut Verification,
    checked_blobs: &mut HashSet<String>,
) -> Result<(), StoreError> {
    for _ in 0..MAX_GENERATIONS {
        let Some(from) = reader.forked_from()? else {
            return Ok(());
        };
        let parent = match reader.parent_reader() {
            Ok(Some(parent)) => parent,
            Ok(None) | Err(StoreError::NotFound { .. }) => {
                report.add_problem(
                    None,
                    format!("session {}, the parent of this fork, is missing", from.session),
                );
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let mut shared =
            Verification { head: None, entries: 0, bytes: 0, blobs: 0, left_out: 0, ..report.clone() };
        shared.problems.clear();
        shared.notes.clear();
        verify_log(&*parent, true, &mut shared, checked_blobs, &mut |_| {})?;
        for problem in shared.problems {
            let message =
                format!("in session {}, the parent of this fork: {}", from.session, problem.message);
            report.add_problem(problem.seq, message);
        }
        report.left_out += shared.left_out;
        if shared.head != Some(Position { seq: from.seq, h: from.h }) {
            let message = format!("entry {} of session {} is not the forked one", from.seq, from.session);
            report.add_problem(Some(0), message);
        }
        reader = parent;
    }
    Ok(())
}
