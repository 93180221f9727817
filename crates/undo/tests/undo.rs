//! Undo: random changes like those of commands, undone again; and all paths that must stay unchanged.
//!
//! The test reads the tree with `std::fs`, never with the tested code.
#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::{Permission, Scope, ScopeRule, SnapshotFile, SnapshotWhen};
use minke_undo::{
    CaptureError, CaptureLimits, CaptureReport, CapturedKind, PathChange, PathState, RestoreAction,
    RestoreReport, ScopeCapture, apply_files, diff_trees, restore_changes,
};

/// A directory with files, its capture, and the stored contents.
struct UndoFixture {
    _temp: tempfile::TempDir,
    root: PathBuf,
    files: ScopedFiles,
    capture: ScopeCapture,
    blobs: HashMap<String, Vec<u8>>,
    /// The sum of all snapshots so far.
    snapshot_tree: BTreeMap<String, SnapshotFile>,
}

impl UndoFixture {
    fn new() -> UndoFixture {
        UndoFixture::with_limits(CaptureLimits::default())
    }

    fn with_limits(limits: CaptureLimits) -> UndoFixture {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap().join("w");
        fs::create_dir(&root).unwrap();
        let files = files_for(Scope::writable(read_text(&root)));
        let (blobs, snapshot_tree) = (HashMap::new(), BTreeMap::new());
        UndoFixture { _temp: temp, root, files, capture: ScopeCapture::new(limits), blobs, snapshot_tree }
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write_file(&self, name: &str, content: &str) {
        let path = self.path_of(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn try_capture(&mut self, when: SnapshotWhen) -> Result<CaptureReport, CaptureError> {
        let blobs = &mut self.blobs;
        let mut store_blob = |bytes: Vec<u8>| {
            let name = format!("blob-{}", blobs.len());
            blobs.insert(name.clone(), bytes);
            Ok(name)
        };
        let report = self.capture.capture_scope(&self.files, &when, &mut store_blob)?;
        apply_files(&mut self.snapshot_tree, &report.files);
        Ok(report)
    }

    fn capture_before(&mut self) -> BTreeMap<String, SnapshotFile> {
        self.try_capture(SnapshotWhen::Before).unwrap();
        self.snapshot_tree.clone()
    }

    /// The changes of a run since `before`.
    fn capture_after(&mut self, before: &BTreeMap<String, SnapshotFile>) -> Vec<PathChange> {
        self.try_capture(SnapshotWhen::After).unwrap();
        diff_trees(before, &self.snapshot_tree)
    }

    fn undo_changes(&self, wanted: &[PathChange]) -> RestoreReport {
        let mut fetch = |name: &str| self.blobs.get(name).cloned().ok_or(io::ErrorKind::NotFound.into());
        restore_changes(&self.files, wanted, &mut fetch)
    }
}

/// Restores permissions, because a read-only directory could not be removed.
impl Drop for UndoFixture {
    fn drop(&mut self) {
        let mut open = vec![self.root.clone()];
        while let Some(dir) = open.pop() {
            drop(fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)));
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            open.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
    }
}

fn files_for(scope: Scope) -> ScopedFiles {
    ScopedFiles::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap()
}

fn read_text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Kind, mode and content of all paths below a directory.
type DirectoryTree = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

fn read_tree(root: &Path) -> DirectoryTree {
    let mut tree = DirectoryTree::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let mode = meta.permissions().mode() & 0o7777;
            let what = if meta.is_symlink() {
                ('l', 0, fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec())
            } else if meta.is_dir() {
                open.push(path.clone());
                ('d', mode, Vec::new())
            } else {
                ('f', mode, fs::read(&path).unwrap())
            };
            tree.insert(path, what);
        }
    }
    tree
}

/// The tree according to the snapshots, with contents from the blobs.
fn captured_tree(fixture: &UndoFixture) -> DirectoryTree {
    let content = |file: &SnapshotFile| match &file.blob {
        None => Vec::new(),
        Some(blob) => {
            let blob = &fixture.blobs[blob];
            let from = file.at.map_or(0, |at| at as usize);
            let to = file.bytes.map_or(blob.len(), |bytes| from + bytes as usize);
            blob[from..to].to_vec()
        }
    };
    let line = |file: &SnapshotFile| {
        let state = PathState::from_snapshot(file).unwrap();
        let kind = match state.kind {
            CapturedKind::File => 'f',
            CapturedKind::Link => 'l',
            CapturedKind::Directory => 'd',
        };
        (PathBuf::from(&file.path), (kind, state.mode.unwrap_or(0), content(file)))
    };
    fixture.snapshot_tree.values().map(line).collect()
}

struct RandomSource(u64);

impl RandomSource {
    fn next_below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).unwrap()
    }

    /// A path that often exists.
    fn next_path(&mut self, root: &Path) -> PathBuf {
        let mut path = root.to_owned();
        for _ in 0..=self.next_below(3) {
            path.push(["a", "b", "c", ".hid", "ü"][self.next_below(5)]);
        }
        path
    }

    fn next_mode(&mut self) -> u32 {
        [0o644, 0o600, 0o755, 0o444, 0o500, 0o640][self.next_below(6)]
    }
}

fn remove_path(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => drop(fs::remove_dir_all(path)),
        _ => drop(fs::remove_file(path)),
    }
}

/// A path outside of the tree that cannot be created: steps write through links, and the tests may run as
/// root.
const MISSING_DIR: &str = "/nowhere/at/all";

/// A random change like that of a command; impossible changes are skipped.
fn random_step(random: &mut RandomSource, root: &Path) {
    let path = random.next_path(root);
    let other = random.next_path(root);
    match random.next_below(12) {
        0..4 => {
            let content = "x".repeat(random.next_below(40));
            drop(path.parent().map(fs::create_dir_all));
            drop(fs::write(&path, content));
        }
        4 => {
            let old = fs::read(&path).unwrap_or_default();
            drop(fs::write(&path, [&old[..], b"more"].concat()));
        }
        5 => remove_path(&path),
        6 => drop(fs::create_dir_all(&path)),
        7 => {
            // The test itself must be able to read every directory.
            let enter = if path.is_dir() { 0o500 } else { 0 };
            let mode = fs::Permissions::from_mode(random.next_mode() | enter);
            if !path.is_symlink() {
                drop(fs::set_permissions(&path, mode));
            }
        }
        8 => drop(fs::rename(&path, &other)),
        9 => drop(symlink(["a", "../b", MISSING_DIR, "nowhere"][random.next_below(4)], &path)),
        // Replaces it with another kind.
        10 => {
            remove_path(&path);
            drop(fs::write(&path, "a file now"));
        }
        _ => {
            remove_path(&path);
            drop(symlink("a", &path));
        }
    }
}

#[test]
fn a_run_is_undone() {
    let mut undone = 0;
    for round in 0..60 {
        let mut random = RandomSource(round);
        let mut fixture = UndoFixture::new();
        for _ in 0..60 {
            random_step(&mut random, &fixture.root);
        }
        for run in 0..3 {
            let was = read_tree(&fixture.root);
            let before = fixture.capture_before();
            assert_eq!(
                captured_tree(&fixture),
                was,
                "round {round}, run {run}: the snapshots add up to the tree"
            );
            for _ in 0..random.next_below(60) {
                random_step(&mut random, &fixture.root);
            }
            let wanted = fixture.capture_after(&before);
            assert_eq!(
                captured_tree(&fixture),
                read_tree(&fixture.root),
                "round {round}, run {run}: and after"
            );
            if run == 2 {
                continue;
            }
            let got = fixture.undo_changes(&wanted);
            assert_eq!(got.skipped, [], "round {round}, run {run}");
            assert_eq!(read_tree(&fixture.root), was, "round {round}, run {run}: {got:?}");
            assert_eq!(got.restored.len() + got.unchanged, wanted.len());
            undone += got.restored.len();
            let again = fixture.undo_changes(&wanted);
            assert_eq!(
                (again.restored.len(), again.unchanged),
                (0, wanted.len()),
                "the second undo changes nothing"
            );
        }
    }
    assert!(undone > 500, "the runs changed too little: {undone}");
}

#[test]
fn what_is_told_adds_up_to_the_tree() {
    let mut fixture = UndoFixture::new();
    fixture.write_file("a", "one");
    fixture.write_file("d/b", "two");
    symlink("a", fixture.path_of("l")).unwrap();
    let first = fixture.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!((first.files.len(), first.scanned, first.files_read), (4, 4, 2));
    assert_eq!(fixture.blobs.len(), 1, "many files, one blob");
    assert_eq!(captured_tree(&fixture), read_tree(&fixture.root));
    fs::rename(fixture.path_of("a"), fixture.path_of("c")).unwrap();
    let second = fixture.try_capture(SnapshotWhen::After).unwrap();
    let names: Vec<(String, bool)> =
        second.files.iter().map(|f| (f.path.clone(), f.hash.is_empty())).collect();
    assert_eq!(names, [(read_text(&fixture.path_of("a")), true), (read_text(&fixture.path_of("c")), false)]);
    assert_eq!(fixture.blobs.len(), 1, "a stored content is not stored again");
    assert_eq!(captured_tree(&fixture), read_tree(&fixture.root));
    let third = fixture.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!(third.files, []);
}

/// A file whose times are old enough is not read again.
#[test]
fn what_has_not_changed_is_not_read() {
    let mut fixture = UndoFixture::new();
    fixture.write_file("a", "one");
    fixture.capture_before();
    let until = Instant::now() + Duration::from_secs(20);
    while fixture.try_capture(SnapshotWhen::Before).unwrap().files_read > 0 {
        assert!(Instant::now() < until, "it is read every time");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The same length and modification time: only the change time differs.
    let times = fs::metadata(fixture.path_of("a")).unwrap().modified().unwrap();
    fs::write(fixture.path_of("a"), "two").unwrap();
    fs::File::open(fixture.path_of("a")).unwrap().set_modified(times).unwrap();
    let report = fixture.try_capture(SnapshotWhen::After).unwrap();
    assert_eq!((report.files_read, report.files.len()), (1, 1));
}

#[test]
fn what_somebody_else_changed_is_named_and_left_alone() {
    let mut world = UndoFixture::new();
    for name in ["edited", "gone", "moded", "swapped", "fine", "deleted"] {
        world.write_file(name, "old");
    }
    let before = world.capture_before();
    for name in ["edited", "gone", "moded", "swapped", "fine", "new", "dir/made"] {
        world.write_file(name, "by the run");
    }
    fs::remove_file(world.path_of("deleted")).unwrap();
    let wanted = world.capture_after(&before);
    // Another process.
    world.write_file("edited", "by another");
    fs::remove_file(world.path_of("gone")).unwrap();
    fs::set_permissions(world.path_of("moded"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(world.path_of("swapped")).unwrap();
    symlink(MISSING_DIR, world.path_of("swapped")).unwrap();
    world.write_file("new", "by another");
    world.write_file("deleted", "by another");
    world.write_file("dir/theirs", "by another");
    let theirs = read_tree(&world.root);

    let got = world.undo_changes(&wanted);
    let left: Vec<&str> = got.skipped.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(left, ["deleted", "dir", "edited", "gone", "moded", "new", "swapped"]);
    for (path, word) in [
        ("deleted", "was created there"),
        ("dir", "did not create"),
        ("edited", "changed since"),
        ("gone", "removed since"),
        ("moded", "mode"),
        ("new", "changed since"),
        ("swapped", "symbolic link"),
    ] {
        let left = got.skipped.iter().find(|left| left.path.ends_with(path)).unwrap();
        assert!(left.why.contains(word), "{left:?}");
    }
    let mut expected = theirs;
    expected.get_mut(&world.path_of("fine")).unwrap().2 = b"old".to_vec();
    expected.remove(&world.path_of("dir/made"));
    assert_eq!(read_tree(&world.root), expected);
    let done: Vec<RestoreAction> = got.restored.iter().map(|put| put.action).collect();
    assert_eq!(done, [RestoreAction::Removed, RestoreAction::Changed], "{:?}", got.restored);
}

/// The most dangerous error: treating a path as new that was only not covered before.
#[test]
fn a_file_that_was_ignored_before_is_never_removed() {
    let mut fixture = UndoFixture::new();
    fixture.write_file(".gitignore", "*.log\nbuild/\n");
    fixture.write_file("precious.log", "old");
    fixture.write_file("build/deep/precious", "old");
    fixture.write_file("kept", "old");
    let before = fixture.capture_before();
    assert!(!fixture.snapshot_tree.keys().any(|path| path.contains("precious")));
    fixture.write_file(".gitignore", "kept\n");
    fixture.write_file("kept", "new");
    fixture.write_file("fresh.log", "new");
    let wanted = fixture.capture_after(&before);
    let got = fixture.undo_changes(&wanted);
    assert_eq!(got.skipped, []);
    let now = read_tree(&fixture.root);
    assert_eq!(now[&fixture.path_of("precious.log")].2, b"old");
    assert_eq!(now[&fixture.path_of("build/deep/precious")].2, b"old");
    assert_eq!(
        now[&fixture.path_of("kept")].2,
        b"old",
        "a path that the run makes ignored is still restored"
    );
    assert_eq!(now[&fixture.path_of(".gitignore")].2, b"*.log\nbuild/\n");
    assert!(
        !now.contains_key(&fixture.path_of("fresh.log")),
        "the run created it, so it was not ignored before"
    );
}

#[test]
fn ignore_files_count_where_they_stand() {
    let mut world = UndoFixture::new();
    world.write_file(".gitignore", "/top\n*.o\n");
    world.write_file(".ignore", "!keep.o\n");
    world.write_file(".git/info/exclude", "private\n");
    world.write_file(".git/HEAD", "ref");
    world.write_file("sub/.gitignore", "!x.o\nlocal\n");
    for name in ["top", "sub/top", "x.o", "keep.o", "sub/x.o", "sub/y.o", "sub/local", "local", "private"] {
        world.write_file(name, "");
    }
    world.capture_before();
    let names: Vec<String> = world
        .snapshot_tree
        .keys()
        .map(|path| path.strip_prefix(&format!("{}/", read_text(&world.root))).unwrap().to_owned())
        .collect();
    assert_eq!(
        names,
        [".gitignore", ".ignore", "keep.o", "local", "sub", "sub/.gitignore", "sub/top", "sub/x.o"]
    );
}

/// A tree that is too large is refused before any file is read, and a run without a start capture has no end
/// capture.
#[test]
fn too_much_is_refused() {
    let limits = CaptureLimits { files: 10, bytes: 1_000, ..CaptureLimits::default() };
    let mut fixture = UndoFixture::with_limits(limits);
    for n in 0..10 {
        fixture.write_file(&format!("f{n}"), "x");
    }
    fixture.capture_before();
    fixture.write_file("one-more", "x");
    assert!(matches!(
        fixture.try_capture(SnapshotWhen::Before),
        Err(CaptureError::TooMuch { files: 11, .. })
    ));
    assert!(matches!(fixture.try_capture(SnapshotWhen::After), Err(CaptureError::MissingBaseline)));
    fs::remove_file(fixture.path_of("one-more")).unwrap();
    fixture.capture_before();
    fixture.write_file("f0", &"x".repeat(1_000));
    let Err(e) = fixture.try_capture(SnapshotWhen::After) else { panic!("it is too large") };
    assert!(e.to_string().contains("cannot be undone"), "{e}");
}

#[test]
fn a_large_file_is_watched_and_named() {
    let limits = CaptureLimits { file: 100, pack: 64, ..CaptureLimits::default() };
    let mut fixture = UndoFixture::with_limits(limits);
    fixture.write_file("large", &"x".repeat(101));
    fixture.write_file("fits", &"y".repeat(100));
    fixture.write_file("small", "z");
    let before = fixture.capture_before();
    assert_eq!(fixture.blobs.len(), 2, "one longer than a pack is a blob of its own");
    fixture.write_file("large", &"X".repeat(200));
    fixture.write_file("fits", "");
    fixture.write_file("born-large", &"n".repeat(300));
    let wanted = fixture.capture_after(&before);
    assert_eq!(wanted.len(), 3);
    let got = fixture.undo_changes(&wanted);
    assert_eq!(got.skipped.len(), 1);
    assert!(got.skipped[0].path.ends_with("/large") && got.skipped[0].why.contains("too large"), "{got:?}");
    assert_eq!(fs::read(fixture.path_of("large")).unwrap(), "X".repeat(200).as_bytes(), "not taken away");
    assert_eq!(fs::read(fixture.path_of("fits")).unwrap(), "y".repeat(100).as_bytes());
    assert!(!fixture.path_of("born-large").exists());
}

#[test]
fn damaged_or_missing_contents_take_nothing_away() {
    let mut world = UndoFixture::new();
    world.write_file("a", "old");
    world.write_file("b", "old too");
    let before = world.capture_before();
    world.write_file("a", "new");
    // Replaced by another kind: either the old file is restored, or the new one stays.
    fs::remove_file(world.path_of("b")).unwrap();
    fs::create_dir(world.path_of("b")).unwrap();
    let wanted = world.capture_after(&before);
    let was = read_tree(&world.root);
    let blobs = std::mem::take(&mut world.blobs);
    let got = world.undo_changes(&wanted);
    assert_eq!((got.restored.len(), got.skipped.len()), (0, 2), "{got:?}");
    assert!(got.skipped[0].why.contains("could not load"), "{got:?}");
    world.blobs = blobs.iter().map(|(name, blob)| (name.clone(), vec![b'!'; blob.len()])).collect();
    let got = world.undo_changes(&wanted);
    assert!(got.skipped.iter().all(|left| left.why.contains("damaged")), "{got:?}");
    world.blobs = blobs.keys().map(|name| (name.clone(), Vec::new())).collect();
    assert_eq!(world.undo_changes(&wanted).skipped.len(), 2);
    assert_eq!(read_tree(&world.root), was);
    world.blobs = blobs;
    assert_eq!(world.undo_changes(&wanted).skipped, []);
}

#[test]
fn a_full_disk_leaves_the_last_capture_as_it_was() {
    let mut fixture = UndoFixture::new();
    fixture.write_file("a", "old");
    let files = files_for(Scope::writable(read_text(&fixture.root)));
    let mut full = |_| Err(io::ErrorKind::StorageFull.into());
    let failed = fixture.capture.capture_scope(&files, &SnapshotWhen::Before, &mut full);
    assert!(matches!(failed, Err(CaptureError::StoreBlob(_))));
    assert!(matches!(fixture.try_capture(SnapshotWhen::After), Err(CaptureError::MissingBaseline)));
    fixture.capture_before();
    assert_eq!(captured_tree(&fixture), read_tree(&fixture.root));
}

#[test]
fn strange_things_are_counted_and_left_alone() {
    let mut world = UndoFixture::new();
    world.write_file("a", "old");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.path_of("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.path_of("socket")).unwrap();
    fs::write(world.root.join(OsStr::from_bytes(b"\xff")), "x").unwrap();
    world.write_file(".minke/config.toml", "protected");
    let report = world.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!((report.special, report.unnamed, report.scanned), (2, 1, 1), "{report:?}");
    let before = world.snapshot_tree.clone();
    fs::remove_file(world.path_of("a")).unwrap();
    fs::rename(world.path_of("fifo"), world.path_of("a")).unwrap();
    let wanted = world.capture_after(&before);
    let got = world.undo_changes(&wanted);
    assert!(got.skipped[0].why.contains("FIFO"), "{got:?}");
}

fn scope_rule(target: &Path, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: read_text(target), permission, recursive }
}

#[test]
fn only_the_write_scope_is_captured_and_put_back() {
    let mut fixture = UndoFixture::new();
    fixture.write_file("in/a", "old");
    fixture.write_file("in/lent/b", "old");
    fixture.write_file("flat/c", "old");
    fixture.write_file("flat/deep/d", "old");
    fixture.write_file("flat/whole/f", "old");
    fixture.write_file("read/e", "old");
    fixture.write_file("one", "old");
    let mut scope = Scope {
        allow: vec![
            scope_rule(&fixture.path_of("in"), Permission::Write, true),
            scope_rule(&fixture.path_of("in/lent"), Permission::Write, true),
            scope_rule(&fixture.path_of("flat"), Permission::Write, false),
            scope_rule(&fixture.path_of("flat/whole"), Permission::Write, true),
            scope_rule(&fixture.path_of("read"), Permission::Read, true),
            scope_rule(&fixture.path_of("one"), Permission::Write, true),
            scope_rule(&fixture.path_of("missing"), Permission::Write, true),
        ],
        deny: vec![scope_rule(&fixture.path_of("in/lent"), Permission::Write, true)],
    };
    fixture.files = files_for(scope.clone());
    let report = fixture.try_capture(SnapshotWhen::Before).unwrap();
    let before = fixture.snapshot_tree.clone();
    let names: Vec<&str> = report.files.iter().map(|file| file.path.rsplit("/w/").next().unwrap()).collect();
    assert_eq!(names, ["flat/c", "flat/deep", "flat/whole", "flat/whole/f", "in/a", "one"], "each once");
    for name in ["in/a", "in/lent/b", "flat/c", "flat/deep/d", "read/e", "one"] {
        fixture.write_file(name, "new");
    }
    let wanted = fixture.capture_after(&before);
    // A grant that is removed before the undo.
    scope.allow.retain(|rule| !rule.target.ends_with("/flat"));
    fixture.files.set_scope(&scope).unwrap();
    let got = fixture.undo_changes(&wanted);
    let read = |name: &str| fs::read_to_string(fixture.path_of(name)).unwrap();
    assert_eq!([read("in/a"), read("one")], ["old", "old"]);
    assert_eq!([read("in/lent/b"), read("flat/c"), read("flat/deep/d"), read("read/e")], ["new"; 4]);
    assert_eq!(got.skipped.len(), 1, "{got:?}");
    assert!(got.skipped[0].path.ends_with("flat/c"));
}

/// Known paths that are no longer writable are neither removed nor reported.
#[test]
fn a_loan_in_the_middle_of_a_run_makes_nothing_look_gone() {
    let mut fixture = UndoFixture::new();
    fixture.write_file("a", "old");
    fixture.write_file("lent/b", "old");
    let before = fixture.capture_before();
    let mut scope = fixture.files.scope();
    scope.deny.push(scope_rule(&fixture.path_of("lent"), Permission::Write, true));
    fixture.files.set_scope(&scope).unwrap();
    fixture.write_file("lent/b", "by the borrower");
    fixture.write_file("a", "new");
    let wanted = fixture.capture_after(&before);
    let names: Vec<&str> = wanted.iter().map(|change| change.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a"]);
}

/// A loan ends, or a grant is added, during a run: its paths were not covered when the run began.
#[test]
fn a_wider_scope_makes_nothing_look_new() {
    let mut fixture = UndoFixture::new();
    fixture.write_file("in/a", "old");
    fixture.write_file("lent/b", "old");
    fixture.write_file("granted/c", "old");
    let mut scope = Scope::writable(read_text(&fixture.path_of("in")));
    scope.allow.push(scope_rule(&fixture.path_of("lent"), Permission::Write, true));
    let whole = scope.clone();
    scope.deny.push(scope_rule(&fixture.path_of("lent"), Permission::Write, true));
    fixture.files = files_for(scope);
    let before = fixture.capture_before();
    let mut wider = whole;
    wider.allow.push(scope_rule(&fixture.path_of("granted"), Permission::Write, true));
    fixture.files.set_scope(&wider).unwrap();
    fixture.write_file("in/new", "new");
    let was = read_tree(&fixture.root);
    let wanted = fixture.capture_after(&before);
    let got = fixture.undo_changes(&wanted);
    assert_eq!(got.skipped, []);
    let mut expected = was;
    expected.remove(&fixture.path_of("in/new"));
    assert_eq!(read_tree(&fixture.root), expected);
    // The next run starts with all paths.
    fixture.capture_before();
    assert!(fixture.snapshot_tree.contains_key(&read_text(&fixture.path_of("granted/c"))));
}

/// Runs as a user subject to permissions: a path that was inaccessible when the run began is not new when it
/// becomes accessible.
#[test]
fn what_could_not_be_seen_before_is_never_removed() {
    use std::os::unix::process::CommandExt;
    const NOBODY_UID: u32 = 65_534;
    let temp = tempfile::tempdir().unwrap();
    if fs::metadata(temp.path()).is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0) {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["what_could_not_be_seen_before_is_never_removed", "--exact", "--nocapture"]);
        again.uid(NOBODY_UID).gid(NOBODY_UID).env("TMPDIR", std::env::temp_dir());
        match again.output() {
            Ok(ran) => assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr)),
            Err(e) => {
                eprintln!("SKIPPED: this program cannot be run as another user: {e}");
                assert!(std::env::var_os("MINKE_NO_SKIP").is_none(), "skipping is not allowed");
            }
        }
        return;
    }
    let mode =
        |path: PathBuf, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut fixture = UndoFixture::new();
    fixture.write_file("closed/deep/a", "old");
    fixture.write_file("listed/b", "old");
    fixture.write_file("secret", "old");
    fixture.write_file("known", "old");
    mode(fixture.path_of("closed"), 0o000);
    mode(fixture.path_of("listed"), 0o400);
    mode(fixture.path_of("secret"), 0o000);
    let before = fixture.capture_before();
    assert!(fixture.snapshot_tree.contains_key(&read_text(&fixture.path_of("known"))));
    mode(fixture.path_of("closed"), 0o700);
    mode(fixture.path_of("listed"), 0o700);
    mode(fixture.path_of("secret"), 0o600);
    mode(fixture.path_of("known"), 0o000);
    fixture.write_file("new", "new");
    let wanted = fixture.capture_after(&before);
    let got = fixture.undo_changes(&wanted);
    for (name, was) in [("closed", 0o000), ("listed", 0o400)] {
        let now = fs::metadata(fixture.path_of(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(now, was, "{name} itself was captured");
        mode(fixture.path_of(name), 0o700);
    }
    for name in ["closed/deep/a", "listed/b", "secret"] {
        assert_eq!(fs::read(fixture.path_of(name)).unwrap(), b"old", "{name}");
    }
    assert!(!fixture.path_of("new").exists());
    let left: Vec<&str> = got.skipped.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(left, ["known"], "an unreadable path cannot be compared: {got:?}");
}

#[test]
fn a_new_process_goes_on_from_what_was_told() {
    let mut fixture = UndoFixture::new();
    fixture.write_file("a", "old");
    fixture.write_file("b", "old too");
    fixture.capture_before();
    fixture.capture = ScopeCapture::new(CaptureLimits::default());
    fixture.capture.resume_from(&fixture.snapshot_tree);
    fixture.write_file("b", "new");
    let blobs = fixture.blobs.len();
    let report = fixture.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!(report.files.len(), 1, "only differences are reported");
    assert_eq!(fixture.blobs.len(), blobs + 1, "only differences are stored");
    assert_eq!(captured_tree(&fixture), read_tree(&fixture.root));
    let before = fixture.snapshot_tree.clone();
    fs::remove_file(fixture.path_of("a")).unwrap();
    let wanted = fixture.capture_after(&before);
    assert_eq!(fixture.undo_changes(&wanted).skipped, []);
    assert_eq!(fs::read(fixture.path_of("a")).unwrap(), b"old", "from a blob of the previous process");
}

/// A link that replaces a directory does not redirect an undo.
#[test]
fn a_swapped_directory_leads_nowhere() {
    let mut fixture = UndoFixture::new();
    let outside = fixture.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "theirs").unwrap();
    fixture.write_file("d/a", "old");
    let before = fixture.capture_before();
    fixture.write_file("d/a", "theirs");
    let wanted = fixture.capture_after(&before);
    fs::rename(fixture.path_of("d"), fixture.path_of("d2")).unwrap();
    symlink(&outside, fixture.path_of("d")).unwrap();
    let got = fixture.undo_changes(&wanted);
    assert_eq!(fs::read(outside.join("a")).unwrap(), b"theirs");
    assert_eq!((got.restored.len(), got.skipped.len()), (0, 1), "{got:?}");
    // A capture does not follow it either.
    fixture.try_capture(SnapshotWhen::Before).unwrap();
    assert!(!fixture.snapshot_tree.contains_key(&read_text(&fixture.path_of("d/a"))));
}

/// No descriptors are held for parent directories.
#[test]
fn a_deep_tree_is_captured() {
    let mut world = UndoFixture::new();
    let mut dir = world.root.clone();
    for _ in 0..400 {
        dir.push("dd");
    }
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("a"), "old").unwrap();
    let before = world.capture_before();
    assert_eq!(before.len(), 401);
    remove_path(&world.path_of("dd"));
    let wanted = world.capture_after(&before);
    let got = world.undo_changes(&wanted);
    assert_eq!(got.skipped, []);
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"old");
}

#[test]
fn a_directory_that_was_made_for_a_file_goes_if_it_is_empty_then() {
    let made = |fixture: &UndoFixture, names: &[&str]| -> Vec<PathChange> {
        names.iter().map(|name| PathChange::created_directory(&read_text(&fixture.path_of(name)))).collect()
    };
    let world = UndoFixture::new();
    fs::create_dir_all(world.path_of("new/deep/er")).unwrap();
    fs::set_permissions(world.path_of("new/deep"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::create_dir(world.path_of("kept")).unwrap();
    fs::write(world.path_of("kept/theirs"), "x").unwrap();
    fs::write(world.path_of("file"), "x").unwrap();
    let wanted = made(&world, &["new", "new/deep", "new/deep/er", "kept", "file", "gone"]);
    let RestoreReport { restored, skipped, unchanged } = world.undo_changes(&wanted);
    assert!(restored.iter().all(|put| put.action == RestoreAction::Removed));
    let names: Vec<&str> = restored.iter().map(|put| put.path.rsplit('/').next().unwrap()).collect();
    assert_eq!((names.as_slice(), unchanged), (&["new", "deep", "er"][..], 1));
    let left: Vec<&str> = skipped.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(left, ["file", "kept"]);
    assert!(
        !world.path_of("new").exists()
            && world.path_of("kept/theirs").exists()
            && world.path_of("file").exists()
    );
}

/// Undo restores content, but no set-id bits: the file could have been replaced.
#[test]
fn nothing_is_given_a_set_id_bit_again() {
    let chmod =
        |path: PathBuf, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut fixture = UndoFixture::new();
    let names = ["edited", "moded", "removed", "touched"];
    for name in names {
        fixture.write_file(name, "old");
        chmod(fixture.path_of(name), 0o4755);
    }
    for dir in ["dir", "gone", "closed"] {
        fs::create_dir(fixture.path_of(dir)).unwrap();
        chmod(fixture.path_of(dir), 0o2775);
    }
    let before = fixture.capture_before();
    fixture.write_file("edited", "by the run");
    chmod(fixture.path_of("edited"), 0o755);
    chmod(fixture.path_of("moded"), 0o700);
    fs::remove_file(fixture.path_of("removed")).unwrap();
    // It keeps its bit all the time, so nothing has to be restored.
    chmod(fixture.path_of("touched"), 0o4700);
    chmod(fixture.path_of("dir"), 0o755);
    chmod(fixture.path_of("closed"), 0o2500);
    fs::remove_dir(fixture.path_of("gone")).unwrap();
    let wanted = fixture.capture_after(&before);
    let got = fixture.undo_changes(&wanted);
    let mode = |name: &str| fs::metadata(fixture.path_of(name)).unwrap().permissions().mode() & 0o7777;
    for (name, now) in [
        ("edited", 0o755),
        ("moded", 0o755),
        ("removed", 0o755),
        ("touched", 0o4755),
        ("dir", 0o775),
        ("gone", 0o775),
        ("closed", 0o2775),
    ] {
        assert_eq!(mode(name), now, "{name} has {:o}", mode(name));
    }
    let mut left: Vec<&str> = got.skipped.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, ["dir", "edited", "gone", "moded", "removed"], "{:?}", got.skipped);
}
