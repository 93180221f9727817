//! Where the files of a session lie in its directory, and what they are called.

use std::path::{Path, PathBuf};

use minke_record::SessionId;

pub(crate) const LEASE: &str = "lease";
pub(crate) const HEAD: &str = "head";
pub(crate) const HEAD_NEW: &str = "head.new";
pub(crate) const BLOBS: &str = "blobs";
pub(crate) const FORKS: &str = "forks";
pub(crate) const BASE: &str = "base";
pub(crate) const BASE_NEW: &str = "base.new";
pub(crate) const BALLAST: &str = "ballast";
pub(crate) const CUT: &str = "cut-";
/// The end of the log may not be on the disk, though it can be read (`doubt`).
pub(crate) const UNSYNCED: &str = "unsynced";
/// A check found damage in the log: each later opening checks all of it (`sound`).
pub(crate) const SUSPECT: &str = "suspect";
pub(crate) const TRASH: &str = "trash";
/// A session that is being made; it gets its own name when its first step is synced.
pub(crate) const NEW: &str = ".new-";

/// The name of the log's file number `index`.
pub(crate) fn log_name(index: u32) -> String {
    if index == 0 { "log.jsonl".to_owned() } else { format!("log.{index:04}.jsonl") }
}

pub(crate) fn log_path(dir: &Path, index: u32) -> PathBuf {
    dir.join(log_name(index))
}

/// Which of the log's files a name is.
pub(crate) fn log_index(name: &str) -> Option<u32> {
    if name == "log.jsonl" {
        return Some(0);
    }
    let index = name.strip_prefix("log.")?.strip_suffix(".jsonl")?.parse().ok()?;
    (index > 0 && log_name(index) == name).then_some(index)
}

/// A session's id, if that is what the name of a directory or marker is.
pub(crate) fn session_id(name: &str) -> Option<SessionId> {
    let id: SessionId = name.parse().ok()?;
    (id.to_string() == name).then_some(id)
}

/// A blob's name may come from outside: nothing but 64 hex digits becomes part of a path.
pub(crate) fn is_blob_name(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_files_have_one_name_each() {
        for index in [0, 1, 9_999, 10_000] {
            assert_eq!(log_index(&log_name(index)), Some(index));
        }
        for other in ["log.1.jsonl", "log.0000.jsonl", "log.jsonl.bak", "head", "log.+001.jsonl"] {
            assert_eq!(log_index(other), None, "{other}");
        }
    }
}
