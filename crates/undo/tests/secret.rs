//! What holds a secret is written nowhere: it is known by its hash alone, and undo says so.

use std::collections::BTreeMap;
use std::fs;

use minke_files::{Files, FilesConfig};
use minke_record::{Scope, SnapshotWhen};
use minke_undo::{Capture, Limits, apply, changes, restore};

#[test]
fn a_file_that_holds_a_secret_is_not_kept() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    fs::write(root.join("plain"), "words").unwrap();
    fs::write(root.join("env"), "KEY=sk-planted").unwrap();
    let scope = Scope::write(root.to_str().unwrap());
    let files = Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap();
    let mut capture =
        Capture::new(Limits::default()).without(|content| content.windows(10).any(|w| w == b"sk-planted"));
    let mut kept: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut keep = |blob: Vec<u8>| {
        let name = format!("b{}", kept.len());
        kept.insert(name.clone(), blob);
        Ok(name)
    };
    let before = capture.capture(&files, &SnapshotWhen::Before, &mut keep).unwrap();
    assert_eq!((before.files.len(), before.secret), (2, 1));
    fs::write(root.join("plain"), "other words").unwrap();
    fs::write(root.join("env"), "nothing").unwrap();
    let after = capture.capture(&files, &SnapshotWhen::After, &mut keep).unwrap();
    assert!(kept.values().all(|blob| !blob.windows(10).any(|w| w == b"sk-planted")), "{kept:?}");
    let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
    apply(&mut old, &before.files);
    apply(&mut new, &before.files);
    apply(&mut new, &after.files);
    let mut fetch = |name: &str| kept.get(name).cloned().ok_or_else(|| std::io::Error::other("gone"));
    let done = restore(&files, &changes(&old, &new), &mut fetch);
    assert_eq!(fs::read_to_string(root.join("plain")).unwrap(), "words");
    assert_eq!(fs::read_to_string(root.join("env")).unwrap(), "nothing");
    assert_eq!(done.left.len(), 1, "{done:?}");
    assert!(done.left[0].path.ends_with("/env") && done.left[0].why.contains("secret"), "{done:?}");
}
