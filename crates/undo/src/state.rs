//! The state of a path as recorded in a snapshot, and the differences between two states. Pure.

use std::collections::BTreeMap;

use minke_record::SnapshotFile;
use sha2::{Digest, Sha256};

use crate::capture::to_hex;

const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY_TYPE: u32 = 0o040_000;
const LINK_TYPE: u32 = 0o120_000;
const REGULAR_TYPE: u32 = 0o100_000;
const MODE_BITS: u32 = 0o7777;
/// Marks unknown permissions when the kind must be stored. Never logged.
const UNKNOWN_MODE: u32 = 1 << 31;

/// The kind of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CapturedKind {
    File,
    /// Its content is its target.
    Link,
    Directory,
}

impl CapturedKind {
    pub(crate) fn type_bits(self) -> u32 {
        match self {
            CapturedKind::File => REGULAR_TYPE,
            CapturedKind::Link => LINK_TYPE,
            CapturedKind::Directory => DIRECTORY_TYPE,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            CapturedKind::File => "a file",
            CapturedKind::Link => "a symbolic link",
            CapturedKind::Directory => "a directory",
        }
    }
}

/// The state of an existing path, parsed from a snapshot line. The mode contains the kind in its upper bits,
/// as in `stat`; without them the path is a file, and a mode of 0 is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathState {
    pub kind: CapturedKind,
    /// Permission bits; `None` if they are unknown or have no meaning for this kind.
    pub mode: Option<u32>,
    pub hash: String,
}

impl PathState {
    /// Returns `None` if the line records a missing path.
    pub fn from_snapshot(file: &SnapshotFile) -> Option<PathState> {
        if file.hash.is_empty() {
            return None;
        }
        let kind = match file.mode & TYPE_BITS {
            DIRECTORY_TYPE => CapturedKind::Directory,
            LINK_TYPE => CapturedKind::Link,
            _ => CapturedKind::File,
        };
        let known = file.mode != 0 && file.mode & UNKNOWN_MODE == 0;
        let mode = (known && kind != CapturedKind::Link).then_some(file.mode & MODE_BITS);
        Some(PathState { kind, mode, hash: file.hash.clone() })
    }

    /// Whether two states are equal, as far as both are known.
    pub fn is_compatible(&self, other: &PathState) -> bool {
        let modes = self.mode.zip(other.mode);
        self.kind == other.kind && self.hash == other.hash && modes.is_none_or(|(one, other)| one == other)
    }
}

/// A changed path.
#[derive(Debug, Clone, PartialEq)]
pub struct PathChange {
    pub path: String,
    /// `None` if the path did not exist.
    pub before: Option<SnapshotFile>,
    pub after: Option<SnapshotFile>,
}

impl PathChange {
    /// A directory that was created for a file in it; its permissions are unknown.
    pub fn created_directory(path: &str) -> PathChange {
        let hash = to_hex(&Sha256::digest([]).into());
        let mode = DIRECTORY_TYPE | UNKNOWN_MODE;
        let after = SnapshotFile { path: path.to_owned(), mode, hash, blob: None, at: None, bytes: None };
        PathChange { path: path.to_owned(), before: None, after: Some(after) }
    }
}

/// Applies a snapshot's list to the tree.
pub fn apply_files(tree: &mut BTreeMap<String, SnapshotFile>, files: &[SnapshotFile]) {
    for file in files {
        if file.hash.is_empty() {
            tree.remove(&file.path);
        } else {
            tree.insert(file.path.clone(), file.clone());
        }
    }
}

/// The differences between two trees, by path.
pub fn diff_trees(
    before: &BTreeMap<String, SnapshotFile>,
    after: &BTreeMap<String, SnapshotFile>,
) -> Vec<PathChange> {
    let there = |file: &&SnapshotFile| !file.hash.is_empty();
    let paths: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut changes = Vec::new();
    for path in paths {
        let (old, new) = (before.get(path).filter(there), after.get(path).filter(there));
        let same = match (old.and_then(PathState::from_snapshot), new.and_then(PathState::from_snapshot)) {
            (Some(old), Some(new)) => old.is_compatible(&new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if !same {
            changes.push(PathChange { path: path.clone(), before: old.cloned(), after: new.cloned() });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot_file(path: &str, mode: u32, hash: &str) -> SnapshotFile {
        SnapshotFile { path: path.into(), mode, hash: hash.into(), blob: None, at: None, bytes: None }
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let tree = |files: &[SnapshotFile]| {
            let mut tree = BTreeMap::new();
            apply_files(&mut tree, files);
            tree
        };
        let before = tree(&[
            snapshot_file("/a", 0o100_644, "1"),
            snapshot_file("/b", 0o100_644, "1"),
            snapshot_file("/d", 0o40_755, "e"),
        ]);
        let mut after = before.clone();
        assert_eq!(diff_trees(&before, &after), []);
        let next = [
            snapshot_file("/a", 0o100_755, "1"),
            snapshot_file("/b", 0, ""),
            snapshot_file("/c", 0o100_600, "2"),
        ];
        apply_files(&mut after, &next);
        let changed: Vec<String> =
            diff_trees(&before, &after).into_iter().map(|change| change.path).collect();
        assert_eq!(changed, ["/a", "/b", "/c"]);
        assert_eq!(diff_trees(&before, &after)[1].after, None);
    }

    #[test]
    fn a_mode_that_is_not_known_is_like_any_other() {
        let state = |mode| PathState::from_snapshot(&snapshot_file("/a", mode, "1")).unwrap();
        assert!(state(0).is_compatible(&state(0o100_644)));
        assert!(state(0o644).is_compatible(&state(0o100_644)));
        assert!(!state(0o600).is_compatible(&state(0o100_644)));
        assert!(!state(0o040_644).is_compatible(&state(0o100_644)));
        assert!(state(0o120_777).is_compatible(&state(0o120_700)), "a link's own permissions mean nothing");
        assert_eq!(PathState::from_snapshot(&snapshot_file("/a", 0o100_644, "")), None);
    }
}
