//! States: what a path holds, as a snapshot's line says it, and what two of them differ in. Pure.

use std::collections::BTreeMap;

use minke_record::SnapshotFile;
use sha2::{Digest, Sha256};

use crate::capture::hex;

const TYPE_BITS: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;
const MODE_BITS: u32 = 0o7777;
/// Says of a line that its permissions are not known, where the kind must be. Stands in no log.
const UNKNOWN: u32 = 1 << 31;

/// What a path holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    /// Its content is where it points.
    Link,
    Directory,
}

impl Kind {
    pub(crate) fn bits(self) -> u32 {
        match self {
            Kind::File => REGULAR,
            Kind::Link => LINK,
            Kind::Directory => DIRECTORY,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::File => "a file",
            Kind::Link => "a symbolic link",
            Kind::Directory => "a directory",
        }
    }
}

/// A path with something in it: how a snapshot's line is read. The line's mode has the kind in its upper bits, as
/// `stat` has; without them it is a file, and without any bits its mode is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub kind: Kind,
    /// Permission bits; absent if they are not known, or mean nothing for this kind.
    pub mode: Option<u32>,
    pub hash: String,
}

impl State {
    /// None if the line says that nothing was there.
    pub fn of(file: &SnapshotFile) -> Option<State> {
        if file.hash.is_empty() {
            return None;
        }
        let kind = match file.mode & TYPE_BITS {
            DIRECTORY => Kind::Directory,
            LINK => Kind::Link,
            _ => Kind::File,
        };
        let known = file.mode != 0 && file.mode & UNKNOWN == 0;
        let mode = (known && kind != Kind::Link).then_some(file.mode & MODE_BITS);
        Some(State { kind, mode, hash: file.hash.clone() })
    }

    /// Whether two states look the same, as far as both are known.
    pub fn is_like(&self, other: &State) -> bool {
        let modes = self.mode.zip(other.mode);
        self.kind == other.kind && self.hash == other.hash && modes.is_none_or(|(one, other)| one == other)
    }
}

/// One path that is not as it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub path: String,
    /// Absent if nothing was there.
    pub before: Option<SnapshotFile>,
    pub after: Option<SnapshotFile>,
}

impl Change {
    /// A directory that was made for something in it; its permissions are not known.
    pub fn made_directory(path: &str) -> Change {
        let hash = hex(&Sha256::digest([]).into());
        let mode = DIRECTORY | UNKNOWN;
        let after = SnapshotFile { path: path.to_owned(), mode, hash, blob: None, at: None, bytes: None };
        Change { path: path.to_owned(), before: None, after: Some(after) }
    }
}

/// Goes on from one state of the tree by a snapshot's list.
pub fn apply(tree: &mut BTreeMap<String, SnapshotFile>, files: &[SnapshotFile]) {
    for file in files {
        if file.hash.is_empty() {
            tree.remove(&file.path);
        } else {
            tree.insert(file.path.clone(), file.clone());
        }
    }
}

/// What is different between two states of the tree, by path.
pub fn changes(
    before: &BTreeMap<String, SnapshotFile>,
    after: &BTreeMap<String, SnapshotFile>,
) -> Vec<Change> {
    let there = |file: &&SnapshotFile| !file.hash.is_empty();
    let paths: std::collections::BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let mut changes = Vec::new();
    for path in paths {
        let (old, new) = (before.get(path).filter(there), after.get(path).filter(there));
        let same = match (old.and_then(State::of), new.and_then(State::of)) {
            (Some(old), Some(new)) => old.is_like(&new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if !same {
            changes.push(Change { path: path.clone(), before: old.cloned(), after: new.cloned() });
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, mode: u32, hash: &str) -> SnapshotFile {
        SnapshotFile { path: path.into(), mode, hash: hash.into(), blob: None, at: None, bytes: None }
    }

    #[test]
    fn only_what_differs_is_a_change() {
        let tree = |files: &[SnapshotFile]| {
            let mut tree = BTreeMap::new();
            apply(&mut tree, files);
            tree
        };
        let before =
            tree(&[file("/a", 0o100_644, "1"), file("/b", 0o100_644, "1"), file("/d", 0o40_755, "e")]);
        let mut after = before.clone();
        assert_eq!(changes(&before, &after), []);
        let next = [file("/a", 0o100_755, "1"), file("/b", 0, ""), file("/c", 0o100_600, "2")];
        apply(&mut after, &next);
        let changed: Vec<String> = changes(&before, &after).into_iter().map(|change| change.path).collect();
        assert_eq!(changed, ["/a", "/b", "/c"]);
        assert_eq!(changes(&before, &after)[1].after, None);
    }

    #[test]
    fn a_mode_that_is_not_known_is_like_any_other() {
        let state = |mode| State::of(&file("/a", mode, "1")).unwrap();
        assert!(state(0).is_like(&state(0o100_644)));
        assert!(state(0o644).is_like(&state(0o100_644)));
        assert!(!state(0o600).is_like(&state(0o100_644)));
        assert!(!state(0o040_644).is_like(&state(0o100_644)));
        assert!(state(0o120_777).is_like(&state(0o120_700)), "a link's own permissions mean nothing");
        assert_eq!(State::of(&file("/a", 0o100_644, "")), None);
    }
}
