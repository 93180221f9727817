//! The index: a cache of what all sessions amount to, and of what was said in them, for lists and searches.
//!
//! Here: the file and its life (`Index::open`), bringing it up to date (`refresh`), lists (`list`), searches (`search`).
//! Elsewhere: what a session amounts to (`thread`), the logs (`session`), which are the truth.
//! Invariant: whatever happens to the file, the logs decide: deleted, damaged or rolled back, the next `refresh` makes it
//! what it would be if it had been made anew (`whatever_becomes_of_the_file_the_logs_decide`).

mod list;
mod open;
mod reading;
mod refresh;
mod search;

pub use list::{Listed, Only, Place, Query};
pub use open::{Index, Opened};
pub use refresh::{Refreshed, Unread};
pub use search::{Hit, MATCHES, WORDS};

use std::path::PathBuf;

use sha2::{Digest, Sha256};

/// Why the index cannot be used. The logs can be read all the same.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("cannot {what} the index {}: {why}", path.display())]
    Database { what: &'static str, path: PathBuf, why: String },
    /// The file is not what was written.
    #[error("the index {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Store(#[from] minke_session::StoreError),
    #[error("`{cursor}` is no place in a list: give `next_cursor` of the page before, as it was")]
    BadCursor { cursor: String },
}

/// What a row is held to: SQLite does not notice a changed letter.
pub(crate) fn sum_of(text: &str) -> String {
    minke_record::hex(&Sha256::digest(text.as_bytes())[..16])
}
