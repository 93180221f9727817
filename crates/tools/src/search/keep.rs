//! What is kept of a search: the first rows in the order of paths, and how many there are in all.
//!
//! Threads find files in any order, so each keeps the rows of the files that come first and forgets the rest.
//! Invariant: no more rows are kept than may be shown, and one file more (`a_thousand_times_more_matches_cost_no_memory`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One line of a result.
pub(super) enum Row {
    /// Only the file's name.
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
    /// Lines that are not shown lie between.
    Break,
    /// About the file.
    Remark(String),
}

/// The rows of the files that come first.
pub(super) struct Keep {
    most: usize,
    rows: usize,
    files: BTreeMap<PathBuf, Vec<Row>>,
}

impl Keep {
    pub(super) fn new(most: usize) -> Keep {
        Keep { most, rows: 0, files: BTreeMap::new() }
    }

    /// Whether rows of that file would be kept.
    pub(super) fn wants(&self, path: &Path) -> bool {
        self.rows < self.most || self.files.last_key_value().is_some_and(|(last, _)| path < last.as_path())
    }

    pub(super) fn put(&mut self, path: PathBuf, rows: Vec<Row>) {
        self.rows += rows.len();
        self.files.insert(path, rows);
        while let Some(last) = self.files.last_entry()
            && self.rows - last.get().len() >= self.most
        {
            self.rows -= last.remove().len();
        }
    }

    pub(super) fn join(&mut self, other: Keep) {
        for (path, rows) in other.files {
            self.put(path, rows);
        }
    }

    /// What was kept, in the order of paths.
    pub(super) fn into_files(self) -> impl Iterator<Item = (PathBuf, Vec<Row>)> {
        self.files.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_by_path_are_kept_whatever_the_order() {
        let rows = |count: usize| (0..count).map(|_| Row::File).collect::<Vec<_>>();
        let sizes = [("a", 2), ("b/c", 3), ("b.x", 1), ("d", 9), ("e", 1)];
        for turn in 0..sizes.len() {
            let mut keep = Keep::new(5);
            for at in 0..sizes.len() {
                let (path, count) = sizes[(at * 2 + turn) % sizes.len()];
                let wanted = keep.wants(Path::new(path));
                keep.put(path.into(), rows(count));
                let kept = keep.files.contains_key(Path::new(path));
                assert!(wanted || !kept, "{path} was kept though it was not wanted");
            }
            let kept: Vec<_> = keep.into_files().map(|(path, rows)| (path, rows.len())).collect();
            assert_eq!(kept, [("a".into(), 2), ("b/c".into(), 3)]);
        }
    }
}
