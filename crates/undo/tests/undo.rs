//! Undo: random runs of what commands do to a tree, taken back; and everything that must be left alone.
//!
//! The tree is read by the test's own eyes (`std::fs`), never by what is tested.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use minke_files::{Files, FilesConfig};
use minke_record::{Permission, Scope, ScopeRule, SnapshotFile, SnapshotWhen};
use minke_undo::{
    Capture, CaptureError, Change, Done, Kind, Limits, Restored, State, Taken, apply, changes, restore,
};

/// A directory with files in it, what was captured of it, and where contents are kept.
struct World {
    _temp: tempfile::TempDir,
    root: PathBuf,
    files: Files,
    capture: Capture,
    blobs: HashMap<String, Vec<u8>>,
    /// What the snapshots so far add up to.
    told: BTreeMap<String, SnapshotFile>,
}

impl World {
    fn new() -> World {
        World::with(Limits::default())
    }

    fn with(limits: Limits) -> World {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap().join("w");
        fs::create_dir(&root).unwrap();
        let files = files(Scope::write(text(&root)));
        let (blobs, told) = (HashMap::new(), BTreeMap::new());
        World { _temp: temp, root, files, capture: Capture::new(limits), blobs, told }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, content: &str) {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn try_capture(&mut self, when: SnapshotWhen) -> Result<Taken, CaptureError> {
        let blobs = &mut self.blobs;
        let mut keep = |bytes: Vec<u8>| {
            let name = format!("blob-{}", blobs.len());
            blobs.insert(name.clone(), bytes);
            Ok(name)
        };
        let taken = self.capture.capture(&self.files, &when, &mut keep)?;
        apply(&mut self.told, &taken.files);
        Ok(taken)
    }

    fn before(&mut self) -> BTreeMap<String, SnapshotFile> {
        self.try_capture(SnapshotWhen::Before).unwrap();
        self.told.clone()
    }

    /// What a run since `before` has changed.
    fn after(&mut self, before: &BTreeMap<String, SnapshotFile>) -> Vec<Change> {
        self.try_capture(SnapshotWhen::After).unwrap();
        changes(before, &self.told)
    }

    fn undo(&self, wanted: &[Change]) -> Restored {
        let mut fetch = |name: &str| self.blobs.get(name).cloned().ok_or(io::ErrorKind::NotFound.into());
        restore(&self.files, wanted, &mut fetch)
    }
}

/// A directory that nobody may write to could not be removed.
impl Drop for World {
    fn drop(&mut self) {
        let mut open = vec![self.root.clone()];
        while let Some(dir) = open.pop() {
            drop(fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)));
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            open.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
    }
}

fn files(scope: Scope) -> Files {
    Files::new(FilesConfig { scope, ..FilesConfig::default() }).unwrap()
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Kind, mode and content of everything below a directory.
type Tree = BTreeMap<PathBuf, (char, u32, Vec<u8>)>;

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
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

/// The tree as the snapshots tell it, with contents from the blobs.
fn told(world: &World) -> Tree {
    let content = |file: &SnapshotFile| match &file.blob {
        None => Vec::new(),
        Some(blob) => {
            let blob = &world.blobs[blob];
            let from = file.at.map_or(0, |at| at as usize);
            let to = file.bytes.map_or(blob.len(), |bytes| from + bytes as usize);
            blob[from..to].to_vec()
        }
    };
    let line = |file: &SnapshotFile| {
        let state = State::of(file).unwrap();
        let kind = match state.kind {
            Kind::File => 'f',
            Kind::Link => 'l',
            Kind::Directory => 'd',
        };
        (PathBuf::from(&file.path), (kind, state.mode.unwrap_or(0), content(file)))
    };
    world.told.values().map(line).collect()
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).unwrap()
    }

    /// A path that often exists.
    fn path(&mut self, root: &Path) -> PathBuf {
        let mut path = root.to_owned();
        for _ in 0..=self.below(3) {
            path.push(["a", "b", "c", ".hid", "ü"][self.below(5)]);
        }
        path
    }

    fn mode(&mut self) -> u32 {
        [0o644, 0o600, 0o755, 0o444, 0o500, 0o640][self.below(6)]
    }
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => drop(fs::remove_dir_all(path)),
        _ => drop(fs::remove_file(path)),
    }
}

/// Outside of everything, and nothing can be made there: steps write through links, and tests are run by root, too.
const NOWHERE: &str = "/nowhere/at/all";

/// Something that a command could do. What does not work, because something is in the way, is not done.
fn step(chance: &mut Chance, root: &Path) {
    let path = chance.path(root);
    let other = chance.path(root);
    match chance.below(12) {
        0..4 => {
            let content = "x".repeat(chance.below(40));
            drop(path.parent().map(fs::create_dir_all));
            drop(fs::write(&path, content));
        }
        4 => {
            let old = fs::read(&path).unwrap_or_default();
            drop(fs::write(&path, [&old[..], b"more"].concat()));
        }
        5 => remove(&path),
        6 => drop(fs::create_dir_all(&path)),
        7 => {
            // The test itself must be able to look into every directory, as whatever user.
            let enter = if path.is_dir() { 0o500 } else { 0 };
            let mode = fs::Permissions::from_mode(chance.mode() | enter);
            if !path.is_symlink() {
                drop(fs::set_permissions(&path, mode));
            }
        }
        8 => drop(fs::rename(&path, &other)),
        9 => drop(symlink(["a", "../b", NOWHERE, "nowhere"][chance.below(4)], &path)),
        // Something of another kind in its place.
        10 => {
            remove(&path);
            drop(fs::write(&path, "a file now"));
        }
        _ => {
            remove(&path);
            drop(symlink("a", &path));
        }
    }
}

#[test]
fn a_run_is_undone() {
    let mut undone = 0;
    for round in 0..60 {
        let mut chance = Chance(round);
        let mut world = World::new();
        for _ in 0..60 {
            step(&mut chance, &world.root);
        }
        for run in 0..3 {
            let was = tree(&world.root);
            let before = world.before();
            assert_eq!(told(&world), was, "round {round}, run {run}: what was told is the tree");
            for _ in 0..chance.below(60) {
                step(&mut chance, &world.root);
            }
            let wanted = world.after(&before);
            assert_eq!(told(&world), tree(&world.root), "round {round}, run {run}: and after");
            if run == 2 {
                continue;
            }
            let got = world.undo(&wanted);
            assert_eq!(got.left, [], "round {round}, run {run}");
            assert_eq!(tree(&world.root), was, "round {round}, run {run}: {got:?}");
            assert_eq!(got.restored.len() + got.same, wanted.len());
            undone += got.restored.len();
            let again = world.undo(&wanted);
            assert_eq!((again.restored.len(), again.same), (0, wanted.len()), "once is enough");
        }
    }
    assert!(undone > 500, "the runs did too little: {undone}");
}

#[test]
fn what_is_told_adds_up_to_the_tree() {
    let mut world = World::new();
    world.write("a", "one");
    world.write("d/b", "two");
    symlink("a", world.at("l")).unwrap();
    let first = world.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!((first.files.len(), first.scanned, first.read), (4, 4, 2));
    assert_eq!(world.blobs.len(), 1, "many files, one blob");
    assert_eq!(told(&world), tree(&world.root));
    fs::rename(world.at("a"), world.at("c")).unwrap();
    let second = world.try_capture(SnapshotWhen::After).unwrap();
    let names: Vec<(String, bool)> =
        second.files.iter().map(|f| (f.path.clone(), f.hash.is_empty())).collect();
    assert_eq!(names, [(text(&world.at("a")), true), (text(&world.at("c")), false)]);
    assert_eq!(world.blobs.len(), 1, "a content that is kept is not kept again");
    assert_eq!(told(&world), tree(&world.root));
    let third = world.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!(third.files, []);
}

/// Once a file's times are old enough to be trusted, it is not read again.
#[test]
fn what_has_not_changed_is_not_read() {
    let mut world = World::new();
    world.write("a", "one");
    world.before();
    let until = Instant::now() + Duration::from_secs(20);
    while world.try_capture(SnapshotWhen::Before).unwrap().read > 0 {
        assert!(Instant::now() < until, "it is read for ever");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The same length and the same time: what gives it away is the time of the change itself.
    let times = fs::metadata(world.at("a")).unwrap().modified().unwrap();
    fs::write(world.at("a"), "two").unwrap();
    fs::File::open(world.at("a")).unwrap().set_modified(times).unwrap();
    let taken = world.try_capture(SnapshotWhen::After).unwrap();
    assert_eq!((taken.read, taken.files.len()), (1, 1));
}

#[test]
fn what_somebody_else_changed_is_named_and_left_alone() {
    let mut world = World::new();
    for name in ["edited", "gone", "moded", "swapped", "fine", "deleted"] {
        world.write(name, "old");
    }
    let before = world.before();
    for name in ["edited", "gone", "moded", "swapped", "fine", "new", "dir/made"] {
        world.write(name, "by the run");
    }
    fs::remove_file(world.at("deleted")).unwrap();
    let wanted = world.after(&before);
    // Somebody else.
    world.write("edited", "by somebody");
    fs::remove_file(world.at("gone")).unwrap();
    fs::set_permissions(world.at("moded"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::remove_file(world.at("swapped")).unwrap();
    symlink(NOWHERE, world.at("swapped")).unwrap();
    world.write("new", "by somebody");
    world.write("deleted", "by somebody");
    world.write("dir/theirs", "by somebody");
    let theirs = tree(&world.root);

    let got = world.undo(&wanted);
    let left: Vec<&str> = got.left.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(left, ["deleted", "dir", "edited", "gone", "moded", "new", "swapped"]);
    for (path, word) in [
        ("deleted", "has come there"),
        ("dir", "did not make"),
        ("edited", "changed since"),
        ("gone", "removed since"),
        ("moded", "mode"),
        ("new", "changed since"),
        ("swapped", "symbolic link"),
    ] {
        let left = got.left.iter().find(|left| left.path.ends_with(path)).unwrap();
        assert!(left.why.contains(word), "{left:?}");
    }
    let mut expected = theirs;
    expected.get_mut(&world.at("fine")).unwrap().2 = b"old".to_vec();
    expected.remove(&world.at("dir/made"));
    assert_eq!(tree(&world.root), expected);
    let done: Vec<Done> = got.restored.iter().map(|put| put.done).collect();
    assert_eq!(done, [Done::Removed, Done::Changed], "{:?}", got.restored);
}

/// The most dangerous mistake: taking for new what was only not looked at.
#[test]
fn a_file_that_was_ignored_before_is_never_removed() {
    let mut world = World::new();
    world.write(".gitignore", "*.log\nbuild/\n");
    world.write("precious.log", "old");
    world.write("build/deep/precious", "old");
    world.write("kept", "old");
    let before = world.before();
    assert!(!world.told.keys().any(|path| path.contains("precious")));
    world.write(".gitignore", "kept\n");
    world.write("kept", "new");
    world.write("fresh.log", "new");
    let wanted = world.after(&before);
    let got = world.undo(&wanted);
    assert_eq!(got.left, []);
    let now = tree(&world.root);
    assert_eq!(now[&world.at("precious.log")].2, b"old");
    assert_eq!(now[&world.at("build/deep/precious")].2, b"old");
    assert_eq!(now[&world.at("kept")].2, b"old", "what a run makes ignored is still put back");
    assert_eq!(now[&world.at(".gitignore")].2, b"*.log\nbuild/\n");
    assert!(
        !now.contains_key(&world.at("fresh.log")),
        "it was made by the run, and was not there to be ignored"
    );
}

#[test]
fn ignore_files_count_where_they_stand() {
    let mut world = World::new();
    world.write(".gitignore", "/top\n*.o\n");
    world.write(".ignore", "!keep.o\n");
    world.write(".git/info/exclude", "private\n");
    world.write(".git/HEAD", "ref");
    world.write("sub/.gitignore", "!x.o\nlocal\n");
    for name in ["top", "sub/top", "x.o", "keep.o", "sub/x.o", "sub/y.o", "sub/local", "local", "private"] {
        world.write(name, "");
    }
    world.before();
    let names: Vec<String> = world
        .told
        .keys()
        .map(|path| path.strip_prefix(&format!("{}/", text(&world.root))).unwrap().to_owned())
        .collect();
    assert_eq!(
        names,
        [".gitignore", ".ignore", "keep.o", "local", "sub", "sub/.gitignore", "sub/top", "sub/x.o"]
    );
}

/// A tree that is too much says so before it reads anything, and a run without a beginning has no end.
#[test]
fn too_much_is_refused() {
    let limits = Limits { files: 10, bytes: 1_000, ..Limits::default() };
    let mut world = World::with(limits);
    for n in 0..10 {
        world.write(&format!("f{n}"), "x");
    }
    world.before();
    world.write("one-more", "x");
    assert!(matches!(world.try_capture(SnapshotWhen::Before), Err(CaptureError::TooMuch { files: 11, .. })));
    assert!(matches!(world.try_capture(SnapshotWhen::After), Err(CaptureError::NoBefore)));
    fs::remove_file(world.at("one-more")).unwrap();
    world.before();
    world.write("f0", &"x".repeat(1_000));
    let Err(e) = world.try_capture(SnapshotWhen::After) else { panic!("it is too much") };
    assert!(e.to_string().contains("cannot be undone"), "{e}");
}

#[test]
fn a_large_file_is_watched_and_named() {
    let limits = Limits { file: 100, pack: 64, ..Limits::default() };
    let mut world = World::with(limits);
    world.write("large", &"x".repeat(101));
    world.write("fits", &"y".repeat(100));
    world.write("small", "z");
    let before = world.before();
    assert_eq!(world.blobs.len(), 2, "one longer than a pack is a blob of its own");
    world.write("large", &"X".repeat(200));
    world.write("fits", "");
    world.write("born-large", &"n".repeat(300));
    let wanted = world.after(&before);
    assert_eq!(wanted.len(), 3);
    let got = world.undo(&wanted);
    assert_eq!(got.left.len(), 1);
    assert!(got.left[0].path.ends_with("/large") && got.left[0].why.contains("too large"), "{got:?}");
    assert_eq!(fs::read(world.at("large")).unwrap(), "X".repeat(200).as_bytes(), "not taken away");
    assert_eq!(fs::read(world.at("fits")).unwrap(), "y".repeat(100).as_bytes());
    assert!(!world.at("born-large").exists());
}

#[test]
fn damaged_or_missing_contents_take_nothing_away() {
    let mut world = World::new();
    world.write("a", "old");
    world.write("b", "old too");
    let before = world.before();
    world.write("a", "new");
    // Another kind in its place: what was there must come back, or this must stay.
    fs::remove_file(world.at("b")).unwrap();
    fs::create_dir(world.at("b")).unwrap();
    let wanted = world.after(&before);
    let was = tree(&world.root);
    let blobs = std::mem::take(&mut world.blobs);
    let got = world.undo(&wanted);
    assert_eq!((got.restored.len(), got.left.len()), (0, 2), "{got:?}");
    assert!(got.left[0].why.contains("could not be fetched"), "{got:?}");
    world.blobs = blobs.iter().map(|(name, blob)| (name.clone(), vec![b'!'; blob.len()])).collect();
    let got = world.undo(&wanted);
    assert!(got.left.iter().all(|left| left.why.contains("damaged")), "{got:?}");
    world.blobs = blobs.keys().map(|name| (name.clone(), Vec::new())).collect();
    assert_eq!(world.undo(&wanted).left.len(), 2);
    assert_eq!(tree(&world.root), was);
    world.blobs = blobs;
    assert_eq!(world.undo(&wanted).left, []);
}

#[test]
fn a_full_disk_leaves_the_last_capture_as_it_was() {
    let mut world = World::new();
    world.write("a", "old");
    let files = files(Scope::write(text(&world.root)));
    let mut full = |_| Err(io::ErrorKind::StorageFull.into());
    let failed = world.capture.capture(&files, &SnapshotWhen::Before, &mut full);
    assert!(matches!(failed, Err(CaptureError::Keep(_))));
    assert!(matches!(world.try_capture(SnapshotWhen::After), Err(CaptureError::NoBefore)));
    world.before();
    assert_eq!(told(&world), tree(&world.root));
}

#[test]
fn strange_things_are_counted_and_left_alone() {
    let mut world = World::new();
    world.write("a", "old");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.at("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(world.at("socket")).unwrap();
    fs::write(world.root.join(OsStr::from_bytes(b"\xff")), "x").unwrap();
    world.write(".minke/config.toml", "protected");
    let taken = world.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!((taken.special, taken.unnamed, taken.scanned), (2, 1, 1), "{taken:?}");
    let before = world.told.clone();
    fs::remove_file(world.at("a")).unwrap();
    fs::rename(world.at("fifo"), world.at("a")).unwrap();
    let wanted = world.after(&before);
    let got = world.undo(&wanted);
    assert!(got.left[0].why.contains("FIFO"), "{got:?}");
}

fn rule(target: &Path, permission: Permission, recursive: bool) -> ScopeRule {
    ScopeRule { target: text(target), permission, recursive }
}

#[test]
fn only_the_write_scope_is_captured_and_put_back() {
    let mut world = World::new();
    world.write("in/a", "old");
    world.write("in/lent/b", "old");
    world.write("flat/c", "old");
    world.write("flat/deep/d", "old");
    world.write("flat/whole/f", "old");
    world.write("read/e", "old");
    world.write("one", "old");
    let mut scope = Scope {
        allow: vec![
            rule(&world.at("in"), Permission::Write, true),
            rule(&world.at("in/lent"), Permission::Write, true),
            rule(&world.at("flat"), Permission::Write, false),
            rule(&world.at("flat/whole"), Permission::Write, true),
            rule(&world.at("read"), Permission::Read, true),
            rule(&world.at("one"), Permission::Write, true),
            rule(&world.at("missing"), Permission::Write, true),
        ],
        deny: vec![rule(&world.at("in/lent"), Permission::Write, true)],
    };
    world.files = files(scope.clone());
    let taken = world.try_capture(SnapshotWhen::Before).unwrap();
    let before = world.told.clone();
    let names: Vec<&str> = taken.files.iter().map(|file| file.path.rsplit("/w/").next().unwrap()).collect();
    assert_eq!(names, ["flat/c", "flat/deep", "flat/whole", "flat/whole/f", "in/a", "one"], "each once");
    for name in ["in/a", "in/lent/b", "flat/c", "flat/deep/d", "read/e", "one"] {
        world.write(name, "new");
    }
    let wanted = world.after(&before);
    // A grant that is gone when it comes to undoing.
    scope.allow.retain(|rule| !rule.target.ends_with("/flat"));
    world.files.set_scope(&scope).unwrap();
    let got = world.undo(&wanted);
    let read = |name: &str| fs::read_to_string(world.at(name)).unwrap();
    assert_eq!([read("in/a"), read("one")], ["old", "old"]);
    assert_eq!([read("in/lent/b"), read("flat/c"), read("flat/deep/d"), read("read/e")], ["new"; 4]);
    assert_eq!(got.left.len(), 1, "{got:?}");
    assert!(got.left[0].path.ends_with("flat/c"));
}

/// What was known and may no longer be written is neither gone nor told.
#[test]
fn a_loan_in_the_middle_of_a_run_makes_nothing_look_gone() {
    let mut world = World::new();
    world.write("a", "old");
    world.write("lent/b", "old");
    let before = world.before();
    let mut scope = world.files.scope();
    scope.deny.push(rule(&world.at("lent"), Permission::Write, true));
    world.files.set_scope(&scope).unwrap();
    world.write("lent/b", "by the borrower");
    world.write("a", "new");
    let wanted = world.after(&before);
    let names: Vec<&str> = wanted.iter().map(|change| change.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["a"]);
}

/// A loan comes back, or a grant is added, in the middle of a run: what is there was not looked at when it began.
#[test]
fn a_wider_scope_makes_nothing_look_new() {
    let mut world = World::new();
    world.write("in/a", "old");
    world.write("lent/b", "old");
    world.write("granted/c", "old");
    let mut scope = Scope::write(text(&world.at("in")));
    scope.allow.push(rule(&world.at("lent"), Permission::Write, true));
    let whole = scope.clone();
    scope.deny.push(rule(&world.at("lent"), Permission::Write, true));
    world.files = files(scope);
    let before = world.before();
    let mut wider = whole;
    wider.allow.push(rule(&world.at("granted"), Permission::Write, true));
    world.files.set_scope(&wider).unwrap();
    world.write("in/new", "new");
    let was = tree(&world.root);
    let wanted = world.after(&before);
    let got = world.undo(&wanted);
    assert_eq!(got.left, []);
    let mut expected = was;
    expected.remove(&world.at("in/new"));
    assert_eq!(tree(&world.root), expected);
    // The next run begins with all of it.
    world.before();
    assert!(world.told.contains_key(&text(&world.at("granted/c"))));
}

/// As a user for whom permissions count: what was closed when the run began is not new when it is open.
#[test]
fn what_could_not_be_seen_before_is_never_removed() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let temp = tempfile::tempdir().unwrap();
    if fs::metadata(temp.path()).is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0) {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["what_could_not_be_seen_before_is_never_removed", "--exact", "--nocapture"]);
        again.uid(NOBODY).gid(NOBODY).env("TMPDIR", std::env::temp_dir());
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
    let mut world = World::new();
    world.write("closed/deep/a", "old");
    world.write("listed/b", "old");
    world.write("secret", "old");
    world.write("known", "old");
    mode(world.at("closed"), 0o000);
    mode(world.at("listed"), 0o400);
    mode(world.at("secret"), 0o000);
    let before = world.before();
    assert!(world.told.contains_key(&text(&world.at("known"))));
    mode(world.at("closed"), 0o700);
    mode(world.at("listed"), 0o700);
    mode(world.at("secret"), 0o600);
    mode(world.at("known"), 0o000);
    world.write("new", "new");
    let wanted = world.after(&before);
    let got = world.undo(&wanted);
    for (name, was) in [("closed", 0o000), ("listed", 0o400)] {
        let now = fs::metadata(world.at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(now, was, "{name} itself was seen");
        mode(world.at(name), 0o700);
    }
    for name in ["closed/deep/a", "listed/b", "secret"] {
        assert_eq!(fs::read(world.at(name)).unwrap(), b"old", "{name}");
    }
    assert!(!world.at("new").exists());
    let left: Vec<&str> = got.left.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(left, ["known"], "what cannot be read cannot be compared: {got:?}");
}

#[test]
fn a_new_process_goes_on_from_what_was_told() {
    let mut world = World::new();
    world.write("a", "old");
    world.write("b", "old too");
    world.before();
    world.capture = Capture::new(Limits::default());
    world.capture.resume(&world.told);
    world.write("b", "new");
    let blobs = world.blobs.len();
    let taken = world.try_capture(SnapshotWhen::Before).unwrap();
    assert_eq!(taken.files.len(), 1, "only what is different is told");
    assert_eq!(world.blobs.len(), blobs + 1, "only what is different is kept");
    assert_eq!(told(&world), tree(&world.root));
    let before = world.told.clone();
    fs::remove_file(world.at("a")).unwrap();
    let wanted = world.after(&before);
    assert_eq!(world.undo(&wanted).left, []);
    assert_eq!(fs::read(world.at("a")).unwrap(), b"old", "from a blob of the process before");
}

/// A link that is put where a directory was leads no undo outside.
#[test]
fn a_swapped_directory_leads_nowhere() {
    let mut world = World::new();
    let outside = world.root.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "theirs").unwrap();
    world.write("d/a", "old");
    let before = world.before();
    world.write("d/a", "theirs");
    let wanted = world.after(&before);
    fs::rename(world.at("d"), world.at("d2")).unwrap();
    symlink(&outside, world.at("d")).unwrap();
    let got = world.undo(&wanted);
    assert_eq!(fs::read(outside.join("a")).unwrap(), b"theirs");
    assert_eq!((got.restored.len(), got.left.len()), (0, 1), "{got:?}");
    // And a capture does not follow it.
    world.try_capture(SnapshotWhen::Before).unwrap();
    assert!(!world.told.contains_key(&text(&world.at("d/a"))));
}

/// No descriptor is held for a directory above.
#[test]
fn a_deep_tree_is_captured() {
    let mut world = World::new();
    let mut dir = world.root.clone();
    for _ in 0..400 {
        dir.push("dd");
    }
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("a"), "old").unwrap();
    let before = world.before();
    assert_eq!(before.len(), 401);
    remove(&world.at("dd"));
    let wanted = world.after(&before);
    let got = world.undo(&wanted);
    assert_eq!(got.left, []);
    assert_eq!(fs::read(dir.join("a")).unwrap(), b"old");
}

#[test]
fn a_directory_that_was_made_for_a_file_goes_if_it_is_empty_then() {
    let made = |world: &World, names: &[&str]| -> Vec<Change> {
        names.iter().map(|name| Change::made_directory(&text(&world.at(name)))).collect()
    };
    let world = World::new();
    fs::create_dir_all(world.at("new/deep/er")).unwrap();
    fs::set_permissions(world.at("new/deep"), fs::Permissions::from_mode(0o500)).unwrap();
    fs::create_dir(world.at("kept")).unwrap();
    fs::write(world.at("kept/theirs"), "x").unwrap();
    fs::write(world.at("file"), "x").unwrap();
    let wanted = made(&world, &["new", "new/deep", "new/deep/er", "kept", "file", "gone"]);
    let Restored { restored, left, same } = world.undo(&wanted);
    assert!(restored.iter().all(|put| put.done == Done::Removed));
    let names: Vec<&str> = restored.iter().map(|put| put.path.rsplit('/').next().unwrap()).collect();
    assert_eq!((names.as_slice(), same), (&["new", "deep", "er"][..], 1));
    let left: Vec<&str> = left.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    assert_eq!(left, ["file", "kept"]);
    assert!(!world.at("new").exists() && world.at("kept/theirs").exists() && world.at("file").exists());
}

/// What an undo gives back is content, not the right to run as another: anything could stand there by now.
#[test]
fn nothing_is_given_a_set_id_bit_again() {
    let chmod =
        |path: PathBuf, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let mut world = World::new();
    let names = ["edited", "moded", "removed", "touched"];
    for name in names {
        world.write(name, "old");
        chmod(world.at(name), 0o4755);
    }
    for dir in ["dir", "gone", "closed"] {
        fs::create_dir(world.at(dir)).unwrap();
        chmod(world.at(dir), 0o2775);
    }
    let before = world.before();
    world.write("edited", "by the run");
    chmod(world.at("edited"), 0o755);
    chmod(world.at("moded"), 0o700);
    fs::remove_file(world.at("removed")).unwrap();
    // It keeps its bit all the time, so that there is nothing to give back.
    chmod(world.at("touched"), 0o4700);
    chmod(world.at("dir"), 0o755);
    chmod(world.at("closed"), 0o2500);
    fs::remove_dir(world.at("gone")).unwrap();
    let wanted = world.after(&before);
    let got = world.undo(&wanted);
    let mode = |name: &str| fs::metadata(world.at(name)).unwrap().permissions().mode() & 0o7777;
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
    let mut left: Vec<&str> = got.left.iter().map(|left| left.path.rsplit('/').next().unwrap()).collect();
    left.sort_unstable();
    assert_eq!(left, ["dir", "edited", "gone", "moded", "removed"], "{:?}", got.left);
}
