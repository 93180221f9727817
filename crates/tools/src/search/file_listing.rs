//! Lists the file names of a tree for completion (`references`).
//!
//! Omits ignored, hidden and unreadable files. `walk` has the walk.
//! Invariant: the list stays within its limits, however large the tree (`a_listing_is_bounded`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ignore::overrides::Override;
use ignore::types::Types;
use minke_files::{FileError, ScopedFiles};

use super::walk::{FileVisitor, StopFlag, TreeWalk, WalkFilter, WalkedFile};

/// The files of a tree, unordered.
#[derive(Debug, Clone, Default)]
pub struct FileListing {
    /// Paths relative to the root. Names that are not UTF-8 are omitted.
    pub names: Vec<String>,
    /// There are more files than the limits allow.
    pub has_more: bool,
}

/// Lists at most `most` files below a directory, with at most `bytes` of names.
pub fn list_files(
    files: &Arc<ScopedFiles>,
    root: &std::path::Path,
    max_files: usize,
    max_bytes: usize,
) -> Result<FileListing, FileError> {
    let root: PathBuf = files.open_dir(root)?.path;
    let filter = WalkFilter {
        globs: Override::empty(),
        types: Types::empty(),
        ignores: true,
        hidden: false,
        literal_directories: Vec::new(),
    };
    let stop = StopFlag::default();
    let tree = TreeWalk { files: Arc::clone(files), root, filter, stop: stop.clone() };
    let (count, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let walked = tree.visit_all(|| NameCollector {
        names: Vec::new(),
        file_count: &count,
        name_bytes: &sum,
        limits: (max_files, max_bytes),
        stop: stop.clone(),
    });
    let names = walked.visitors.into_iter().flat_map(|visitor| visitor.names).collect();
    Ok(FileListing { names, has_more: stop.is_set() })
}

struct NameCollector<'c> {
    names: Vec<String>,
    file_count: &'c AtomicUsize,
    name_bytes: &'c AtomicUsize,
    limits: (usize, usize),
    stop: StopFlag,
}

impl FileVisitor for NameCollector<'_> {
    fn visit_file(&mut self, found: &WalkedFile<'_>) {
        let Ok(name) = found.relative_path().into_os_string().into_string() else { return };
        let (max_files, max_bytes) = self.limits;
        if self.file_count.fetch_add(1, Ordering::Relaxed) >= max_files
            || self.name_bytes.fetch_add(name.len(), Ordering::Relaxed) + name.len() > max_bytes
        {
            return self.stop.set();
        }
        self.names.push(name);
    }
}

#[cfg(test)]
mod tests {
    use minke_files::FilesConfig;
    use minke_record::{Permission, Scope, ScopeRule};

    use super::*;

    #[test]
    fn a_listing_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for number in 0..40 {
            std::fs::write(root.join(format!("file-{number:02}")), "").unwrap();
        }
        std::fs::write(root.join(".ignore"), "file-00\n").unwrap();
        let rule = ScopeRule {
            target: root.to_str().unwrap().to_owned(),
            permission: Permission::Read,
            recursive: true,
        };
        let scope = Scope { allow: vec![rule], deny: Vec::new() };
        let files = Arc::new(ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap());
        let all = list_files(&files, &root, 100, 10_000).unwrap();
        assert_eq!((all.names.len(), all.has_more), (39, false));
        for (max_files, max_bytes) in [(10, 10_000), (100, 70)] {
            let some = list_files(&files, &root, max_files, max_bytes).unwrap();
            assert!(some.has_more && some.names.len() <= 10, "{some:?}");
        }
    }
}
