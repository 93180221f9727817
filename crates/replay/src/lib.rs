//! Replay: a session re-run from its log and its recordings, offline, with a fresh mind.
//!
//! Here: the front door and what it reports. Its parts: the log as it is walked (`timeline`), which inputs led to a step
//! (`causes`, `inputs`, `calls`, `hooked`, `taken`), what a recording says (`recorded`), the mind that hears it all again
//! (`mind`), the walk itself (`again`, `lives`, `requests`), the comparison (`compare`). Elsewhere: reading logs and blobs (`session`, given
//! in by the caller).
//!
//! What came from outside is taken from the log: who said what, what tools answered, what a provider sent. What the pod
//! made of it is made again by the code of this program, and compared with what stands in the log, entry by entry. No
//! socket, file, tool or clock is touched.
//! Invariant: an entry that a mind makes is never taken from the log (`a_changed_prompt_is_found`,
//! `a_changed_tool_is_found`, and every story in `testkit`'s `replay`).

mod again;
mod blobs;
mod calls;
mod captures;
mod causes;
mod compare;
mod hooked;
mod inputs;
mod kin;
mod lives;
mod mind;
mod recipe;
mod recorded;
mod requests;
mod taken;
mod timeline;

use minke_record::Entry;
use serde::Serialize;
use thiserror::Error;

pub use blobs::Fetch;
pub use recipe::Recipe;

/// More entries than this are not held in memory; `until` makes a longer session's beginning replayable.
pub const ENTRIES: usize = 1_000_000;
/// Notes that are kept; a session without any recording would fill the screen with them.
const NOTES: usize = 100;

/// A session, as its log has it: spilled lists back in their place.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// Of a fork: the entries of its lineage before its own, oldest first.
    pub base: &'a [Entry],
    pub entries: &'a [Entry],
}

/// What a replay came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Entries that came again as they stand in the log.
    pub entries: u64,
    /// Requests among them, with their hashes.
    pub requests: u64,
    /// Requests whose wire body was built again and is byte for byte what was sent.
    pub rebuilt: u64,
    /// Replies that have no recording that can be used: their blocks were taken from the log.
    pub from_log: u64,
    pub notes: Vec<String>,
    /// The first difference; absent if there is none.
    pub difference: Option<Difference>,
}

impl Report {
    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// Where log and replay part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub seq: u64,
    /// The kind of the log's entry; empty if the log has none there.
    pub kind: String,
    /// Which field, from the outside in: `system_prompt`, `item.content.0.text`; `kind` if it is another entry.
    pub field: String,
    pub log: String,
    pub replay: String,
    /// The whole entries, shortened.
    pub log_entry: String,
    pub replay_entry: String,
}

/// Why a session cannot be replayed at all.
#[derive(Debug, Error)]
pub enum ReplayError {
    #[error(
        "the log has no session_start: there is nothing to begin with; `minke log verify` says what it holds"
    )]
    NoStart,
    #[error("the session has more than {ENTRIES} entries; replay its beginning with `--until SEQ`")]
    TooLong,
    #[error(
        "the text of entry {seq} lies in blob {name}, which cannot be read: {why}; `minke log verify` lists what is missing"
    )]
    Blob { seq: u64, name: String, why: String },
}

/// Re-runs a session up to and including entry `until`, or to its end.
pub fn replay(
    session: Session<'_>,
    recipe: &Recipe<'_>,
    fetch: Fetch<'_>,
    until: Option<u64>,
) -> Result<Report, ReplayError> {
    again::replay(session, recipe, fetch, until)
}
