//! Collects the first rows of a search, ordered by path, with limited memory.
//!
//! Threads find files in any order, so each keeps the rows of the first files and drops the rest.
//! Invariant: at most the maximum number of rows and one more file are in memory
//! (`a_thousand_times_more_matches_cost_no_memory`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One row of a result.
pub(super) enum SearchRow {
    /// Only the path of the file.
    File,
    Count(u64),
    Match {
        number: Option<u64>,
        text: String,
    },
    Context {
        number: Option<u64>,
        text: String,
    },
    /// Separates groups of lines that are not adjacent.
    Break,
    /// A remark about the file.
    Remark(String),
}

/// The rows of the first files.
pub(super) struct FirstRows {
    max_rows: usize,
    row_count: usize,
    files: BTreeMap<PathBuf, Vec<SearchRow>>,
}

impl FirstRows {
    pub(super) fn new(max_rows: usize) -> FirstRows {
        FirstRows { max_rows, row_count: 0, files: BTreeMap::new() }
    }

    /// Returns whether rows of that file would stay.
    pub(super) fn has_room_for(&self, path: &Path) -> bool {
        self.row_count < self.max_rows
            || self.files.last_key_value().is_some_and(|(last, _)| path < last.as_path())
    }

    pub(super) fn insert(&mut self, path: PathBuf, rows: Vec<SearchRow>) {
        self.row_count += rows.len();
        self.files.insert(path, rows);
        while let Some(last) = self.files.last_entry()
            && self.row_count - last.get().len() >= self.max_rows
        {
            self.row_count -= last.remove().len();
        }
    }

    pub(super) fn merge(&mut self, other: FirstRows) {
        for (path, rows) in other.files {
            self.insert(path, rows);
        }
    }

    /// Returns the rows, ordered by path.
    pub(super) fn into_files(self) -> impl Iterator<Item = (PathBuf, Vec<SearchRow>)> {
        self.files.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_by_path_are_kept_whatever_the_order() {
        let rows = |count: usize| (0..count).map(|_| SearchRow::File).collect::<Vec<_>>();
        let sizes = [("a", 2), ("b/c", 3), ("b.x", 1), ("d", 9), ("e", 1)];
        for turn in 0..sizes.len() {
            let mut first_rows = FirstRows::new(5);
            for at in 0..sizes.len() {
                let (path, count) = sizes[(at * 2 + turn) % sizes.len()];
                let wanted = first_rows.has_room_for(Path::new(path));
                first_rows.insert(path.into(), rows(count));
                let kept = first_rows.files.contains_key(Path::new(path));
                assert!(wanted || !kept, "{path} was kept although there was no room");
            }
            let kept: Vec<_> = first_rows.into_files().map(|(path, rows)| (path, rows.len())).collect();
            assert_eq!(kept, [("a".into(), 2), ("b/c".into(), 3)]);
        }
    }
}
