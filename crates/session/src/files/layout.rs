//! The names of the files in a session directory.

use std::path::{Path, PathBuf};

use minke_record::SessionId;

pub(crate) const LEASE_FILE: &str = "lease";
pub(crate) const HEAD_FILE: &str = "head";
pub(crate) const NEW_HEAD_FILE: &str = "head.new";
pub(crate) const BLOBS_DIR: &str = "blobs";
pub(crate) const FORKS_DIR: &str = "forks";
pub(crate) const BASE_DIR: &str = "base";
pub(crate) const NEW_BASE_DIR: &str = "base.new";
pub(crate) const BALLAST_FILE: &str = "ballast";
pub(crate) const CUT_PREFIX: &str = "cut-";
/// The end of the log may not be on the disk, although it can be read (`unsynced`).
pub(crate) const UNSYNCED_MARK: &str = "unsynced";
/// A check found damage in the log: each later opening checks the whole log (`soundness`).
pub(crate) const SUSPECT_MARK: &str = "suspect";
pub(crate) const TRASH_DIR: &str = "trash";
/// An unfinished session; it is renamed when its first step is synced.
pub(crate) const UNFINISHED_PREFIX: &str = ".new-";

/// Returns the name of the log file with this index.
pub(crate) fn log_file_name(index: u32) -> String {
    if index == 0 { "log.jsonl".to_owned() } else { format!("log.{index:04}.jsonl") }
}

pub(crate) fn log_file_path(dir: &Path, index: u32) -> PathBuf {
    dir.join(log_file_name(index))
}

/// Returns the index of a log file from its name.
pub(crate) fn parse_log_index(name: &str) -> Option<u32> {
    if name == "log.jsonl" {
        return Some(0);
    }
    let index = name.strip_prefix("log.")?.strip_suffix(".jsonl")?.parse().ok()?;
    (index > 0 && log_file_name(index) == name).then_some(index)
}

/// Parses the name of a directory or marker as a session id.
pub(crate) fn parse_session_id(name: &str) -> Option<SessionId> {
    let id: SessionId = name.parse().ok()?;
    (id.to_string() == name).then_some(id)
}

/// Returns whether a name is 64 hex digits. Names come from outside and become part of paths.
pub(crate) fn is_blob_name(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_files_have_one_name_each() {
        for index in [0, 1, 9_999, 10_000] {
            assert_eq!(parse_log_index(&log_file_name(index)), Some(index));
        }
        for other in ["log.1.jsonl", "log.0000.jsonl", "log.jsonl.bak", "head", "log.+001.jsonl"] {
            assert_eq!(parse_log_index(other), None, "{other}");
        }
    }
}
