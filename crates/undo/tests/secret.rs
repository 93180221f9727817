//! A file that contains a secret is never stored: it is tracked by its hash only, and undo reports that.

use std::collections::BTreeMap;
use std::fs;

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::{Scope, SnapshotWhen};
use minke_undo::{CaptureLimits, ScopeCapture, apply_files, diff_trees, restore_changes};

#[test]
fn a_file_that_holds_a_secret_is_not_kept() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    fs::write(root.join("plain"), "words").unwrap();
    fs::write(root.join("env"), "KEY=sk-planted").unwrap();
    let scope = Scope::writable(root.to_str().unwrap());
    let files = ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
    let mut capture = ScopeCapture::new(CaptureLimits::default())
        .with_secret_check(|content| content.windows(10).any(|w| w == b"sk-planted"));
    let mut kept: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut store_blob = |blob: Vec<u8>| {
        let name = format!("b{}", kept.len());
        kept.insert(name.clone(), blob);
        Ok(name)
    };
    let before = capture.capture_scope(&files, &SnapshotWhen::Before, &mut store_blob).unwrap();
    assert_eq!((before.files.len(), before.secret_check), (2, 1));
    fs::write(root.join("plain"), "other words").unwrap();
    fs::write(root.join("env"), "nothing").unwrap();
    let after = capture.capture_scope(&files, &SnapshotWhen::After, &mut store_blob).unwrap();
    assert!(kept.values().all(|blob| !blob.windows(10).any(|w| w == b"sk-planted")), "{kept:?}");
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    apply_files(&mut old, &before.files);
    apply_files(&mut new, &before.files);
    apply_files(&mut new, &after.files);
    let mut fetch = |name: &str| kept.get(name).cloned().ok_or_else(|| std::io::Error::other("gone"));
    let done = restore_changes(&files, &diff_trees(&old, &new), &mut fetch);
    assert_eq!(fs::read_to_string(root.join("plain")).unwrap(), "words");
    assert_eq!(fs::read_to_string(root.join("env")).unwrap(), "nothing");
    assert_eq!(done.skipped.len(), 1, "{done:?}");
    assert!(done.skipped[0].path.ends_with("/env") && done.skipped[0].why.contains("secret"), "{done:?}");
}
