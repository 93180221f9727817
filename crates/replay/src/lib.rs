//! Replay: re-runs a session from its log and its recordings, offline, with a fresh pod.
//!
//! Here: the entry point and its report. Its parts: the log in steps (`timeline`), the inputs of each step
//! (`causes`, `inputs`, `calls`, `hook_replies`, `replies`), parsing recordings (`recordings`), the pod that
//! receives the inputs (`machine`), the walk itself (`walk`, `processes`, `requests`), the comparison
//! (`compare`, `compat`). Elsewhere: reading logs and blobs (`session`, passed by the caller).
//!
//! Outside inputs are taken from the log: user inputs, tool results, provider replies. The entries that the
//! pod creates from them are computed again by the code of this program and compared with the log, one by
//! one. Replay uses no socket, file, tool or clock.
//! Invariant: an entry that the pod creates is never taken from the log (`a_changed_prompt_is_found`,
//! `a_changed_tool_is_found`, and every story in `testkit`'s `replay`).

mod blobs;
mod calls;
mod causes;
mod children;
mod compare;
mod compat;
mod hook_replies;
mod inputs;
mod machine;
mod processes;
mod recipe;
mod recordings;
mod replies;
mod requests;
mod snapshots;
mod timeline;
mod walk;

use minke_record::Entry;
use serde::Serialize;
use thiserror::Error;

pub use blobs::FetchBlob;
pub use recipe::ReplayRecipe;

/// The maximum number of entries in memory; `until` limits the replay of a longer session.
pub const ENTRIES: usize = 1_000_000;
/// The maximum number of notes; a session without recordings would produce one for each request.
const MAX_NOTES: usize = 100;

/// The entries of a session, with spilled lists restored.
#[derive(Debug, Clone, Copy)]
pub struct ReplaySession<'a> {
    /// For a fork: the inherited entries before its own, oldest first.
    pub base: &'a [Entry],
    pub entries: &'a [Entry],
}

/// The result of a replay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ReplayReport {
    /// The number of equal entries.
    pub entries: u64,
    /// The number of requests among them, with their hashes.
    pub requests: u64,
    /// The number of requests whose wire body was rebuilt and is byte-identical.
    pub rebuilt: u64,
    /// The number of replies without a usable recording: their blocks were taken from the log.
    pub from_log: u64,
    pub notes: Vec<String>,
    /// The first difference, if any.
    pub difference: Option<ReplayDifference>,
}

impl ReplayReport {
    fn add_note(&mut self, note: String) {
        if self.notes.len() < MAX_NOTES && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

/// The first difference between log and replay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplayDifference {
    pub seq: u64,
    /// The kind of the logged entry; empty if the log has none there.
    pub kind: String,
    /// The path of the field: `system_prompt`, `item.content.0.text`; `kind` if the entries have different
    /// kinds.
    pub field: String,
    pub log: String,
    pub replay: String,
    /// The whole entries, truncated.
    pub log_entry: String,
    pub replay_entry: String,
}

/// The reason why a session cannot be replayed.
#[derive(Debug, Error)]
pub enum ReplayError {
    #[error("the log has no session_start; run `minke log verify` to check it")]
    MissingStart,
    #[error("the session has more than {ENTRIES} entries; replay its beginning with `--until SEQ`")]
    TooLong,
    #[error(
        "could not read blob {name} with the text of entry {seq}: {why}; `minke log verify` lists missing blobs"
    )]
    Blob { seq: u64, name: String, why: String },
}

/// Re-runs a session up to and including entry `until`, or to its end.
pub fn replay(
    session: ReplaySession<'_>,
    recipe: &ReplayRecipe<'_>,
    fetch: FetchBlob<'_>,
    until: Option<u64>,
) -> Result<ReplayReport, ReplayError> {
    walk::replay_session(session, recipe, fetch, until)
}
