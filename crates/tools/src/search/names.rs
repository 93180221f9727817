//! Names: every file of a tree that a person could mean, for whoever completes names (`references`).
//!
//! What ignore files leave out, what begins with a dot and what may not be read is not listed. Elsewhere: the walk (`walk`).
//! Invariant: no more than it was told is held, however large the tree (`a_listing_is_bounded`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ignore::overrides::Override;
use ignore::types::Types;
use minke_files::{FileError, Files};

use super::walk::{Filter, Found, Stop, Tree, Visit};

/// Files of a tree, in no order.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    /// From the root. A name that is not UTF-8 is not listed.
    pub names: Vec<String>,
    /// There are more than were asked for.
    pub more: bool,
}

/// Lists at most `most` files below a directory, whose names have at most `bytes` together.
pub fn list_files(
    files: &Arc<Files>,
    root: &std::path::Path,
    most: usize,
    bytes: usize,
) -> Result<Listing, FileError> {
    let root: PathBuf = files.open_dir(root)?.path;
    let filter = Filter {
        globs: Override::empty(),
        types: Types::empty(),
        ignores: true,
        hidden: false,
        lead: Vec::new(),
    };
    let stop = Stop::default();
    let tree = Tree { files: Arc::clone(files), root, filter, stop: stop.clone() };
    let (count, sum) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let walked = tree.walk(|| Names {
        names: Vec::new(),
        count: &count,
        sum: &sum,
        most: (most, bytes),
        stop: stop.clone(),
    });
    let names = walked.visitors.into_iter().flat_map(|visitor| visitor.names).collect();
    Ok(Listing { names, more: stop.asked() })
}

struct Names<'c> {
    names: Vec<String>,
    count: &'c AtomicUsize,
    sum: &'c AtomicUsize,
    most: (usize, usize),
    stop: Stop,
}

impl Visit for Names<'_> {
    fn file(&mut self, found: &Found<'_>) {
        let Ok(name) = found.below().into_os_string().into_string() else { return };
        let (most, bytes) = self.most;
        if self.count.fetch_add(1, Ordering::Relaxed) >= most
            || self.sum.fetch_add(name.len(), Ordering::Relaxed) + name.len() > bytes
        {
            return self.stop.ask();
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
        let files = Arc::new(Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap());
        let all = list_files(&files, &root, 100, 10_000).unwrap();
        assert_eq!((all.names.len(), all.more), (39, false));
        for (most, bytes) in [(10, 10_000), (100, 70)] {
            let some = list_files(&files, &root, most, bytes).unwrap();
            assert!(some.more && some.names.len() <= 10, "{some:?}");
        }
    }
}
