//! The index: a cache of all session summaries and messages, for lists and searches.
//!
//! Here: opening the file (`Index::open`), updating it (`refresh`), lists (`list`), searches (`search`). Elsewhere:
//! session summaries (`thread`), the logs (`session`), which are authoritative.
//! Invariant: the index follows the logs: after a deletion, damage or rollback of its file, the next `refresh` produces
//! the same content as a rebuild (`whatever_becomes_of_the_file_the_logs_decide`).

mod database;
mod list;
mod log_reader;
mod refresh;
mod search;

pub use database::{Index, OpenedIndex};
pub use list::{ArchivedFilter, ListCursor, ThreadPage, ThreadQuery};
pub use refresh::{ReadFailure, RefreshReport};
pub use search::{MAX_MATCHES, MAX_WORDS, SearchHit};

use std::path::PathBuf;

use sha2::{Digest, Sha256};

/// Why the index cannot be used. The logs are readable without it.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("could not {what} the index {}: {why}", path.display())]
    Database { what: &'static str, path: PathBuf, why: String },
    /// The content of the file is damaged.
    #[error("the index {} is damaged: {why}", path.display())]
    DamagedFile { path: PathBuf, why: String },
    #[error("could not {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] minke_session::StoreError),
    #[error("`{cursor}` is not a valid cursor: use `next_cursor` of the previous page unchanged")]
    BadCursor { cursor: String },
}

/// Returns the checksum of a row: SQLite does not detect changed bytes.
pub(crate) fn checksum(text: &str) -> String {
    minke_record::to_hex(&Sha256::digest(text.as_bytes())[..16])
}
